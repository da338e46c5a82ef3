//! Where the code of kernels comes from: built in, or compiled by NVRTC at first use and kept on disk.
#![allow(unsafe_code)]

use super::cache::{self, Cache};
use super::nvrtc::{self, Nvrtc, Text};
use crate::error::{Error, Kind, Result};
use crate::gpu::sys::CUresult;
use crate::gpu::{Fault, Function, Gpu, Module};
use std::ffi::CString;
use std::sync::Arc;

/// Octets at an address that suits the driver.
#[repr(C, align(64))]
pub struct Aligned<T: ?Sized>(T);

// `CHECKED`; `TARGETS`: compute capabilities that there is machine code for;
// `BUILT_IN`: fat binaries by their names.
include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// The sources, with their names.
const HEADERS: [(&str, &str); 5] = [
    ("abi.cuh", include_str!("../../../kernels/abi.cuh")),
    ("read.cuh", include_str!("../../../kernels/read.cuh")),
    ("stage.cuh", include_str!("../../../kernels/stage.cuh")),
    ("unpack.cuh", include_str!("../../../kernels/unpack.cuh")),
    ("write.cuh", include_str!("../../../kernels/write.cuh")),
];
const SOURCES: [(&str, &str); 4] = [
    ("unpack.cu", include_str!("../../../kernels/unpack.cu")),
    ("copy.cu", include_str!("../../../kernels/copy.cu")),
    ("crc.cu", include_str!("../../../kernels/crc.cu")),
    ("frame.cu", include_str!("../../../kernels/frame.cu")),
];

/// A kernel.
pub struct Wanted {
    /// Its image among the built-in ones.
    pub image: String,
    /// Its source.
    pub source: &'static str,
    /// What NVRTC tells the source, so that it makes this kernel and few others.
    pub defines: Vec<String>,
    /// Its name.
    pub kernel: String,
}

impl Wanted {
    /// Of a source that is an image of its own.
    pub fn of(image: &str, source: &'static str, kernel: &str) -> Self {
        Wanted { image: image.into(), source, defines: Vec::new(), kernel: kernel.into() }
    }
    /// Of `frame.cu`.
    pub fn of_frame(kernel: &str) -> Self {
        Wanted::of("frame", "frame.cu", kernel)
    }
}

/// Loads a kernel, the built-in one or else NVRTC's, and says where its code came from. `GDMEDIA_KERNELS=nvrtc` passes over
/// the built-in ones.
///
/// # Errors
/// There is none for this GPU, and NVRTC is missing.
pub fn load(gpu: &Arc<Gpu>, wanted: &Wanted) -> Result<(Function, String)> {
    let passed_over = std::env::var("GDMEDIA_KERNELS").is_ok_and(|from| from == "nvrtc");
    let built_in = BUILT_IN.iter().find(|(name, _)| *name == wanted.image && !passed_over);
    let mut refused = None;
    if let Some((_, image)) = built_in {
        // SAFETY: nvcc made it.
        match unsafe { function(gpu, &image.0, wanted) } {
            Ok(function) => return Ok((function, built_in_how(gpu.compute(), TARGETS))),
            Err(fault) if is_no_code(fault.code) => refused = Some(fault),
            Err(fault) => return Err(fault.into()),
        }
    }
    let Some(nvrtc) = nvrtc::find(gpu.driver_version() / 1000) else {
        return Err(refused.map_or_else(no_code, |fault| no_code().because(fault)));
    };
    let (image, kept) = compiled(nvrtc, &Cache::of_user(), gpu.compute(), wanted)?;
    let how = format!("compiled by NVRTC {}{}", nvrtc.version(), if kept { ", kept" } else { "" });
    // SAFETY: NVRTC made it; what was kept is whole.
    let function = unsafe { function(gpu, &image, wanted) }?;
    Ok((function, how))
}

/// # Safety
/// `image` is a whole image that a CUDA compiler made.
unsafe fn function(gpu: &Arc<Gpu>, image: &[u8], wanted: &Wanted) -> std::result::Result<Function, Fault> {
    // SAFETY: promised by the caller.
    let module = unsafe { Module::load(gpu, image) }?;
    module.function(&CString::new(wanted.kernel.as_str()).unwrap_or_default())
}

/// The driver cannot use an image that another may.
fn is_no_code(code: CUresult) -> bool {
    use CUresult::*;
    matches!(
        code,
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            | CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUDA_ERROR_INVALID_PTX
            | CUDA_ERROR_INVALID_IMAGE
            | CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            | CUDA_ERROR_JIT_COMPILATION_DISABLED
    )
}

fn built_in_how((major, minor): (i32, i32), targets: &[i32]) -> String {
    // Machine code runs on its own generation, from its own number on.
    let own = targets.iter().filter(|&&t| t / 10 == major && t % 10 <= minor).max();
    own.map_or("built in, compiled by the driver".into(), |target| format!("built in, sm_{target}"))
}

fn no_code() -> Error {
    let what = if BUILT_IN.is_empty() {
        "no kernels for the GPU: this program was built without nvcc, and there is no NVRTC"
    } else {
        "no kernels for this GPU: the built-in ones do not suit it or its driver, and there is no NVRTC"
    };
    Error::new(Kind::Unavailable, what).cure(
        "install NVRTC (libnvrtc.so.12 or .13, of CUDA or of pip's nvidia-cuda-nvrtc; LD_LIBRARY_PATH must lead there), \
         build where nvcc is, or run on the CPU (--gpu off)",
    )
}

/// An image by NVRTC, and whether it was kept from before.
fn compiled(nvrtc: &Nvrtc, cache: &Cache, compute: (i32, i32), wanted: &Wanted) -> Result<(Vec<u8>, bool)> {
    let target = nvrtc.target(compute);
    let mut options = wanted.defines.clone();
    if CHECKED {
        options.push("-DGDMEDIA_CHECKED".into());
    }
    let source = SOURCES.iter().find(|(name, _)| *name == wanted.source).map_or("", |(_, text)| text);
    let version = nvrtc.version();
    let sources = HEADERS.iter().map(|(_, text)| text.as_bytes()).chain([source.as_bytes()]);
    let said = options.iter().map(String::as_bytes).chain([target.as_bytes(), version.as_bytes()]);
    let key = cache::hash(sources.chain(said));
    if let Some(image) = cache.get(key) {
        return Ok((image, true));
    }
    let text = Text { name: wanted.source, text: source, headers: &HEADERS };
    let image = nvrtc.compile(&text, &target, &options)?;
    cache.put(key, &image);
    Ok((image, false))
}

#[cfg(test)]
mod tests {
    use super::super::program::all_wanted;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kernel_is_in_its_built_in_image() {
        if BUILT_IN.is_empty() {
            return println!("skipped: no nvcc when this was built");
        }
        for wanted in all_wanted() {
            assert!(BUILT_IN.iter().any(|(name, _)| *name == wanted.image), "no image {}", wanted.image);
            assert!(SOURCES.iter().any(|(name, _)| *name == wanted.source), "no source {}", wanted.source);
        }
        for (name, image) in BUILT_IN {
            // The number that fat binaries begin with.
            assert_eq!(image.0[..4], [0x50, 0xed, 0x55, 0xba], "{name}");
            assert!(image.0.as_ptr().cast::<u64>().is_aligned());
        }
        println!("{} images, {} octets", BUILT_IN.len(), BUILT_IN.iter().map(|(_, i)| i.0.len()).sum::<usize>());
    }

    #[test]
    fn nvrtc_compiles_every_kernel_once() {
        let Some(nvrtc) = nvrtc::find(13) else { return println!("skipped: no NVRTC") };
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let mut seen = BTreeSet::new();
        for wanted in all_wanted().iter().filter(|wanted| seen.insert(wanted.kernel.clone())) {
            let (image, kept) = compiled(nvrtc, &cache, (9, 0), wanted).unwrap();
            assert!(!kept || wanted.source != "unpack.cu", "{}", wanted.kernel);
            let name = wanted.kernel.as_bytes();
            assert!(image.windows(name.len()).any(|w| w == name), "{} is in its image", wanted.kernel);
            assert_eq!(compiled(nvrtc, &cache, (9, 0), wanted).unwrap(), (image, true));
        }
        println!("NVRTC {}: {} kernels", nvrtc.version(), seen.len());
        // Of a generation that is not known yet: PTX. A broken source: the compiler's words.
        let wanted = &all_wanted()[0];
        let (ptx, _) = compiled(nvrtc, &cache, (99, 0), wanted).unwrap();
        assert!(ptx.ends_with(b"\0") && String::from_utf8_lossy(&ptx).contains(".visible .entry"));
        let text = Text { name: "wrong.cu", text: "extern \"C\" __global__ void f() { wrong; }", headers: &[] };
        let error = nvrtc.compile(&text, "sm_90", &[]).unwrap_err();
        assert!(error.to_string().contains("wrong") && !error.cure_text().is_empty(), "{error}");
    }

    #[test]
    fn machine_code_is_of_its_generation() {
        let targets = [80, 86, 89, 90, 100, 120];
        assert_eq!(built_in_how((9, 0), &targets), "built in, sm_90");
        assert_eq!(built_in_how((8, 7), &targets), "built in, sm_86");
        assert_eq!(built_in_how((10, 3), &targets), "built in, sm_100");
        assert_eq!(built_in_how((7, 5), &targets), "built in, compiled by the driver");
        assert_eq!(built_in_how((9, 0), &[]), "built in, compiled by the driver");
    }

    #[test]
    fn what_is_missing_is_said() {
        let error = no_code();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.to_string().contains("NVRTC") && error.cure_text().contains("libnvrtc"));
    }
}

//! NVRTC, NVIDIA's compiler as a library: looked for at run time, as the driver is.
#![allow(unsafe_code)]

use crate::error::{Error, Kind, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

type Handle = *mut c_void;

/// The library and those of its functions that are used; 0 is success.
pub struct Nvrtc {
    create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Handle) -> c_int,
    compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    ptx_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    ptx: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    log_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    version: (i32, i32),
    targets: Vec<i32>,
    // Last, so that functions go before their code.
    _library: libloading::Library,
}

static FOUND: OnceLock<Option<Nvrtc>> = OnceLock::new();

/// NVRTC, where it is installed; best the one of the driver's generation (13 of 13.0), whose code every driver takes.
pub fn find(generation: i32) -> Option<&'static Nvrtc> {
    FOUND
        .get_or_init(|| {
            let of = |generation: i32| format!("libnvrtc.so.{generation}");
            [of(generation), "libnvrtc.so".into(), of(13), of(12)].iter().find_map(|name| Nvrtc::open(name))
        })
        .as_ref()
}

/// A program's text and what it includes.
pub struct Text<'a> {
    pub name: &'a str,
    pub text: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
}

impl Nvrtc {
    fn open(name: &str) -> Option<Self> {
        // SAFETY: NVIDIA's compiler by its name; its initialisers have no conditions.
        let library = unsafe { libloading::Library::new(name) }.ok()?;
        // SAFETY: types as in nvrtc.h; these have not changed since CUDA 11.2.
        unsafe {
            let mut version = (0, 0);
            let get: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int> =
                library.get(b"nvrtcVersion\0").ok()?;
            let told = get(&mut version.0, &mut version.1);
            let mut count = 0;
            let number: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_int) -> c_int> =
                library.get(b"nvrtcGetNumSupportedArchs\0").ok()?;
            let counted = number(&mut count);
            let mut targets = vec![0; usize::try_from(count).ok()?];
            let list: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_int) -> c_int> =
                library.get(b"nvrtcGetSupportedArchs\0").ok()?;
            let listed = list(targets.as_mut_ptr());
            if told != 0 || counted != 0 || listed != 0 {
                return None;
            }
            Some(Nvrtc {
                create: *library.get(b"nvrtcCreateProgram\0").ok()?,
                destroy: *library.get(b"nvrtcDestroyProgram\0").ok()?,
                compile: *library.get(b"nvrtcCompileProgram\0").ok()?,
                cubin_size: *library.get(b"nvrtcGetCUBINSize\0").ok()?,
                cubin: *library.get(b"nvrtcGetCUBIN\0").ok()?,
                ptx_size: *library.get(b"nvrtcGetPTXSize\0").ok()?,
                ptx: *library.get(b"nvrtcGetPTX\0").ok()?,
                log_size: *library.get(b"nvrtcGetProgramLogSize\0").ok()?,
                log: *library.get(b"nvrtcGetProgramLog\0").ok()?,
                error: *library.get(b"nvrtcGetErrorString\0").ok()?,
                version,
                targets,
                _library: library,
            })
        }
    }

    /// `13.0`
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// What to compile for, for a GPU of this compute capability: its own machine code, or, where this NVRTC is older
    /// than the GPU, PTX of the newest that it knows, which the driver compiles on.
    pub fn target(&self, (major, minor): (i32, i32)) -> String {
        let own = major * 10 + minor;
        if self.targets.contains(&own) {
            return format!("sm_{own}");
        }
        let older = self.targets.iter().filter(|&&target| target < own).max();
        format!("compute_{}", older.copied().unwrap_or(75))
    }

    /// Compiles for `target` (see [`Nvrtc::target`]): a cubin, or PTX with its closing zero.
    ///
    /// # Errors
    /// With the compiler's words.
    pub fn compile(&self, text: &Text<'_>, target: &str, options: &[String]) -> Result<Vec<u8>> {
        let zero = |text: &str| CString::new(text).map_err(|e| failed("a source has a zero in it").because(e));
        let (name, source) = (zero(text.name)?, zero(text.text)?);
        let of = |which: fn(&(&str, &str)) -> String| {
            text.headers.iter().map(|header| zero(&which(header))).collect::<Result<Vec<_>>>()
        };
        let (names, headers) = (of(|h| h.0.into())?, of(|h| h.1.into())?);
        let mut all = vec![format!("--gpu-architecture={target}"), "--std=c++17".into()];
        all.extend_from_slice(options);
        let all = all.iter().map(|option| zero(option)).collect::<Result<Vec<_>>>()?;
        let pointers = |list: &[CString]| list.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (names, headers, options) = (pointers(&names), pointers(&headers), pointers(&all));
        let mut handle = std::ptr::null_mut();
        // SAFETY: all are strings that end with a zero and outlive the program, as many as the counts say.
        self.check("nvrtcCreateProgram", unsafe {
            let count = headers.len() as c_int;
            (self.create)(&mut handle, source.as_ptr(), name.as_ptr(), count, headers.as_ptr(), names.as_ptr())
        })?;
        let program = Program { nvrtc: self, handle };
        // SAFETY: the program exists; the options are as many strings.
        let code = unsafe { (self.compile)(handle, options.len() as c_int, options.as_ptr()) };
        self.check("nvrtcCompileProgram", code).map_err(|error| {
            let log = program.octets(self.log_size, self.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            error.because(log.trim_matches(['\0', '\n']).to_owned())
        })?;
        if target.starts_with("sm_") {
            program.octets(self.cubin_size, self.cubin)
        } else {
            program.octets(self.ptx_size, self.ptx)
        }
    }

    fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: a constant string of the library, for any number.
        let text = unsafe { CStr::from_ptr((self.error)(code)) }.to_string_lossy();
        Err(failed(format!("NVRTC {} does not compile a kernel ({call}: {text})", self.version())))
    }
}

fn failed(what: impl Into<String>) -> Error {
    Error::new(Kind::Internal, what)
        .cure("use a release with built-in kernels, or another NVRTC (libnvrtc) of CUDA 12 or later")
}

struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: Handle,
}

impl Program<'_> {
    fn octets(
        &self,
        size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>> {
        let mut count = 0;
        // SAFETY: the program exists; writes a number.
        self.nvrtc.check("size", unsafe { size(self.handle, &mut count) })?;
        let mut octets = vec![0u8; count];
        // SAFETY: `octets` has as many as the library said.
        self.nvrtc.check("get", unsafe { get(self.handle, octets.as_mut_ptr().cast()) })?;
        Ok(octets)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: created in `compile`, and nothing uses it any more.
        unsafe { (self.nvrtc.destroy)(&mut self.handle) };
    }
}

//! Calls of the driver that can fail, and what a person reads then.
#![allow(unsafe_code)]

use crate::error::{Error, Kind};
use cudarc::driver::sys::{self, CUresult};
use std::ffi::CStr;
use std::fmt;

/// The oldest driver that is used: CUDA 12.0.
const OLDEST: i32 = 12_000;

/// A call of the driver that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its name: `cuMemAlloc`.
    pub call: &'static str,
    /// What it answered.
    pub code: CUresult,
}

/// Nothing, or the fault.
///
/// # Errors
/// `code` is not success.
#[inline]
pub fn check(call: &'static str, code: CUresult) -> Result<(), Fault> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(Fault { call, code }) }
}

impl Fault {
    /// The device, or all work on it, is gone for this process: nothing more can be done with it.
    pub fn is_lost(&self) -> bool {
        use CUresult::*;
        matches!(
            self.code,
            CUDA_ERROR_ILLEGAL_ADDRESS
                | CUDA_ERROR_LAUNCH_TIMEOUT
                | CUDA_ERROR_LAUNCH_FAILED
                | CUDA_ERROR_HARDWARE_STACK_ERROR
                | CUDA_ERROR_ILLEGAL_INSTRUCTION
                | CUDA_ERROR_MISALIGNED_ADDRESS
                | CUDA_ERROR_INVALID_ADDRESS_SPACE
                | CUDA_ERROR_INVALID_PC
                | CUDA_ERROR_ASSERT
                | CUDA_ERROR_ECC_UNCORRECTABLE
                | CUDA_ERROR_NVLINK_UNCORRECTABLE
                | CUDA_ERROR_CONTEXT_IS_DESTROYED
                | CUDA_ERROR_DEVICE_UNAVAILABLE
                | CUDA_ERROR_DEINITIALIZED
                | CUDA_ERROR_EXTERNAL_DEVICE
                | CUDA_ERROR_MPS_CLIENT_TERMINATED
                | CUDA_ERROR_UNKNOWN
        )
    }

    fn cure(&self) -> &'static str {
        use CUresult::*;
        match self.code {
            CUDA_ERROR_OUT_OF_MEMORY => {
                "free GPU memory (nvidia-smi shows who has it), or choose another GPU (--gpu N)"
            }
            CUDA_ERROR_NO_DEVICE => "check nvidia-smi, and CUDA_VISIBLE_DEVICES and the devices given to a container",
            CUDA_ERROR_SYSTEM_DRIVER_MISMATCH | CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
                "the loaded driver and its library differ: reboot, or reload the driver's modules"
            }
            CUDA_ERROR_SYSTEM_NOT_READY => "start what the GPU needs (nvidia-fabricmanager on machines with NVSwitch)",
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION | CUDA_ERROR_NO_BINARY_FOR_GPU => {
                "the driver is older than the kernels: install a newer one, or NVRTC (libnvrtc), which compiles them here"
            }
            CUDA_ERROR_OPERATING_SYSTEM | CUDA_ERROR_NOT_PERMITTED => {
                "raise the limit of locked memory (ulimit -l) and check the permissions of /dev/nvidia*"
            }
            _ if self.is_lost() => "the GPU is lost for this process: see dmesg for its Xid, then start again",
            _ => "check nvidia-smi and dmesg",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = std::ptr::null();
        let mut text = std::ptr::null();
        // SAFETY: both are written with pointers to constant strings of the driver, or left null.
        unsafe {
            let _ = sys::cuGetErrorName(self.code, &mut name);
            let _ = sys::cuGetErrorString(self.code, &mut text);
        }
        let words = [text, name].map(|p| {
            // SAFETY: not null, so a constant string of the driver, which is never unloaded.
            (!p.is_null()).then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy())
        });
        match words {
            [Some(text), Some(name)] => write!(f, "{}: {text} ({name})", self.call),
            _ => write!(f, "{}: error {}", self.call, self.code as u32),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let cure = fault.cure();
        Error::new(Kind::Unavailable, "the GPU refuses").because(fault).cure(cure)
    }
}

/// Finds and starts the driver, once; its version as 1000 * major + 10 * minor.
///
/// # Errors
/// There is none, it is too old, or it does not start.
pub fn start() -> crate::error::Result<i32> {
    // SAFETY: loads a library by name; its initialisers are the driver's.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::new(Kind::Unavailable, "no NVIDIA driver (libcuda.so.1 is not installed)")
            .cure("install NVIDIA's driver, or run on the CPU (--gpu off)"));
    }
    let mut version = 0;
    // SAFETY: writes a number.
    let code = unsafe { sys::cuDriverGetVersion(&mut version) };
    check("cuDriverGetVersion", code).map_err(not_started)?;
    if version < OLDEST {
        return Err(too_old(version));
    }
    // SAFETY: no flags exist; may be called again and again.
    check("cuInit", unsafe { sys::cuInit(0) }).map_err(not_started)?;
    Ok(version)
}

fn not_started(fault: Fault) -> Error {
    let cure = fault.cure();
    Error::new(Kind::Unavailable, "the NVIDIA driver does not start").because(fault).cure(cure)
}

fn too_old(version: i32) -> Error {
    let (major, minor) = (version / 1000, version % 1000 / 10);
    Error::new(Kind::Unavailable, format!("the NVIDIA driver is too old: it has CUDA {major}.{minor}, needed is 12.0"))
        .cure("install a driver of version 525 or later, or run on the CPU (--gpu off)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_driver_is_refused_with_both_versions() {
        let error = too_old(11_080);
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.to_string().contains("CUDA 11.8, needed is 12.0"), "{error}");
    }

    #[test]
    fn without_a_driver_the_reason_is_said() {
        match start() {
            Ok(version) => println!("driver {version}"),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Unavailable);
                assert!(!error.cure_text().is_empty());
                println!("skipped: no CUDA device: {error}");
            }
        }
    }

    #[test]
    fn lost_is_lost_and_full_is_not() {
        let fault = |code| Fault { call: "cuStreamQuery", code };
        assert!(fault(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).is_lost());
        assert!(fault(CUresult::CUDA_ERROR_ECC_UNCORRECTABLE).is_lost());
        assert!(fault(CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED).is_lost(), "another client of MPS took it along");
        assert!(!fault(CUresult::CUDA_ERROR_OUT_OF_MEMORY).is_lost());
        assert!(!fault(CUresult::CUDA_ERROR_NO_DEVICE).is_lost());
    }
}

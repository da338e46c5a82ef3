//! BAR1, the window through which other devices of the bus reach a GPU's memory. CUDA does not tell its size; NVML, which
//! comes with the driver, does. It is looked for at run time.
#![allow(unsafe_code)]

use super::Gpu;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Octets of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar1 {
    /// All of it.
    pub total: u64,
    /// What nobody maps at the moment.
    pub free: u64,
}

impl Gpu {
    /// How much of it other devices can still be given.
    ///
    /// # Errors
    /// NVML is not installed, or has no answer for this GPU (a slice of one, a virtual one).
    pub fn bar1(&self) -> Result<Bar1, String> {
        let nvml = find()?;
        let address = CString::new(self.address()).map_err(|_| "the GPU's PCI address makes no sense".to_owned())?;
        nvml.bar1(&address)
    }
}

/// `nvmlBAR1Memory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// The library and those of its functions that are used; 0 is success.
struct Nvml {
    by_address: unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int,
    bar1: unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    // Last, so that functions go before their code.
    _library: libloading::Library,
}

const NAME: &str = "libnvidia-ml.so.1";

/// The library, started once; it is stopped by the end of the process.
fn find() -> Result<&'static Nvml, String> {
    static FOUND: OnceLock<Result<Nvml, String>> = OnceLock::new();
    FOUND.get_or_init(Nvml::open).as_ref().map_err(Clone::clone)
}

impl Nvml {
    fn open() -> Result<Self, String> {
        // SAFETY: NVIDIA's library by its name; its initialisers have no conditions.
        let library =
            unsafe { libloading::Library::new(NAME) }.map_err(|_| format!("{NAME} (NVML) is not installed"))?;
        let missing = |error: libloading::Error| format!("{NAME} lacks a function: {error}");
        // SAFETY: types as in nvml.h; these have not changed since NVML 5.
        let (init, nvml) = unsafe {
            let init: unsafe extern "C" fn() -> c_int = *library.get(b"nvmlInit_v2\0").map_err(missing)?;
            let by_address = *library.get(b"nvmlDeviceGetHandleByPciBusId_v2\0").map_err(missing)?;
            let bar1 = *library.get(b"nvmlDeviceGetBAR1MemoryInfo\0").map_err(missing)?;
            let error = *library.get(b"nvmlErrorString\0").map_err(missing)?;
            (init, Nvml { by_address, bar1, error, _library: library })
        };
        // SAFETY: no argument; may be called again and again.
        nvml.check("nvmlInit", unsafe { init() })?;
        Ok(nvml)
    }

    fn bar1(&self, address: &CStr) -> Result<Bar1, String> {
        let mut device = std::ptr::null_mut();
        // SAFETY: the address ends with a zero; a handle is written.
        self.check("nvmlDeviceGetHandleByPciBusId", unsafe { (self.by_address)(address.as_ptr(), &mut device) })?;
        let mut memory = Memory::default();
        // SAFETY: the handle was given above; three numbers are written.
        self.check("nvmlDeviceGetBAR1MemoryInfo", unsafe { (self.bar1)(device, &mut memory) })?;
        let Memory { total, free, used } = memory;
        Ok(Bar1 { total, free: free.min(total.saturating_sub(used)) })
    }

    fn check(&self, call: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: any number may be asked for; the answer is a constant string.
        let text = unsafe { (self.error)(code) };
        // SAFETY: not null, so a constant string of the library, which is never unloaded.
        let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy());
        Err(format!("{call}: {}", text.unwrap_or_else(|| format!("error {}", code as c_uint).into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_as_large_as_its_parts_or_the_reason_is_said() {
        let gpu = match Gpu::open(0) {
            Ok(gpu) => gpu,
            Err(error) => return println!("skipped: no CUDA device: {error}"),
        };
        match gpu.bar1() {
            Ok(bar1) => {
                println!("{bar1:?}");
                assert!(bar1.total > 0 && bar1.free <= bar1.total);
            }
            Err(why) => {
                println!("not known: {why}");
                assert!(why.contains("nvml") || why.contains("NVML"), "{why}");
            }
        }
    }

    #[test]
    fn addresses_that_do_not_exist_are_an_error() {
        match find() {
            Ok(nvml) => assert!(nvml.bar1(c"ffff:ff:1f.7").is_err()),
            Err(why) => println!("skipped: {why}"),
        }
    }
}

//! cuFile (GPUDirect Storage): octets between a file and memory of the GPU. NVIDIA's library is looked for when it is
//! needed, and never left: it has threads of its own.
#![allow(unsafe_code)]

use libloading::{Library, Symbol};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

/// Names that the library has; GDMEDIA_CUFILE names another file.
const NAMES: [&str; 2] = ["libcufile.so.0", "libcufile.so"];

/// `CUfileError_t` of cufile.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    of_file: c_int,
    of_driver: c_int,
}

/// `CUfileDescr_t`: type 1 is a descriptor of Linux, which lies in a union with a pointer.
#[repr(C)]
struct Descriptor {
    kind: c_int,
    fd: Fd,
    operations: *const c_void,
}

#[repr(C)]
union Fd {
    fd: c_int,
    _pointer: *mut c_void,
}

const _: () = assert!(size_of::<Descriptor>() == 24 && size_of::<Status>() == 8);

type Register = unsafe extern "C" fn(*mut *mut c_void, *mut Descriptor) -> Status;
type Deregister = unsafe extern "C" fn(*mut c_void);
type Open = unsafe extern "C" fn() -> Status;
type Version = unsafe extern "C" fn(*mut c_int) -> Status;
type Move = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, libc::off_t, libc::off_t) -> isize;
/// Handle, memory, octets, place in the file, place in the memory, octets that were moved, stream.
type MoveInTurn = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    *mut usize,
    *mut libc::off_t,
    *mut libc::off_t,
    *mut isize,
    *mut c_void,
) -> Status;

/// The calls that are used.
pub struct Cufile {
    register: Register,
    deregister: Deregister,
    read: Move,
    write: Move,
    /// From cuFile 1.6 (CUDA 12.2) on.
    write_in_turn: Option<MoveInTurn>,
    version: Option<i32>,
}

/// The library, loaded and started once.
///
/// # Errors
/// There is none, or it does not start; says which.
pub fn library() -> Result<&'static Cufile, String> {
    static LIBRARY: OnceLock<Result<Cufile, String>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Cufile, String> {
    let named = std::env::var("GDMEDIA_CUFILE").ok().filter(|name| !name.is_empty());
    let names: Vec<&str> = named.as_deref().map_or_else(|| NAMES.to_vec(), |name| vec![name]);
    // SAFETY: NVIDIA's library; its initialisers are its own business.
    let found = names.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
    let library = found.ok_or_else(|| format!("cuFile: {} not found", names.join(", ")))?;
    // Threads of it run until the process ends.
    let library: &'static Library = Box::leak(Box::new(library));
    fn symbol<T: Copy + 'static>(library: &'static Library, name: &str) -> Result<T, String> {
        // SAFETY: the types are those of cufile.h, and the library is never unloaded.
        let symbol: Result<Symbol<'static, T>, _> = unsafe { library.get(name.as_bytes()) };
        symbol.map(|s| *s).map_err(|_| format!("cuFile: the library has no {name}"))
    }
    let open: Open = symbol(library, "cuFileDriverOpen")?;
    let mut cufile = Cufile {
        register: symbol(library, "cuFileHandleRegister")?,
        deregister: symbol(library, "cuFileHandleDeregister")?,
        read: symbol(library, "cuFileRead")?,
        write: symbol(library, "cuFileWrite")?,
        write_in_turn: symbol(library, "cuFileWriteAsync").ok(),
        version: None,
    };
    // SAFETY: no argument.
    let status = unsafe { open() };
    if status.of_file != 0 && status.of_file != DRIVER_ALREADY_OPEN {
        return Err(format!("cuFile does not start: {}", status.text()));
    }
    if let Ok(version) = symbol::<Version>(library, "cuFileGetVersion") {
        let mut number = 0;
        // SAFETY: writes a number.
        let status = unsafe { version(&mut number) };
        cufile.version = (status.of_file == 0).then_some(number);
    }
    Ok(cufile)
}

const BASE: c_int = 5000;
const DRIVER_ALREADY_OPEN: c_int = BASE + 26;
const HANDLE_NOT_REGISTERED: c_int = BASE + 27;

/// What a code of cuFile means; the words of cufile.h for those that have been met or are likely.
fn meaning(code: c_int) -> &'static str {
    match code - BASE {
        1 => "the nvidia-fs driver is not loaded, and cufile.json does not allow the compatibility mode",
        4 | 5 => "the nvidia-fs driver has another version",
        7 => "not supported on this platform",
        8 => "not supported for this file",
        9 => "not supported by this GPU",
        10 | 33 | 48 => "the nvidia-fs driver fails",
        11 => "CUDA fails",
        12..=15 => "the address is not one of this GPU's",
        18 => "this kind of file or file system is not supported",
        19 | 20 => "the file is not open with O_DIRECT",
        22 => "wrong arguments",
        25 => "permission denied",
        27 => "the file cannot be registered",
        30 => "internal error",
        34 => "disabled for this file by cufile.json",
        36 => "the GPU's memory cannot be pinned",
        44 => "the disk fails",
        _ => "see cufile.log",
    }
}

impl Status {
    fn text(self) -> String {
        let driver = if self.of_driver == 0 { String::new() } else { format!(", CUDA error {}", self.of_driver) };
        format!("{} ({}{driver})", meaning(self.of_file), self.of_file)
    }
}

impl Cufile {
    /// For people: version, and whether octets go past the CPU.
    pub fn describe(&self) -> String {
        let version = self.version.map(|v| format!(" {}.{}", v / 1000, v % 1000 / 10)).unwrap_or_default();
        let how = if is_direct() { "GPUDirect Storage" } else { "compatibility mode: nvidia-fs is not loaded" };
        format!("cuFile{version} ({how})")
    }
}

/// The driver is there that lets the disk reach the GPU's memory.
pub fn is_direct() -> bool {
    Path::new("/proc/driver/nvidia-fs/version").exists()
}

/// A file that cuFile knows.
#[derive(Debug)]
pub struct Handle {
    library: &'static Cufile,
    raw: *mut c_void,
    /// Open with O_DIRECT.
    file: File,
}

// SAFETY: cuFile's calls may come from any thread, and its handles belong to none.
unsafe impl Send for Handle {}
// SAFETY: as above; calls on one handle may be made at the same time.
unsafe impl Sync for Handle {}

impl std::fmt::Debug for Cufile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

impl Handle {
    /// Registers a file that is open with O_DIRECT. The GPU's context is bound.
    ///
    /// # Errors
    /// cuFile does not take it; says why.
    pub fn new(file: File) -> Result<Self, String> {
        let library = library()?;
        let mut descriptor = Descriptor { kind: 1, fd: Fd { fd: file.as_raw_fd() }, operations: std::ptr::null() };
        let mut raw = std::ptr::null_mut();
        // SAFETY: both are written to or read during the call alone; the file stays open as long as the handle.
        let status = unsafe { (library.register)(&mut raw, &mut descriptor) };
        if status.of_file != 0 {
            let mut why = format!("cuFile: {}", status.text());
            if status.of_file == HANDLE_NOT_REGISTERED
                && let Some(missing) = udev_record(&file)
            {
                why = format!("{why}: {missing}");
            }
            return Err(why);
        }
        Ok(Handle { library, raw, file })
    }

    /// Writes octets of the GPU's memory; returns when they are with the disk.
    ///
    /// # Errors
    /// As of the system's calls, or cuFile's.
    ///
    /// # Safety
    /// `address` is that of `octets` octets of the GPU's memory in one allocation, which nobody writes meanwhile; its context
    /// is bound.
    pub unsafe fn write(&self, address: u64, octets: usize, at: u64) -> io::Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.all(self.library.write, address, octets, at, 0) }
    }

    /// Writes octets of the GPU's memory when all that is in `stream` before has been done. What is in it afterwards waits;
    /// then `turn` says how many were written.
    ///
    /// # Errors
    /// This cuFile cannot, or does not here; nothing will be written.
    ///
    /// # Safety
    /// As of [`Handle::write`], but until the stream has gone past it; so long `turn` and the handle live, and `turn` is not
    /// used for anything else. The stream is one of the context.
    pub unsafe fn write_in_turn(
        &self,
        stream: *mut c_void,
        address: u64,
        octets: usize,
        at: u64,
        turn: &Turn,
    ) -> Result<(), String> {
        let Some(call) = self.library.write_in_turn else { return Err("cuFile before 1.6 knows no streams".into()) };
        let place = libc::off_t::try_from(at).map_err(|_| "cuFile: the file is too large".to_owned())?;
        let numbers = turn.0.get();
        // SAFETY: nobody else uses the numbers before the stream has gone past the write, and they stay where they are; the
        // rest is promised by the caller.
        let status = unsafe {
            numbers.write(Numbers { octets, at: place, from: 0, moved: 0 });
            call(
                self.raw,
                address as *mut c_void,
                &raw mut (*numbers).octets,
                &raw mut (*numbers).at,
                &raw mut (*numbers).from,
                &raw mut (*numbers).moved,
                stream,
            )
        };
        if status.of_file == 0 { Ok(()) } else { Err(format!("cuFile: {}", status.text())) }
    }

    /// What a turn has left undone, or could not do, once more: the system's reason is told by that.
    ///
    /// # Errors
    /// As of [`Handle::write`].
    ///
    /// # Safety
    /// As of [`Handle::write`]; the stream has gone past the write of `turn`.
    pub unsafe fn end_turn(&self, address: u64, octets: usize, at: u64, turn: &Turn) -> io::Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.all(self.library.write, address, octets, at, turn.moved().unwrap_or(0)) }
    }

    /// Fills octets of the GPU's memory.
    ///
    /// # Errors
    /// As of the system's calls, or cuFile's; the file ends before.
    ///
    /// # Safety
    /// As of [`Handle::write`], and nobody reads there meanwhile.
    pub unsafe fn read(&self, address: u64, octets: usize, at: u64) -> io::Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.all(self.library.read, address, octets, at, 0) }
    }

    /// One call after the other until all octets are moved; `done` are already.
    ///
    /// # Safety
    /// As of `read` and `write`.
    unsafe fn all(&self, call: Move, address: u64, octets: usize, at: u64, mut done: usize) -> io::Result<()> {
        while done < octets {
            let place = libc::off_t::try_from(at + done as u64).map_err(|_| io::ErrorKind::FileTooLarge)?;
            // SAFETY: promised by the caller; what is left of both ranges.
            let moved = unsafe { call(self.raw, address as *mut c_void, octets - done, place, done as libc::off_t) };
            match moved {
                1.. => done += moved as usize,
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                -1 => return Err(io::Error::last_os_error()),
                code => {
                    let code = c_int::try_from(code.unsigned_abs()).unwrap_or(c_int::MAX);
                    return Err(io::Error::other(format!("cuFile: {} ({code})", meaning(code))));
                }
            }
        }
        Ok(())
    }
}

/// What cuFile reads when the turn of a write comes, and what it tells then.
pub struct Turn(Box<UnsafeCell<Numbers>>);

struct Numbers {
    octets: usize,
    at: libc::off_t,
    from: libc::off_t,
    moved: isize,
}

// SAFETY: plain numbers, which cuFile's threads use between two calls whose callers promise that nobody else does.
unsafe impl Send for Turn {}

impl Turn {
    /// One that is not used yet.
    pub fn new() -> Self {
        Turn(Box::new(UnsafeCell::new(Numbers { octets: 0, at: 0, from: 0, moved: 0 })))
    }
    /// Octets that were written; none when that failed.
    ///
    /// # Safety
    /// The stream has gone past the write.
    pub unsafe fn moved(&self) -> Option<usize> {
        // SAFETY: cuFile has told it and uses it no more.
        usize::try_from(unsafe { (*self.0.get()).moved }).ok()
    }
}

impl Default for Turn {
    fn default() -> Self {
        Turn::new()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: registered in `new`, and every call has returned. The file is closed afterwards.
        unsafe { (self.library.deregister)(self.raw) };
        let _ = &self.file;
    }
}

/// What udev should have told about the file's disk and has not, as in most containers.
fn udev_record(file: &File) -> Option<String> {
    let device = file.metadata().ok()?.dev();
    let record = format!("/run/udev/data/b{}:{}", libc::major(device), libc::minor(device));
    let text = std::fs::read_to_string(&record).unwrap_or_default();
    let known = ["E:ID_FS_USAGE=", "E:ID_FS_TYPE="].iter().all(|key| text.lines().any(|line| line.starts_with(key)));
    (!known).then(|| {
        format!("there is no udev record of its disk ({record} with ID_FS_USAGE and ID_FS_TYPE); give the container /run/udev")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        match library() {
            Ok(cufile) => println!("{cufile:?}"),
            Err(why) => {
                println!("skipped: {why}");
                assert!(why.starts_with("cuFile"), "{why}");
            }
        }
        assert!(Status { of_file: 5027, of_driver: 0 }.text().contains("cannot be registered (5027)"));
        assert!(Status { of_file: 5011, of_driver: 100 }.text().ends_with("(5011, CUDA error 100)"));
        // No disk of this kind has a record.
        let file = File::open("/proc/self/status").unwrap();
        let text = udev_record(&file).unwrap();
        assert!(text.contains("/run/udev/data/b0:") && text.contains("ID_FS_TYPE"), "{text}");
    }
}

//! The stand-in for libibverbs: built by the system's compiler when a test asks for it, and its controls (`stand-in/control.h`).
#![allow(unsafe_code, dead_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Flags of a card.
pub const NO_RAW_PACKET: u32 = 1 << 0;
pub const INFINIBAND: u32 = 1 << 1;
pub const NO_CQ_EX: u32 = 1 << 2;
pub const NO_STAMPS: u32 = 1 << 3;
pub const NO_WALLCLOCK: u32 = 1 << 4;
pub const NO_DMABUF: u32 = 1 << 5;
pub const PEERMEM: u32 = 1 << 6;
pub const NO_CSUM: u32 = 1 << 7;
pub const NO_NET_RAW: u32 = 1 << 8;
pub const NO_ACCESS: u32 = 1 << 9;
pub const ANY_MAC: u32 = 1 << 10;
pub const TOO_LONG_DROPS: u32 = 1 << 11;
pub const TOO_LONG_KEEPS: u32 = 1 << 12;
pub const PORT_DOWN: u32 = 1 << 13;
pub const LONG_LENGTHS: u32 = 1 << 14;

/// `stand_in_device`.
#[repr(C)]
struct RawDevice {
    name: *const c_char,
    interface: *const c_char,
    net: *const c_char,
    sysfs: *const c_char,
    ways: Ways,
}

/// What a card is like: the numbers of `stand_in_device`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Ways {
    pub flags: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_cqe: u32,
    pub max_flows: u32,
    pub mtu: u32,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub memlock: u64,
    pub clock_khz: u64,
    pub clock_mask: u64,
    pub clock_origin_ns: u64,
    pub clock_ppb: i64,
    pub wall_ahead_ns: i64,
}

/// `stand_in_counts`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pub devices: u64,
    pub pds: u64,
    pub mrs: u64,
    pub channels: u64,
    pub cqs: u64,
    pub qps: u64,
    pub wqs: u64,
    pub tables: u64,
    pub flows: u64,
    pub posted: u64,
    pub waiting: u64,
    pub registered: u64,
    pub arrived: u64,
    pub kernel: u64,
    pub lost_down: u64,
    pub oversize: u64,
    pub malformed: u64,
    pub source_lost: u64,
    pub delivered: u64,
    pub octets: u64,
    pub out_of_buffer: u64,
    pub not_ready: u64,
    pub too_long: u64,
    pub protection: u64,
    pub flushed: u64,
    pub overruns: u64,
    pub misuse: u64,
    pub last_misuse: [c_char; 128],
}

/// The library's folder of sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs/stand-in")
}

/// Where it was built: a file for each state of its sources, made whole before it has its name.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let mut files: Vec<PathBuf> = fs::read_dir(sources()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|suffix| suffix == "c" || suffix == "h"));
        files.sort();
        // In a sanitized program the library is sanitized too; the runtime is the program's.
        // SAFETY: looks for a name.
        let sanitized = unsafe { !libc::dlsym(libc::RTLD_DEFAULT, c"__asan_init".as_ptr()).is_null() };
        let mut hash = DefaultHasher::new();
        sanitized.hash(&mut hash);
        files.iter().for_each(|file| fs::read(file).unwrap().hash(&mut hash));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let library = folder.join(format!("libibverbs-stand-in-{:016x}.so", hash.finish()));
        if !library.exists() {
            let half = library.with_extension(std::process::id().to_string());
            let of_it = |file: &&PathBuf| {
                let name = file.file_name().unwrap().to_string_lossy();
                name.ends_with(".c") && !name.starts_with("check")
            };
            let run = |command: &mut Command| {
                let output = command.output().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            };
            let cc = || Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
            let objects = tempfile::tempdir().unwrap();
            let mut compile = cc();
            compile.current_dir(objects.path()).args([
                "-std=c11",
                "-O1",
                "-g",
                "-fPIC",
                "-fvisibility=hidden",
                "-pthread",
            ]);
            if sanitized {
                compile.args(["-fsanitize=address", "-fno-omit-frame-pointer"]);
            }
            run(compile.arg("-c").args(files.iter().filter(of_it)));
            let objects = fs::read_dir(objects.path()).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
            run(cc().args(["-shared", "-pthread", "-Wl,-Bsymbolic", "-o"]).arg(&half).args(objects).arg("-ldl"));
            fs::rename(&half, &library).unwrap();
        }
        library
    })
}

/// The instance of the library that the receiver has too.
#[derive(Clone, Copy)]
struct Handle(*mut c_void);
// SAFETY: what dlopen gave, for any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

fn symbol(name: &CStr) -> *mut c_void {
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        let path = CString::new(path().to_str().unwrap()).unwrap();
        // SAFETY: a C string; the library stays.
        Handle(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
    });
    // SAFETY: opened above; a C string.
    let found = unsafe { libc::dlsym(handle.0, name.as_ptr()) };
    assert!(!handle.0.is_null() && !found.is_null(), "{name:?}");
    found
}

macro_rules! control {
    ($name:ident ( $($argument:ident: $type:ty),* ) -> $result:ty) => {
        fn $name($($argument: $type),*) -> $result {
            let name = CString::new(stringify!($name)).unwrap();
            // SAFETY: the function of this name is declared so in `control.h`.
            let call: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(symbol(&name)) };
            // SAFETY: pointers are to what callers here keep.
            unsafe { call($($argument),*) }
        }
    };
}

control!(stand_in_add(device: *const RawDevice) -> c_int);
control!(stand_in_remove(name: *const c_char) -> c_int);
control!(stand_in_set_flags(name: *const c_char, flags: u32) -> c_int);
control!(stand_in_fail(name: *const c_char, call: *const c_char, error: c_int, times: u32) -> c_int);
control!(stand_in_inject(name: *const c_char, frame: *const u8, length: usize, stamp_ns: u64) -> c_int);
control!(stand_in_port(name: *const c_char, up: c_int) -> c_int);
control!(stand_in_pull(name: *const c_char) -> c_int);
control!(stand_in_put_back(name: *const c_char) -> c_int);
control!(stand_in_fatal(name: *const c_char) -> c_int);
control!(stand_in_overrun(name: *const c_char) -> c_int);
control!(stand_in_count(name: *const c_char, counts: *mut Counts) -> c_int);
control!(stand_in_rules(name: *const c_char, text: *mut c_char, room: usize) -> i64);

/// A card of the stand-in. It goes when this is dropped, and everything that was opened of it must have been closed by then.
#[derive(Debug)]
pub struct Control {
    name: CString,
}

impl Control {
    /// Adds a card. `interface`: whose frames it gets; `net`: the interface that its files name.
    pub fn add(name: &str, interface: Option<&str>, net: &str, sysfs: &Path, ways: Ways) -> Self {
        let text = |text: &str| CString::new(text).unwrap();
        let (name, net, sysfs) = (text(name), text(net), text(sysfs.to_str().unwrap()));
        let interface = interface.map(text);
        let device = RawDevice {
            name: name.as_ptr(),
            interface: interface.as_ref().map_or(std::ptr::null(), |name| name.as_ptr()),
            net: net.as_ptr(),
            sysfs: sysfs.as_ptr(),
            ways,
        };
        assert_eq!(stand_in_add(&device), 0, "adding a card");
        Control { name }
    }
    /// A frame comes; to how many queues it went.
    pub fn inject(&self, frame: &[u8], stamp_ns: u64) -> i32 {
        let queues = stand_in_inject(self.name.as_ptr(), frame.as_ptr(), frame.len(), stamp_ns);
        assert!(queues >= 0, "no such card");
        queues
    }
    pub fn set_flags(&self, flags: u32) {
        assert_eq!(stand_in_set_flags(self.name.as_ptr(), flags), 0);
    }
    /// The next so many calls fail.
    pub fn fail(&self, call: &str, error: i32, times: u32) {
        let call = CString::new(call).unwrap();
        assert_eq!(stand_in_fail(self.name.as_ptr(), call.as_ptr(), error, times), 0, "{call:?}");
    }
    pub fn port(&self, up: bool) {
        assert_eq!(stand_in_port(self.name.as_ptr(), up.into()), 0);
    }
    pub fn pull(&self) {
        assert_eq!(stand_in_pull(self.name.as_ptr()), 0);
    }
    pub fn put_back(&self) {
        assert_eq!(stand_in_put_back(self.name.as_ptr()), 0);
    }
    pub fn fatal(&self) {
        assert_eq!(stand_in_fatal(self.name.as_ptr()), 0);
    }
    pub fn overrun(&self) {
        assert_eq!(stand_in_overrun(self.name.as_ptr()), 0);
    }
    pub fn counts(&self) -> Counts {
        // SAFETY: numbers and octets.
        let mut counts: Counts = unsafe { std::mem::zeroed() };
        assert_eq!(stand_in_count(self.name.as_ptr(), &mut counts), 0);
        counts
    }
    /// Its rules, one a line.
    pub fn rules(&self) -> String {
        let mut text = [0 as c_char; 4096];
        assert!(stand_in_rules(self.name.as_ptr(), text.as_mut_ptr(), text.len()) >= 0);
        // SAFETY: a C string that was written above.
        unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let counts = if std::thread::panicking() { None } else { Some(self.counts()) };
        let removed = stand_in_remove(self.name.as_ptr());
        if let Some(counts) = counts {
            // SAFETY: a C string of the library's.
            let last = unsafe { CStr::from_ptr(counts.last_misuse.as_ptr()) };
            assert_eq!(removed, 0, "left open or misused: {last:?} {counts:?}");
        }
    }
}

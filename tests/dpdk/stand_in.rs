//! The stand-in for a card (`stand-in/card.h`): built by the system's compiler when a test asks for it, loaded before DPDK into a process
//! that runs that test alone.

use std::collections::hash_map::DefaultHasher;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Runs `work`, of the test `name`, in a process of its own that has the cards.
pub fn with_cards(name: &str, work: fn()) {
    let path = path().to_str().unwrap();
    crate::failures::alone(name, &[("LD_PRELOAD", path)], work);
}

/// Where it was built: a file for each state of its sources, made whole before it has its name.
fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dpdk/stand-in");
        let files = ["card.h", "card.c"].map(|name| sources.join(name));
        let mut hash = DefaultHasher::new();
        files.iter().for_each(|file| fs::read(file).unwrap().hash(&mut hash));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let library = folder.join(format!("dpdk-card-{:016x}.so", hash.finish()));
        if !library.exists() {
            let run = |command: &mut Command| {
                let output = command.output().unwrap();
                assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8(output.stdout).unwrap()
            };
            let say = |word: &str| run(Command::new("pkg-config").args([word, "libdpdk"]));
            let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
            compile.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]);
            compile.arg("-DALLOW_EXPERIMENTAL_API");
            for flag in say("--cflags").split_whitespace() {
                match flag.strip_prefix("-I") {
                    Some(folder) => compile.args(["-isystem", folder]),
                    None => compile.arg(flag),
                };
            }
            let half = library.with_extension(std::process::id().to_string());
            compile.arg("-o").arg(&half).arg(&files[1]).args(say("--libs-only-L").split_whitespace());
            run(compile.args(["-lrte_ethdev", "-lrte_mbuf", "-lrte_mempool", "-lrte_eal", "-ldl"]));
            fs::rename(&half, &library).unwrap();
        }
        library
    })
}

fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: looks for a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is not loaded");
    found
}

macro_rules! control {
    ($name:ident ( $($argument:ident: $type:ty),* ) $(-> $result:ty)?) => {
        fn $name($($argument: $type),*) $(-> $result)? {
            let name = CString::new(stringify!($name)).unwrap();
            // SAFETY: the function of this name is declared so in `card.h`.
            let call: unsafe extern "C" fn($($type),*) $(-> $result)? = unsafe { std::mem::transmute(symbol(&name)) };
            // SAFETY: pointers are to what callers here keep.
            unsafe { call($($argument),*) }
        }
    };
}

control!(card_set(card: c_uint, name: *const c_char, value: i64) -> c_int);
control!(card_get(card: c_uint, name: *const c_char) -> i64);
control!(card_driver(card: c_uint, name: *const c_char));
control!(card_reset(card: c_uint));
control!(card_feed(card: c_uint, frame: *const u8, octets: usize, stamp: u64) -> c_int);
control!(card_sent(card: c_uint, frame: *mut u8, room: usize) -> usize);
control!(card_pull(card: c_uint, by_vfio: c_int));

/// One of the cards, as at first.
pub struct Card(c_uint);

impl Card {
    pub fn new(number: u32) -> Self {
        card_reset(number);
        Card(number)
    }
    /// As `port=` names it.
    pub fn name(&self) -> String {
        format!("0000:ca:fd.{}", self.0)
    }
    pub fn set(&self, name: &str, value: i64) -> &Self {
        assert_eq!(card_set(self.0, CString::new(name).unwrap().as_ptr(), value), 0, "{name}");
        self
    }
    pub fn get(&self, name: &str) -> i64 {
        card_get(self.0, CString::new(name).unwrap().as_ptr())
    }
    pub fn driver(&self, name: &str) -> &Self {
        card_driver(self.0, CString::new(name).unwrap().as_ptr());
        self
    }
    /// A frame comes; whether it was taken.
    pub fn feed(&self, frame: &[u8], stamp: u64) -> bool {
        card_feed(self.0, frame.as_ptr(), frame.len(), stamp) == 1
    }
    /// What it has sent since.
    pub fn sent(&self) -> Vec<Vec<u8>> {
        let one = || {
            let mut frame = vec![0; 2048];
            let octets = card_sent(self.0, frame.as_mut_ptr(), frame.len());
            frame.truncate(octets);
            (octets > 0).then_some(frame)
        };
        std::iter::from_fn(one).collect()
    }
    pub fn pull(&self, by_vfio: bool) {
        card_pull(self.0, by_vfio.into());
    }
}

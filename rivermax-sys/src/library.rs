//! The library, opened while the program runs.

use crate::raw::{self, built};
use crate::session::Session;
use crate::status::{Error, Status, check};
use std::ffi::{CStr, OsString, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};

/// The proof that the library is open and that every call of [`raw`] leads somewhere. It stays open to the end of the
/// process.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
}

/// Names the library to open; stronger than what the build found, weaker than a path in the program. Not heard where the
/// program has rights that who started it has not (setuid, setcap), as the dynamic linker does with its variables.
const RIVERMAX_LIBRARY: &str = "RIVERMAX_LIBRARY";

/// Linux counts no further (CONFIG_NR_CPUS).
const CPUS: usize = 8192;

static LOADED: OnceLock<Library> = OnceLock::new();

impl Library {
    /// Opens the library: `path`, else what the environment variable `RIVERMAX_LIBRARY` says, else the stand-in's
    /// library where the crate is built with it, else the SDK's by the name that it had when the crate was built
    /// ([`raw::SONAME`]), where the system looks for libraries. The second call returns the first one's. A program that
    /// has more rights than who started it (setuid, setcap) does not hear the environment.
    ///
    /// # Errors
    /// It cannot be opened, lacks a call that the crate was built with, or is not of the kind (SDK or stand-in) that
    /// the crate was built against; or another one is open.
    pub fn load(path: Option<&Path>) -> Result<&'static Library, LoadError> {
        static LOADING: Mutex<()> = Mutex::new(());
        // Guards no data: a panic of another thread has spoiled nothing.
        let _guard = LOADING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let asked = path.map(Path::to_path_buf);
        if let Some(loaded) = LOADED.get() {
            return match asked {
                Some(asked) if asked != loaded.path => Err(LoadError::Another { asked, open: loaded.path.clone() }),
                _ => Ok(loaded),
            };
        }
        let path = asked
            .or_else(|| named_by_environment().map(PathBuf::from))
            .unwrap_or_else(|| raw::STAND_IN_LIBRARY.unwrap_or(raw::SONAME).into());
        fill(&path)?;
        Ok(LOADED.get_or_init(|| Library { path }))
    }

    /// What was opened: a path, or a name that the system looked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The library's own words about its version. Needs no session.
    pub fn version(&self) -> String {
        // SAFETY: the library is open; it answers a string of its own, with its end marked, or null.
        unsafe {
            let text = raw::rmx_get_version_string();
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    }

    /// Where the library's own threads may run. Before the first [`session`](Self::session).
    ///
    /// # Errors
    /// As the library answers; a number beyond what Linux counts CPUs with is [`Status::InvalidParam2`].
    pub fn set_cpu_affinity(&self, cpus: &[usize]) -> Result<(), Error> {
        let highest = cpus.iter().max().copied();
        if highest.is_some_and(|cpu| cpu >= CPUS) {
            return Err(Error { call: "rmx_mark_cpu_for_affinity", status: Status::InvalidParam2 });
        }
        let count = highest.map_or(0, |cpu| cpu + 1);
        // Enough whether the library counts CPUs or words.
        let mut mask = vec![0_u64; count.max(1)];
        let mask: *mut c_void = mask.as_mut_ptr().cast();
        // SAFETY: the mask is long enough for the highest CPU, and lives until the call has returned.
        unsafe {
            for &cpu in cpus {
                raw::rmx_mark_cpu_for_affinity(mask, cpu);
            }
            check("rmx_set_cpu_affinity", raw::rmx_set_cpu_affinity(mask, count))
        }
    }

    /// Lets the library catch Ctrl-C: calls then answer [`Status::Signal`](crate::Status::Signal). Before the first
    /// [`session`](Self::session).
    ///
    /// # Errors
    /// As the library answers.
    pub fn enable_system_signal_handling(&self) -> Result<(), Error> {
        // SAFETY: the library is open.
        check("rmx_enable_system_signal_handling", unsafe { raw::rmx_enable_system_signal_handling() })
    }

    /// Initialises the library for the process, or counts one more who wants it so.
    ///
    /// # Errors
    /// As the library answers: no licence, no NIC.
    pub fn session(&'static self) -> Result<Session, Error> {
        Session::open(self)
    }
}

fn named_by_environment() -> Option<OsString> {
    // SAFETY: asks for a number of this process.
    let trusted = unsafe { libc::getauxval(libc::AT_SECURE) } == 0;
    std::env::var_os(RIVERMAX_LIBRARY).filter(|name| trusted && !name.is_empty())
}

/// Opens the library and fills the table through which the calls go.
fn fill(path: &Path) -> Result<(), LoadError> {
    // The system's words are the cause of what libloading says.
    let cannot = |why: &dyn std::error::Error| {
        let why = why.source().map_or_else(|| why.to_string(), ToString::to_string);
        LoadError::Open { path: path.into(), why }
    };
    // SAFETY: its initialisers run; that it is a library for this is the promise of who named it.
    let library = unsafe { libloading::Library::new(path) }.map_err(|why| cannot(&why))?;
    // SAFETY: only whether it is there counts.
    let stand_in = unsafe { library.get::<*const c_void>(c"rmx_stand_in_set_device".to_bytes_with_nul()) }.is_ok();
    if stand_in != cfg!(feature = "stand-in") {
        return Err(LoadError::Foreign { path: path.into(), stand_in });
    }
    let mut found = Vec::with_capacity(built::CALLS.len());
    let mut missing = Vec::new();
    for name in built::CALLS {
        // SAFETY: the address is only called by the shim, with the types of the header, and stays valid because the
        // library is never closed. It is the symbol's own, not what stands there.
        match unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()).map(|s| s.try_as_raw_ptr()) } {
            Ok(Some(address)) => found.push(address),
            _ => missing.push(name.to_string_lossy().into_owned()),
        }
    }
    if !missing.is_empty() {
        return Err(LoadError::Calls { path: path.into(), missing });
    }
    for (place, address) in built::table().iter().zip(found) {
        place.store(address, Ordering::Release);
    }
    // Never closed: its threads and the table need it.
    std::mem::forget(library);
    Ok(())
}

/// Why the library is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The system cannot open it.
    Open {
        /// What was to be opened.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// It lacks calls that the crate was built with.
    Calls {
        /// What was opened.
        path: PathBuf,
        /// Their names.
        missing: Vec<String>,
    },
    /// The stand-in's library for a program that was built against an SDK, or the other way round: memory is laid out
    /// differently.
    Foreign {
        /// What was opened.
        path: PathBuf,
        /// It is the stand-in's.
        stand_in: bool,
    },
    /// Another one is open in this process.
    Another {
        /// What was to be opened.
        asked: PathBuf,
        /// What is open.
        open: PathBuf,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Open { path, why } => write!(f, "the Rivermax library {} does not open: {why}", path.display()),
            LoadError::Calls { path, missing } => write!(
                f,
                "the Rivermax library {} lacks {}, which the SDK {} had at build",
                path.display(),
                missing.join(", "),
                raw::VERSION
            ),
            LoadError::Foreign { path, stand_in: true } => {
                write!(f, "{} is the stand-in's library, and this program was built against an SDK", path.display())
            }
            LoadError::Foreign { path, stand_in: false } => {
                write!(f, "{} is not the stand-in's library, and this program was built against that", path.display())
            }
            LoadError::Another { asked, open } => {
                write!(f, "{} cannot be opened: {} is open in this process", asked.display(), open.display())
            }
        }
    }
}

impl std::error::Error for LoadError {}

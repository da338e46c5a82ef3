//! A sink with its queue, and what is told of it.

use super::super::QUEUE;
use gdmedia::error::{Error, Kind as Failure, Result};
use gdmedia::mem::{Host, Space};
use gdmedia::sink::again::Watch;
use gdmedia::sink::{Sink, SinkQueue};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What sort of sink it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    #[cfg_attr(not(feature = "gst"), allow(dead_code))]
    Encode,
    Record,
    #[cfg_attr(not(feature = "gst"), allow(dead_code))]
    Gst,
    Snapshot,
    Verify,
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    Export,
    #[cfg_attr(not(feature = "preview"), allow(dead_code))]
    Preview,
    /// Frames of the GPU for sinks of the CPU: nobody asked for it.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    Copies,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Encode => "encode",
            Kind::Record => "record",
            Kind::Gst => "gst",
            Kind::Snapshot => "snapshot",
            Kind::Verify => "verify",
            Kind::Export => "export",
            Kind::Preview => "preview",
            Kind::Copies => "copies",
        }
    }
}

/// Does the end of this sink end the run?
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EndsRun {
    Yes,
    No,
}

/// A sink on its thread.
pub struct Placed<F: Space = Host> {
    pub queue: Arc<SinkQueue<F>>,
    pub ends: EndsRun,
    #[cfg_attr(not(feature = "daemon"), allow(dead_code))]
    pub kind: Kind,
    /// Where it writes to.
    #[cfg_attr(not(feature = "daemon"), allow(dead_code))]
    pub target: String,
    /// Where it is started again when it ends.
    pub again: Option<Watch>,
}

/// A sink as it is.
#[cfg_attr(not(feature = "daemon"), allow(dead_code))]
pub struct State {
    pub kind: Kind,
    pub target: String,
    pub running: bool,
    pub reason: Option<String>,
    pub frames: u64,
    pub dropped: u64,
    pub queued: u64,
    pub restarts: u64,
}

impl<F: Space> Placed<F> {
    /// Starts its thread.
    pub fn new(kind: Kind, target: String, ends: EndsRun, sink: Box<dyn Sink<F>>) -> Result<Self> {
        Ok(Placed { queue: Arc::new(SinkQueue::spawn(sink, QUEUE)?), ends, kind, target, again: None })
    }
    /// The run is for it, and it has ended.
    pub fn ends_run(&self) -> bool {
        self.ends == EndsRun::Yes && self.queue.ended()
    }
    /// Frames that it did not take.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped() + self.again.as_ref().map_or(0, Watch::missed)
    }
    /// What happened to it since the last call.
    pub fn events(&self) -> Vec<String> {
        self.again.as_ref().map(Watch::events).unwrap_or_default()
    }
    /// As it is; none of what nobody asked for.
    #[cfg(feature = "daemon")]
    pub fn state(&self) -> Option<State> {
        let (queue, again) = (&self.queue, self.again.as_ref());
        let running = !queue.ended() && again.is_none_or(Watch::is_running);
        (self.kind != Kind::Copies).then(|| State {
            kind: self.kind,
            target: self.target.clone(),
            running,
            reason: again.filter(|_| !running).and_then(Watch::reason),
            frames: queue.taken().saturating_sub(again.map_or(0, Watch::missed)),
            dropped: self.dropped(),
            queued: queue.waiting() as u64,
            restarts: again.map_or(0, |watch| watch.starts().saturating_sub(1)),
        })
    }
}

/// What a sink leaves for those who ask about it; the newest, where it is started again.
pub type Slot<T> = Arc<Mutex<Option<T>>>;

/// Puts something there, or nothing.
pub fn fill<T>(slot: &Slot<T>, what: Option<T>) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = what;
}
/// Looks at what is there.
pub fn look<T, U>(slot: &Slot<T>, how: impl FnOnce(&T) -> U) -> Option<U> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(how)
}
/// Takes it away; true when there was something.
#[cfg(all(feature = "cuda", feature = "gst"))]
pub fn empty<T>(slot: &Slot<T>) -> bool {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
}

/// Names that are tried for a file.
const PLACES: u32 = 10_000;

/// This file, or one beside it that is not there yet: `name-2.y4m`, `name-3.y4m`, ...
///
/// # Errors
/// All of them are there.
pub fn free(path: &Path) -> Result<PathBuf> {
    // A pipe or a device is no file that somebody keeps; neither is one without octets.
    let taken = |path: &Path| std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0);
    if path == Path::new("-") || !taken(path) {
        return Ok(path.to_owned());
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let suffix = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
    (2..PLACES).map(|n| path.with_file_name(format!("{stem}-{n}{suffix}"))).find(|path| !taken(path)).ok_or_else(|| {
        Error::new(Failure::Output, format!("{} and {PLACES} names beside it are in use", path.display()))
            .cure("move the files of earlier runs away")
    })
}

/// A folder of its own in this one, named by the time, for a recording that is begun again and again.
///
/// # Errors
/// The folder is not there, or takes none.
pub fn own_folder(folder: &Path) -> Result<PathBuf> {
    let cannot = |e| {
        Error::new(Failure::Output, format!("cannot begin a recording in {}", folder.display()))
            .because(e)
            .cure("make the folder, mount its disk, and let the daemon's user write there")
    };
    let name = gdmedia::time::utc(std::time::SystemTime::now()).replace([':', '.'], "-");
    let names = std::iter::once(name.clone()).chain((2..PLACES).map(|n| format!("{name}-{n}")));
    for own in names.map(|name| folder.join(name)) {
        match std::fs::create_dir(&own) {
            Ok(()) => return Ok(own),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(cannot(e)),
        }
    }
    Err(cannot(std::io::ErrorKind::AlreadyExists.into()))
}

/// Begins a recording there: in a folder of its own where it is begun again and again. An empty one is not left.
///
/// # Errors
/// It cannot be begun.
pub fn in_own_folder<T>(again: bool, folder: &Path, begin: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    if !again {
        return begin(folder);
    }
    let own = own_folder(folder)?;
    begin(&own).inspect_err(|_| {
        // It stays where something is in it.
        let _ = std::fs::remove_dir(&own);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recording_has_a_folder_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<_> = (0..3).map(|_| own_folder(folder.path()).unwrap()).collect();
        assert!(all.iter().all(|own| own.is_dir() && own.parent() == Some(folder.path())));
        assert!(all[0] != all[1] && all[1] != all[2]);
        let refused = in_own_folder(true, folder.path(), |_| Err::<(), _>(Error::new(Failure::Output, "full")));
        assert!(refused.is_err() && std::fs::read_dir(folder.path()).unwrap().count() == 3);
        assert!(own_folder(&folder.path().join("nosuch")).unwrap_err().to_string().contains("mount its disk"));
    }

    #[test]
    fn no_file_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert_eq!(free(&path("a.y4m")).unwrap(), path("a.y4m"));
        std::fs::write(path("a.y4m"), "").unwrap();
        assert_eq!(free(&path("a.y4m")).unwrap(), path("a.y4m"), "empty");
        std::fs::write(path("a.y4m"), "frames").unwrap();
        std::fs::write(path("a-2.y4m"), "frames").unwrap();
        assert_eq!(free(&path("a.y4m")).unwrap(), path("a-3.y4m"));
        std::fs::write(path("raw"), "frames").unwrap();
        assert_eq!(free(&path("raw")).unwrap(), path("raw-2"));
        assert_eq!(free(Path::new("/dev/null")).unwrap(), Path::new("/dev/null"));
        assert_eq!(free(Path::new("-")).unwrap(), Path::new("-"));
    }
}

//! What was active, in a small file of JSON, for the next start.

use crate::error::Error;
use crate::node::lock;
use crate::receivers::Saved;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Largest file that is read: a thousand receivers with their SDPs have a few MiB.
const MAX_OCTETS: u64 = 64 << 20;
const VERSION: u32 = 1;

/// The file. A change is written beside it, brought to the disk, and put in its place, so that there is always a whole
/// one.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    receivers: Mutex<BTreeMap<String, Saved>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    receivers: BTreeMap<String, Saved>,
}

impl Store {
    /// Reads the file; one that is not there is empty.
    ///
    /// # Errors
    /// It cannot be read, or is not one of these. It is left as it is then.
    pub fn open(path: impl Into<PathBuf>) -> Result<Store, Error> {
        let path = path.into();
        let name = path.display().to_string();
        let receivers = match read(&path) {
            Ok(None) => BTreeMap::new(),
            Ok(Some(octets)) => {
                let contents: Contents = serde_json::from_slice(&octets).map_err(|error| {
                    Error::new(format!("{name} does not hold activations of receivers"), "move it away to start anew")
                        .because(error)
                })?;
                if contents.version != VERSION {
                    let what = format!("{name} is of version {}; this program reads {VERSION}", contents.version);
                    return Err(Error::new(what, "use the program that wrote it, or move the file away"));
                }
                contents.receivers
            }
            Err(error) => {
                let what = format!("{name} cannot be read");
                return Err(Error::new(what, "check its permissions, or move it away to start anew").because(error));
            }
        };
        Ok(Store { path, receivers: Mutex::new(receivers) })
    }

    /// By the names of the receivers.
    pub fn receivers(&self) -> BTreeMap<String, Saved> {
        lock(&self.receivers).clone()
    }

    /// Keeps what receiver `name` does. Returns when it is on the disk.
    ///
    /// # Errors
    /// The file cannot be written; the old one is still there.
    pub fn save(&self, name: &str, saved: &Saved) -> Result<(), Error> {
        self.change(|receivers| receivers.insert(name.to_owned(), saved.clone()).as_ref() != Some(saved))
    }

    /// Forgets receivers that are not in `names`.
    ///
    /// # Errors
    /// As [`Store::save`].
    pub fn retain(&self, names: &[&str]) -> Result<(), Error> {
        self.change(|receivers| {
            let before = receivers.len();
            receivers.retain(|name, _| names.contains(&name.as_str()));
            receivers.len() != before
        })
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Saved>) -> bool) -> Result<(), Error> {
        // Held over the writing, so that the last one written is the last one made.
        let mut receivers = lock(&self.receivers);
        let mut new = receivers.clone();
        if !change(&mut new) {
            return Ok(());
        }
        let contents = Contents { version: VERSION, receivers: new };
        let written = serde_json::to_vec_pretty(&contents).map_err(io::Error::other);
        written.and_then(|octets| replace(&self.path, &octets)).map_err(|error| {
            let what = format!("{} cannot be written", self.path.display());
            Error::new(what, "check the folder's permissions and the space on the disk").because(error)
        })?;
        *receivers = contents.receivers;
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut octets = vec![];
    if file.take(MAX_OCTETS + 1).read_to_end(&mut octets)? as u64 > MAX_OCTETS {
        return Err(io::Error::other(format!("it has more than {MAX_OCTETS} octets")));
    }
    Ok(Some(octets))
}

fn replace(path: &Path, octets: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::other("the path names no file"))?;
    let mut beside = name.to_os_string();
    beside.push(".new");
    let beside = path.with_file_name(beside);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&beside)?;
    file.write_all(octets)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&beside, path)?;
    // The name is in the folder, which goes to the disk by itself.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::LegParams;

    fn saved(port: u16) -> Saved {
        let leg = LegParams { destination_port: crate::params::Auto::Value(port), ..LegParams::default() };
        Saved { master_enable: true, sender_id: None, sdp: Some("v=0\r\n".into()), legs: vec![leg] }
    }

    #[test]
    fn what_is_saved_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let store = Store::open(&path).unwrap();
        assert!(store.receivers().is_empty());
        store.save("a", &saved(5004)).unwrap();
        store.save("b", &saved(5006)).unwrap();
        store.save("a", &saved(5008)).unwrap();
        let again = Store::open(&path).unwrap();
        assert_eq!(again.receivers(), BTreeMap::from([("a".into(), saved(5008)), ("b".into(), saved(5006))]));
        again.retain(&["b"]).unwrap();
        assert_eq!(Store::open(&path).unwrap().receivers().len(), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_foreign_file_is_named_and_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        for (text, part) in [
            ("", "EOF"),
            ("[]", "does not hold"),
            ("{\"version\":2,\"receivers\":{}}", "version 2"),
            ("{\"version\":1,\"receivers\":{\"a\":{\"legs\":[{}]}}}", "missing field"),
        ] {
            fs::write(&path, text).unwrap();
            let error = Store::open(&path).unwrap_err();
            assert!(error.to_string().contains(part), "{text}: {error}");
            assert!(!error.cure().is_empty());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn what_cannot_be_written_is_said_and_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone").join("state.json");
        let store = Store::open(&path).unwrap();
        assert!(store.save("a", &saved(5004)).unwrap_err().to_string().contains("gone"));
        assert!(store.receivers().is_empty());
    }
}

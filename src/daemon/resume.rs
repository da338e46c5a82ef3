//! What is kept from one start to the next: the last switch of each receiver.

use crate::error::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder that it is kept in.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// A file of it.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// What the configuration said then: when it says something else, that is newer.
    configured: Option<String>,
    #[serde(flatten)]
    given: Given,
}

/// What a receiver was told to receive, instead of what the configuration says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Empty: by a controller who has not said yet what there is to receive.
    #[serde(with = "text")]
    pub sdp: Arc<str>,
    /// By a controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<Connected>,
}

/// What a controller says besides, see [`super::Connection`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connected {
    pub enabled: bool,
    pub legs: Vec<usize>,
    /// Legs that the receiver had for the controller.
    #[serde(default)]
    pub of: usize,
    #[serde(with = "text")]
    pub note: Arc<str>,
}

mod text {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::sync::Arc;

    pub fn serialize<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Into::into)
    }
}

impl Given {
    /// By somebody who says nothing but this.
    pub fn sdp(sdp: Arc<str>) -> Self {
        Given { sdp, connected: None }
    }
}

/// No file of ours is longer.
const MAX_OCTETS: u64 = 4 << 20;

impl Folder {
    /// A folder that is there, or is made.
    ///
    /// # Errors
    /// It cannot be, or nothing can be written there.
    pub fn open(path: &Path) -> Result<Self> {
        let folder = Folder(path.to_owned());
        let cannot = |e| folder.cannot(path, e);
        std::fs::create_dir_all(path).map_err(cannot)?;
        let probe = path.join(".probe");
        std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe)).map_err(cannot)?;
        Ok(folder)
    }

    fn cannot(&self, path: &Path, error: std::io::Error) -> Error {
        Error::new(Kind::Output, format!("cannot write {}", path.display())).because(error).cure(format!(
            "make {} a folder of the daemon's user (state.folder), or start it with --no-resume",
            self.0.display()
        ))
    }
    fn path(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }

    /// The last switch of a receiver; none where there was none, or the configuration says something else since.
    pub fn read(&self, id: &str, configured: Option<&str>) -> Option<Given> {
        let path = self.path(id);
        if std::fs::metadata(&path).ok()?.len() > MAX_OCTETS {
            return None;
        }
        // What is damaged is as good as nothing.
        let kept: Kept = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        (kept.configured.as_deref() == configured).then_some(kept.given)
    }

    /// Keeps it: whole or not at all, whatever happens meanwhile.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, id: &str, configured: Option<&str>, given: &Given) -> Result<()> {
        let (path, new) = (self.path(id), self.0.join(format!(".{id}.json.new")));
        let kept = Kept { configured: configured.map(str::to_owned), given: given.clone() };
        let octets = serde_json::to_vec(&kept).map_err(|e| self.cannot(&path, e.into()))?;
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::create(&new)?;
            file.write_all(&octets)?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            // The name is on the disk as well.
            std::fs::File::open(&self.0)?.sync_all()
        };
        write().map_err(|e| self.cannot(&path, e))
    }

    /// Forgets it.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, id: &str) -> Result<()> {
        match std::fs::remove_file(self.path(id)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(self.cannot(&self.path(id), e)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_switch_is_kept_until_the_configuration_says_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&dir.path().join("a/b")).unwrap();
        assert_eq!(folder.read("cam1", None), None);
        folder.write("cam1", Some("cam1.sdp"), &Given::sdp("v=0\r\n".into())).unwrap();
        let second = Given::sdp("v=0\r\ns=2\r\n".into());
        folder.write("cam1", Some("cam1.sdp"), &second).unwrap();
        assert_eq!(folder.read("cam1", Some("cam1.sdp")), Some(second.clone()));
        let connected = Connected { enabled: false, legs: vec![1], of: 2, note: "{}".into() };
        let connected = Given { connected: Some(connected), ..second };
        folder.write("cam3", None, &connected).unwrap();
        assert_eq!(folder.read("cam3", None), Some(connected));
        folder.remove("cam3").unwrap();
        // As it was written before there were controllers.
        std::fs::write(folder.path("cam3"), br#"{"configured":null,"sdp":"v=0"}"#).unwrap();
        assert_eq!(folder.read("cam3", None), Some(Given::sdp("v=0".into())));
        folder.remove("cam3").unwrap();
        assert_eq!(folder.read("cam1", Some("other.sdp")), None);
        assert_eq!(folder.read("cam2", Some("cam1.sdp")), None);
        std::fs::write(folder.path("cam1"), b"{ half").unwrap();
        assert_eq!(folder.read("cam1", Some("cam1.sdp")), None);
        folder.remove("cam1").unwrap();
        folder.remove("cam1").unwrap();
        let names: Vec<_> = std::fs::read_dir(dir.path().join("a/b")).unwrap().collect();
        assert!(names.is_empty(), "{names:?}");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let error = Folder::open(&file).unwrap_err().to_string();
        assert!(error.contains("file") && error.contains("--no-resume"), "{error}");
    }
}

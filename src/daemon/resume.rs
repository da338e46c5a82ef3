//! What is kept from one start to the next: what each receiver was told, where the configuration says something else.

use crate::error::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder that it is kept in.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// A file of it.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// What the configuration said of the SDP then: when it says something else, that is newer.
    configured: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sdp: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connected: Option<Connected>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overruled: Option<bool>,
}

/// What a receiver was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// What to receive.
    pub given: Option<Given>,
    /// To start or to stop: `enabled` of the configuration, which says the contrary.
    pub overruled: Option<bool>,
}

/// What a receiver was told to receive, instead of what the configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Empty: by a controller who has not said yet what there is to receive.
    pub sdp: Arc<str>,
    /// By a controller.
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

    /// What a receiver was told last, as far as the configuration does not say something else since. A start or a stop that counts
    /// no more is taken out of the file, for it would count again with the next configuration.
    ///
    /// # Errors
    /// There is something that cannot be read, or is none of ours: it is as good as nothing.
    pub fn read(&self, id: &str, configured: Option<&str>, enabled: bool) -> Result<Told> {
        let path = self.path(id);
        let damaged = |what: String| {
            Error::new(
                Kind::Data,
                format!("{} is ignored, with what the receiver was told before: {what}", path.display()),
            )
            .cure("tell the receiver again, which writes the file anew, or remove the file")
        };
        let octets = match std::fs::File::open(&path) {
            Ok(file) => {
                let mut octets = Vec::new();
                file.take(MAX_OCTETS + 1).read_to_end(&mut octets).map_err(|e| damaged(e.to_string()))?;
                octets
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Told::default()),
            Err(e) => return Err(damaged(e.to_string())),
        };
        if octets.len() as u64 > MAX_OCTETS {
            return Err(damaged(format!("it has more than {} MiB", MAX_OCTETS >> 20)));
        }
        let mut kept: Kept = serde_json::from_slice(&octets).map_err(|e| damaged(e.to_string()))?;
        if kept.sdp.is_none() && kept.overruled.is_none() {
            return Err(damaged("it says nothing".into()));
        }
        if kept.overruled.take_if(|overruled| *overruled != enabled).is_some() {
            match kept.sdp {
                Some(_) => self.put(id, &kept)?,
                None => self.remove(id)?,
            }
        }
        let Kept { sdp, connected, overruled, .. } = kept;
        let given = sdp.filter(|_| kept.configured.as_deref() == configured);
        let given = given.map(|sdp| Given { sdp: sdp.into(), connected });
        Ok(Told { given, overruled })
    }

    /// Keeps it: whole or not at all, whatever happens meanwhile.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, id: &str, configured: Option<&str>, told: &Told) -> Result<()> {
        let (sdp, connected) = told.given.clone().map(|given| (given.sdp, given.connected)).unzip();
        let kept = Kept {
            configured: configured.map(str::to_owned),
            sdp: sdp.map(|sdp| (*sdp).to_owned()),
            connected: connected.flatten(),
            overruled: told.overruled,
        };
        self.put(id, &kept)
    }

    fn put(&self, id: &str, kept: &Kept) -> Result<()> {
        let (path, new) = (self.path(id), self.0.join(format!(".{id}.json.new")));
        let octets = serde_json::to_vec(kept).map_err(|e| self.cannot(&path, e.into()))?;
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

    fn given(given: Given) -> Told {
        Told { given: Some(given), overruled: None }
    }

    #[test]
    fn the_last_switch_is_kept_until_the_configuration_says_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&dir.path().join("a/b")).unwrap();
        let read = |id, configured| folder.read(id, configured, true).unwrap();
        assert_eq!(read("cam1", None), Told::default());
        folder.write("cam1", Some("cam1.sdp"), &given(Given::sdp("v=0\r\n".into()))).unwrap();
        let second = Given::sdp("v=0\r\ns=2\r\n".into());
        folder.write("cam1", Some("cam1.sdp"), &given(second.clone())).unwrap();
        assert_eq!(read("cam1", Some("cam1.sdp")), given(second.clone()));
        let connected = Connected { enabled: false, legs: vec![1], of: 2, note: "{}".into() };
        let connected = given(Given { connected: Some(connected), ..second });
        folder.write("cam3", None, &connected).unwrap();
        assert_eq!(read("cam3", None), connected);
        folder.remove("cam3").unwrap();
        // As it was written before there were controllers.
        std::fs::write(folder.path("cam3"), br#"{"configured":null,"sdp":"v=0"}"#).unwrap();
        assert_eq!(read("cam3", None), given(Given::sdp("v=0".into())));
        folder.remove("cam3").unwrap();
        assert_eq!(read("cam1", Some("other.sdp")), Told::default());
        assert_eq!(read("cam2", Some("cam1.sdp")), Told::default());
        folder.remove("cam1").unwrap();
        folder.remove("cam1").unwrap();
        let names: Vec<_> = std::fs::read_dir(dir.path().join("a/b")).unwrap().collect();
        assert!(names.is_empty(), "{names:?}");
    }

    #[test]
    fn a_stop_is_kept_until_the_configuration_enables_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let stopped = Told { given: None, overruled: Some(true) };
        folder.write("cam1", Some("cam1.sdp"), &stopped).unwrap();
        // Another SDP does not start it.
        assert_eq!(folder.read("cam1", Some("other.sdp"), true).unwrap(), stopped);
        assert_eq!(folder.read("cam1", Some("cam1.sdp"), false).unwrap(), Told::default());
        // It does not come back with the configuration before.
        assert_eq!(folder.read("cam1", Some("cam1.sdp"), true).unwrap(), Told::default());
        let switched = Told { given: Some(Given::sdp("v=0".into())), overruled: Some(true) };
        folder.write("cam1", Some("cam1.sdp"), &switched).unwrap();
        let left = Told { overruled: None, ..switched };
        assert_eq!(folder.read("cam1", Some("cam1.sdp"), false).unwrap(), left);
        assert_eq!(folder.read("cam1", Some("cam1.sdp"), true).unwrap(), left);
    }

    #[test]
    fn what_is_damaged_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let large = vec![b' '; MAX_OCTETS as usize + 1];
        for octets in [&b"{ half"[..], br#"{"configured":null}"#, br#"{"configured":null,"sdp":7}"#, b"", &large] {
            std::fs::write(folder.path("cam1"), octets).unwrap();
            let error = folder.read("cam1", None, true).unwrap_err().to_string();
            assert!(error.contains("cam1.json is ignored") && error.contains("told before"), "{error}");
        }
        std::fs::remove_file(folder.path("cam1")).unwrap();
        std::fs::create_dir(folder.path("cam1")).unwrap();
        assert!(folder.read("cam1", None, true).is_err());
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

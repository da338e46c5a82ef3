//! What `--export` says.

use crate::error::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// How other processes get at the memory of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExportKind {
    /// CUDA's own way: the consumer opens memory and events by handles, and its streams wait without the CPU.
    CudaIpc,
    /// A dma-buf, for other drivers: its descriptor is passed, and a frame is offered when it is finished.
    DmaBuf,
}

impl ExportKind {
    /// Both.
    pub const ALL: [ExportKind; 2] = [ExportKind::CudaIpc, ExportKind::DmaBuf];
    /// Its word on the command line and in the protocol.
    pub const fn word(self) -> &'static str {
        match self {
            ExportKind::CudaIpc => "cuda-ipc",
            ExportKind::DmaBuf => "dma-buf",
        }
    }
}

impl fmt::Display for ExportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A kind and the path of its socket: `cuda-ipc=/run/user/1000/frames`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// How.
    pub kind: ExportKind,
    /// Where consumers connect.
    pub path: PathBuf,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.path.display())
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |what: String| Error::new(Kind::Usage, what).cure("write cuda-ipc=PATH or dma-buf=PATH");
        let (word, path) = text.split_once('=').ok_or_else(|| wrong(format!("`{text}` names no kind and path")))?;
        let kind = ExportKind::ALL
            .into_iter()
            .find(|kind| kind.word() == word)
            .ok_or_else(|| wrong(format!("frames are not exported as `{word}`")))?;
        if path.is_empty() {
            return Err(wrong(format!("`{text}` names no path")));
        }
        Ok(Target { kind, path: path.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_path_are_read() {
        let target: Target = "cuda-ipc=/tmp/a=b".parse().unwrap();
        assert_eq!(target, Target { kind: ExportKind::CudaIpc, path: "/tmp/a=b".into() });
        assert_eq!(target.to_string(), "cuda-ipc=/tmp/a=b");
        assert_eq!("dma-buf=frames".parse::<Target>().unwrap().kind, ExportKind::DmaBuf);
    }

    #[test]
    fn what_is_wrong_says_what_is_right() {
        for (text, says) in [
            ("", "names no kind"),
            ("/tmp/frames", "names no kind"),
            ("cuda-ipc=", "names no path"),
            ("CUDA-IPC=x", "not exported as `CUDA-IPC`"),
            ("dmabuf=x", "not exported as `dmabuf`"),
            ("=x", "not exported as ``"),
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert_eq!(error.kind(), Kind::Usage);
            assert!(error.to_string().contains(says), "{text}: {error}");
            assert!(error.cure_text().contains("cuda-ipc=PATH"), "{text}");
        }
    }
}

//! Files of the system, read below a folder: `/`, or a tree that a test has written.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Octets of a text.
const LONGEST: u64 = 1 << 20;

/// Where sysfs and procfs are looked for.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// The system's own files for `/`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Root(folder.into())
    }
    /// Where `path` (without a slash in front) lies.
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }
    /// A text without the white space around it; none where it is not there or may not be read. What is longer than any
    /// file of sysfs is cut, and nothing is waited for.
    pub fn text(&self, path: &str) -> Option<String> {
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(self.path(path)).ok()?;
        let mut octets = Vec::new();
        file.take(LONGEST).read_to_end(&mut octets).ok()?;
        Some(String::from_utf8_lossy(&octets).trim().to_owned())
    }
    /// A text that is a number.
    pub fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }
    /// Names in a folder, in their order.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
    /// It is there.
    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }
    /// What a link leads to, below the same folder.
    pub fn resolved(&self, path: &str) -> Option<PathBuf> {
        let whole = std::fs::canonicalize(self.path(path)).ok()?;
        let base = std::fs::canonicalize(&self.0).ok()?;
        whole.strip_prefix(base).ok().map(Path::to_owned)
    }
    /// The last name of what a link leads to: `mlx5_core` for a device's `driver`.
    pub fn target(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }
    /// A kernel module is loaded.
    pub fn module(&self, name: &str) -> bool {
        let loaded = self.text("proc/modules").unwrap_or_default();
        loaded.lines().any(|line| line.split_ascii_whitespace().next() == Some(name))
    }
}

/// A tree of files for tests, gone with it.
#[cfg(test)]
pub mod tests {
    use super::*;

    pub struct Tree {
        folder: tempfile::TempDir,
    }

    impl Tree {
        pub fn new() -> Self {
            Tree { folder: tempfile::tempdir().unwrap() }
        }
        pub fn root(&self) -> Root {
            Root::new(self.folder.path())
        }
        /// A file; folders are made.
        pub fn file(&self, path: &str, text: &str) -> &Self {
            let path = self.folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            self
        }
        /// A link to another place of the tree.
        pub fn link(&self, path: &str, to: &str) -> &Self {
            let path = self.folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(self.folder.path().join(to), path).unwrap();
            self
        }
        /// A PCI device at a path of bridges below `sys/devices`, the way sysfs shows it.
        pub fn pci(&self, path: &str, files: &[(&str, &str)], driver: Option<&str>) -> &Self {
            let place = format!("sys/devices/{path}");
            for (name, text) in files {
                self.file(&format!("{place}/{name}"), text);
            }
            let address = path.rsplit('/').next().unwrap();
            self.link(&format!("sys/bus/pci/devices/{address}"), &place);
            if let Some(driver) = driver {
                self.file(&format!("sys/bus/pci/drivers/{driver}/module"), "");
                self.link(&format!("{place}/driver"), &format!("sys/bus/pci/drivers/{driver}"));
            }
            self
        }
    }

    #[test]
    fn texts_numbers_links_and_modules_are_read() {
        let tree = Tree::new();
        tree.file("a/number", " 17\n").file("proc/modules", "nvidia_peermem 16384 0 - Live 0x0\nnvidia 1 2\n");
        tree.link("a/link", "a/number");
        let root = tree.root();
        assert_eq!(root.number::<u32>("a/number"), Some(17));
        assert_eq!(root.text("a/none"), None);
        assert_eq!(root.target("a/link").as_deref(), Some("number"));
        assert_eq!(root.resolved("a/link").as_deref(), Some(Path::new("a/number")));
        assert_eq!(root.names("a"), ["link", "number"]);
        assert!(root.module("nvidia") && root.module("nvidia_peermem") && !root.module("nvidia_fs"));
    }
}

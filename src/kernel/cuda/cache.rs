//! Compiled kernels on disk, so that only the first start waits for the compiler. A cache that cannot be used is none.
#![allow(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A file begins with this, the length and the hash of what follows.
const MAGIC: &[u8; 8] = b"gdmedia1";

/// Files that this process has begun: threads that compile the same kernel write one each.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// A folder of compiled kernels.
pub struct Cache(Option<PathBuf>);

impl Cache {
    /// `$XDG_CACHE_HOME/gdmedia/kernels`, or `~/.cache/gdmedia/kernels`.
    pub fn of_user() -> Self {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        Cache(base.map(|base| base.join("gdmedia/kernels")))
    }
    /// In this folder.
    #[cfg(test)]
    pub fn at(folder: &std::path::Path) -> Self {
        Cache(Some(folder.into()))
    }

    /// What was kept for `key`, if it is whole.
    pub fn get(&self, key: u128) -> Option<Vec<u8>> {
        let file = read(&self.path(key)?).ok()?;
        let (magic, rest) = file.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (sum, image) = rest.split_first_chunk()?;
        let whole = magic == MAGIC
            && u64::from_le_bytes(*len) == image.len() as u64
            && u128::from_le_bytes(*sum) == hash([image]);
        whole.then(|| image.to_vec())
    }

    /// Keeps an image: whole or not at all. Whether it did is nobody's concern.
    pub fn put(&self, key: u128, image: &[u8]) {
        let Some(path) = self.path(key) else { return };
        let Some(folder) = path.parent() else { return };
        let number = BEGUN.fetch_add(1, Relaxed);
        let part = folder.join(format!("{key:032x}.{}.{number}.part", std::process::id()));
        let len = (image.len() as u64).to_le_bytes();
        let octets = [&MAGIC[..], &len, &hash([image]).to_le_bytes(), image].concat();
        let kept =
            fs::create_dir_all(folder).and_then(|()| write(&part, &octets)).and_then(|()| fs::rename(&part, path));
        if kept.is_err() {
            let _ = fs::remove_file(part);
        }
    }

    fn path(&self, key: u128) -> Option<PathBuf> {
        Some(self.0.as_deref()?.join(format!("{key:032x}")))
    }
}

/// A file that this user or root made: what it holds is code.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let about = file.metadata()?;
    // SAFETY: no argument, and it cannot fail.
    let user = unsafe { libc::geteuid() };
    if !about.is_file() || ![0, user].contains(&about.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut octets = Vec::new();
    file.read_to_end(&mut octets)?;
    Ok(octets)
}

/// Writes a file that does not exist yet; follows no link.
fn write(path: &Path, octets: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(octets)
}

/// FNV-1a of 128 bits over parts, their lengths included.
pub fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u128 {
    let add = |hash: u128, octet: &u8| (hash ^ u128::from(*octet)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
    parts.into_iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, part| {
        let hash = part.iter().fold(hash, add);
        (part.len() as u64).to_le_bytes().iter().fold(hash, add)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_got() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("a/b"));
        assert_eq!(cache.get(1), None);
        cache.put(1, b"image");
        cache.put(2, b"");
        assert_eq!(cache.get(1).as_deref(), Some(&b"image"[..]));
        assert_eq!(cache.get(2).as_deref(), Some(&b""[..]));
        assert_eq!(cache.get(3), None);
        cache.put(1, b"another");
        assert_eq!(cache.get(1).as_deref(), Some(&b"another"[..]));
        assert_eq!(fs::read_dir(folder.path().join("a/b")).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn any_damage_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        cache.put(7, b"an image of some length");
        let path = cache.path(7).unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.get(7), None, "octet {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.get(7), None, "{at} octets");
        }
        fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        assert_eq!(cache.get(7), None);
        // A new one takes its place.
        cache.put(7, b"new");
        assert_eq!(cache.get(7).as_deref(), Some(&b"new"[..]));
    }

    #[test]
    fn an_unusable_cache_is_none() {
        let folder = tempfile::tempdir().unwrap();
        // A file where the folder should be: not even root can make one there.
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        for cache in [Cache::at(&file.join("kernels")), Cache::at(Path::new("/proc/none/kernels")), Cache(None)] {
            cache.put(1, b"image");
            assert_eq!(cache.get(1), None);
        }
    }

    #[test]
    fn files_of_other_users_are_not_code_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        cache.put(1, b"image");
        let path = cache.path(1).unwrap();
        match std::os::unix::fs::chown(&path, Some(12_345), None) {
            Ok(()) => assert_eq!(cache.get(1), None),
            Err(why) => println!("skipped: files cannot be given away: {why}"),
        }
    }

    #[test]
    fn no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        fs::write(&target, b"precious").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(write(&link, b"image").is_err());
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        // A link in the place of an image is replaced, not written through.
        let cache = Cache::at(folder.path());
        std::os::unix::fs::symlink(&target, cache.path(1).unwrap()).unwrap();
        assert_eq!(cache.get(1), None);
        cache.put(1, b"image");
        assert_eq!((cache.get(1).as_deref(), fs::read(&target).unwrap()), (Some(&b"image"[..]), b"precious".to_vec()));
    }

    #[test]
    fn many_may_write_and_read_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let image = vec![7; 1 << 20];
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        cache.put(1, &image);
                        // Whole at any moment once it is there.
                        assert!(cache.get(1).as_deref() == Some(&image[..]));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn hashes_tell_parts_apart() {
        // The number that FNV-1a of 128 bits begins with.
        let empty: [&[u8]; 0] = [];
        assert_eq!(hash(empty), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_ne!(hash([&b"ab"[..], b"c"]), hash([&b"a"[..], b"bc"]));
        assert_ne!(hash([&b"ab"[..]]), hash([&b"ab"[..], b""]));
    }
}

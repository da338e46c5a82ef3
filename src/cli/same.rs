//! Outputs that are also inputs: a file opened for writing is empty before it is read.

use gdmedia::error::{Error, Kind, Result};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Refuses an output that is also an input, and two outputs that are one file. Call it before anything is opened for
/// writing. What is no file (`-`, a URL, a device, a pipe) is never the same as anything.
pub fn refuse(inputs: &[&Path], outputs: &[&Path]) -> Result<()> {
    for (n, output) in outputs.iter().enumerate() {
        let Some(place) = place(output) else { continue };
        if inputs.iter().any(|input| self::place(input).as_ref() == Some(&place)) {
            return Err(Error::new(Kind::Usage, format!("{} is also the input", output.display()))
                .cure("write to another file"));
        }
        let earlier = outputs.iter().take(n).find(|other| self::place(other).as_ref() == Some(&place));
        if let Some(other) = earlier {
            return Err(Error::new(
                Kind::Usage,
                format!("two outputs go to one file: {} and {}", other.display(), output.display()),
            )
            .cure("give each its own file"));
        }
    }
    Ok(())
}

/// What makes two paths one file, whatever links lead there.
#[derive(PartialEq, Eq)]
enum Place {
    /// Device and inode of a file.
    File(u64, u64),
    /// Device and inode of the folder, and the name in it, of a file that is not there yet.
    New(u64, u64, OsString),
}

fn place(path: &Path) -> Option<Place> {
    // /dev/stdout and the like lead to files of somebody else, who asked for it.
    if path.as_os_str() == "-" || (path.starts_with("/dev") && !path.starts_with("/dev/shm")) {
        return None;
    }
    if let Ok(meta) = std::fs::metadata(path) {
        return meta.is_file().then(|| Place::File(meta.dev(), meta.ino()));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let meta = std::fs::metadata(folder).ok()?;
    Some(Place::New(meta.dev(), meta.ino(), path.file_name()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_by_any_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (a, b, hard, soft, new) = (path("a"), path("b"), path("hard"), path("soft"), path("new"));
        std::fs::write(&a, b"a").unwrap();
        std::fs::write(&b, b"b").unwrap();
        std::fs::hard_link(&a, &hard).unwrap();
        std::os::unix::fs::symlink(&a, &soft).unwrap();
        let roundabout = folder.path().join(".").join("new");
        for output in [&a, &hard, &soft] {
            let error = refuse(&[&b, &a], &[&new, output]).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage);
            assert!(error.to_string().contains("is also the input"), "{error}");
        }
        assert!(refuse(&[], &[&hard, &soft]).is_err());
        assert!(refuse(&[], &[&new, &roundabout]).unwrap_err().to_string().contains("one file"));
        refuse(&[&a], &[&b, &new]).unwrap();
        let (dash, null) = (Path::new("-"), Path::new("/dev/null"));
        refuse(&[dash, null, folder.path()], &[dash, dash, null, null, folder.path()]).unwrap();
    }
}

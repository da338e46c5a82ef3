//! Files that reports go to. They are begun before the work whose report they hold: a place that cannot be written to is told
//! at once, and not when hours of work are over.

use super::{Form, Report, render};
use crate::error::{Error, Kind, Result};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A report's file that was begun under another name beside it. What stands under its own name stays there until
/// [`Place::write`]; without that, dropping this removes what was begun.
#[derive(Debug)]
pub struct Place {
    /// As it was given.
    path: PathBuf,
    /// The file itself, where links lead there.
    target: PathBuf,
    beside: PathBuf,
    form: Form,
}

/// Names beside a file that are tried: those before are left from processes that were killed.
const TRIES: u32 = 100;

impl Place {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of [`Form::of`]; the name is one of a folder, a pipe or a device; nothing can be written there.
    pub fn open(path: &Path) -> Result<Self> {
        let form = Form::of(path)?;
        let target = match fs::metadata(path) {
            Ok(meta) if meta.is_file() => fs::canonicalize(path).map_err(|e| cannot(path, e))?,
            Ok(meta) => {
                let what = if meta.is_dir() { "a folder" } else { "no file" };
                return Err(Error::new(
                    Kind::Usage,
                    format!("{}: a report is a file, and this is {what}", path.display()),
                )
                .cure("give the name of a file, such as report.html"));
            }
            Err(_) => path.to_owned(),
        };
        let beside = begin(&target).map_err(|e| cannot(path, e))?;
        Ok(Place { path: path.to_owned(), target, beside, form })
    }

    /// The name that was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a report, on the disk first and then under its name, so that there is never half of one.
    ///
    /// # Errors
    /// Those of [`render`]; the file cannot be written.
    pub fn write(self, report: &Report) -> Result<()> {
        let text = render(report, self.form)?;
        let put = |mut file: File| {
            file.write_all(text.as_bytes())?;
            replace(&file, &self.beside, &self.target)
        };
        // Not open meanwhile: open files of a run are counted.
        File::create(&self.beside).and_then(put).map_err(|e| cannot(&self.path, e))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It is not there any more where it was renamed.
        let _ = fs::remove_file(&self.beside);
    }
}

/// A new file in the same folder, so that it can be renamed.
fn begin(target: &Path) -> io::Result<PathBuf> {
    let mut tried = 0;
    loop {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".{}-{tried}.part", std::process::id()));
        let beside = PathBuf::from(name);
        match File::create_new(&beside) {
            Ok(_) => return Ok(beside),
            Err(e) if e.kind() == ErrorKind::AlreadyExists && tried < TRIES => tried += 1,
            Err(e) => return Err(e),
        }
    }
}

/// Puts a finished file in the place of another: its octets are on the disk before its name is, and then its name too.
pub(crate) fn replace(file: &File, beside: &Path, target: &Path) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(beside, target)?;
    // Not every file system can do this; the file is whole under the one name or under the other without it.
    let _ = File::open(folder(target)).and_then(|folder| folder.sync_all());
    Ok(())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn cannot(path: &Path, e: io::Error) -> Error {
    let what = format!("cannot write the report {}", path.display());
    let folder = folder(path).display();
    match e.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            Error::new(Kind::Output, format!("{what}: there is no folder {folder}")).cure(format!("mkdir -p {folder}"))
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::new(Kind::Permission, what)
            .because(e)
            .cure(format!("write to a folder where this user may make files; {folder} is none")),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Error::new(Kind::Output, what).because(e).cure(format!("make room on the disk of {folder}"))
        }
        _ => Error::new(Kind::Output, what)
            .because(e)
            .cure("check the folder, its permissions and the space on the disk"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(title: &str) -> Report {
        Report::new("analyze", title)
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_there_stays_until_the_report_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        fs::write(&path, "old").unwrap();
        let place = Place::open(&path).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path()).len()), ("old", 2));
        place.write(&report("new")).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("\"title\": \"new\""));
        assert_eq!(names(folder.path()), ["r.json"]);
    }

    #[test]
    fn a_report_that_is_not_written_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        drop(Place::open(&folder.path().join("r.html")).unwrap());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn other_peoples_files_beside_it_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.txt");
        let mine = folder.path().join(format!("r.txt.{}-0.part", std::process::id()));
        fs::write(&mine, "mine").unwrap();
        Place::open(&path).unwrap().write(&report("x")).unwrap();
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file.txt"), folder.path().join("link.txt"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        Place::open(&link).unwrap().write(&report("by the link")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&file).unwrap().contains("by the link"));
    }

    #[test]
    fn places_that_cannot_be_written_to_say_so_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("folder.html")).unwrap();
        fs::write(at("file"), "").unwrap();
        for (name, kind, says) in [
            ("r.doc", Kind::Usage, ".html"),
            ("r", Kind::Usage, ".html"),
            ("none/r.html", Kind::Output, "mkdir -p"),
            ("file/r.html", Kind::Output, "mkdir -p"),
            ("folder.html", Kind::Usage, "a folder"),
        ] {
            let error = Place::open(&at(name)).unwrap_err();
            assert!(error.kind() == kind && error.to_string().contains(says), "{name}: {error}");
            assert!(!error.cure_text().is_empty(), "{name}");
        }
        assert_eq!(names(folder.path()), ["file", "folder.html"]);
    }
}

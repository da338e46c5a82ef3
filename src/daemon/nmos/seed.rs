//! What all ids of the node are made of.

use crate::error::{Error, Kind, Result};
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

/// Its file in the folder of the state; receivers have names of another form there.
const FILE: &str = "nmos-seed";
/// No seed is longer.
const MOST: u64 = 4096;

/// The seed, and why it could not be kept, where it could not.
///
/// A machine that is renamed, or a container that is made anew, is the same node to controllers, whose routes hang on its ids: what
/// the machine was called at first use is kept in `folder`. `given` by the configuration goes before that.
///
/// # Errors
/// Nobody says what this machine is ([`Kind::Usage`]), or what is kept cannot be read: other ids would be worse than none.
pub fn of(given: Option<&str>, folder: Option<&Path>, machine: &str, name: &str) -> Result<(String, Option<String>)> {
    if let Some(given) = given {
        return Ok((given.to_owned(), None));
    }
    let file = folder.map(|folder| folder.join(FILE));
    if let Some(file) = &file {
        let kept = read(file).map_err(|error| {
            Error::new(
                Kind::Permission,
                format!("cannot read {}, which the ids of the NMOS node are made of", file.display()),
            )
            .because(error)
            .cure("let the daemon's user read it, write seed in [nmos], or remove the file: then all ids may be others")
        })?;
        if let Some(kept) = kept {
            return Ok((kept, None));
        }
    }
    let nameless = name.is_empty() || name == "(none)";
    if machine.is_empty() && nameless {
        return Err(Error::new(
            Kind::Usage,
            "neither /etc/machine-id nor a host name says which machine this is, and ids of an NMOS node are made of that",
        )
        .cure("write seed = \"...\" in [nmos]: a name that no other node of the facility has"));
    }
    let seed = format!("{machine}/{name}");
    let trouble = match (folder, &file) {
        (Some(folder), Some(file)) => keep(folder, file, &seed).err().map(|error| {
            format!(
                "{} cannot be written ({error}): another name of this machine will be another node; write seed in [nmos]",
                file.display()
            )
        }),
        _ => None,
    };
    Ok((seed, trouble))
}

fn read(file: &Path) -> io::Result<Option<String>> {
    let file = match fs::File::open(file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text)?;
    // One that a full disk has left empty says nothing.
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

/// Whole or not at all.
fn keep(folder: &Path, file: &Path, seed: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let new = folder.join(format!(".{FILE}.new"));
    let mut out = fs::File::create(&new)?;
    writeln!(out, "{seed}")?;
    out.sync_all()?;
    fs::rename(&new, file)?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_of_the_machine_is_the_same_node() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let of = |given, machine, name| of(given, Some(&folder), machine, name).unwrap();
        // Given: nothing is kept.
        assert_eq!(of(Some("mine"), "0123", "rx1"), ("mine".into(), None));
        assert!(!folder.exists());
        // As it was made of before there was a file.
        assert_eq!(of(None, "0123", "rx1"), ("0123/rx1".into(), None));
        assert_eq!(of(None, "0123", "renamed"), ("0123/rx1".into(), None));
        assert_eq!(of(None, "", ""), ("0123/rx1".into(), None));
        assert_eq!(of(Some("mine"), "0123", "rx1"), ("mine".into(), None));
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [FILE]);
        fs::write(folder.join(FILE), "\n").unwrap();
        assert_eq!(of(None, "", "rx2"), ("/rx2".into(), None), "what is damaged is written anew");
        assert_eq!(of(None, "", "rx3"), ("/rx2".into(), None));
    }

    #[test]
    fn a_machine_that_is_nobody_is_refused() {
        for name in ["", "(none)"] {
            let error = of(None, None, "", name).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage);
            assert!(error.to_string().contains("/etc/machine-id") && error.cure_text().contains("seed"), "{error}");
        }
        assert_eq!(of(None, None, "0123", "").unwrap(), ("0123/".into(), None));
        assert_eq!(of(None, None, "", "rx1").unwrap(), ("/rx1".into(), None));
    }

    #[test]
    fn what_cannot_be_kept_is_said_and_what_cannot_be_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(format!(".{FILE}.new"))).unwrap();
        let (seed, trouble) = of(None, Some(dir.path()), "0123", "rx1").unwrap();
        assert_eq!(seed, "0123/rx1");
        assert!(trouble.is_some_and(|text| text.contains(FILE) && text.contains("seed in [nmos]")));
        fs::create_dir(dir.path().join(FILE)).unwrap();
        let error = of(None, Some(dir.path()), "0123", "rx1").unwrap_err();
        assert!(error.to_string().contains(FILE) && error.cure_text().contains("seed"), "{error}");
    }
}

//! The library is opened while the program runs, and says what is wrong with it. One test: what is open stays open.

use rivermax_sys::{Library, LoadError, raw};
use std::path::{Path, PathBuf};
use std::process::Command;

fn library(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (c, so) = (folder.join(format!("{name}.c")), folder.join(format!("lib{name}.so")));
    std::fs::write(&c, source).unwrap();
    assert!(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&so).arg(&c).status().unwrap().success());
    so
}

#[test]
fn what_cannot_be_opened_is_named_and_what_is_open_stays() {
    let needed = Command::new("readelf").arg("-d").arg(std::env::current_exe().unwrap()).output().unwrap().stdout;
    let needed = String::from_utf8_lossy(&needed);
    assert!(needed.contains("NEEDED") && !needed.contains("rivermax"), "{needed}");

    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("librivermax.so.1");
    let error = Library::load(Some(&nowhere)).unwrap_err();
    assert!(matches!(&error, LoadError::Open { path, .. } if *path == nowhere), "{error:?}");
    assert!(error.to_string().contains("librivermax.so.1 does not open: "), "{error}");

    // SAFETY: no other thread reads the environment: this is the only test here.
    unsafe { std::env::set_var("RIVERMAX_LIBRARY", &nowhere) };
    assert_eq!(Library::load(None).unwrap_err(), error);
    // SAFETY: as above.
    unsafe { std::env::remove_var("RIVERMAX_LIBRARY") };

    let other = library(folder.path(), "other", "int rmx_init(void) { return 0; }");
    let error = Library::load(Some(&other)).unwrap_err();
    assert_eq!(error, LoadError::Foreign { path: other, stand_in: false });

    let few = "int rmx_init(void) { return 0; } void rmx_stand_in_set_device(void) {}";
    let few = library(folder.path(), "few", few);
    let error = Library::load(Some(&few)).unwrap_err();
    let LoadError::Calls { path, missing } = &error else { panic!("{error:?}") };
    assert_eq!(*path, few);
    assert!(missing.contains(&"rmx_input_get_next_chunk".into()), "{missing:?}");
    assert!(!missing.contains(&"rmx_init".into()), "{missing:?}");
    assert!(error.to_string().contains("rmx_input_attach_flow"), "{error}");

    let loaded = Library::load(None).unwrap();
    assert_eq!(loaded.path(), Path::new(raw::STAND_IN_LIBRARY.unwrap()));
    assert_eq!(loaded.version(), "1.80.24 stand-in (no SDK, no NIC)");
    assert_eq!(raw::VERSION, "1.80.24");
    assert!(std::ptr::eq(loaded, Library::load(Some(loaded.path())).unwrap()));
    let open = loaded.path().to_path_buf();
    assert_eq!(Library::load(Some(&few)).unwrap_err(), LoadError::Another { asked: few, open });
}

//! The stand-in's library, in place of an SDK.

use crate::run;
use crate::sdk::Sdk;
use std::env;
use std::path::{Path, PathBuf};

const SOURCES: &str = "stand-in/src";

/// Only the header, for the documentation.
pub fn headers() -> Sdk {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("stand-in/include");
    Sdk { header: folder.join("rivermax_api.h"), includes: vec![folder], library: PathBuf::new(), stand_in: true }
}

/// Compiles the library into OUT_DIR.
pub fn build(out: &Path) -> Result<Sdk, String> {
    let mut sdk = headers();
    println!("cargo::rerun-if-changed=stand-in");
    sdk.library = out.join("librivermax_stand_in.so");
    let folder = Path::new(SOURCES);
    let entries = folder.read_dir().map_err(|e| format!("{SOURCES}: {e}"))?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut sources: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "c")).collect();
    sources.sort();

    let mut cc = cc::Build::new();
    cc.includes(&sdk.includes).include(folder).files(&sources).cargo_metadata(false);
    cc.std("gnu11").warnings(true).extra_warnings(true).flag("-fvisibility=hidden").flag("-pthread");
    // For a sanitized program (-Zsanitizer=address -Clink-arg=-rdynamic) cc makes sanitized objects; the runtime is the
    // program's, so nothing of it is linked here.
    let sanitized = env::var_os("CARGO_CFG_SANITIZE").is_some();
    let objects = cc.try_compile_intermediates().map_err(|e| format!("the stand-in does not compile: {e}"))?;
    let mut link = cc::Build::new().cargo_metadata(false).get_compiler().to_command();
    link.args(["-shared", "-pthread", "-o"]).arg(&sdk.library).args(&objects).arg("-ldl");
    link.arg(if sanitized { "-fno-sanitize=all" } else { "-Wl,-z,defs" });
    run(&mut link).map_err(|why| format!("the stand-in does not link: {why}"))?;
    Ok(sdk)
}

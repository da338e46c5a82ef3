//! Finds the user's SDK (or takes the stand-in), checks its header, makes the bindings and the shim, and links late.
//!
//! | variable | what for |
//! | --- | --- |
//! | `RIVERMAX_SDK` | the folder of the SDK, with its `include` and `lib` folders |
//! | `RIVERMAX_SDK_ANY_VERSION` | `1`: a version outside the range is a warning |

#[path = "build/header.rs"]
mod header;
#[path = "build/late.rs"]
mod late;
#[path = "build/sdk.rs"]
mod sdk;
#[path = "build/stand_in.rs"]
mod stand_in;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    for folder in ["build.rs", "build", "shim"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            why.lines().for_each(|line| println!("cargo::error={line}"));
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: cargo runs this")?);
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    let docs = env::var_os("DOCS_RS").is_some();
    // Documentation needs no SDK and links nothing.
    let sdk = if docs {
        stand_in::headers()
    } else if env::var_os("CARGO_FEATURE_STAND_IN").is_some() {
        stand_in::build(&out)?
    } else {
        sdk::find()?
    };
    println!("cargo::rerun-if-changed={}", sdk.header.display());

    let header = header::read(&sdk, &out)?;
    let (soname, calls) = if docs { (String::new(), Vec::new()) } else { late::link(&sdk, &header, &out)? };
    header.bindings(&out)?;

    let stand_in = sdk.stand_in.then_some(&sdk.library).filter(|_| !docs);
    let text = format!(
        "/// The version of the header that the crate was built against.\n\
         pub const VERSION: &str = {:?};\n\
         /// The name of the library of that SDK, as programs that are linked with it look for it.\n\
         pub const SONAME: &str = {soname:?};\n\
         /// Where the stand-in's library was built, with the feature `stand-in`.\n\
         pub const STAND_IN_LIBRARY: Option<&str> = {stand_in:?};\n\
         pub const STATUSES: &[(i32, &str)] = &{:?};\n{}",
        header.version,
        header.statuses,
        late::table(&calls)
    );
    write(&out.join("built.rs"), &text)?;
    println!("cargo::metadata=version={}", header.version);
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// What a command prints.
fn run(command: &mut std::process::Command) -> Result<String, String> {
    let program = command.get_program().to_owned();
    let output = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{} fails:\n{}", program.display(), String::from_utf8_lossy(&output.stderr).trim()))
    }
}

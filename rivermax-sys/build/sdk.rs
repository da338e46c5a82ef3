//! Where the user's SDK is.

use std::env;
use std::path::{Path, PathBuf};

/// Its header, the folders that the header's own `#include`s need, and its library.
pub struct Sdk {
    pub header: PathBuf,
    pub includes: Vec<PathBuf>,
    pub library: PathBuf,
    pub stand_in: bool,
}

const HEADER: &str = "rivermax_api.h";
const LIBRARY: &str = "librivermax.so";
const FOLDERS: [&str; 5] = ["/usr", "/usr/local", "/opt/mellanox/rivermax", "/opt/nvidia/rivermax", "/opt/rivermax"];

const CURE: &str = "Install NVIDIA's Rivermax SDK (https://developer.nvidia.com/networking/rivermax: needs a developer \
     account, and on a NIC a licence) and set RIVERMAX_SDK to the folder that has its include and lib folders; or build \
     with the feature `stand-in` (of gdmedia: `rivermax-stand-in`), which needs no SDK and receives from sockets, captures or memory.";

pub fn find() -> Result<Sdk, String> {
    println!("cargo::rerun-if-env-changed=RIVERMAX_SDK");
    let (includes, libraries) = match env::var_os("RIVERMAX_SDK").filter(|folder| !folder.is_empty()) {
        Some(folder) => (vec![PathBuf::from(&folder).join("include")], library_folders(Path::new(&folder))),
        None => usual(),
    };
    let header = includes
        .iter()
        .flat_map(|folder| [folder.join(HEADER), folder.join("mellanox").join(HEADER)])
        .find(|path| path.is_file())
        .ok_or_else(|| format!("no Rivermax SDK: there is no {HEADER} in {}\n{CURE}", list(&includes)))?;
    let library = libraries.iter().find_map(|folder| library_in(folder)).ok_or_else(|| {
        format!(
            "the Rivermax SDK has no library: {} is there, and no {LIBRARY} in {}\n{CURE}",
            header.display(),
            list(&libraries)
        )
    })?;
    println!("cargo::rerun-if-changed={}", library.display());
    Ok(Sdk { header, includes, library, stand_in: false })
}

/// What pkg-config says, then the usual folders.
fn usual() -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut includes, mut libraries) = (Vec::new(), Vec::new());
    if let Ok(found) = pkg_config::Config::new().cargo_metadata(false).probe("rivermax") {
        includes.extend(found.include_paths);
        libraries.extend(found.link_paths);
    }
    for folder in FOLDERS.map(Path::new) {
        includes.push(folder.join("include"));
        libraries.extend(library_folders(folder));
    }
    (includes, libraries)
}

fn library_folders(sdk: &Path) -> Vec<PathBuf> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let lib = sdk.join("lib");
    vec![lib.clone(), sdk.join("lib64"), lib.join(format!("{arch}-linux-gnu")), lib.join(arch)]
}

/// The library by its plain name, or by one with a version where the link of the development package is missing.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let plain = folder.join(LIBRARY);
    if plain.is_file() {
        return Some(plain);
    }
    let names = folder.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    names.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(LIBRARY))).min()
}

fn list(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

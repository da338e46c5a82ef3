//! What the user's header has: version, names, types.

use crate::sdk::Sdk;
use crate::{run, write};
use bindgen::Formatter;
use bindgen::callbacks::{EnumVariantCustomBehavior, EnumVariantValue, ItemInfo, ItemKind, ParseCallbacks};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{env, fs};

/// From the only release that a public source says something about (1.80.24: `rmx_input_set_completion_moderation` has
/// to be called, which is done here), up to the next one that may break with it.
const FROM: [u32; 3] = [1, 80, 24];
const BEFORE: [u32; 3] = [2, 0, 0];

const SHIM: [&str; 3] = ["shim/shim.h", "shim/calls.h", "shim/shim.c"];

/// Types of records that the caller has and public sources do not name: each is what an init call of the header takes
/// the address of.
const TYPES: [(&str, &str); 6] = [
    ("gdmedia_ptp_clock", "rmx_init_ptp_clock"),
    ("gdmedia_mem_registry", "rmx_init_mem_registry"),
    ("gdmedia_flow", "rmx_input_init_flow"),
    ("gdmedia_chunk_handle", "rmx_input_init_chunk_handle"),
    ("gdmedia_event_channel", "rmx_init_event_channel"),
    ("gdmedia_notification", "rmx_init_notification"),
];

/// The others, which only their size and alignment matter of.
const RECORDS: [&str; 6] = [
    "rmx_device_iface",
    "rmx_mem_region",
    "rmx_input_stream_params",
    "rmx_stream_id",
    "rmx_input_completion",
    "rmx_input_packet_info",
];

pub struct Header {
    path: PathBuf,
    includes: Vec<PathBuf>,
    stand_in: bool,
    /// [`RECORDS`], and what the header calls [`TYPES`].
    records: Vec<String>,
    pub version: String,
    /// Numbers and names of what calls answer.
    pub statuses: Vec<(i32, String)>,
}

/// Checks that the header is of a version in the range and has all that the shim names; then writes `gdmedia_header.h`.
pub fn read(sdk: &Sdk, out: &Path) -> Result<Header, String> {
    let mut includes = sdk.includes.clone();
    includes.extend(sdk.header.parent().map(Path::to_path_buf));
    let mut header = Header {
        path: sdk.header.clone(),
        includes,
        stand_in: sdk.stand_in,
        records: RECORDS.map(String::from).to_vec(),
        version: String::new(),
        statuses: Vec::new(),
    };

    let probe = out.join("probe.c");
    let marks = "gdmedia_version_begins RMX_VERSION_MAJOR RMX_VERSION_MINOR RMX_VERSION_PATCH gdmedia_version_ends";
    write(&probe, &format!("{}{marks}\n", header.include()))?;
    // -dD: macros stay in what comes out.
    let text = run(header.cc().get_compiler().to_command().args(["-E", "-dD"]).arg(&probe))
        .map_err(|why| format!("the Rivermax header {} cannot be read: {why}", sdk.header.display()))?;
    let has: BTreeSet<&str> = words(&text).collect();

    let mut wanted = BTreeSet::from(["RMX_VERSION_MAJOR", "RMX_VERSION_MINOR", "RMX_VERSION_PATCH"].map(String::from));
    for file in SHIM {
        let text = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
        let named = words(&text).filter(|word| word.starts_with("rmx_") || word.starts_with("RMX_"));
        wanted.extend(named.map(String::from));
    }
    let version =
        text.split("gdmedia_version_begins").nth(1).and_then(|rest| rest.split("gdmedia_version_ends").next());
    // Numbers may have a suffix: 24U.
    let number = |word: &str| word.trim_end_matches(['u', 'U', 'l', 'L']).parse().ok();
    let version: Vec<u32> = words(version.unwrap_or_default()).filter_map(number).collect();
    let shown = || version.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
    let missing: Vec<&str> = wanted.iter().map(String::as_str).filter(|name| !defined(name, &has, &text)).collect();
    if !missing.is_empty() {
        return Err(format!(
            "the Rivermax header {} (version {}) lacks {}\nThis crate is written for versions {} up to, not including, \
             {}: install one of them and set RIVERMAX_SDK to its folder.",
            header.path.display(),
            if version.is_empty() { "unknown".into() } else { shown() },
            missing.join(", "),
            dotted(FROM),
            dotted(BEFORE)
        ));
    }
    header.version = shown();
    header.check_version(&version)?;
    header.types(out)?;
    Ok(header)
}

fn dotted(version: [u32; 3]) -> String {
    version.map(|part| part.to_string()).join(".")
}

/// Names and numbers in a C text, without those in comments.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| !line.starts_with("/*") && !line.starts_with(" *"));
    lines
        .flat_map(|line| line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty()))
}

/// The preprocessed header has the name; the probe itself uses those of the version.
fn defined(name: &str, has: &BTreeSet<&str>, text: &str) -> bool {
    if name.starts_with("RMX_VERSION_") {
        return text.lines().any(|line| line.strip_prefix("#define ").is_some_and(|rest| rest.starts_with(name)));
    }
    has.contains(name)
}

impl Header {
    fn include(&self) -> String {
        format!("#include {:?}\n", self.path)
    }

    /// A C compiler that finds the header.
    pub fn cc(&self) -> cc::Build {
        let mut cc = cc::Build::new();
        cc.includes(&self.includes).extra_warnings(false).cargo_metadata(false);
        cc
    }

    fn bindgen(&self) -> bindgen::Builder {
        let includes = self.includes.iter().map(|folder| format!("-I{}", folder.display()));
        let mut bindgen = bindgen::builder().clang_args(includes).layout_tests(false).formatter(Formatter::None);
        // libclang may come without stddef.h and the like; the C compiler has them.
        if let Ok(folder) = run(self.cc().get_compiler().to_command().arg("-print-file-name=include")) {
            bindgen = bindgen.clang_args(["-idirafter", folder.trim()]);
        }
        bindgen
    }

    fn check_version(&self, version: &[u32]) -> Result<(), String> {
        println!("cargo::rerun-if-env-changed=RIVERMAX_SDK_ANY_VERSION");
        if version.len() == 3 && FROM.as_slice() <= version && version < BEFORE.as_slice() {
            return Ok(());
        }
        let what = format!(
            "the Rivermax header {} is of version {}; this crate is written for {} up to, not including, {}",
            self.path.display(),
            self.version,
            dotted(FROM),
            dotted(BEFORE)
        );
        if env::var("RIVERMAX_SDK_ANY_VERSION").is_ok_and(|value| value == "1") {
            println!("cargo::warning={what}");
            return Ok(());
        }
        Err(format!(
            "{what}\nInstall an SDK of such a version and set RIVERMAX_SDK to its folder, or set \
             RIVERMAX_SDK_ANY_VERSION=1 to try this one."
        ))
    }

    /// Finds the names of [`TYPES`] and of the statuses, and writes the header that the shim includes.
    fn types(&mut self, out: &Path) -> Result<(), String> {
        let enums = Arc::new(Mutex::new(Constants::new()));
        let declared = self
            .bindgen()
            .header(self.path.to_string_lossy())
            .allowlist_function("rmx_.*")
            .wrap_static_fns(true) // else it leaves them out; what it writes for that is not used
            .wrap_static_fns_path(out.join("unused"))
            .parse_callbacks(Box::new(Enums(Arc::clone(&enums))))
            .generate()
            .map_err(|why| format!("bindgen cannot read the Rivermax header {}: {why}", self.path.display()))?
            .to_string();
        let declared = declared.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut text = self.include();
        for (ours, call) in TYPES {
            let theirs = declared
                .split_once(&format!("fn {call} ("))
                .and_then(|(_, rest)| rest.split_once(')')?.0.split_once("* mut "))
                .and_then(|(_, name)| words(name).next())
                .ok_or_else(|| {
                    format!("the Rivermax header {}: {call} does not take the address of a record", self.path.display())
                })?;
            text += &format!("typedef {theirs} {ours};\n");
            self.records.push(theirs.into());
        }
        write(&out.join("gdmedia_header.h"), &text)?;
        let enums = enums.lock().map_err(|_| "bindgen panicked")?;
        let of = enums.iter().find(|(_, name, _)| name == "RMX_OK").map(|(of, ..)| of.clone());
        let same = enums.iter().filter(|(e, ..)| Some(e) == of.as_ref());
        self.statuses = same.map(|(_, name, value)| (*value as i32, name.clone())).collect();
        Ok(())
    }

    /// The raw level: what `shim.h` declares, and the types that it needs.
    pub fn bindings(&self, out: &Path) -> Result<(), String> {
        let mut bindgen = self
            .bindgen()
            .clang_arg(format!("-I{}", out.display()))
            .header(SHIM[0])
            .allowlist_function("gdmedia_.*")
            .allowlist_type("gdmedia_.*")
            .allowlist_var("GDMEDIA_.*")
            .merge_extern_blocks(true)
            .rust_edition(bindgen::RustEdition::Edition2024)
            .parse_callbacks(Box::new(Plain));
        for record in &self.records {
            bindgen = bindgen.allowlist_type(record).opaque_type(record);
        }
        if self.stand_in {
            let controls = self.path.with_file_name("rivermax_stand_in.h");
            bindgen = bindgen
                .header(controls.to_string_lossy())
                .allowlist_function("rmx_stand_in_.*")
                .allowlist_type("rmx_stand_in_.*");
        }
        let bindings = bindgen
            .generate()
            .map_err(|why| format!("bindgen cannot read shim.h with {}: {why}", self.path.display()))?;
        let path = out.join("bindings.rs");
        bindings.write_to_file(&path).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// Constants of enumerations: of which, name, value.
type Constants = Vec<(Option<String>, String, i64)>;

/// Collects them.
#[derive(Debug)]
struct Enums(Arc<Mutex<Constants>>);

impl ParseCallbacks for Enums {
    fn enum_variant_behavior(
        &self,
        of: Option<&str>,
        name: &str,
        value: EnumVariantValue,
    ) -> Option<EnumVariantCustomBehavior> {
        let value = match value {
            EnumVariantValue::Boolean(value) => value.into(),
            EnumVariantValue::Signed(value) => value,
            EnumVariantValue::Unsigned(value) => value as i64,
        };
        if let Ok(mut all) = self.0.lock() {
            all.push((of.map(String::from), name.into(), value));
        }
        None
    }
}

/// Rust sees the shim's functions under the header's names.
#[derive(Debug)]
struct Plain;

impl ParseCallbacks for Plain {
    fn item_name(&self, item: ItemInfo<'_>) -> Option<String> {
        let plain = item.name.strip_prefix("gdmedia_")?;
        (matches!(item.kind, ItemKind::Function) && plain.starts_with("rmx_")).then(|| plain.into())
    }
}

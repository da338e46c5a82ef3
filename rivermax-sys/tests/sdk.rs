//! Builds against SDKs of all kinds, made from the stand-in's header and library: what is wrong is named.

use rivermax_sys::raw;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

struct Sdk {
    folder: tempfile::TempDir,
}

impl Sdk {
    /// The stand-in's header, changed, and its library, which has no name of its own.
    fn new(change: impl Fn(String) -> String) -> Self {
        let sdk = Sdk { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(sdk.path("include/mellanox")).unwrap();
        fs::create_dir(sdk.path("lib")).unwrap();
        let header = fs::read_to_string(format!("{ROOT}/stand-in/include/rivermax_api.h")).unwrap();
        let changed = change(header);
        fs::write(sdk.header(), changed).unwrap();
        fs::copy(raw::STAND_IN_LIBRARY.unwrap(), sdk.path("lib/librivermax.so")).unwrap();
        sdk
    }
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    fn header(&self) -> PathBuf {
        self.path("include/mellanox/rivermax_api.h")
    }
    /// A library of its own, with this name.
    fn library(&self, source: &str, soname: &str) {
        let c = self.path("library.c");
        fs::write(&c, source).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-w", "-o"]).arg(self.path("lib/librivermax.so")).arg(&c);
        assert!(cc.arg(format!("-Wl,-soname,{soname}")).status().unwrap().success());
    }
    fn fails(&self) -> String {
        let (good, text) = cargo(&["check"], &[("RIVERMAX_SDK", self.folder.path())]);
        assert!(!good, "{text}");
        text
    }
}

/// Cargo without the feature `stand-in`, in the folder where this test was built: only this crate is compiled again.
fn cargo(arguments: &[&str], environment: &[(&str, &Path)]) -> (bool, String) {
    let target = Path::new(raw::STAND_IN_LIBRARY.unwrap()).ancestors().nth(5).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).args(["--offline", "--lib", "--manifest-path"]).arg(format!("{ROOT}/Cargo.toml"));
    cargo.arg("--target-dir").arg(target).env_remove("RIVERMAX_SDK").env_remove("DOCS_RS");
    let output = cargo.envs(environment.iter().copied()).output().unwrap();
    let text = [output.stderr, output.stdout].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.success(), text)
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    words.iter().for_each(|word| assert!(text.contains(word), "no {word:?} in:\n{text}"));
}

// One after the other: they share a folder, and so a lock.
#[test]
fn a_build_that_cannot_be_says_why() {
    // No SDK.
    let empty = tempfile::tempdir().unwrap();
    let (good, text) = cargo(&["check"], &[("RIVERMAX_SDK", empty.path())]);
    assert!(!good);
    let include = empty.path().join("include").display().to_string();
    says(&text, &["no Rivermax SDK: there is no rivermax_api.h in", &include, "https://developer.nvidia.com"]);
    says(&text, &["set RIVERMAX_SDK to the folder", "with the feature `stand-in`"]);

    // A header, and no library.
    let sdk = Sdk::new(|header| header);
    fs::remove_file(sdk.path("lib/librivermax.so")).unwrap();
    says(&sdk.fails(), &["has no library", "no librivermax.so in"]);

    // A header without three calls: a function, an inline function, a macro.
    let gone = ["rmx_input_set_completion_moderation", "rmx_init_notification", "rmx_input_set_flow_tag"];
    let sdk = Sdk::new(|header| gone.iter().fold(header, |text, name| text.replace(name, "other")));
    let text = sdk.fails();
    says(&text, &gone);
    says(&text, &[sdk.header().to_str().unwrap(), "(version 1.80.24) lacks", "RIVERMAX_SDK"]);
    assert!(!text.contains("rmx_input_set_flow_remote_addr"), "only what is missing:\n{text}");

    // Versions.
    let version = |major: u32, minor: u32, patch: u32| {
        Sdk::new(move |header| {
            let header = header.replace("VERSION_MAJOR 1\n", &format!("VERSION_MAJOR {major}\n"));
            let header = header.replace("VERSION_MINOR 80\n", &format!("VERSION_MINOR {minor}\n"));
            header.replace("VERSION_PATCH 24\n", &format!("VERSION_PATCH {patch}\n"))
        })
    };
    for (sdk, shown) in [(version(2, 0, 0), "version 2.0.0"), (version(1, 80, 23), "version 1.80.23")] {
        let text = sdk.fails();
        says(&text, &[shown, "1.80.24 up to, not including, 2.0.0", sdk.header().to_str().unwrap()]);
    }
    let sdk = version(2, 0, 0);
    let one = Path::new("1");
    let (good, text) = cargo(&["check"], &[("RIVERMAX_SDK", sdk.folder.path()), ("RIVERMAX_SDK_ANY_VERSION", one)]);
    assert!(good, "{text}");
    says(&text, &["is of version 2.0.0"]);
    let sdk = Sdk::new(|header| header.replace("#define RMX_VERSION_PATCH 24", ""));
    says(&sdk.fails(), &["lacks RMX_VERSION_PATCH"]);

    // Records and calls of another kind.
    let sdk = Sdk::new(|header| {
        header.replace("rmx_get_time(rmx_time_type type, uint64_t *ns)", "rmx_get_time(rmx_time_type type, double *s)")
    });
    says(&sdk.fails(), &["our C shim does not fit", "rmx_get_time"]);
    let sdk = Sdk::new(|header| header.replace("rmx_mkey mkey;", "rmx_mkey key;"));
    says(&sdk.fails(), &["our C shim does not fit the Rivermax header", sdk.header().to_str().unwrap(), "mkey"]);
    let sdk = Sdk::new(|header| {
        header.replace(
            "rmx_init_ptp_clock(rmx_ptp_clock_params *clock) {",
            "rmx_init_ptp_clock(int clock) {(void)clock;} void other(rmx_ptp_clock_params *clock) {",
        )
    });
    says(&sdk.fails(), &["rmx_init_ptp_clock does not take the address of a record"]);

    // A library that has less than its header says; a call that is data; no library at all.
    let sdk = Sdk::new(|header| header);
    sdk.library("int rmx_init(void) { return 0; }", "librivermax.so.9");
    says(&sdk.fails(), &["lacks calls that its header", "rmx_input_create_stream"]);
    let sdk = Sdk::new(|header| {
        header.replace("RMX_EXPORT rmx_status rmx_init(void);", "extern int rmx_state;\n#define rmx_init() rmx_state")
    });
    sdk.library("int rmx_state = 1;", "librivermax.so.9");
    says(&sdk.fails(), &["uses rmx_state, which is data"]);
    fs::write(sdk.path("lib/librivermax.so"), "INPUT(librivermax.so.9)").unwrap();
    says(&sdk.fails(), &["is no usable library"]);
}

#[test]
fn a_build_needs_the_library_only_to_know_its_name_and_calls() {
    let names = fs::read_to_string(format!("{ROOT}/stand-in/include/rivermax_api.h")).unwrap();
    let functions = names.lines().filter(|line| line.starts_with("RMX_EXPORT"));
    let functions = functions.map(|line| line.split_once('(').unwrap().0.rsplit([' ', '*']).next().unwrap());
    let functions: Vec<&str> = functions.collect();
    assert!(functions.contains(&"rmx_init") && functions.contains(&"rmx_get_version_string"), "{functions:?}");
    // A stream's id may be a number as well as a record, what calls answer may be macros, and versions any numbers of C.
    let sdk = Sdk::new(|header| {
        let (before, rest) = header.split_once("typedef struct rmx_stream_id {").unwrap();
        let rest = rest.split_once("} rmx_stream_id;").unwrap().1;
        let header = format!("{before}typedef uint32_t rmx_stream_id;{rest}");
        let header = header.replace("RMX_VERSION_PATCH 24", "RMX_VERSION_PATCH (24U)");
        header.replace("    RMX_BUSY = 11,\n", "#define RMX_BUSY ((rmx_status)11)\n")
    });
    let source: String = functions.iter().map(|name| format!("void {name}(void) {{}}\n")).collect();
    sdk.library(&source, "librivermax.so.9");
    let (good, text) =
        cargo(&["check", "--message-format=json-render-diagnostics"], &[("RIVERMAX_SDK", sdk.folder.path())]);
    assert!(good, "{text}");
    let out = text.rsplit("\"out_dir\":\"").next().and_then(|rest| rest.split('"').next()).unwrap();
    let built = fs::read_to_string(Path::new(out).join("built.rs")).unwrap();
    says(&built, &["SONAME: &str = \"librivermax.so.9\"", "STAND_IN_LIBRARY: Option<&str> = None", "c\"rmx_init\""]);
    assert!(!built.contains("rmx_stand_in"), "{built}");
}

#[test]
fn documentation_needs_no_sdk() {
    let (good, text) = cargo(&["doc", "--no-deps"], &[("DOCS_RS", Path::new("1"))]);
    assert!(good, "{text}");
}

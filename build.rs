//! Compiles the CUDA kernels beforehand where there is nvcc; without it, the program compiles those that it needs with
//! NVRTC. See `kernels/README.md`.
//!
//! `GDMEDIA_NVCC` is the path of nvcc, or `none`; else it is looked for in `PATH` and in `/usr/local/cuda/bin`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs, thread};

/// What the kernels are compiled for, where nvcc knows it; PTX of the first that it knows covers all others.
const PTX: u32 = 75;
const TARGETS: [u32; 6] = [80, 86, 89, 90, 100, 120];

/// A fat binary: its name, its source and what the source wants to be told.
struct Image {
    name: String,
    source: &'static str,
    defines: Vec<String>,
}

/// The same in `src/kernel/cuda/image.rs`.
fn images() -> Vec<Image> {
    let mut images: Vec<Image> = [444, 422, 420, 400]
        .into_iter()
        .flat_map(|wire| [8, 10, 12, 16].map(|bits| (wire, bits)))
        .filter(|&pair| pair != (420, 16))
        .map(|(wire, bits)| Image {
            name: format!("unpack_{wire}_{bits}"),
            source: "unpack.cu",
            defines: vec![format!("-DGD_WIRE={wire}"), format!("-DGD_BITS={bits}")],
        })
        .collect();
    let others = [("copy", "copy.cu"), ("crc", "crc.cu"), ("frame", "frame.cu")];
    images.extend(others.map(|(name, source)| Image { name: name.into(), source, defines: Vec::new() }));
    images
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-env-changed=GDMEDIA_NVCC");
    #[cfg(feature = "verbs")]
    if let Err(why) = verbs() {
        why.lines().for_each(|line| println!("cargo::error={line}"));
        std::process::exit(1);
    }
    #[cfg(feature = "dpdk")]
    shim();
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let checked = env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let compiled = match compiler() {
        Some((nvcc, asked)) => match compile(&nvcc, &out, checked) {
            Ok(targets) => Some(targets),
            Err(why) if asked => panic!("GDMEDIA_NVCC: {why}"),
            Err(why) => {
                println!("cargo::warning=kernels are not compiled beforehand: {}", why.replace('\n', " / "));
                None
            }
        },
        None => None,
    };
    fs::write(out.join("images.rs"), table(compiled.as_deref(), checked)).expect("OUT_DIR can be written");
}

/// What calls libibverbs, against the header that is installed. Nothing is linked with it.
#[cfg(feature = "verbs")]
fn verbs() -> Result<(), String> {
    for file in ["src/rx/verbs/shim.c", "src/rx/verbs/shim.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let found = pkg_config::Config::new().cargo_metadata(false).probe("libibverbs").map_err(|why| {
        format!("the feature `verbs` needs the header of libibverbs: apt install libibverbs-dev\n{why}")
    })?;
    cc::Build::new()
        .file("src/rx/verbs/shim.c")
        .includes(found.include_paths)
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        // Parts of a packed structure that begin where they may.
        .flag_if_supported("-Wno-address-of-packed-member")
        .try_compile("gdmedia_verbs")
        .map_err(|why| format!("src/rx/verbs/shim.c: {why}"))
}

/// Compiles the C that stands between this program and DPDK, with what `pkg-config` says of DPDK.
#[cfg(feature = "dpdk")]
fn shim() {
    const FOLDER: &str = "src/rx/dpdk/shim";
    /// What the shim calls. DPDK's own file names all libraries that there are.
    const LIBRARIES: [&str; 5] = ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_gpudev", "rte_eal"];
    println!("cargo::rerun-if-changed={FOLDER}");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    let say = |words: &[&str]| run(Command::new("pkg-config").args(words));
    let asked = say(&["--atleast-version=22.11", "libdpdk"]).and_then(|_| say(&["--cflags", "libdpdk"]));
    let flags = asked.unwrap_or_else(|why| {
        panic!(
            "the feature `dpdk` needs DPDK 22.11 or later, its headers and pkg-config's file libdpdk.pc: apt install \
             libdpdk-dev pkg-config, or set PKG_CONFIG_PATH ({why})"
        )
    });
    let mut build = cc::Build::new();
    build.std("gnu11").warnings(true).extra_warnings(true).define("ALLOW_EXPERIMENTAL_API", None);
    for flag in flags.split_whitespace() {
        match flag.strip_prefix("-I") {
            // Its inline functions are no business of ours.
            Some(folder) => build.flag("-isystem").flag(folder),
            None => build.flag(flag),
        };
    }
    build.files(["eal", "pool", "port", "flow"].map(|name| format!("{FOLDER}/{name}.c"))).compile("gdmedia_dpdk");
    let folders = say(&["--libs-only-L", "libdpdk"]).unwrap_or_default();
    for folder in folders.split_whitespace().filter_map(|word| word.strip_prefix("-L")) {
        println!("cargo::rustc-link-search=native={folder}");
    }
    LIBRARIES.iter().for_each(|library| println!("cargo::rustc-link-lib=dylib={library}"));
}

/// nvcc, and whether it was asked for by name.
fn compiler() -> Option<(PathBuf, bool)> {
    match env::var("GDMEDIA_NVCC") {
        Ok(path) if path == "none" => return None,
        Ok(path) if !path.is_empty() => return Some((path.into(), true)),
        _ => {}
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain([PathBuf::from("/usr/local/cuda/bin")])
        .map(|folder| folder.join("nvcc"))
        .find(|nvcc| nvcc.is_file())
        .map(|nvcc| (nvcc, false))
}

/// Compiles all images, as many at once as there are cores. Returns what there is machine code for.
fn compile(nvcc: &Path, out: &Path, checked: bool) -> Result<Vec<u32>, String> {
    println!("cargo::rerun-if-changed={}", nvcc.display());
    let known = |option, prefix: &str| -> Result<Vec<u32>, String> {
        let text = run(Command::new(nvcc).arg(option))?;
        Ok(text.lines().filter_map(|line| line.trim().strip_prefix(prefix)?.parse().ok()).collect())
    };
    let ptx = known("--list-gpu-arch", "compute_")?.into_iter().filter(|&arch| arch >= PTX).min();
    let ptx = ptx.ok_or("it knows no GPU of compute capability 7.5 or later")?;
    let mut targets = known("--list-gpu-code", "sm_")?;
    targets.retain(|target| TARGETS.contains(target));
    // One pass of the front end for all of them.
    let mut options = ["-std=c++17", "-fatbin", "-Xfatbin", "-compress-all"].map(String::from).to_vec();
    options.push(format!("-gencode=arch=compute_{ptx},code=compute_{ptx}"));
    options.extend(targets.iter().map(|target| format!("-gencode=arch=compute_{ptx},code=sm_{target}")));
    if checked {
        options.extend(["-DGDMEDIA_CHECKED".into(), "-lineinfo".into()]);
    }
    let kept = Kept::new(nvcc, out)?;
    let images = images();
    let waiting = Mutex::new(images.iter());
    let failed = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(image) = { waiting.lock().expect("no thread panics").next() } {
                    let to = out.join(format!("{}.fatbin", image.name));
                    let source = Path::new("kernels").join(image.source);
                    let mut command = Command::new(nvcc);
                    command.args(&options).args(&image.defines).arg(source);
                    if let Err(why) = kept.make(&image.name, &mut command, &to) {
                        failed.lock().expect("no thread panics").get_or_insert(why);
                    }
                }
            });
        }
    });
    failed.into_inner().expect("no thread panics").map_or(Ok(targets), Err)
}

/// Images of builds before: other features, a test or a lint want the same ones, and to make them takes minutes.
struct Kept {
    folder: PathBuf,
    /// Of the compiler, and of all that an image may be made from.
    of: u64,
}

impl Kept {
    fn new(nvcc: &Path, out: &Path) -> Result<Self, String> {
        let mut hash = DefaultHasher::new();
        run(Command::new(nvcc).arg("--version"))?.hash(&mut hash);
        let files = fs::read_dir("kernels").and_then(|files| files.collect::<Result<Vec<_>, _>>());
        let mut paths: Vec<PathBuf> = files.map_err(|e| format!("kernels: {e}"))?.iter().map(|f| f.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|suffix| suffix == "cuh" || suffix == "h"));
        paths.sort();
        for path in paths {
            fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?.hash(&mut hash);
        }
        // target/PROFILE/build/gdmedia-HASH/out.
        let folder = out.ancestors().nth(3).unwrap_or(out).join("kernels");
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Kept { folder, of: hash.finish() })
    }
    /// `to`, by this command, whose last argument is the source.
    fn make(&self, name: &str, command: &mut Command, to: &Path) -> Result<(), String> {
        let mut hash = DefaultHasher::new();
        self.of.hash(&mut hash);
        command.get_args().for_each(|word| word.hash(&mut hash));
        let source = command.get_args().last().map(fs::read);
        source.and_then(Result::ok).hash(&mut hash);
        let kept = self.folder.join(format!("{name}-{:016x}.fatbin", hash.finish()));
        if fs::copy(&kept, to).is_ok() {
            return Ok(());
        }
        run(command.arg("-o").arg(to))?;
        // Never half of one; where it cannot be kept it is made again.
        let half = kept.with_extension("half");
        let _ = fs::copy(to, &half).and_then(|_| fs::rename(&half, &kept));
        Ok(())
    }
}

/// What a command prints.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    if !output.status.success() {
        let text = [output.stderr, output.stdout].map(|o| String::from_utf8_lossy(&o).trim().to_owned());
        return Err(format!("{:?} fails: {}", command.get_program(), text.concat()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The Rust source that embeds them; `compiled` says for which GPUs, if at all.
fn table(compiled: Option<&[u32]>, checked: bool) -> String {
    let mut text =
        "/// Kernels check every index, and count and leave out what does not fit: so in debug builds.\n".to_owned();
    text += &format!("pub const CHECKED: bool = {checked};\n");
    text += &format!("pub const TARGETS: &[i32] = &{:?};\n", compiled.unwrap_or_default());
    text += "pub static BUILT_IN: &[(&str, &Aligned<[u8]>)] = &[\n";
    for image in images().iter().filter(|_| compiled.is_some()) {
        let file = format!("{}.fatbin", image.name);
        text +=
            &format!("    ({:?}, &Aligned(*include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}\")))),\n", image.name);
    }
    text + "];\n"
}

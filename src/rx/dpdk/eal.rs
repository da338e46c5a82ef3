//! DPDK's environment: started once in a process, for all receivers. A start that failed cannot be repeated.

use super::abi::{self, Refused};
use crate::error::{Error, Kind, Result};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

enum State {
    New,
    /// With these words of the user.
    Running(Vec<String>),
    /// Why not.
    Failed(String),
}

/// A device that no machine has. Given as the only one to take, so that none is taken but those that are named later.
const NO_DEVICE: &str = "0000:00:00.0";

static STATE: Mutex<State> = Mutex::new(State::New);

/// Has it run, from now on for good. `words`: what the user says to it; none: as it runs already, else as it is by itself.
///
/// # Errors
/// It cannot start, or runs with other words.
pub fn start(words: &[String]) -> Result<()> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*state {
        State::Running(with) if words.is_empty() || words == with => return Ok(()),
        State::Running(with) => {
            return Err(Error::new(
                Kind::Usage,
                format!("DPDK runs in this process already, with eal={}", with.join(" ")),
            )
            .cure("give all receivers the same eal=, or leave it out of all but the first"));
        }
        State::Failed(why) => {
            return Err(Error::new(Kind::Unavailable, format!("DPDK has failed to start in this process: {why}"))
                .cure("DPDK starts once in a process: mend what is wrong, and start gdmedia again"));
        }
        State::New => {}
    }
    refuse(words)?;
    let raised = abi::has_raised_rights();
    // The long name is of DPDK 25.11.
    let from = [values(words, "-d"), values(words, "--driver-path")].concat();
    drivers(&from, Path::new(abi::drivers()), raised)?;
    environment(raised, |name| std::env::var_os(name).is_some())?;
    words.iter().try_for_each(|word| filter_of_its_own(word, raised))?;
    let all: Vec<CString> = std::iter::once("gdmedia".to_owned())
        .chain(by_itself(words))
        .chain(words.iter().cloned())
        .map(CString::new)
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| Error::new(Kind::Usage, "a word of eal= has a zero octet in it"))?;
    // It ties the thread that starts it to a core; ours is to stay as it is.
    let thread = std::thread::Builder::new().name("dpdk".into()).spawn(move || abi::start(&all));
    let started = match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(started)) => started,
        Ok(Err(_)) => return Err(Error::new(Kind::Internal, "starting DPDK panicked")),
        Err(e) => return Err(Error::new(Kind::Unavailable, "no thread to start DPDK on").because(e)),
    };
    if let Err(refused) = started {
        *state = State::Failed(refused.to_string());
        return Err(failed(refused));
    }
    if !abi::addresses_are_virtual() {
        let why = "devices here are given physical addresses (IOVA mode PA)";
        *state = State::Failed(why.into());
        return Err(Error::new(Kind::Unavailable, format!("DPDK cannot use the ring's memory: {why}"))
            .cure("switch the IOMMU on (intel_iommu=on, or amd_iommu=on) and bind the port to vfio-pci"));
    }
    *state = State::Running(words.to_vec());
    Ok(())
}

fn failed(refused: Refused) -> Error {
    let text = refused.to_string();
    let (kind, cure) = match refused.errno {
        _ if text.contains("hugepage") => (
            Kind::Unavailable,
            "reserve huge pages (sysctl vm.nr_hugepages=512), or, for development, start with eal=--no-huge",
        ),
        // An address that we give, and that is one to the driver of its bus.
        _ if text.contains(NO_DEVICE) => (
            Kind::Unavailable,
            "it finds none of its drivers: install them (apt install libdpdk-dev, or librte-bus-pci23, librte-bus-vdev23 and that of the \
             port), or name their folder: eal=-d FOLDER",
        ),
        libc::ENOMEM => (Kind::Unavailable, "ask for less memory (eal=… -m MIB), or free some"),
        libc::EACCES | libc::EPERM => {
            (Kind::Permission, "run as root, or see docs/dpdk.md for the rights that it needs")
        }
        libc::EINVAL => (Kind::Usage, "correct eal=…, and start gdmedia again: DPDK starts once in a process"),
        _ => (Kind::Unavailable, "see docs/dpdk.md for what DPDK needs"),
    };
    Error::new(kind, "DPDK does not start").because(refused).cure(cure)
}

/// The values of an option in each of its forms: `-m 5`, `-m5`, `--name=5`, `--name 5`.
fn values<'a>(words: &'a [String], name: &str) -> Vec<&'a str> {
    let long = name.starts_with("--");
    let of = |(n, word): (usize, &'a String)| match word.strip_prefix(name)? {
        "" => Some(words.get(n + 1).map_or("", String::as_str)),
        rest if long => rest.strip_prefix('='),
        rest => Some(rest),
    };
    words.iter().enumerate().filter_map(of).collect()
}

fn value<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    values(words, name).first().copied()
}

fn has(words: &[String], names: &[&str]) -> bool {
    names.iter().any(|name| value(words, name).is_some())
}

/// What DPDK would end the process for, or take the machine's memory for.
fn refuse(words: &[String]) -> Result<()> {
    // `-h` and `-v` take no value: what follows them in a word (`-vd/some/file`) is further options, as getopt reads it. Long names
    // may be shortened.
    let is_refused = |word: &&String| {
        let long = word.as_str() == "--" || word.len() > 3 && "--help".starts_with(word.as_str());
        long || word.starts_with("-h") || word.starts_with("-v")
    };
    if let Some(word) = words.iter().find(is_refused) {
        return Err(Error::new(Kind::Usage, format!("`{word}` is no option for a receiver: eal={}", words.join(" ")))
            .cure("dpdk-testpmd --help shows DPDK's own options"));
    }
    if has(words, &["--proc-type"]) && value(words, "--proc-type").is_some_and(|kind| kind != "primary") {
        return Err(Error::new(Kind::Usage, "gdmedia is a process of its own: --proc-type=primary, or none"));
    }
    let wanted = value(words, "-m").and_then(|text| text.parse::<u64>().ok());
    if let (Some(wanted), true, Some(free)) = (wanted, has(words, &["--no-huge"]), available())
        && wanted > free
    {
        return Err(Error::new(
            Kind::Unavailable,
            format!("no memory for DPDK: eal= asks for {wanted} MiB, and {free} MiB are available"),
        )
        .cure("ask for less (-m MIB): packets lie in other memory, 64 MiB and 4 more for each receiver will do"));
    }
    Ok(())
}

/// Drivers from elsewhere (each `-d`), files or folders of them. One that is loaded twice ends the process: DPDK panics before it
/// starts.
fn drivers(from: &[&str], own: &Path, raised: bool) -> Result<()> {
    if raised && !from.is_empty() {
        // Whoever may start this program may not choose what runs with its rights.
        return Err(Error::new(
            Kind::Permission,
            "eal=-d names a driver's library, and this program has rights of its own",
        )
        .cure("install the driver where DPDK looks for drivers, or start without setcap and setuid"));
    }
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let files = std::fs::read_dir(folder).into_iter().flatten();
        files.filter_map(std::result::Result::ok).map(|file| file.path()).collect()
    };
    // Without `.so` and the version.
    let name = |file: &Path| file.file_name().and_then(|name| Some(name.to_str()?.split(".so").next()?.to_owned()));
    let mut known: Vec<(String, String)> = Vec::new();
    let by_itself = format!("from {} by itself", own.display());
    known.extend(inside(own).iter().filter_map(|file| Some((name(file)?, by_itself.clone()))));
    for path in from.iter().map(Path::new) {
        let files = if path.is_dir() { inside(path) } else { vec![path.to_owned()] };
        let mut new = Vec::new();
        for file in files {
            let Some(name) = name(&file) else { continue };
            if let Some((_, whence)) = known.iter().find(|known| known.0 == name) {
                return Err(Error::new(
                    Kind::Usage,
                    format!("eal=-d names {}, which DPDK loads {whence}", file.display()),
                )
                .cure("leave this -d out, or name what is not there"));
            }
            new.push((name, format!("for another -d, {}", path.display())));
        }
        known.append(&mut new);
    }
    Ok(())
}

/// Variables by which libraries beneath DPDK's drivers for cards of NVIDIA (libibverbs, and the drivers' own glue) load what the user
/// names. They look at user numbers alone before they trust them, which do not show file capabilities.
const LOADERS: [&str; 4] = ["RDMAV_DRIVERS", "IBV_DRIVERS", "MLX5_GLUE_PATH", "MLX4_GLUE_PATH"];

fn environment(raised: bool, is_set: impl Fn(&str) -> bool) -> Result<()> {
    match LOADERS.into_iter().find(|name| raised && is_set(name)) {
        Some(name) => Err(Error::new(
            Kind::Permission,
            format!("the environment variable {name} names libraries to load, and this program has rights of its own"),
        )
        .cure(format!("unset {name}, or start without setcap and setuid"))),
        None => Ok(()),
    }
}

/// `net_af_xdp` loads a program into the kernel that its words name.
pub fn filter_of_its_own(words: &str, raised: bool) -> Result<()> {
    match raised && words.contains("xdp_prog=") {
        true => Err(Error::new(
            Kind::Permission,
            "xdp_prog= names a program for the kernel, and this program has rights of its own",
        )
        .cure("leave xdp_prog= out, or start without setcap and setuid")),
        false => Ok(()),
    }
}

/// MiB that the system can give.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib >> 10)
}

/// What it is told unless the user says otherwise.
fn by_itself(words: &[String]) -> Vec<String> {
    let mut all = vec!["--no-telemetry"];
    // No files that are left behind or that another process of ours would find. Without huge pages that has another name.
    if has(words, &["--no-huge"]) {
        all.push("--no-shconf");
    } else if !has(words, &["--in-memory", "--file-prefix", "--huge-dir", "--legacy-mem", "--huge-unlink"]) {
        all.push("--in-memory");
    }
    // The ring is ordinary memory, of which nobody knows the physical addresses.
    if !has(words, &["--iova-mode"]) {
        all.push("--iova-mode=va");
    }
    // Without this it takes every device that it has a driver for; ours are attached by name.
    if !has(words, &["-a", "--allow", "-b", "--block", "--no-pci"]) {
        all.extend(["-a", NO_DEVICE]);
    }
    let mut all: Vec<String> = all.into_iter().map(str::to_owned).collect();
    // It starts a thread for each core that it is given but the first; receivers have threads of their own.
    if !has(words, &["-l", "-c", "--lcores", "-s", "-S"]) {
        all.push(format!("--lcores=0@{}", first_core().unwrap_or(0)));
    }
    all
}

/// The first core that this thread may run on.
fn first_core() -> Option<u32> {
    let text = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.trim().split(['-', ',']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_the_user_says_takes_the_place_of_what_is_said_otherwise() {
        let said = |text| by_itself(&words(text)).join(" ");
        let core = first_core().unwrap();
        assert_eq!(said(""), format!("--no-telemetry --in-memory --iova-mode=va -a 0000:00:00.0 --lcores=0@{core}"));
        assert_eq!(
            said("--no-huge -m 512"),
            format!("--no-telemetry --no-shconf --iova-mode=va -a 0000:00:00.0 --lcores=0@{core}")
        );
        assert_eq!(said("--file-prefix=x -a 0000:3b:00.0 -l 2,3 --iova-mode pa"), "--no-telemetry");
        assert_eq!(said("--no-huge -l2 --no-pci"), "--no-telemetry --no-shconf --iova-mode=va");
    }

    #[test]
    fn drivers_that_are_not_there_are_missed() {
        let said = "failed to parse device \"0000:00:00.0\"\nUnable to parse device '0000:00:00.0'".into();
        let text = failed(Refused { errno: libc::ENODEV, said }).to_string();
        assert!(text.contains("librte-bus-pci") && text.contains("eal=-d FOLDER"), "{text}");
        let said = "failed to parse device \"0000:3b:00.7x\"".into();
        let text = failed(Refused { errno: libc::ENODEV, said }).to_string();
        assert!(!text.contains("librte-bus-pci"), "{text}");
    }

    #[test]
    fn what_would_end_the_process_is_refused() {
        for (text, what) in [
            ("--help", "`--help`"),
            ("--hel", "`--hel`"),
            ("--no-huge -h", "`-h`"),
            ("-v", "`-v`"),
            ("-vd/tmp/driver.so", "`-vd/tmp/driver.so`"),
            ("-hd /tmp/driver.so", "`-hd`"),
            ("-vvh", "`-vvh`"),
            ("-m 64 --", "`--`"),
            ("--proc-type=secondary", "--proc-type"),
            ("--no-huge -m 2000000000", "2000000000 MiB"),
            ("--no-huge -m2000000000", "2000000000 MiB"),
        ] {
            let error = refuse(&words(text)).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        refuse(&words("--no-huge -m 64 --proc-type=primary --vdev=net_null0 --huge-dir=/x")).unwrap();
        refuse(&words("-m 2000000000")).unwrap();
    }

    #[test]
    fn the_kernel_is_given_no_program_with_rights_that_the_user_has_not() {
        let words = "net_af_xdp0,iface=eth1,xdp_prog=/tmp/own.o";
        assert_eq!(filter_of_its_own(words, true).unwrap_err().kind(), Kind::Permission);
        filter_of_its_own(words, false).unwrap();
        filter_of_its_own("net_af_xdp0,iface=eth1", true).unwrap();
    }

    #[test]
    fn drivers_that_would_be_loaded_twice_are_refused() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let touch = |folder: &tempfile::TempDir, name: &str| std::fs::write(folder.path().join(name), "").unwrap();
        touch(&own, "librte_net_pcap.so.23");
        touch(&other, "librte_net_other.so.23");
        let from = |all: &str, raised: bool| drivers(&values(&words(all), "-d"), own.path(), raised);
        let (folder, file) = (other.path().display().to_string(), other.path().join("librte_net_other.so.23"));
        from(&format!("-d {folder}"), false).unwrap();
        from("--no-huge -m 5", true).unwrap();
        for all in [format!("-d {folder}"), format!("--no-huge -d{folder}")] {
            assert_eq!(from(&all, true).unwrap_err().kind(), Kind::Permission, "{all}");
        }
        // Each of several, and against one another.
        let error = from(&format!("-d {folder} -d{}", file.display()), false).unwrap_err().to_string();
        assert!(error.contains("librte_net_other.so.23, which DPDK loads for another -d"), "{error}");
        touch(&other, "librte_net_pcap.so");
        for path in [other.path().to_owned(), own.path().to_owned(), own.path().join("librte_net_pcap.so.23")] {
            for all in [format!("-d {}", path.display()), format!("-d {} -d{}", file.display(), path.display())] {
                let error = from(&all, false).unwrap_err().to_string();
                assert!(error.contains(", which DPDK loads "), "{error}");
            }
            let error = from(&format!("-d/nowhere/x.so -d {}", path.display()), false).unwrap_err().to_string();
            assert!(error.contains("librte_net_pcap.so") && error.contains(", which DPDK loads from"), "{error}");
        }
        from(&format!("-d {}", file.display()), false).unwrap();
    }

    #[test]
    fn variables_that_name_libraries_are_refused_with_rights_of_our_own() {
        for name in ["RDMAV_DRIVERS", "IBV_DRIVERS", "MLX5_GLUE_PATH"] {
            let error = environment(true, |asked| asked == name).unwrap_err();
            assert!(error.kind() == Kind::Permission && error.to_string().contains(name), "{error}");
            environment(false, |asked| asked == name).unwrap();
        }
        environment(true, |_| false).unwrap();
    }
}

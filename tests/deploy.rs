//! deploy/ and what looks at it: that the checks can fail, and that unit, image and manifests agree with the program.
#![cfg(feature = "daemon")]

mod common;

use common::{Output, Running, Temp, free_port, program, run, temp};
use gdmedia::daemon::config;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}
fn manifests() -> Vec<(String, String)> {
    let all = fs::read_dir(root().join("deploy/kubernetes")).unwrap().map(|file| file.unwrap().file_name());
    let all = all.map(|name| format!("deploy/kubernetes/{}", name.to_str().unwrap()));
    let all: Vec<_> = all.filter(|name| name.ends_with(".yaml")).map(|name| (name.clone(), read(&name))).collect();
    assert!(all.len() > 3);
    all
}
/// The first program of this name in `PATH`.
fn tool(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&folders).chain(usual).map(|folder| folder.join(name)).find(|path| path.is_file())
}
/// Says why when a test cannot run here.
fn has(names: &[&str]) -> bool {
    let missing = names.iter().find(|name| tool(name).is_none());
    missing.inspect(|name| println!("skipped: no {name}")).is_none()
}

/// A copy of what deploy-check looks at, to be changed; nothing that was installed for the original is there.
fn copy() -> Temp {
    let dir = temp();
    fs::create_dir(dir.join("scripts")).unwrap();
    fs::copy(root().join("scripts/deploy-check"), dir.join("scripts/deploy-check")).unwrap();
    let copied = Command::new("cp").arg("-r").arg(root().join("deploy")).arg(dir.path()).status().unwrap();
    assert!(copied.success());
    dir
}
fn deploy_check(dir: &Temp, parts: &[&str], with: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(dir.join("scripts/deploy-check"));
    with(command.args(parts).env_remove("GDMEDIA_ALLOW_SKIPS"));
    run(&mut command)
}

#[test]
fn a_tool_that_is_missing_is_an_error() {
    let dir = copy();
    let bin = dir.join("bin");
    fs::create_dir(&bin).unwrap();
    for name in ["bash", "dirname", "basename", "id", "ls", "mktemp", "rm"] {
        symlink(tool(name).unwrap(), bin.join(name)).unwrap();
    }
    // It may be a script that looks for more.
    let python = format!("#!/bin/sh\nPATH='{}' exec python3 \"$@\"\n", std::env::var("PATH").unwrap());
    fs::write(bin.join("python3"), python).unwrap();
    fs::set_permissions(bin.join("python3"), fs::Permissions::from_mode(0o755)).unwrap();
    let lacking = ["promtool", "systemd-analyze", "systemd-tmpfiles", "kubernetes-validate"];
    let strict = deploy_check(&dir, &[], |command| _ = command.env("PATH", &bin));
    assert_eq!(strict.code, 1, "{} {}", strict.stdout, strict.stderr);
    for name in lacking {
        assert!(strict.stderr.contains(&format!("no {name}: run scripts/setup test")), "{name}: {}", strict.stderr);
    }
    let lenient = deploy_check(&dir, &[], |command| {
        command.env("PATH", &bin).env("GDMEDIA_ALLOW_SKIPS", "1");
    });
    assert_eq!(lenient.code, 0, "{} {}", lenient.stdout, lenient.stderr);
    assert_eq!(lenient.stdout.matches("deploy-check: skipped: ").count(), lacking.len(), "{}", lenient.stdout);
    assert!(lenient.stdout.contains("good: dashboard is JSON"), "{}", lenient.stdout);
    // What there is, is looked at.
    fs::write(dir.join("deploy/grafana/gdmedia.json"), "{").unwrap();
    assert_eq!(deploy_check(&dir, &["dashboard"], |_| {}).code, 1);
    assert_eq!(deploy_check(&dir, &["dashbord"], |_| {}).code, 64);
}

#[test]
fn folders_of_the_configuration_stay_folders() {
    if !has(&["systemd-tmpfiles", "unshare"]) {
        return;
    }
    let dir = copy();
    let good = deploy_check(&dir, &["folders"], |_| {});
    assert_eq!(good.code, 0, "{} {}", good.stdout, good.stderr);
    // Rules that are for files alone took the x of folders; rules for folders alone give it to files.
    for (rules, words) in [
        ("z /etc/gdmedia 0750 root gdmedia\nz /etc/gdmedia/* 0640 root gdmedia\n", "640 999 tls"),
        ("Z /etc/gdmedia 0750 root gdmedia\n", "750 999 token"),
        ("z /etc/gdmedia ~0750 root gdmedia\n", "600 0 tls/key.pem"),
    ] {
        fs::write(dir.join("deploy/systemd/gdmedia.tmpfiles"), rules).unwrap();
        let bad = deploy_check(&dir, &["folders"], |_| {});
        assert!(bad.code == 1 && bad.stderr.contains("WRONG: folders: rights"), "{rules}: {}", bad.stderr);
        // By their numbers where these can be given.
        if Command::new("id").arg("-u").output().unwrap().stdout == b"0\n" {
            assert!(bad.stderr.contains(&format!("> {words}")), "{rules}: {}", bad.stderr);
        }
    }
}

/// The number behind this key.
fn number(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(key))?;
    Some(line.trim().parse().unwrap_or_else(|_| panic!("{key} {line}")))
}

#[test]
fn whoever_stops_the_daemon_waits_longer_than_it_does() {
    let own = config::Daemon::default().stop_timeout.0.as_secs();
    let of_systemd = number(&read("deploy/systemd/gdmedia.service"), "TimeoutStopSec=").unwrap();
    assert!((own + 5..=own + 30).contains(&of_systemd), "{of_systemd} s of {own} s");
    let mut pods = 0;
    for (name, text) in manifests() {
        let Some(grace) = number(&text, "terminationGracePeriodSeconds:") else { continue };
        assert!((own + 5..=own + 30).contains(&grace), "{name}: {grace} s of {own} s");
        assert!(text.contains(&format!("daemon.stop_timeout is {own} s")), "{name}");
        pods += 1;
    }
    assert_eq!(pods, 3);
}

/// What the image gives the program's file, as `setcap` takes it.
fn of_image() -> String {
    let text = read("deploy/Containerfile");
    let line = text.lines().find_map(|line| line.strip_prefix("RUN setcap ")).unwrap();
    line.strip_suffix(" /usr/bin/gdmedia").unwrap().to_owned()
}
/// `NET_RAW` and the like that a manifest adds.
fn added(text: &str) -> BTreeSet<String> {
    let Some(line) = text.lines().find_map(|line| line.trim().strip_prefix("add: [")) else { return BTreeSet::new() };
    let names = line.trim_end_matches(']').split(", ").map(|name| name.trim_matches('"').to_owned());
    names.collect()
}

#[test]
fn no_pod_is_root_and_the_image_has_the_capabilities_that_they_add() {
    let image = of_image();
    let given: BTreeSet<String> = image
        .strip_suffix("+p")
        .unwrap()
        .split(',')
        .map(|name| name.strip_prefix("cap_").unwrap().to_uppercase())
        .collect();
    let mut wanted = BTreeSet::new();
    for (name, text) in manifests().into_iter().filter(|(_, text)| text.contains("kind: StatefulSet")) {
        assert_eq!(number(&text, "runAsUser:"), Some(10001), "{name}");
        assert!(text.contains("runAsNonRoot: true") && text.contains("drop: [\"ALL\"]"), "{name}");
        let adds = added(&text);
        // no_new_privs would keep what the file has from the program; where nothing is added it has nothing to gain.
        let word = format!("allowPrivilegeEscalation: {}", !adds.is_empty());
        assert!(text.contains(&word), "{name} adds {adds:?}");
        wanted.extend(adds);
    }
    assert_eq!(given, wanted);
    assert!(read("deploy/Containerfile").contains("-perm /6000 -type f -exec chmod a-s"));
}

/// Capabilities that are effective for the program as it is in a container: with those of the image on its file, another user, and
/// no more than `bounding`.
fn effective(dir: &Temp, bounding: &[&str], more: &[&str]) -> u64 {
    let here = dir.join("gdmedia");
    let bounding = bounding.iter().map(|name| format!(",+{name}"));
    let bounding = format!("--bounding-set=-all{}", bounding.collect::<String>());
    let text = format!("[api]\nlisten = \"127.0.0.1:{}\"\n", free_port());
    let config = dir.write("gdmedia.toml", &text);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=10001", "--regid=10001", "--clear-groups", "--inh-caps=-all", &bounding]);
    // Once more, as a user that has none.
    command.arg("setpriv").args(more).arg(&here).args(["daemon", "-c", &config]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let mut said = String::new();
    for line in BufReader::new(running.0.stderr.take().unwrap()).lines().map_while(Result::ok) {
        said += &line;
        if line.contains("API at ") {
            let status = fs::read_to_string(format!("/proc/{}/status", running.0.id())).unwrap();
            let set = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
            return u64::from_str_radix(set.trim(), 16).unwrap();
        }
    }
    panic!("it ended: {said}");
}

#[test]
fn a_user_that_is_not_root_has_the_capabilities_of_the_file_that_its_container_allows() {
    if !has(&["setpriv", "setcap"]) {
        return;
    }
    let dir = temp();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let here = dir.join("gdmedia");
    fs::copy(program(), &here).unwrap();
    fs::set_permissions(&here, fs::Permissions::from_mode(0o755)).unwrap();
    let set = Command::new(tool("setcap").unwrap()).arg(of_image()).arg(&here).output().unwrap();
    if !set.status.success() {
        println!("skipped: files cannot be given capabilities here: {}", String::from_utf8_lossy(&set.stderr));
        return;
    }
    // linux/capability.h: NET_ADMIN 12, NET_RAW 13, IPC_LOCK 14, SYS_NICE 23.
    let bits = |all: &[u32]| all.iter().fold(0, |set, bit| set | 1 << bit);
    assert_eq!(effective(&dir, &["net_raw", "net_admin", "ipc_lock"], &[]), bits(&[12, 13, 14]));
    assert_eq!(effective(&dir, &["net_raw", "sys_nice", "ipc_lock", "chown"], &[]), bits(&[13, 14, 23]));
    // Sockets alone: no capability, and none to gain; it runs all the same.
    assert_eq!(effective(&dir, &[], &["--no-new-privs"]), 0);
    assert_eq!(effective(&dir, &["net_raw"], &["--no-new-privs"]), 0);
}

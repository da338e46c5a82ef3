//! From files and variables to a [`Config`].

use super::{Api, Config, Daemon, Limits, Nmos, Receiver, State, Table};
use crate::config;
use crate::error::{Error, Kind, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// A configuration and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// The folder that names of SDP files begin at.
    pub folder: PathBuf,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// Variables of the environment that are settings begin so.
const PREFIX: &str = "GDMEDIA_";
/// A receiving thread that sleeps longer loses packets, and is taken for one that hangs (after 5 s) before that is seen.
const MOST_SLEEP: Duration = Duration::from_millis(100);
/// Whoever switches a receiver waits 30 s for the answer, by the API and by NMOS.
const MOST_SWITCH: Duration = Duration::from_secs(25);
/// Between a table and its key.
const BETWEEN: &str = "__";

/// Reads a file, its drop-ins, and the variables that are given (those of the environment).
///
/// # Errors
/// One of them cannot be read or is wrong: which, in which line, and what was probably meant.
pub fn load(path: &Path, variables: impl IntoIterator<Item = (String, String)>) -> Result<Loaded> {
    let mut files = vec![path.to_owned()];
    files.extend(drop_ins(path)?);
    let mut all = Merged::default();
    for file in &files {
        let name = file.display().to_string();
        all.add(&name, &config::text(file)?)?;
    }
    for (name, value) in variables.into_iter().collect::<BTreeMap<_, _>>() {
        all.set(&name, &value)?;
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    Ok(Loaded { config: all.finish()?, folder, files })
}

/// `FILE.d/*.toml` in the order of their names.
fn drop_ins(path: &Path) -> Result<Vec<PathBuf>> {
    let mut name = path.as_os_str().to_owned();
    name.push(".d");
    let folder = PathBuf::from(name);
    let cannot = |e: std::io::Error| {
        Error::new(Kind::Usage, format!("cannot read {}", folder.display()))
            .because(e)
            .cure("make it a folder that this user may read, or remove it")
    };
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(cannot(e)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.map_err(cannot)?.path();
        // Editors leave files that begin with a dot.
        let hidden = file.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if !hidden && file.extension().is_some_and(|e| e == "toml") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Keys that were set, by their tables.
#[derive(Default)]
struct Merged {
    tables: BTreeMap<&'static str, toml::Table>,
    receivers: Vec<(toml::Table, String)>,
}

/// Where receivers stand in a file; whatever else there is, is somebody else's.
#[derive(Deserialize)]
struct Places {
    #[serde(default)]
    receivers: Vec<Spanned<toml::Table>>,
}

impl Merged {
    /// A file's keys go before those of the files before.
    fn add(&mut self, name: &str, text: &str) -> Result<()> {
        // Whole, so that what is wrong is found with its line.
        let typed: Config = config::parse(name, text)?;
        let mut raw: toml::Table = config::parse(name, text)?;
        let places: Places = config::parse(name, text)?;
        for table in ["daemon", "api", "limits", "state", "nmos"] {
            if let Some(toml::Value::Table(keys)) = raw.remove(table) {
                merge(self.tables.entry(table).or_default(), keys);
            }
        }
        let mut here: Vec<&str> = Vec::new();
        for (place, receiver) in places.receivers.into_iter().zip(&typed.receivers) {
            let wrong = |what: String| config::wrong(name, text, Some(place.span()), &what);
            check_id(&receiver.id).map_err(|(what, cure)| wrong(what).cure(cure))?;
            if here.contains(&receiver.id.as_str()) {
                return Err(wrong(format!("a second receiver has the id \"{}\"", receiver.id))
                    .cure("give it another one; receivers are put together by their ids from file to file only"));
            }
            here.push(&receiver.id);
            check(receiver)
                .map_err(|(what, cure)| wrong(format!("receiver \"{}\": {what}", receiver.id)).cure(cure))?;
            let keys = place.clone().into_inner();
            match self.receivers.iter_mut().find(|(_, id)| *id == receiver.id) {
                Some((before, _)) => merge(before, keys),
                None => self.receivers.push((keys, receiver.id.clone())),
            }
        }
        Ok(())
    }

    /// A variable, where it is one of ours.
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let Some((table, key)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once(BETWEEN)) else {
            return Ok(());
        };
        let (table, key) = (table.to_ascii_lowercase(), key.to_ascii_lowercase());
        match table.as_str() {
            "daemon" => self.variable::<Daemon>("daemon", name, &key, value),
            "api" => self.variable::<Api>("api", name, &key, value),
            "limits" => self.variable::<Limits>("limits", name, &key, value),
            "state" => self.variable::<State>("state", name, &key, value),
            "nmos" => self.variable::<Nmos>("nmos", name, &key, value),
            _ => Err(Error::new(Kind::Usage, format!("{name}: there is no table [{table}]")).cure(
                "variables set keys of [daemon], [api], [limits], [state] and [nmos], such as GDMEDIA_API__LISTEN",
            )),
        }
    }

    fn variable<T: Table + DeserializeOwned>(
        &mut self,
        table: &'static str,
        name: &str,
        key: &str,
        value: &str,
    ) -> Result<()> {
        let with = |value: toml::Value| toml::Table::from_iter([(key.to_owned(), value)]);
        // As it would stand in a file, or a text without its marks.
        let parsed = value.parse::<toml::Value>().ok();
        let text = toml::Value::String(value.to_owned());
        let mut refused = None;
        for value in parsed.into_iter().chain([text]) {
            match with(value.clone()).try_into::<T>() {
                Ok(_) => {
                    merge(self.tables.entry(table).or_default(), with(value));
                    return Ok(());
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let what = refused.map(|e| e.message().trim().replace('\n', ", ")).unwrap_or_default();
        let cure = config::meant(&what).unwrap_or_else(|| "correct or remove this variable".into());
        Err(Error::new(Kind::Usage, format!("{name}: {what}")).cure(cure))
    }

    fn finish(self) -> Result<Config> {
        let mut all = toml::Table::new();
        for (name, table) in self.tables {
            all.insert(name.to_owned(), toml::Value::Table(table));
        }
        let receivers = self.receivers.into_iter().map(|(table, _)| toml::Value::Table(table));
        all.insert("receivers".to_owned(), toml::Value::Array(receivers.collect()));
        // Every file was right by itself.
        let config: Config = all.try_into().map_err(|e: toml::de::Error| {
            Error::new(Kind::Usage, format!("the files together: {}", e.message())).cure("correct the drop-ins")
        })?;
        config.api.check()?;
        config.nmos.check(&config.api)?;
        for receiver in &config.receivers {
            check_whole(receiver)?;
        }
        let (count, most) = (config.receivers.len(), config.limits.receivers);
        if count > most {
            return Err(Error::new(Kind::Usage, format!("{count} receivers, and limits.receivers is {most}"))
                .cure("raise it, or remove receivers"));
        }
        Ok(config)
    }
}

/// `more` goes before.
fn merge(into: &mut toml::Table, more: toml::Table) {
    for (key, value) in more {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(before)), toml::Value::Table(more)) => merge(before, more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// What is wrong, and its cure.
type Wrong = (String, String);

/// Letters, digits, `-` and `_`: it is a part of URLs, labels and file names.
fn check_id(id: &str) -> std::result::Result<(), Wrong> {
    let fits = id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    match id {
        "" => Err(("a receiver without id".into(), "give it one: id = \"cam1\"".into())),
        _ if !fits || id.len() > 64 => Err((
            format!("\"{id}\" cannot be an id"),
            "use up to 64 letters, digits, - and _; a label may say more".into(),
        )),
        _ => Ok(()),
    }
}

/// Of a receiver in a file, which may be a part of one.
fn check(receiver: &Receiver) -> std::result::Result<(), Wrong> {
    let wrong = |what: &str, cure: &str| Err((what.to_owned(), cure.to_owned()));
    if receiver.backend.is_empty() {
        return wrong("backend names none", "name one, such as backend = [\"auto\"], or leave it out");
    }
    if receiver.legs.is_some_and(|legs| !(1..=2).contains(&legs)) {
        return wrong("a receiver has one leg, or two (ST 2022-7)", "give legs = 1 or legs = 2, or leave it out");
    }
    if receiver.buffer == 0 {
        return wrong("buffer is 0", "give MiB, such as buffer = 64, or leave it out");
    }
    if receiver.sleep.0 > MOST_SLEEP {
        return wrong(
            &format!(
                "sleep is more than {MOST_SLEEP:?}: packets would be lost, and a thread that sleeps is taken for one that hangs"
            ),
            "give milliseconds, such as sleep = \"1ms\", or leave it out",
        );
    }
    if receiver.switch_timeout.0 > MOST_SWITCH {
        return wrong(
            &format!(
                "switch_timeout is more than {MOST_SWITCH:?}: the API and NMOS controllers wait 30 s for a switch"
            ),
            "give less, such as switch_timeout = \"10s\", or leave it out",
        );
    }
    if receiver.gpu_memory == Some(0) {
        return wrong("no frame fits into gpu_memory = 0", "give MiB, such as 512, or gpu = \"off\" for no GPU");
    }
    if let Some(preview) = &receiver.preview
        && (!(16..=7680).contains(&preview.width) || !(1..=60).contains(&preview.rate))
    {
        return wrong("a preview has 16 to 7680 columns and 1 to 60 pictures a second", "choose such ones");
    }
    Ok(())
}

/// Of a receiver that is whole.
fn check_whole(receiver: &Receiver) -> Result<()> {
    let wrong = |what: &str, cure: &str| {
        Err(Error::new(Kind::Usage, format!("receiver \"{}\": {what}", receiver.id)).cure(cure))
    };
    if receiver.encode.as_ref().is_some_and(|encode| encode.codec.is_none() || encode.to.is_none()) {
        return wrong("encode wants a codec and a place", "give codec = \"h264\" and to = \"FILE.mp4\"");
    }
    if receiver.record.as_ref().is_some_and(|record| record.folder.as_os_str().is_empty()) {
        return wrong("record wants a folder", "give folder = \"/srv/cam1\"");
    }
    if receiver.export.as_ref().is_some_and(|export| export.to.is_none()) {
        return wrong("export wants a socket", "give to = \"cuda-ipc=PATH\"");
    }
    if receiver.gst.as_ref().is_some_and(|gst| gst.fragment.trim().is_empty()) {
        return wrong("gst wants a fragment", "give fragment = \"videoconvert ! fakesink\"");
    }
    match &receiver.file {
        Some(file) if file.path.as_os_str().is_empty() => wrong("file wants a path", "give path = \"/srv/cam1.y4m\""),
        Some(file) if file.path == Path::new("-") => {
            wrong("a daemon has no standard output for frames", "give path = \"/srv/cam1.y4m\"")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Backend, Incomplete, Time};
    use super::*;
    use proptest::prelude::*;

    fn load_text(text: &str, drop_ins: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gdmedia.toml");
        std::fs::write(&path, text).unwrap();
        let beside = folder.path().join("gdmedia.toml.d");
        if !drop_ins.is_empty() {
            std::fs::create_dir(&beside).unwrap();
        }
        for (name, text) in drop_ins {
            std::fs::write(beside.join(name), text).unwrap();
        }
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        load(&path, variables).map(|loaded| loaded.config)
    }

    fn error(text: &str) -> String {
        load_text(text, &[], &[]).unwrap_err().to_string()
    }

    #[test]
    fn a_receiver_with_its_sinks() {
        let text = "[daemon]\nstop_timeout = \"5s\"\n[[receivers]]\nid = \"cam1\"\nsdp = \"cam1.sdp\"\nbackend = [\"xdp\", \"socket\"]\n\
                    redundancy = \"25ms\"\nincomplete = \"drop\"\n[receivers.record]\nfolder = \"/srv\"\nsegment = \"60s\"\n\
                    [receivers.encode]\ncodec = \"h264,bitrate=4M\"\nto = \"/srv/a.mp4\"\n[[receivers]]\nid = \"cam2\"\nenabled = false\n";
        let config = load_text(text, &[], &[]).unwrap();
        assert_eq!(config.daemon.stop_timeout, Time(Duration::from_secs(5)));
        let [one, two] = &config.receivers[..] else { panic!("{config:?}") };
        assert_eq!((one.backend.as_slice(), one.incomplete), (&[Backend::Xdp, Backend::Socket][..], Incomplete::Drop));
        assert_eq!(one.record.as_ref().unwrap().segment.0, "60s".parse().unwrap());
        assert!(!two.enabled && two.record.is_none() && two.sdp.is_none());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_what_was_meant() {
        for (text, words) in [
            ("[[receivers]]\nid = \"a\"\nlable = \"x\"\n", &["line 3", "lable", "did you mean 'label'?"][..]),
            ("[limit]\n", &["line 1", "did you mean 'limits'?"]),
            ("\n[[receivers]]\nid = \"a\"\nincomplete = \"hide\"\n", &["line 4", "hide"]),
            ("[[receivers]]\nid = \"a\"\nbackend = [\"sockets\"]\n", &["line 3", "did you mean 'socket'?"]),
            ("[[receivers]]\nid = \"a b\"\n", &["line 1", "\"a b\" cannot be an id"]),
            ("[[receivers]]\n", &["line 1", "without id"]),
            ("[[receivers]]\nid = \"a\"\n\n[[receivers]]\nid = \"a\"\n", &["line 4", "second receiver", "\"a\""]),
            ("[[receivers]]\nid = \"a\"\nsleep = \"101ms\"\n", &["line 1", "sleep is more than 100ms", "\"1ms\""]),
            (
                "[[receivers]]\nid = \"a\"\nswitch_timeout = \"26s\"\n",
                &["line 1", "switch_timeout is more than 25s", "30 s"],
            ),
            ("[daemon]\nsilence = \"3 fortnights\"\n", &["line 2", "fortnights"]),
            ("[[receivers]]\nid = \"a\"\n[receivers.encode]\ncodec = \"h266\"\n", &["line 4", "h266"]),
            ("[[receivers]]\nid = \"a\"\n[receivers.record]\n", &["record wants a folder"]),
            ("[[receivers]]\nid = \"a\"\n[receivers.file]\npath = \"-\"\n", &["no standard output"]),
            (
                "[limits]\nreceivers = 1\n[[receivers]]\nid = \"a\"\n[[receivers]]\nid = \"b\"\n",
                &["limits.receivers is 1"],
            ),
        ] {
            let said = error(text);
            for word in words {
                assert!(said.contains(word), "{word:?} is not in {said:?}");
            }
        }
    }

    #[test]
    fn drop_ins_go_before_in_the_order_of_their_names() {
        let main = "[limits]\nreceivers = 3\nworkers = 1\n[[receivers]]\nid = \"a\"\nlabel = \"first\"\n[receivers.preview]\nwidth = 100\n";
        let config = load_text(
            main,
            &[
                ("20.toml", "[limits]\nworkers = 4\n"),
                ("10.toml", "[limits]\nworkers = 2\n[[receivers]]\nid = \"b\"\n"),
                ("30.toml", "[[receivers]]\nid = \"a\"\nenabled = false\n[receivers.preview]\nrate = 5\n"),
                (".40.toml", "nonsense"),
                ("readme", "nonsense"),
            ],
            &[],
        )
        .unwrap();
        assert_eq!((config.limits.receivers, config.limits.workers), (3, 4));
        let ids: Vec<_> = config.receivers.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        let a = &config.receivers[0];
        let preview = a.preview.as_ref().unwrap();
        assert_eq!((a.enabled, a.name(), preview.width, preview.rate), (false, "first", 100, 5));
        let wrong = load_text(main, &[("10.toml", "\n\n[limits]\nworkerz = 1\n")], &[]).unwrap_err().to_string();
        assert!(wrong.contains("10.toml line 4") && wrong.contains("did you mean 'workers'?"), "{wrong}");
    }

    #[test]
    fn times_at_their_bounds() {
        let text = "[[receivers]]\nid = \"a\"\nsleep = \"100ms\"\nswitch_timeout = \"25s\"\n";
        let config = load_text(text, &[], &[]).unwrap();
        assert_eq!(config.receivers[0].switch_timeout.0, MOST_SWITCH);
    }

    #[test]
    fn a_list_of_a_drop_in_stands_for_itself() {
        let main = "[daemon]\nsdp_hosts = [\"a\", \"b\"]\n[limits]\ncores = [2, 3]\n";
        let config = load_text(main, &[("10.toml", "[daemon]\nsdp_hosts = [\"c\"]\n")], &[]).unwrap();
        assert_eq!(
            (config.daemon.sdp_hosts.as_slice(), config.limits.cores.as_slice()),
            (&["c".to_owned()][..], &[2, 3][..])
        );
    }

    #[test]
    fn variables_go_before_all_files() {
        let set = |variables: &[(&str, &str)]| load_text("[limits]\nreceivers = 3\n", &[], variables);
        let config = set(&[
            ("GDMEDIA_LIMITS__RECEIVERS", "7"),
            ("GDMEDIA_LIMITS__CORES", "[1, 2]"),
            ("GDMEDIA_API__LISTEN", "127.0.0.1:80"),
            ("GDMEDIA_DAEMON__STOP_TIMEOUT", "2s"),
            ("GDMEDIA_STATE__FOLDER", "/tmp/x"),
            ("GDMEDIA_LOG", "debug"),
            ("PATH", "/bin"),
        ])
        .unwrap();
        assert_eq!((config.limits.receivers, config.limits.cores.as_slice()), (7, &[1, 2][..]));
        assert_eq!(*config.api.listen, ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(config.daemon.stop_timeout.0, Duration::from_secs(2));
        assert_eq!(config.state.folder.as_deref(), Some(Path::new("/tmp/x")));
        let wrong = set(&[("GDMEDIA_API__LISTN", "x")]).unwrap_err().to_string();
        assert!(wrong.contains("GDMEDIA_API__LISTN") && wrong.contains("did you mean 'listen'?"), "{wrong}");
        let wrong = set(&[("GDMEDIA_APIS__LISTEN", "x")]).unwrap_err().to_string();
        assert!(wrong.contains("no table [apis]"), "{wrong}");
        let wrong = set(&[("GDMEDIA_LIMITS__WORKERS", "many")]).unwrap_err().to_string();
        assert!(wrong.contains("GDMEDIA_LIMITS__WORKERS") && wrong.contains("many"), "{wrong}");
    }

    proptest! {
        /// Whatever somebody writes: an error with words, and no panic.
        #[test]
        fn any_text_is_a_configuration_or_an_error(
            lines in prop::collection::vec(prop_oneof![
                Just("[[receivers]]".to_owned()), Just("[receivers.record]".into()), Just("[limits]".into()),
                "[a-z_]{1,12} = (\"[ -~]{0,12}\"|[0-9]{1,20}|\\[\\]|true)", "id = \"[a-c]\"", "[ -~]{0,20}",
            ], 0..12),
            name in "GDMEDIA_[A-Z]{3,6}__[A-Z_]{1,9}", value in "[ -~]{0,12}",
        ) {
            let mut all = Merged::default();
            let added = all.add("text", &lines.join("\n")).and_then(|()| all.set(&name, &value));
            if let Err(error) = added.and_then(|()| all.finish()) {
                prop_assert!(!error.to_string().is_empty() && !error.cure_text().is_empty(), "{error}");
            }
        }
    }

    #[test]
    fn the_example_is_right() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/daemon.toml");
        let config = load(&path, []).unwrap().config;
        let ids: Vec<_> = config.receivers.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids, ["cam1", "cam2", "wall-3"]);
        assert!(config.receivers[0].record.is_some() && config.receivers[1].encode.is_some());
    }

    #[test]
    fn a_file_that_is_not_there() {
        assert!(load(Path::new("/nosuch/gdmedia.toml"), []).unwrap_err().to_string().contains("/nosuch/gdmedia.toml"));
    }
}

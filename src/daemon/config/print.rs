//! `gdmedia daemon --print-config`.

use super::table::{Key, Table};
use super::{Daemon, Encode, Export, File, Gst, Limits, Nmos, Preview, Receiver, Record, State};
use crate::daemon::api;
use std::fmt::Write as _;

/// Every key with its meaning and its default; what has no default is commented out, with an example.
pub fn print() -> String {
    let mut text = String::from(
        "# gdmedia daemon: every key, with its meaning and its default.\n\
         # Files FILE.d/*.toml are read after FILE, in the order of their names: their keys go before, and receivers of the\n\
         # same id are put together. A list (sdp_hosts, cores, [[api.tokens]], ...) takes the place of the one before as a whole: a\n\
         # drop-in that adds to one repeats it. A variable GDMEDIA_TABLE__KEY, such as GDMEDIA_API__LISTEN, goes before all files.\n",
    );
    table::<Daemon>(&mut text, "daemon", "");
    header(&mut text, api::Settings::DOCS, "[api]", "");
    for key in api::Settings::keys().into_iter().filter(|key| !["tls", "tokens", "limits"].contains(&key.name)) {
        line(&mut text, &key, "");
    }
    table::<api::Limits>(&mut text, "api.limits", "");
    table::<api::Tls>(&mut text, "api.tls", "# ");
    header(&mut text, api::Token::DOCS, "[[api.tokens]]", "# ");
    for key in api::Token::keys() {
        line(&mut text, &key, "# ");
    }
    table::<Limits>(&mut text, "limits", "");
    table::<State>(&mut text, "state", "");
    table::<Nmos>(&mut text, "nmos", "");
    text += "\n# One of these for each receiver:\n";
    header(&mut text, Receiver::DOCS, "[[receivers]]", "# ");
    let sinks = ["encode", "record", "preview", "export", "gst", "file"];
    for key in Receiver::keys().into_iter().filter(|key| !sinks.contains(&key.name)) {
        line(&mut text, &key, "# ");
    }
    table::<Encode>(&mut text, "receivers.encode", "# ");
    table::<Record>(&mut text, "receivers.record", "# ");
    table::<Preview>(&mut text, "receivers.preview", "# ");
    table::<Export>(&mut text, "receivers.export", "# ");
    table::<Gst>(&mut text, "receivers.gst", "# ");
    table::<File>(&mut text, "receivers.file", "# ");
    text
}

fn table<T: Table>(text: &mut String, name: &str, off: &str) {
    header(text, T::DOCS, &format!("[{name}]"), off);
    for key in T::keys() {
        line(text, &key, off);
    }
}

fn header(text: &mut String, docs: &[&str], name: &str, off: &str) {
    text.push('\n');
    for doc in docs {
        let _ = writeln!(text, "##{doc}");
    }
    let _ = writeln!(text, "{off}{name}");
}

fn line(text: &mut String, key: &Key, off: &str) {
    for doc in key.docs {
        let _ = writeln!(text, "##{doc}");
    }
    // What is empty by default says more by an example.
    let _ = match key.default.as_deref() {
        None | Some("\"\"" | "[]") => writeln!(text, "# {} = {}", key.name, key.example),
        Some(default) => writeln!(text, "{off}{} = {default}", key.name),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::config::{Config, Word};

    #[test]
    fn what_is_printed_is_the_default() {
        let parsed: Config = crate::config::parse("printed", &print()).unwrap();
        assert_eq!(parsed, Config::default());
    }

    /// Without the marks before keys that are not set, every key is there and is understood.
    #[test]
    fn every_example_is_right() {
        let text: String = print()
            .lines()
            .filter(|line| !line.starts_with("##"))
            .map(|line| match line.strip_prefix("# ") {
                Some(rest) if rest.starts_with('[') || rest.contains(" = ") => format!("{rest}\n"),
                Some(_) => "\n".to_owned(),
                None => format!("{line}\n"),
            })
            .collect();
        let parsed: Config = crate::config::parse("printed", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let receiver = &parsed.receivers[0];
        assert_eq!((receiver.id.as_str(), receiver.flow, receiver.interfaces.len()), ("cam1", Some(0), 2));
        assert_eq!(receiver.redundancy, Some(Word("A".parse().unwrap())));
        assert!(receiver.encode.as_ref().is_some_and(|encode| encode.codec.is_some() && encode.to.is_some()));
        assert!(receiver.gst.is_some() && receiver.file.is_some() && receiver.export.is_some());
        assert_eq!(*parsed.api.listen, ["127.0.0.1:8080".parse().unwrap()]);
        assert!(parsed.api.tls.is_some());
        assert_eq!(parsed.api.tokens[0].scopes, [api::Scope::Read]);
        assert_eq!(parsed.limits.cores, [2, 3, 4, 5]);
    }

    #[test]
    fn every_key_is_explained() {
        let api = [api::Settings::keys(), api::Limits::keys(), api::Tls::keys(), api::Token::keys()];
        let all = [
            Receiver::keys(),
            Daemon::keys(),
            Limits::keys(),
            Nmos::keys(),
            Encode::keys(),
            Record::keys(),
            File::keys(),
        ];
        for keys in api.into_iter().chain(all) {
            for key in keys {
                assert!(key.docs.iter().any(|doc| doc.len() > 8), "{}", key.name);
            }
        }
    }
}

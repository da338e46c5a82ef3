//! TOML files that people write: what is wrong with one is said by its line, with what was probably meant.

use crate::error::{Error, Kind, Result};
use serde::de::DeserializeOwned;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// No such file is larger than this.
const MAX_OCTETS: u64 = 1 << 20;

/// A file's text.
///
/// # Errors
/// It cannot be read, is no text, or is larger than 1 MiB.
pub fn text(path: &Path) -> Result<String> {
    let cannot = || Error::new(Kind::Usage, format!("cannot read {}", path.display()));
    let mut text = String::new();
    let file =
        std::fs::File::open(path).map_err(|e| cannot().because(e).cure("check the name, and that it may be read"))?;
    file.take(MAX_OCTETS + 1)
        .read_to_string(&mut text)
        .map_err(|e| cannot().because(e).cure("a text file of TOML (UTF-8) is wanted"))?;
    if text.len() as u64 > MAX_OCTETS {
        return Err(cannot().cure("it has more than 1 MiB: a text file of TOML is wanted"));
    }
    Ok(text)
}

/// Reads `text`; `name` is said where it is wrong.
///
/// # Errors
/// It is no TOML, or not what `T` wants: keys that `T` does not have are errors where it says `deny_unknown_fields`.
pub fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|e| {
        // What values say that are read from a word may have its cure.
        let (what, cure) = match e.message().split_once("\n  cure: ") {
            Some((what, cure)) => (what, Some(cure.trim().to_owned())),
            None => (e.message(), None),
        };
        let what = what.trim().replace('\n', ", ");
        let cure = cure.or_else(|| meant(&what)).unwrap_or_else(|| "correct this line".into());
        wrong(name, text, e.span(), &what).cure(cure)
    })
}

/// `what` is wrong at `span`.
pub fn wrong(name: &str, text: &str, span: Option<Range<usize>>, what: &str) -> Error {
    let place = span.map(|s| text.as_bytes().iter().take(s.start).filter(|o| **o == b'\n').count() + 1);
    let place = place.map(|line| format!(" line {line}")).unwrap_or_default();
    Error::new(Kind::Usage, format!("{name}{place}: {what}"))
}

/// What was meant by a key that nobody knows, from serde's words: "unknown field `a`, expected one of `b`, `c`".
pub(crate) fn meant(what: &str) -> Option<String> {
    let names = what.strip_prefix("unknown field `").or_else(|| what.strip_prefix("unknown variant `"))?;
    let mut words = names.split('`').step_by(2);
    let wrong = words.next()?;
    let best = words.map(|known| (strsim::damerau_levenshtein(wrong, known), known)).min()?;
    // Half of a word may be wrong, and no more than that.
    (best.0 * 2 <= wrong.chars().count().max(2)).then(|| format!("did you mean '{}'?", best.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        until: u32,
    }
    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        seed: u64,
        #[serde(default)]
        kill: Vec<Inner>,
    }

    fn error(text: &str) -> (String, String) {
        let error = parse::<Outer>("plan.toml", text).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        (error.to_string(), error.cure_text().to_owned())
    }

    #[test]
    fn what_is_right_is_read() {
        let want = Outer { seed: 7, kill: vec![Inner { until: 3 }] };
        assert_eq!(parse::<Outer>("plan.toml", "seed = 7\n[[kill]]\nuntil = 3\n").unwrap(), want);
    }

    #[test]
    fn a_wrong_key_is_said_with_its_line_and_what_was_meant() {
        let (what, cure) = error("seed = 7\n\n[[kill]]\nuntill = 3\n");
        assert!(what.starts_with("plan.toml line 4: unknown field `untill`"), "{what}");
        assert_eq!(cure, "did you mean 'until'?");
        let (what, cure) = error("sede = 7\n");
        assert!(what.contains("line 1") && cure == "did you mean 'seed'?", "{what} {cure}");
        let (_, cure) = error("colour = 7\n");
        assert_eq!(cure, "correct this line");
    }

    #[test]
    fn wrong_values_and_wrong_toml_have_their_line() {
        assert!(error("seed = 7\n[[kill]]\nuntil = 'x'\n").0.starts_with("plan.toml line 3: "));
        assert!(error("seed = 7\n[[kill]\n").0.starts_with("plan.toml line 2: "));
        assert!(error("\n[[kill]]\nuntil = 1").0.contains("missing field `seed`"));
    }

    #[test]
    fn files_that_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        for (name, octets) in [("a", None), ("b", Some(vec![0xff; 3])), ("c", Some(vec![b'#'; (1 << 20) + 1]))] {
            let path = folder.path().join(name);
            octets.into_iter().for_each(|o| std::fs::write(&path, o).unwrap());
            let error = text(&path).unwrap_err();
            assert!(error.kind() == Kind::Usage && !error.cure_text().is_empty(), "{error}");
        }
    }
}

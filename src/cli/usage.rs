//! What is wrong with a command line, with its cure: every option's value says what is wanted instead.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::fmt::Display;

/// The start of the line that says what can be done.
const CURE: &str = "\n  cure: ";

/// What the parser of a value says: why it is none, and what would be one.
pub fn wanted(why: impl Display, cure: impl Display) -> String {
    format!("{why}{CURE}{cure}")
}

/// What clap found, in its words, with a cure behind its first paragraph.
pub fn explained(error: &clap::Error) -> String {
    let text = error.render().to_string();
    if text.contains(CURE) {
        return text;
    }
    let (first, rest) = text.split_once("\n\n").unwrap_or((text.trim_end(), ""));
    // A hint of clap's own stands in its second paragraph.
    format!("{first}{CURE}{}\n\n{rest}", cure(error))
}

fn cure(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(one)) => Some(one.clone()),
        Some(ContextValue::Strings(all)) if !all.is_empty() => Some(all.join(", ")),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    // `--frames <N>`: its name.
    let name = argument.split([' ', '=']).next().unwrap_or_default();
    let see = || "gdmedia --help lists verbs and options, gdmedia VERB --help those of a verb".to_owned();
    match error.kind() {
        ErrorKind::InvalidValue => match (text(ContextKind::SuggestedValue), text(ContextKind::ValidValue)) {
            (Some(meant), _) => format!("{name} {meant} was perhaps meant"),
            (None, Some(valid)) => format!("give one of: {valid}"),
            (None, None) => format!("give it a value: {argument}"),
        },
        ErrorKind::ValueValidation => {
            let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            match source.as_str() {
                s if s.contains("digit") || s.contains("integer") || s.contains("number too") => {
                    format!("give {name} a whole number, such as {name} 1")
                }
                s if s.contains("float") => format!("give {name} a number, such as {name} 1.5"),
                s if s.contains(" is not in ") => format!("give {name} a number within these bounds"),
                _ => format!("write it as --help says of {argument}"),
            }
        }
        ErrorKind::UnknownArgument => text(ContextKind::SuggestedArg)
            .map_or_else(see, |meant| format!("{meant} was perhaps meant; --help lists the options")),
        ErrorKind::InvalidSubcommand => text(ContextKind::SuggestedSubcommand)
            .map_or_else(see, |meant| format!("gdmedia {meant} was perhaps meant")),
        ErrorKind::ArgumentConflict if argument.is_empty() => {
            "a verb comes first and by its own name; gdmedia --help lists them".to_owned()
        }
        ErrorKind::ArgumentConflict => match text(ContextKind::PriorArg) {
            Some(other) if other != argument => format!("leave out {argument} or {other}"),
            _ => format!("give {argument} once"),
        },
        ErrorKind::MissingRequiredArgument => format!("give {argument} too; --help says what it is"),
        _ => see(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    fn said(words: &[&str]) -> String {
        let error = Cli::try_parse_from(std::iter::once(&"gdmedia").chain(words)).err().unwrap();
        explained(&error)
    }

    #[test]
    fn every_wrong_command_line_has_its_cure() {
        for (words, cure) in [
            (&["--sdp", "a", "--redundancy", "Q"][..], "A, B, C or D, or a time"),
            (&["soak", "a", "--fail-if", "lsot>0"], "lost>0"),
            (&["soak", "a", "--warn-if", "latency.complete.p99>2"], "2ms"),
            (&["--sdp", "a", "--duration", "3 fortnights"], "500us, 30s or 2h"),
            (&["--sdp", "a", "--gpu", "fast"], "auto, off, require"),
            (&["--sdp", "a", "--gpu-memory", "0"], "512"),
            (&["--sdp", "a", "--frames", "many"], "whole number"),
            (&["--sdp", "a", "--export", "a=b"], "cuda-ipc=PATH"),
            (&["--sdp", "a", "--incomplete", "shown"], "--incomplete show was perhaps meant"),
            (&["--sdp", "a", "--stamps", "x"], "auto, software, hardware"),
            (&["--sdp", "a", "--gppu", "off"], "--gpu"),
            (&["analyse", "x", "y"], "a verb comes first"),
            (&["analyze"], "<CAPTURE>"),
            (&["--sdp", "a", "--headless", "--sink", "x"], "leave out"),
            (&["--sdp", "a", "--wait", "1s", "--wait", "2s"], "once"),
            (&["send", "--payload-type", "200"], "within these bounds"),
            (&["send", "--format", "huge"], "1080p59.94"),
            (&["send", "--rate", "x"], "60000/1001"),
            (&["send", "--speed", "0"], "0.001 to 1000"),
            (&["send", "--sampling", "4:2:2"], "YCbCr-4:2:2"),
            (&["send", "--packing", "x"], "gpm or bpm"),
            (&["send", "--pacing", "x"], "gapped, linear or burst"),
            (&["send", "--layout", "x"], "planar or wire"),
        ] {
            let text = said(words);
            let found = text.split_once(CURE).map(|(_, cure)| cure.lines().next().unwrap_or_default());
            assert!(found.is_some_and(|found| found.contains(cure)), "{words:?} wants {cure}: {text}");
            assert_eq!(text.matches(CURE).count(), 1, "{text}");
        }
    }
}

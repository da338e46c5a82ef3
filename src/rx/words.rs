//! Words that receivers are told in one option: `name=value`, or a name alone.

use super::socket::Stamping;
use crate::error::{Error, Kind, Result};
use std::time::Duration;

/// Takes the words of `text` one by one, with `between` between them. `change` gets the name and the value, and says `None` to
/// what `who` cannot be told; `known` says what it can.
///
/// # Errors
/// A word is not known, or its value makes no sense.
pub fn each(
    text: &str,
    between: char,
    who: &str,
    known: &str,
    mut change: impl FnMut(&str, &str) -> Option<()>,
) -> Result<()> {
    for word in text.split(between).map(str::trim).filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        change(name, value).ok_or_else(|| {
            Error::new(Kind::Usage, format!("`{word}` is nothing that {who} can be told"))
                .cure(format!("choose among {known}"))
        })?;
    }
    Ok(())
}

/// A time in `us`, `ms` or `s`; no ring holds minutes.
pub fn time(text: &str) -> Option<Duration> {
    crate::time::duration(text).ok().filter(|_| text.ends_with('s'))
}

/// Whose time stamps are wanted.
pub fn stamping(text: &str) -> Option<Stamping> {
    Some(match text {
        "auto" => Stamping::Auto,
        "software" => Stamping::Software,
        "hardware" => Stamping::Hardware,
        _ => return None,
    })
}

/// A VLAN (IEEE 802.1Q: 0 and 4095 are none).
pub fn vlan(text: &str) -> Option<u16> {
    text.parse().ok().filter(|vlan| (1..4095).contains(vlan))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_one_by_one() {
        let mut got = Vec::new();
        let mut take = |text: &str| {
            each(text, ';', "it", "a=N, b", |name, value| {
                got.push(format!("{name}:{value}"));
                (name != "c").then_some(())
            })
        };
        take(" a=1,2=3; ;b ;").unwrap();
        let error = take("a=4;c=5;b").unwrap_err();
        assert!(error.kind() == Kind::Usage && error.to_string().contains("`c=5` is nothing that it can be told"));
        assert_eq!(error.cure_text(), "choose among a=N, b");
        assert_eq!(got, ["a:1,2=3", "b:", "a:4", "c:5"]);
    }

    #[test]
    fn values_of_every_receiver() {
        let ms = Duration::from_millis;
        assert_eq!((time("20ms"), time("1s"), time("500us")), (Some(ms(20)), Some(ms(1000)), Some(ms(1) / 2)));
        for wrong in ["", "20", "ms", "-1s", "2h", "3min", "1 parsec", "99999999999999999999s"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
        assert_eq!(
            (vlan("1"), vlan("4094"), vlan("0"), vlan("4095"), vlan("x")),
            (Some(1), Some(4094), None, None, None)
        );
        assert_eq!((stamping("software"), stamping("raw")), (Some(Stamping::Software), None));
    }
}

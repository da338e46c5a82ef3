//! What `--gpu` says.

use super::Gpu;
use std::str::FromStr;
use std::sync::Arc;

/// Which GPU is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The one nearest to the network interface, and the CPU where there is none; the reason is said.
    #[default]
    Auto,
    /// None.
    Off,
    /// This one, by CUDA's number, or an error.
    Index(u32),
    /// Any, or an error.
    Require,
}

/// Which one it is, and why.
#[derive(Clone, Debug)]
pub struct Found {
    /// The GPU; none when the CPU is to be used.
    pub gpu: Option<Arc<Gpu>>,
    /// For the start block.
    pub why: String,
}

impl Choice {
    /// Without a GPU the run fails.
    pub const fn required(self) -> bool {
        matches!(self, Choice::Index(_) | Choice::Require)
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Choice::Auto),
            "off" => Ok(Choice::Off),
            "require" => Ok(Choice::Require),
            number => number
                .parse()
                .map(Choice::Index)
                .map_err(|_| format!("`{number}` is neither auto, off, require nor the number of a GPU")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_and_numbers_are_read() {
        assert_eq!("auto".parse(), Ok(Choice::Auto));
        assert_eq!("off".parse(), Ok(Choice::Off));
        assert_eq!("require".parse(), Ok(Choice::Require));
        assert_eq!("3".parse(), Ok(Choice::Index(3)));
        for wrong in ["", "-1", "on", "0x1", "4294967296"] {
            assert!(wrong.parse::<Choice>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_named_is_required() {
        assert!(Choice::Index(0).required() && Choice::Require.required());
        assert!(!Choice::Auto.required() && !Choice::Off.required());
    }
}

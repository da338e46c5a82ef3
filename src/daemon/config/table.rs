//! Tables that say themselves what they are: one declaration is the type, its defaults, and the manual.

use serde::{Deserialize, Deserializer};
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A key of a table.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it means, a line each.
    pub docs: &'static [&'static str],
    /// Its default, as TOML; none where it is not set.
    pub default: Option<String>,
    /// How it might be set, as TOML.
    pub example: &'static str,
}

/// A table that knows its keys.
pub trait Table {
    /// What it is for, a line each.
    const DOCS: &'static [&'static str];
    /// Its keys, in order.
    fn keys() -> Vec<Key>;
}

/// A value as TOML; none where it is not set.
pub trait Written {
    /// See there.
    fn written(&self) -> Option<String>;
}

macro_rules! written {
    ($($t:ty),*) => {$(
        impl Written for $t {
            fn written(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}
written!(bool, u16, u32, u64, usize, i32);

impl Written for String {
    fn written(&self) -> Option<String> {
        Some(quoted(self))
    }
}
impl Written for PathBuf {
    fn written(&self) -> Option<String> {
        Some(quoted(&self.to_string_lossy()))
    }
}
impl<T: Written> Written for Vec<T> {
    fn written(&self) -> Option<String> {
        let all: Vec<String> = self.iter().filter_map(Written::written).collect();
        Some(format!("[{}]", all.join(", ")))
    }
}
impl<T: Written> Written for Option<T> {
    fn written(&self) -> Option<String> {
        self.as_ref().and_then(Written::written)
    }
}
impl<T> Written for Word<T> {
    /// No default is one.
    fn written(&self) -> Option<String> {
        None
    }
}
impl Written for Time {
    fn written(&self) -> Option<String> {
        let ms = self.0.as_millis();
        Some(quoted(&if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }))
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A value that is read from its word, as on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word<T>(pub T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Word).map_err(serde::de::Error::custom)
    }
}

/// A time with its unit, such as "500ms" or "10s".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        crate::time::duration(&text)
            .map(Time)
            .map_err(|why| serde::de::Error::custom(format!("{why}; write a time like \"500ms\", \"30s\" or \"2h\"")))
    }
}

/// Declares a table: `key: type = default, "example";` with the documentation that is also printed.
macro_rules! table {
    ($(#[doc = $doc:literal])* pub struct $name:ident {
        $($(#[doc = $field_doc:literal])* $field:ident: $type:ty = $default:expr, $example:literal;)*
    }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[doc = $field_doc])* pub $field: $type,)*
        }
        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }
        impl $crate::daemon::config::table::Written for $name {
            /// A table stands for itself.
            fn written(&self) -> Option<String> {
                None
            }
        }
        impl $crate::daemon::config::Table for $name {
            const DOCS: &'static [&'static str] = &[$($doc),*];
            fn keys() -> Vec<$crate::daemon::config::Key> {
                let default = $name::default();
                vec![$($crate::daemon::config::Key {
                    name: stringify!($field),
                    docs: &[$($field_doc),*],
                    default: $crate::daemon::config::table::Written::written(&default.$field),
                    example: $example,
                },)*]
            }
        }
    };
}
pub(in crate::daemon) use table;

/// Declares words of which one is chosen.
macro_rules! words {
    ($(#[doc = $doc:literal])* pub enum $name:ident { $($(#[doc = $word_doc:literal])* $word:ident = $text:literal,)* }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
        pub enum $name {
            $($(#[doc = $word_doc])* #[serde(rename = $text)] $word,)*
        }
        impl $name {
            /// As it is written.
            pub const fn word(self) -> &'static str {
                match self { $($name::$word => $text,)* }
            }
        }
        impl $crate::daemon::config::table::Written for $name {
            fn written(&self) -> Option<String> {
                Some(format!("\"{}\"", self.word()))
            }
        }
    };
}
pub(in crate::daemon) use words;

//! What was found, for people and programs.

use super::advice::Advice;
use super::flows::Stream;
use serde::Serialize;

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As it should be.
    Good,
    /// It costs something as it is; there is a way to better it.
    CouldBeBetter,
    /// It is not there. Only what is marked `blocks` must be.
    Missing,
    /// Has no meaning here.
    NotApplicable,
    /// Could not be read; `see` says how it can.
    NotKnown,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name, which does not change: `rmem-max`.
    pub id: &'static str,
    /// How it stands.
    pub state: State,
    /// What is there, or what is missing.
    pub text: String,
    /// What it would give, where it is missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gives: String,
    /// Commands that mend it.
    pub fix: Vec<String>,
    /// Commands that show more of it.
    pub see: Vec<String>,
    /// The SDP cannot be received because of it.
    pub blocks: bool,
}

impl Finding {
    /// With its state and words.
    pub fn new(id: &'static str, state: State, text: impl Into<String>) -> Self {
        Finding { id, state, text: text.into(), gives: String::new(), fix: Vec::new(), see: Vec::new(), blocks: false }
    }
    /// It stands well.
    pub fn good(id: &'static str, text: impl Into<String>) -> Self {
        Finding::new(id, State::Good, text)
    }
    /// What it would give.
    #[must_use]
    pub fn gives(mut self, text: impl Into<String>) -> Self {
        self.gives = text.into();
        self
    }
    /// A command that mends it.
    #[must_use]
    pub fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix.push(command.into());
        self
    }
    /// A command that shows more of it.
    #[must_use]
    pub fn see(mut self, command: impl Into<String>) -> Self {
        self.see.push(command.into());
        self
    }
    /// Nothing can be received before it is mended.
    #[must_use]
    pub const fn blocks(mut self) -> Self {
        self.blocks = true;
        self
    }
}

/// What a group of findings is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum About {
    /// The whole machine.
    Machine,
    /// A flow of the SDP.
    Flow,
    /// A network interface.
    Interface,
    /// Ways from the network into memory.
    WaysIn,
    /// Steps from there to the GPU.
    ToTheGpu,
}

/// Findings about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// What it is about.
    pub about: About,
    /// Which one: an interface, a flow; empty where there is one only.
    pub name: String,
    /// In the order in which they are read.
    pub findings: Vec<Finding>,
}

/// How it stands as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing to better.
    Good,
    /// Something to better.
    CouldBeBetter,
    /// The SDP cannot be received here.
    CannotReceive,
}

impl Verdict {
    /// 0, 1, 2.
    pub const fn exit_code(self) -> u8 {
        self as u8
    }
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of gdmedia.
    pub version: &'static str,
    /// How it stands as a whole.
    pub verdict: Verdict,
    /// The exit code that goes with it.
    pub exit: u8,
    /// What is to be received.
    pub streams: Vec<Stream>,
    /// What was looked at.
    pub sections: Vec<Section>,
    /// What to do here, and why.
    pub recommendation: Advice,
}

/// JSON Schema of a [`Report`].
pub const SCHEMA: &str = include_str!("schema.json");

//! What the node asks of the program that receives.

use crate::caps::Caps;
use crate::params::{ActiveLeg, LegParams};
use gdmedia_sdp::Essence;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The receivers of a program. All calls come on threads that may block; those of one receiver come one after another.
pub trait Receivers: Send + Sync + 'static {
    /// All of them, in the order in which they are shown. Asked at the start and at each [`crate::Node::refresh`].
    fn list(&self) -> Vec<Receiver>;

    /// Whether receiver `name` can do this; asked before it is staged, so that a controller hears at once what is
    /// wrong. A receiver that has never been configured is asked with neither SDP nor group and must accept that,
    /// even with `master_enable`: it waits.
    ///
    /// # Errors
    /// The text goes to the controller's user, as the answer 400.
    fn validate(&self, name: &str, activation: &Activation) -> Result<(), String>;

    /// Does it, and returns when it is done. Comes also when nothing has changed: the groups are left and joined anew
    /// (IS-05, "Behaviour", "Re-Activating Senders & Receivers"). Without `master_enable` everything is left.
    ///
    /// # Errors
    /// The receiver goes on as before; the text is the answer 500.
    fn activate(&self, name: &str, activation: &Activation) -> Result<(), String>;

    /// What was activated, to be kept for the next start: see [`crate::Store`].
    fn activated(&self, name: &str, saved: &Saved) {
        let _ = (name, saved);
    }
}

/// What a receiver is to do. The legs program it; the SDP says what comes on them, and may name other addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Activation {
    /// Whether it receives at all.
    pub master_enable: bool,
    /// The IS-04 id of the sender, where the controller said so.
    pub sender_id: Option<Uuid>,
    /// One a leg of the receiver.
    pub legs: Vec<ActiveLeg>,
    /// The transport file.
    pub sdp: Option<String>,
    /// The legs as they were asked for.
    pub asked: Vec<LegParams>,
}

impl Activation {
    /// For the next start.
    pub fn saved(&self) -> Saved {
        let Activation { master_enable, sender_id, sdp, asked, .. } = self.clone();
        Saved { master_enable, sender_id, sdp, legs: asked }
    }
}

/// An activation as it was asked for, with `"auto"` where the receiver may choose anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// Whether the receiver receives.
    pub master_enable: bool,
    /// The IS-04 id of the sender.
    #[serde(default, with = "text")]
    pub sender_id: Option<Uuid>,
    /// The transport file.
    #[serde(default)]
    pub sdp: Option<String>,
    /// One a leg.
    pub legs: Vec<LegParams>,
}

mod text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use uuid::Uuid;

    pub fn serialize<S: Serializer>(id: &Option<Uuid>, s: S) -> Result<S::Ok, S::Error> {
        id.map(|id| id.to_string()).serialize(s)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Uuid>, D::Error> {
        let text = Option::<String>::deserialize(d)?;
        text.map(|text| Uuid::parse_str(&text).map_err(D::Error::custom)).transpose()
    }
}

/// A receiver as the program has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// Its name in the program; its id is made of it, so a new name is a new receiver.
    pub name: String,
    /// For people.
    pub label: String,
    /// For people.
    pub description: String,
    /// More tags of IS-04.
    pub tags: Tags,
    /// The group that it belongs to by nature, such as `ingest 1` (BCP-002-01), and its role there, such as `video`.
    /// The role is unique within the group.
    pub group: Option<(String, String)>,
    /// What it takes.
    pub format: Format,
    /// Of which transport.
    pub transport: Transport,
    /// The interfaces of its legs, by their names in [`crate::Settings::interfaces`]: one, or two for ST 2022-7.
    pub legs: Vec<String>,
    /// What it can receive.
    pub caps: Caps,
}

/// `tags` of IS-04: a key, and values.
pub type Tags = BTreeMap<String, Vec<String>>;

/// `format` of IS-04.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Video, compressed or not.
    Video,
    /// Audio, AES3 too.
    Audio,
    /// Ancillary data, metadata, timed text.
    Data,
    /// SDI over IP.
    Mux,
}

impl Format {
    /// The URN.
    pub const fn urn(self) -> &'static str {
        match self {
            Format::Video => "urn:x-nmos:format:video",
            Format::Audio => "urn:x-nmos:format:audio",
            Format::Data => "urn:x-nmos:format:data",
            Format::Mux => "urn:x-nmos:format:mux",
        }
    }
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Format::Video => "video",
            Format::Audio => "audio",
            Format::Data => "data",
            Format::Mux => "mux",
        }
    }
    /// The format of what an SDP describes; none for what is not ST 2110.
    pub const fn of(essence: &Essence) -> Option<Format> {
        match essence {
            Essence::Video(_) | Essence::CompressedVideo(_) => Some(Format::Video),
            Essence::Audio(_) | Essence::Aes3(_) => Some(Format::Audio),
            Essence::Ancillary(_) | Essence::FastMetadata(_) | Essence::TimedText(_) => Some(Format::Data),
            Essence::Sdi2022_6 => Some(Format::Mux),
            Essence::Foreign { .. } => None,
        }
    }
}

/// `transport` of IS-04. IS-05 calls all of them `urn:x-nmos:transport:rtp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// RTP, unicast and multicast.
    #[default]
    Rtp,
    /// RTP, multicast only.
    RtpMulticast,
    /// RTP, unicast only.
    RtpUnicast,
}

impl Transport {
    /// The URN of IS-04.
    pub const fn urn(self) -> &'static str {
        match self {
            Transport::Rtp => "urn:x-nmos:transport:rtp",
            Transport::RtpMulticast => "urn:x-nmos:transport:rtp.mcast",
            Transport::RtpUnicast => "urn:x-nmos:transport:rtp.ucast",
        }
    }
}

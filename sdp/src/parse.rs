//! From text to flows.

use crate::clocks;
use crate::diagnostic::{At, Findings};
use crate::groups::{self, Group};
use crate::lines;
use crate::medium::{self, Candidate, Common};
use crate::session::{self, Session};
use crate::sources::SessionFilters;
use crate::text;
use crate::{Diagnostic, Essence, Flow, Severity};
use serde::{Serialize, Serializer, ser::SerializeStruct};
use std::collections::HashMap;

/// Largest text that is read. The longest SDP of a thousand senders' documents has 10 KiB.
pub const MAX_OCTETS: usize = 1 << 20;

/// How deviations are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// What a receiver can live with is repaired and reported as a warning.
    #[default]
    Lenient,
    /// What a standard forbids is an error, and a description with an error is not usable. Everything is repaired and
    /// placed as in lenient mode.
    Strict,
}

/// What a text says.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// `s=`, trimmed.
    pub session_name: String,
    /// The value of `o=` where it is well formed.
    pub origin: Option<String>,
    /// Every medium, redundant ones joined, in the order of the text; those that are not usable too.
    pub flows: Vec<Flow>,
    /// What is wrong, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// At least one flow can be received (in strict mode: and nothing is wrong).
    pub usable: bool,
    /// Why a flow cannot be received: its `index` and the reason.
    pub refusals: Vec<(usize, String)>,
    /// Attributes of the session that are not read, for [`Description::corrected`].
    pub(crate) kept_session: Vec<(String, String)>,
    /// The same of the media, by flow index and leg.
    pub(crate) kept_media: HashMap<(usize, usize), Vec<(String, String)>>,
    /// `exactframerate` where it cannot be read, by flow index.
    pub(crate) unread_rates: HashMap<usize, String>,
}

impl Description {
    /// The flows that can be received.
    pub fn usable_flows(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(|f| f.usable)
    }
    /// Why `flow` cannot be received, in words that follow "it cannot be received:".
    pub fn refusal(&self, flow: &Flow) -> Option<&str> {
        self.refusals.iter().find(|r| r.0 == flow.index).map(|r| r.1.as_str())
    }
    /// What the text says in the place of the frame rate of `flow`, when that cannot be a rate.
    pub fn unread_rate(&self, flow: &Flow) -> Option<&str> {
        self.unread_rates.get(&flow.index).map(String::as_str)
    }
    /// The gravest finding.
    pub fn worst(&self) -> Option<Severity> {
        self.diagnostics.iter().map(|d| d.severity).max()
    }

    fn nothing(f: Findings) -> Description {
        Description {
            session_name: String::new(),
            origin: None,
            flows: vec![],
            diagnostics: f.finish(),
            usable: false,
            refusals: vec![],
            kept_session: vec![],
            kept_media: HashMap::new(),
            unread_rates: HashMap::new(),
        }
    }
}

impl Serialize for Description {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut s = serializer.serialize_struct("Description", 3)?;
        s.serialize_field("usable", &self.usable)?;
        s.serialize_field("flows", &self.flows)?;
        s.serialize_field("diagnostics", &self.diagnostics)?;
        s.end()
    }
}

/// Reads a description. Never fails: what is wrong is in the diagnostics. Time and memory grow with the length of the
/// text and no faster; beyond [`MAX_OCTETS`] nothing is read at all.
///
/// ```
/// let text = b"v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=camera\r\nt=0 0\r\nm=audio 5004 RTP/AVP 97\r\n\
///     c=IN IP4 239.1.1.1/64\r\na=rtpmap:97 L24/48000/2\r\na=ptime:1\r\n\
///     a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\n";
/// let description = gdmedia_sdp::parse(text, gdmedia_sdp::Mode::Lenient);
/// assert!(description.usable);
/// assert_eq!(description.flows[0].legs[0].port, 5004);
/// ```
pub fn parse(input: &[u8], mode: Mode) -> Description {
    let mut f = Findings::new(mode == Mode::Strict);
    if input.len() > MAX_OCTETS {
        let what =
            format!("the input has {} octets; an SDP has some thousand, {MAX_OCTETS} are the limit", input.len());
        f.error("too-large", "", At::TEXT, "", what, "give the SDP itself; a capture is given with --pcap");
        return Description::nothing(f);
    }
    let decoded = text::decode(input, &mut f);
    let raws = text::raw_lines(&decoded, &mut f);
    let lines = lines::read(&raws, &mut f);
    if !lines.iter().any(|l| matches!(l.key, b'v' | b'm')) {
        // Whatever was found so far speaks of lines that are no lines.
        let mut f = Findings::new(false);
        let (what, cure) = text::what_is_it(input);
        f.error("not-sdp", "RFC 8866 5", At::TEXT, "", what, cure);
        return Description::nothing(f);
    }
    let Some(session) = session::read(&lines, &mut f) else { return Description::nothing(f) };
    let flows = flows(&session, &mut f);
    let usable = flows.iter().any(|c| c.refusal.is_none()) && !(mode == Mode::Strict && f.has_errors());
    let refusals = flows.iter().filter_map(|c| Some((c.flow.index, c.refusal.clone()?))).collect();
    let kept = |c: &Candidate| {
        c.kept.clone().into_iter().enumerate().map(|(leg, k)| ((c.flow.index, leg), k)).collect::<Vec<_>>()
    };
    let kept_media = flows.iter().flat_map(kept).collect();
    let unread_rates = flows.iter().filter_map(|c| Some((c.flow.index, c.unread_rate.clone()?))).collect();
    let kept_session = medium::kept(&session.attributes);
    Description {
        kept_session,
        kept_media,
        unread_rates,
        session_name: session.name.clone(),
        origin: session.origin.clone(),
        flows: flows.into_iter().map(|c| c.flow).collect(),
        diagnostics: f.finish(),
        usable,
        refusals,
    }
}

fn flows(session: &Session<'_>, f: &mut Findings) -> Vec<Candidate> {
    let mut groups: Vec<Group<'_, '_>> = Vec::new();
    let mut clock_lines = Vec::new();
    let mut media_clock = None;
    let mut encrypted = None;
    for a in &session.attributes {
        match medium::right_name(a, f) {
            Some("group") => groups.push(Group { attribute: a, in_medium: false }),
            Some("ts-refclk") => clock_lines.push(a),
            Some("mediaclk") if media_clock.is_none() => media_clock = Some(a),
            Some("privacy" | "crypto" | "key-mgmt") => encrypted = Some(a),
            _ => {}
        }
    }
    medium::remarks(&session.attributes, f);
    let filters = SessionFilters::read(&session.attributes, f);
    let clocks = clocks::reference_clocks(&clock_lines, f);
    let common = Common { session, filters, clocks, media_clock, encrypted };
    let candidates: Vec<Candidate> =
        session.media.iter().enumerate().map(|(index, m)| medium::candidate(index, m, &common, f)).collect();
    for m in &session.media {
        for a in m.attributes.iter().filter(|a| a.name == "group") {
            groups.push(Group { attribute: a, in_medium: true });
        }
    }
    let flows = groups::join(candidates, &groups, f);
    verdict(&flows, f);
    flows
}

/// One sentence when nothing is left to receive.
fn verdict(flows: &[Candidate], f: &mut Findings) {
    if flows.is_empty() {
        let what = "the description has no medium (no m= line)".to_owned();
        f.error("no-media", "RFC 8866 5.14", At::TEXT, "m=", what, "copy the whole SDP from the sender");
        return;
    }
    if flows.iter().any(|c| !c.foreign) {
        return;
    }
    let mut names: Vec<String> = Vec::new();
    for c in flows {
        let name = match &c.flow.essence {
            Essence::Foreign { what } => what.clone(),
            _ => "SDI over IP (ST 2022-6)".to_owned(),
        };
        if names.len() < 6 && !names.contains(&name) {
            names.push(name);
        }
    }
    let what = format!("no ST 2110 flow in this description: it holds {}", names.join(", "));
    f.error("no-st2110-flow", "ST 2110-10:2022 6.2", At::TEXT, "", what, "give the SDP of an ST 2110 sender");
}

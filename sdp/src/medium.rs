//! One medium becomes a flow with one leg: what it carries, where it arrives, and whether it can be received.

use crate::clocks;
use crate::diagnostic::{At, Findings, clip};
use crate::essence::{audio, compressed, data, foreign, video};
use crate::params::Params;
use crate::rate;
use crate::rtpmap::{self, Choice};
use crate::session::{Attribute, Connection, Medium, Session};
use crate::sources::{self, SessionFilters};
use crate::tokens::{same_word, squeezed};
use crate::{Essence, Flow, Leg, MediaClock, Ratio, SourceFilter};
use std::net::{IpAddr, Ipv4Addr};

/// A flow that may still turn out to be a leg of another.
pub(crate) struct Candidate {
    pub flow: Flow,
    /// `a=mid` and where it stands.
    pub mid: Option<(String, At)>,
    /// Where its medium starts.
    pub at: At,
    /// Why it cannot be received.
    pub refusal: Option<String>,
    /// It is not ST 2110, or an essence that is never received.
    pub foreign: bool,
    /// Attributes that are not read, by leg.
    pub kept: Vec<Vec<(String, String)>>,
    /// `exactframerate` where it cannot be read.
    pub unread_rate: Option<String>,
}

/// Attributes that are read, under their right names.
pub(crate) struct Own<'a, 'b> {
    list: Vec<(&'static str, &'b Attribute<'a>)>,
}

/// Attributes that matter here.
const READ: &[&str] = &[
    "rtpmap",
    "fmtp",
    "source-filter",
    "ts-refclk",
    "mediaclk",
    "ptime",
    "maxptime",
    "framecount",
    "framerate",
    "mid",
    "group",
    "ssrc-group",
    "privacy",
    "crypto",
    "key-mgmt",
    "inactive",
];

/// What else an attribute list holds: not read, but kept when the description is written again.
pub(crate) fn kept(attributes: &[Attribute<'_>]) -> Vec<(String, String)> {
    let read = |a: &&Attribute<'_>| !READ.iter().any(|n| same_word(n, a.name)) && !a.name.is_empty();
    let own = ["sendrecv", "sendonly"];
    attributes
        .iter()
        .filter(read)
        .filter(|a| !own.contains(&a.name) && a.name.len() + a.value.len() <= 1024)
        .take(64)
        .map(|a| (a.name.to_owned(), a.value.to_owned()))
        .collect()
}

/// The right name of an attribute that is read; slips are reported.
pub(crate) fn right_name(a: &Attribute<'_>, f: &mut Findings) -> Option<&'static str> {
    if let Some(name) = READ.iter().find(|n| **n == a.name) {
        return Some(name);
    }
    // What a sender means when it forgets a dash or swaps two letters.
    if a.name.len() > 24 {
        return None;
    }
    let bare = squeezed(a.name);
    let meant = match bare.as_str() {
        "TSREFCLOCK" | "TSREF" | "REFCLK" | "TSRECLK" => Some("ts-refclk"),
        "MEDIACLOCK" | "MEDIACK" => Some("mediaclk"),
        "FTMP" | "FMPT" | "FMTPS" | "FMT" => Some("fmtp"),
        "RTPMAPS" | "RTMAP" | "RTPAMP" => Some("rtpmap"),
        "SOURCEFILTERS" | "SRCFILTER" => Some("source-filter"),
        _ => READ.iter().find(|n| same_word(n, a.name)).copied(),
    }?;
    let what = format!("`a={}` in place of a={meant}", clip(a.name));
    f.deviates("attribute-name", "RFC 8866 6", a.start(), meant, what, "read as the latter");
    Some(meant)
}

impl<'a, 'b> Own<'a, 'b> {
    fn read(attributes: &'b [Attribute<'a>], f: &mut Findings) -> Own<'a, 'b> {
        Own { list: attributes.iter().filter_map(|a| Some((right_name(a, f)?, a))).collect() }
    }
    pub fn all(&self, name: &str) -> Vec<&'b Attribute<'a>> {
        self.list.iter().filter(|(n, _)| *n == name).map(|(_, a)| *a).collect()
    }
    /// The first one; more are reported.
    pub fn one(&self, name: &str, f: &mut Findings) -> Option<&'b Attribute<'a>> {
        let mut all = self.list.iter().filter(|(n, _)| *n == name).map(|(_, a)| *a);
        let first = all.next()?;
        if let Some(second) = all.next() {
            let what = format!("a second a={name} in one medium");
            f.deviates(
                "repeated-attribute",
                "RFC 8866 6",
                second.start(),
                name,
                what,
                "the first is used; delete the other",
            );
        }
        Some(first)
    }
    fn peek(&self, name: &str) -> Option<&'b Attribute<'a>> {
        self.list.iter().find(|(n, _)| *n == name).map(|(_, a)| *a)
    }
}

/// What the session says for all its media.
pub(crate) struct Common<'a, 'b> {
    pub session: &'b Session<'a>,
    pub filters: SessionFilters,
    pub clocks: Vec<crate::ReferenceClock>,
    pub media_clock: Option<&'b Attribute<'a>>,
    /// `a=privacy` or the like, for every medium.
    pub encrypted: Option<&'b Attribute<'a>>,
}

pub(crate) fn candidate(index: usize, medium: &Medium<'_>, common: &Common<'_, '_>, f: &mut Findings) -> Candidate {
    let own = Own::read(&medium.attributes, f);
    let mid = mid(&own, f);
    let mut refusal: Option<String> = None;
    let choice = rtpmap::choose(medium, &own, f);
    let title = name(&common.session.name, &medium.title);
    let flow = |essence, choice: &Choice, legs| Flow {
        index,
        name: title.clone(),
        essence,
        payload_type: choice.payload_type.unwrap_or(0),
        clock_rate: choice.clock_rate,
        legs,
        reference_clocks: vec![],
        media_clock: MediaClock::Unknown,
        bandwidth_kbps: medium.bandwidth_kbps,
        usable: false,
    };
    let format = medium.formats.first().map_or("", |w| w.0.as_str());
    let foreign = foreign::transport(&medium.proto, format)
        .map(|what| match choice.encoding.as_str() {
            "" => what,
            encoding => format!("{} in {what}", foreign::name(encoding).unwrap_or(encoding)),
        })
        .or_else(|| foreign_encoding(&own, &choice));
    if let Some(what) = foreign {
        let what = clip_name(&what);
        let message = format!("this medium is {what}, not ST 2110");
        f.warn(
            "foreign",
            "ST 2110-10:2022 6.2",
            medium.at,
            "m=",
            message,
            "ignored; give the SDP of an ST 2110 sender",
        );
        let legs = vec![quiet_leg(medium, common, mid.as_ref())];
        let refusal = Some(format!("it is {what}, not ST 2110"));
        return Candidate {
            flow: flow(Essence::Foreign { what }, &choice, legs),
            mid,
            at: medium.at,
            refusal,
            foreign: true,
            kept: vec![],
            unread_rate: None,
        };
    }
    if choice.encoding.eq_ignore_ascii_case("SMPTE2022-6") {
        let what = "this medium is SDI over IP (ST 2022-6), which is recognised but not received".to_owned();
        f.warn(
            "st2022-6",
            "ST 2022-6:2012",
            medium.at,
            "m=",
            what,
            "ignored; let the sender send ST 2110-20, or use a converter",
        );
        let legs = vec![quiet_leg(medium, common, mid.as_ref())];
        let refusal = Some("it is SDI over IP (ST 2022-6)".to_owned());
        return Candidate {
            flow: flow(Essence::Sdi2022_6, &choice, legs),
            mid,
            at: medium.at,
            refusal,
            foreign: true,
            kept: vec![],
            unread_rate: None,
        };
    }
    let mut refuse = |why: &str| {
        refusal.get_or_insert_with(|| why.to_owned());
    };

    let (legs, reached) = legs(medium, &own, common, mid.as_ref(), f);
    match medium.port {
        None => refuse("its port cannot be read"),
        Some(0) => {
            let what = "port 0: the medium is switched off".to_owned();
            f.error(
                "port",
                "RFC 8866 5.14",
                medium.port_at,
                "m=",
                what,
                "write the UDP port of the sender, or enable it there",
            );
            refuse("its port is 0: it is switched off");
        }
        Some(_) => {}
    }
    if !reached {
        refuse("its address cannot be read");
    }
    if choice.payload_type.is_none() {
        refuse("its payload type cannot be read");
    }
    let fmtp = rtpmap::fmtp(&own, &choice, f);
    let params = Params::read(&fmtp, At { column: 0, ..choice.at.unwrap_or(medium.at) }, f);
    let (essence, why) = essence(medium, &own, &choice, &params, f);
    if let Some(why) = why {
        refuse(&why);
    }
    if let Some(a) = own.peek("privacy").or(own.peek("crypto")).or(own.peek("key-mgmt")).or(common.encrypted) {
        let what = format!("the payload is encrypted (a={})", clip(a.name));
        f.error(
            "encrypted",
            "TR-10-13 (IPMX)",
            a.start(),
            a.name,
            what,
            "it cannot be received; switch encryption off at the sender",
        );
        refuse("its payload is encrypted");
    }
    if let Some(a) = own.peek("inactive") {
        f.warn(
            "inactive",
            "RFC 8866 6.7.4",
            a.start(),
            "inactive",
            "the medium is marked inactive".to_owned(),
            "received all the same; enable it at the sender",
        );
    }
    remarks(&medium.attributes, f);
    let mut flow = flow(essence, &choice, legs);
    if !choice.encoding.is_empty() {
        clock_attributes(&mut flow, medium, &own, common, f);
    }
    flow.usable = refusal.is_none();
    let kept = vec![kept(&medium.attributes); flow.legs.len()];
    let unread_rate = unread_rate(&flow.essence, &params);
    Candidate { flow, mid, at: medium.at, refusal, foreign: false, kept, unread_rate }
}

/// What stands in the place of the rate and is none.
fn unread_rate(essence: &Essence, p: &Params<'_>) -> Option<String> {
    let rate = match essence {
        Essence::Video(v) => v.rate,
        Essence::CompressedVideo(v) => v.rate,
        Essence::Ancillary(a) => a.rate,
        _ => return None,
    };
    let text = p.peek("exactframerate")?.value?;
    let plain = text.len() <= 64 && text.bytes().all(|b| b.is_ascii_graphic() && b != b';');
    (rate.is_none() && plain && !text.is_empty()).then(|| text.to_owned())
}

/// The essence, or the reason why it cannot be received and what is known of it all the same.
fn essence(
    medium: &Medium<'_>,
    own: &Own<'_, '_>,
    choice: &Choice,
    p: &Params<'_>,
    f: &mut Findings,
) -> (Essence, Option<String>) {
    let framerate = own.one("framerate", f).and_then(|a| Some((rate::approximate(a.value, a.at(0), f)?, a.at(0))));
    let rate = framerate.map(|r| r.0);
    let unknown = |what: &str| Essence::Foreign { what: what.to_owned() };
    let encoding = choice.encoding.as_str();
    let (kind, essence) = match encoding.to_ascii_lowercase().as_str() {
        "raw" => {
            let read = video::read(p, rate, f);
            contradiction(&read, framerate, f);
            match read {
                Ok(video) => ("video", Essence::Video(video)),
                Err(why) => return (unknown("ST 2110-20 video that is not described well enough"), Some(why)),
            }
        }
        "l16" | "l24" | "am824" => {
            let upper = encoding.to_ascii_uppercase();
            let said = audio::Said {
                encoding: &upper,
                clock_rate: choice.clock_rate,
                channels: choice.channels,
                rtpmap_at: choice.at.unwrap_or(medium.at),
                ptime: own.one("ptime", f),
                framecount: own.one("framecount", f),
                maxptime: own.one("maxptime", f),
            };
            match audio::read(&said, p, f) {
                Ok(audio) if upper == "AM824" => ("audio", Essence::Aes3(audio)),
                Ok(audio) => ("audio", Essence::Audio(audio)),
                Err(why) => return (unknown("PCM audio that is not described well enough"), Some(why)),
            }
        }
        "smpte291" => ("video", Essence::Ancillary(data::ancillary(p, rate, f))),
        "st2110-41" => ("application", Essence::FastMetadata(data::fast_metadata(p, f))),
        "ttml+xml" => ("application", Essence::TimedText(data::timed_text(p, f))),
        "" => return (unknown("unknown"), Some("no rtpmap says what it carries".to_owned())),
        _ => ("video", Essence::CompressedVideo(compressed::read(encoding, p, framerate, medium.bandwidth_kbps, f))),
    };
    if medium.media != kind
        && matches!(medium.media.as_str(), "audio" | "video" | "application" | "text" | "message" | "image")
    {
        let what = format!("{encoding} under m={}; its media type is {kind}", medium.media);
        f.deviates("media-type", "ST 2110-10:2022 8.1", medium.at, "m=", what, "the rtpmap is followed");
    }
    (essence, None)
}

/// `a=framerate` against `exactframerate`.
fn contradiction(video: &Result<crate::Video, String>, framerate: Option<(Ratio, At)>, f: &mut Findings) {
    if let (Ok(video), Some((said, at))) = (video, framerate)
        && let Some(exact) = video.rate.filter(|r| !rate::same(*r, said))
    {
        let what = format!("a=framerate says {:.3}, exactframerate says {exact}", said.as_f64());
        f.warn(
            "framerate-contradiction",
            "ST 2110-20:2022 7.2",
            at,
            "framerate",
            what,
            "exactframerate is used; delete a=framerate or correct it",
        );
    }
}

/// The name of an encoding that is none of ST 2110's.
fn foreign_encoding(own: &Own<'_, '_>, choice: &Choice) -> Option<String> {
    let encoding = choice.encoding.as_str();
    let lower = encoding.to_ascii_lowercase();
    if ["raw", "l16", "l24", "am824", "smpte291", "st2110-41", "ttml+xml", "jxsv", "vc2", "smpte2022-6", ""]
        .contains(&lower.as_str())
    {
        return None;
    }
    // ST 2110-22 carries any codec: its own edition mark tells, and so does a sender type under an unknown name. Only
    // the parameters of this payload type count; what is odd about them is reported when they are read for good.
    let mut quiet = Findings::new(false);
    let params = Params::read(&rtpmap::fmtp(own, choice, &mut quiet), At::TEXT, &mut quiet);
    let starts = |name: &str, mark: &str| params.peek(name).and_then(|p| p.value).is_some_and(|v| v.starts_with(mark));
    let token = encoding.bytes().all(|b| b.is_ascii_alphanumeric() || b"-+._".contains(&b));
    match foreign::name(encoding) {
        _ if token && starts("SSN", "ST2110-22") => None,
        Some(name) => Some(format!("{name} ({encoding})")),
        None if token && starts("TP", "2110") => None,
        None => Some(format!("`{encoding}` over RTP")),
    }
}

fn clip_name(what: &str) -> String {
    clip(what)
}

fn mid(own: &Own<'_, '_>, f: &mut Findings) -> Option<(String, At)> {
    let a = own.one("mid", f)?;
    let bare = a.value.trim().trim_end_matches([';', ',', '.']).trim();
    if bare != a.value {
        let what = format!("`{}`: stray characters in a=mid", clip(a.value));
        f.deviates("mid", "RFC 5888 4", a.at(0), "mid", what, &format!("read as {}", clip(bare)));
    }
    if bare.is_empty() || bare.contains(' ') || bare.len() > 256 {
        f.deviates("mid", "RFC 5888 4", a.at(0), "mid", "a=mid holds no single word".to_owned(), "ignored");
        return None;
    }
    Some((bare.to_owned(), a.at(0)))
}

/// Session name, and the title of the medium where there is one.
fn name(session: &str, title: &str) -> String {
    match (session, title) {
        ("" | "-", title) => title.to_owned(),
        (session, "") => session.to_owned(),
        (session, title) if session == title => session.to_owned(),
        (session, title) => format!("{session} / {title}"),
    }
}

const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The leg of a medium that is not received anyway.
fn quiet_leg(medium: &Medium<'_>, common: &Common<'_, '_>, mid: Option<&(String, At)>) -> Leg {
    let (destination, ttl) = match (medium.connection, common.session.connection) {
        (Connection::Given { address, ttl, .. }, _) | (Connection::Missing, Connection::Given { address, ttl, .. }) => {
            (address, ttl)
        }
        _ => (NOWHERE, None),
    };
    let port = medium.port.unwrap_or(0);
    Leg { destination, port, sources: SourceFilter::Any, ttl, mid: mid.map(|m| m.0.clone()) }
}

/// The leg, or two of them where one medium has two sources of the same packets; and whether it can be reached.
fn legs(
    medium: &Medium<'_>,
    own: &Own<'_, '_>,
    common: &Common<'_, '_>,
    mid: Option<&(String, At)>,
    f: &mut Findings,
) -> (Vec<Leg>, bool) {
    let mut leg = quiet_leg(medium, common, mid);
    let mut reached = true;
    match (medium.connection, common.session.connection) {
        (Connection::Bad(_), _) | (Connection::Missing, Connection::Bad(_)) => reached = false,
        (Connection::Missing, Connection::Missing) => {
            let what = "no c= line, neither here nor in the session: the destination is unknown".to_owned();
            let cure = "unicast to this machine is assumed; write c=IN IP4 <group>/<TTL> or the receiver's address";
            f.deviates("missing-connection", "RFC 8866 5.7", At { column: 0, ..medium.at }, "c=", what, cure);
        }
        (Connection::Missing, Connection::Given { at, .. }) => {
            let what = "c= stands in the session, not in the medium".to_owned();
            f.note("session-connection", "RFC 8866 5.7", at, "c=", what, "used for every medium without its own");
        }
        (Connection::Given { at, .. }, _) if leg.destination.is_unspecified() => {
            let what = format!("{} is no destination", leg.destination);
            f.warn(
                "unspecified-address",
                "RFC 8866 5.7",
                at,
                "c=",
                what,
                "unicast to this machine is assumed; write the group or the receiver's address",
            );
        }
        (Connection::Given { .. }, _) => {}
    }
    let filters: Vec<_> = own.all("source-filter").into_iter().filter_map(|a| sources::filter(a, f)).collect();
    leg.sources = sources::apply(&filters, &common.filters, leg.destination, f);
    if leg.destination.is_multicast() && leg.sources == SourceFilter::Any {
        let at = At { column: 0, ..medium.at };
        let ssm = matches!(leg.destination, IpAddr::V4(v4) if v4.octets().first() == Some(&232));
        let what = match ssm {
            true => format!("{} is source-specific (232/8), and no source-filter names the source", leg.destination),
            false => "no source-filter: any source of the group is accepted".to_owned(),
        };
        f.note(
            "no-source-filter",
            "RFC 4570 3",
            at,
            "source-filter",
            what,
            "write a=source-filter: incl IN IP4 <group> <source>",
        );
    }
    let Some(group) =
        own.peek("ssrc-group").filter(|a| a.words().first().is_some_and(|w| w.text.eq_ignore_ascii_case("DUP")))
    else {
        return (vec![leg], reached);
    };
    match &leg.sources {
        SourceFilter::Include(sources) if sources.len() > 1 => {
            let split = |s: &IpAddr| Leg { sources: SourceFilter::Include(vec![*s]), ..leg.clone() };
            (sources.iter().take(8).map(split).collect(), reached)
        }
        _ => {
            let what = "ssrc-group:DUP, but the source-filter does not name two sources".to_owned();
            f.note(
                "ssrc-group",
                "RFC 7104 3.2",
                group.start(),
                "ssrc-group",
                what,
                "both copies are received as one leg",
            );
            (vec![leg], reached)
        }
    }
}

fn clock_attributes(
    flow: &mut Flow,
    medium: &Medium<'_>,
    own: &Own<'_, '_>,
    common: &Common<'_, '_>,
    f: &mut Findings,
) {
    let at = At { column: 0, ..medium.at };
    let clocks = own.all("ts-refclk");
    flow.reference_clocks = match clocks.is_empty() {
        true => common.clocks.clone(),
        false => clocks::reference_clocks(&clocks, f),
    };
    if flow.reference_clocks.is_empty() && clocks.is_empty() {
        let what = "ts-refclk, the reference clock, is missing".to_owned();
        let cure = "times are taken from arrival; write a=ts-refclk:ptp=IEEE1588-2008:<grandmaster>:<domain>";
        f.deviates("missing-ts-refclk", "ST 2110-10:2022 8.2", at, "ts-refclk", what, cure);
    }
    let aes67 = matches!(flow.essence, Essence::Audio(_));
    match own.one("mediaclk", f).or(common.media_clock) {
        Some(a) => flow.media_clock = clocks::media_clock(a, flow.clock_rate, !aes67, f),
        None => {
            let what = "mediaclk, the media clock, is missing".to_owned();
            let cure = "times are taken from arrival; write a=mediaclk:direct=0";
            f.deviates("missing-mediaclk", "ST 2110-10:2022 8.3", at, "mediaclk", what, cure);
        }
    }
}

/// Attributes that are known, harmless and of somebody else.
pub(crate) fn remarks(attributes: &[Attribute<'_>], f: &mut Findings) {
    let families: [(&str, &[&str], &str); 4] = [
        ("AES67, RAVENNA or Dante", &["clock-domain", "sync-time", "framecount", "palign", "keywds"], "midi-pre"),
        ("NVIDIA", &[], "x-nv"),
        ("IPMX", &["infoframe"], "ipmx"),
        ("HDCP key exchange (the content may be protected)", &["hkep"], "hkep"),
    ];
    for (family, names, prefix) in families {
        let found: Vec<&Attribute<'_>> =
            attributes.iter().filter(|a| names.contains(&a.name) || a.name.starts_with(prefix)).take(8).collect();
        if let Some(first) = found.first() {
            let list = found.iter().map(|a| a.name).collect::<Vec<_>>().join(", ");
            let what = format!("attributes of {family}: {}", clip(&list));
            f.note("foreign-attribute", "RFC 8866 5.13", first.start(), first.name, what, "ignored");
        }
    }
    for a in attributes.iter().filter(|a| a.name == "ssrc" && !a.value.trim().contains(' ')).take(1) {
        let what = format!("a=ssrc:{} says nothing of the source", clip(a.value));
        f.note("ssrc", "RFC 5576 4.1", a.start(), "ssrc", what, "ignored");
    }
}

//! From flows to text, in the forms of ST 2110-10, -20, -30 and so on. The line grammar is `sdp-types`'.

use crate::{
    Ancillary, Audio, Colorimetry, CompressedVideo, Description, Essence, FastMetadata, Flow, Leg, MediaClock, Packing,
    Range, Ratio, ReferenceClock, Sampling, Scan, SourceFilter, Tcs, TimedText, Video,
};
use sdp_types::{Attribute, Bandwidth, Connection, Media, Origin, Session};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

/// TTL where the flow has none: enough for a facility.
const TTL: u8 = 64;

/// An SDP of these flows, one medium a leg. Flows that are not ST 2110 are left out.
///
/// Reading it again gives the same flows and nothing above a note, as long as they hold what the standards demand:
/// legs of a pair have mids, IPv4 groups a TTL, and so on.
pub fn write(flows: &[Flow]) -> String {
    let mut names = flows.iter().map(|f| f.name.as_str());
    let first = names.next().unwrap_or("");
    let session_name = if names.all(|n| n == first) { first } else { "" };
    Writer::new(session_name, None, flows).text()
}

impl Description {
    /// The description as it should be written: every repair applied, what is missing and known put in, attributes that
    /// are not read kept. `None` when no flow is usable.
    ///
    /// What only the sender knows (a missing reference clock, for one) stays missing.
    pub fn corrected(&self) -> Option<String> {
        let flows: Vec<Flow> = self.usable_flows().cloned().collect();
        if flows.is_empty() {
            return None;
        }
        let mut writer = Writer::new(&self.session_name, self.origin.as_deref(), &flows);
        writer.kept = Some(self);
        Some(writer.text())
    }
}

struct Writer<'a> {
    session_name: &'a str,
    origin: Option<&'a str>,
    flows: &'a [Flow],
    mids: HashSet<String>,
    kept: Option<&'a Description>,
}

impl<'a> Writer<'a> {
    fn new(session_name: &'a str, origin: Option<&'a str>, flows: &'a [Flow]) -> Self {
        let mids = flows.iter().flat_map(|f| &f.legs).filter_map(|l| l.mid.clone()).collect();
        Writer { session_name, origin, flows, mids, kept: None }
    }

    fn text(mut self) -> String {
        let name = if self.session_name.is_empty() { "-" } else { self.session_name };
        let mut session = Session::new(self.origin(), name);
        if let Some(kept) = self.kept {
            session.attributes.extend(kept.kept_session.iter().map(|(n, v)| attribute(n, v)));
        }
        let flows = self.flows;
        for flow in flows {
            let unread_rate = self.kept.and_then(|d| d.unread_rate(flow));
            let Some(body) = body(flow, unread_rate) else { continue };
            let mids: Vec<Option<String>> = flow.legs.iter().map(|leg| self.mid(flow, leg)).collect();
            if flow.legs.len() > 1 {
                let list = mids.iter().flatten().cloned().collect::<Vec<_>>().join(" ");
                session.attributes.push(attribute("group", &format!("DUP {list}")));
            }
            for (number, (leg, mid)) in flow.legs.iter().zip(mids).enumerate() {
                let mut medium = medium(flow, leg, &body);
                if let Some(kept) = self.kept.and_then(|d| d.kept_media.get(&(flow.index, number))) {
                    medium.attributes.extend(kept.iter().map(|(n, v)| attribute(n, v)));
                }
                if let Some(mid) = mid {
                    medium.attributes.push(attribute("mid", &mid));
                }
                medium.media_title = title(&flow.name, self.session_name);
                session.medias.push(medium);
            }
        }
        let mut text = Vec::new();
        // Writing into memory does not fail.
        let _ = session.write(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The origin as it was, or one made of the sender's address.
    fn origin(&self) -> Origin {
        let fields: Vec<&str> = self.origin.map_or(vec![], |o| o.split_ascii_whitespace().collect());
        if let [user, id, version, _, _, address] = fields.as_slice()
            && let (Ok(version), Ok(address)) = (version.parse(), address.parse::<IpAddr>())
        {
            let mut origin = Origin::with_ip_addr(id, version, address);
            if *user != "-" {
                origin.set_username(user);
            }
            return origin;
        }
        let source = self.flows.iter().flat_map(|f| &f.legs).find_map(|leg| match &leg.sources {
            SourceFilter::Include(list) => list.first().copied(),
            _ => None,
        });
        Origin::with_ip_addr("1", 1, source.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
    }

    /// Every leg of a pair has a mid that no other medium has.
    fn mid(&mut self, flow: &Flow, leg: &Leg) -> Option<String> {
        if leg.mid.is_some() || flow.legs.len() < 2 {
            let twice = flow.legs.iter().filter(|l| l.mid == leg.mid).count() > 1;
            if !twice || flow.legs.len() < 2 {
                return leg.mid.clone();
            }
        }
        let mid = (1u32..).map(|n| format!("leg{n}")).find(|m| !self.mids.contains(m))?;
        self.mids.insert(mid.clone());
        Some(mid)
    }
}

/// What of the flow's name the session does not say.
fn title(name: &str, session: &str) -> Option<String> {
    if name.is_empty() || name == session {
        return None;
    }
    let rest = name.strip_prefix(session).and_then(|n| n.strip_prefix(" / ")).filter(|_| !session.is_empty());
    Some(rest.unwrap_or(name).to_owned())
}

fn attribute(name: &str, value: &str) -> Attribute {
    Attribute { attribute: name.to_owned(), value: (!value.is_empty()).then(|| value.to_owned()) }
}

/// What every leg of a flow has alike.
struct Body {
    media: &'static str,
    encoding: String,
    fmtp: String,
    ptime: Option<String>,
}

fn body(flow: &Flow, unread_rate: Option<&str>) -> Option<Body> {
    let rate = flow.clock_rate;
    let plain = |media, encoding: &str, fmtp| Body { media, encoding: format!("{encoding}/{rate}"), fmtp, ptime: None };
    Some(match &flow.essence {
        Essence::Video(v) => plain("video", "raw", video(v, unread_rate)),
        Essence::CompressedVideo(v) => plain("video", &v.encoding, compressed(v, unread_rate)),
        Essence::Ancillary(a) => plain("video", "smpte291", ancillary(a, unread_rate)),
        Essence::FastMetadata(m) => plain("application", "ST2110-41", fast_metadata(m)),
        Essence::TimedText(t) => plain("application", "ttml+xml", timed_text(t)),
        Essence::Audio(a) | Essence::Aes3(a) => Body {
            media: "audio",
            encoding: format!("{}/{rate}/{}", a.encoding, a.channels),
            fmtp: a.channel_order.as_ref().map_or(String::new(), |o| format!("channel-order={o}")),
            ptime: packet_time(a, rate),
        },
        Essence::Sdi2022_6 | Essence::Foreign { .. } => return None,
    })
}

fn medium(flow: &Flow, leg: &Leg, body: &Body) -> Media {
    let pt = flow.payload_type;
    let connection = if leg.destination.is_ipv4() && leg.destination.is_multicast() {
        Connection::from_ip_addr_ttl(leg.destination, Some(leg.ttl.unwrap_or(TTL)))
    } else {
        Connection::from_ip_addr(leg.destination)
    };
    let mut attributes = Vec::new();
    let mut put = |name: &str, value: &str| attributes.push(attribute(name, value));
    let family = if leg.destination.is_ipv4() { "IP4" } else { "IP6" };
    let filter = match &leg.sources {
        SourceFilter::Any => None,
        SourceFilter::Include(list) => Some(("incl", list)),
        SourceFilter::Exclude(list) => Some(("excl", list)),
    };
    if let Some((mode, list)) = filter {
        let list = list.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ");
        put("source-filter", &format!(" {mode} IN {family} {} {list}", leg.destination));
    }
    put("rtpmap", &format!("{pt} {}", body.encoding));
    if !body.fmtp.is_empty() {
        put("fmtp", &format!("{pt} {}", body.fmtp));
    }
    if let Some(ptime) = &body.ptime {
        put("ptime", ptime);
    }
    for clock in &flow.reference_clocks {
        put("ts-refclk", &reference_clock(clock));
    }
    match &flow.media_clock {
        MediaClock::Unknown => {}
        MediaClock::Direct { offset } => put("mediaclk", &format!("direct={offset}")),
        MediaClock::Sender => put("mediaclk", "sender"),
        MediaClock::Other { text } => put("mediaclk", text),
    }
    Media {
        media: body.media.to_owned(),
        port: leg.port,
        num_ports: None,
        proto: "RTP/AVP".to_owned(),
        fmt: pt.to_string(),
        media_title: None,
        connections: vec![connection],
        bandwidths: flow
            .bandwidth_kbps
            .map(|kbps| Bandwidth { bwtype: "AS".to_owned(), bandwidth: kbps.into() })
            .into_iter()
            .collect(),
        key: None,
        attributes,
    }
}

fn reference_clock(clock: &ReferenceClock) -> String {
    match clock {
        ReferenceClock::Ptp { version, grandmaster: None, .. } => format!("ptp={version}:traceable"),
        ReferenceClock::Ptp { version, grandmaster: Some(id), domain: None } => format!("ptp={version}:{id}"),
        ReferenceClock::Ptp { version, grandmaster: Some(id), domain: Some(d) } => format!("ptp={version}:{id}:{d}"),
        ReferenceClock::LocalMac { mac } => format!("localmac={mac}"),
        ReferenceClock::Other { text } => text.clone(),
    }
}

/// Items of a fmtp line.
#[derive(Default)]
struct Items(Vec<String>);

impl Items {
    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push(format!("{name}={value}"));
    }
    fn some(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }
    /// Where only the sender knows the rate, what it wrote stays, for people to see.
    fn rate(&mut self, rate: Option<Ratio>, unread: Option<&str>) {
        match (rate, unread) {
            (Some(rate), _) => self.put("exactframerate", rate),
            (None, unread) => self.some("exactframerate", unread),
        }
    }
    fn scan(&mut self, scan: Scan) {
        if scan != Scan::Progressive {
            self.0.push("interlace".to_owned());
        }
        if scan == Scan::Psf {
            self.0.push("segmented".to_owned());
        }
    }
    fn text(self) -> String {
        self.0.join("; ")
    }
}

fn video(v: &Video, unread_rate: Option<&str>) -> String {
    let mut items = Items::default();
    items.put("sampling", v.sampling);
    items.put("width", v.width);
    items.put("height", v.height);
    items.rate(v.rate, unread_rate);
    items.put("depth", v.depth);
    if v.tcs != Tcs::Sdr && v.sampling != Sampling::Key {
        items.put("TCS", v.tcs);
    }
    items.put("colorimetry", v.colorimetry);
    items.put("PM", v.packing);
    // 2022 only where its words are used: receivers of 2017 refuse what they do not know.
    let needs_2022 = v.colorimetry == Colorimetry::Alpha || v.tcs == Tcs::St2115LogS3;
    match v.ssn.as_deref() {
        Some("ST2110-20:2022") => items.put("SSN", "ST2110-20:2022"),
        _ if needs_2022 => items.put("SSN", "ST2110-20:2022"),
        _ => items.put("SSN", "ST2110-20:2017"),
    }
    items.some("TP", v.sender_type);
    items.scan(v.scan);
    if v.range != Range::Narrow {
        items.put("RANGE", v.range);
    }
    if (v.par.num, v.par.den) != (1, 1) {
        items.put("PAR", format_args!("{}:{}", v.par.num, v.par.den));
    }
    if v.max_udp > 1460 && v.packing == Packing::Gpm {
        items.put("MAXUDP", v.max_udp);
    }
    items.some("TROFF", v.troff_us);
    items.some("CMAX", v.cmax);
    items.some("TSMODE", v.ts_mode.as_deref());
    items.some("TSDELAY", v.ts_delay_us);
    items.text()
}

fn compressed(v: &CompressedVideo, unread_rate: Option<&str>) -> String {
    let mut items = Items::default();
    items.some("width", v.width);
    items.some("height", v.height);
    items.rate(v.rate, unread_rate);
    for (name, value) in &v.parameters {
        match value.as_str() {
            "" => items.0.push(name.clone()),
            value => items.put(name, value),
        }
    }
    items.scan(v.scan);
    items.text()
}

fn ancillary(a: &Ancillary, unread_rate: Option<&str>) -> String {
    let mut items = Items::default();
    match (a.ssn.as_deref(), &a.transmission_model) {
        (Some("ST2110-40:2023" | "ST2110-40:2021"), _) | (_, Some(_)) => items.put("SSN", "ST2110-40:2023"),
        _ => items.put("SSN", "ST2110-40:2018"),
    }
    items.rate(a.rate, unread_rate);
    items.some("VPID_Code", a.vpid_code);
    for (did, sdid) in &a.did_sdid {
        items.put("DID_SDID", format_args!("{{0x{did:02X},0x{sdid:02X}}}"));
    }
    items.some("TM", a.transmission_model.as_deref());
    items.text()
}

fn fast_metadata(m: &FastMetadata) -> String {
    let mut items = Items::default();
    items.put("SSN", "ST2110-41:2024");
    if !m.data_item_types.is_empty() {
        let list = m.data_item_types.iter().map(|t| format!("{t:X}")).collect::<Vec<_>>().join(",");
        items.put("DIT", list);
    }
    items.text()
}

fn timed_text(t: &TimedText) -> String {
    let mut items = Items::default();
    items.put("charset", "utf-8");
    items.some("codecs", t.codecs.as_deref());
    items.text()
}

/// `a=ptime` in milliseconds: the forms of ST 2110-31 where it has one, else as many digits as it takes.
fn packet_time(a: &Audio, rate: u32) -> Option<String> {
    let samples = a.samples_per_packet?;
    if a.encoding == "AM824" {
        let per_48k =
            if rate == 44100 { samples } else { (u64::from(samples) * 48000 / u64::from(rate.max(1))) as u32 };
        let form = match (per_48k, rate == 44100) {
            (48, false) => Some("1"),
            (6, false) => Some("0.12"),
            (4, false) => Some("0.08"),
            (48, true) => Some("1.09"),
            (6, true) => Some("0.14"),
            (4, true) => Some("0.09"),
            _ => None,
        };
        if let Some(form) = form {
            return Some(form.to_owned());
        }
    }
    let ms = Ratio::new(samples, rate)?.as_f64() * 1000.0;
    Some(format!("{ms:.6}").trim_end_matches('0').trim_end_matches('.').to_owned())
}

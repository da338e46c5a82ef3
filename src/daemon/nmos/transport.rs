//! From what a controller activates to the SDP that is received: the legs program it, the SDP says what comes on them.

use crate::daemon::Receiver;
use crate::sdp::{Essence, Flow, Leg, Mode, SourceFilter, Video, parse, write};
use gdmedia_nmos::params::ActiveLeg;
use gdmedia_nmos::{Format, transport_file};
use std::borrow::Cow;

/// What is to be received.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The SDP, with one flow; as it came where nothing in it is different.
    pub sdp: String,
    /// The flow in it.
    pub flow: Flow,
    /// Which of the receiver's legs receive.
    pub legs: Vec<usize>,
}

/// Joins them. None: nobody has said anything yet, and the receiver waits.
///
/// # Errors
/// For the controller's user.
pub fn wanted(sdp: Option<&str>, legs: &[ActiveLeg]) -> Result<Option<Wanted>, String> {
    let Some(text) = sdp else {
        let given = |leg: &ActiveLeg| leg.rtp_enabled && (leg.multicast_ip.is_some() || leg.source_ip.is_some());
        if legs.iter().any(given) {
            return Err(
                "addresses alone do not say what comes there: stage the transport file (SDP) of a sender".into()
            );
        }
        return Ok(None);
    };
    let reading = transport_file::read(text, Format::Video, legs.len())?;
    if let Some(why) = reading.refusal {
        return Err(why);
    }
    let flow = reading.flow;
    let first = flow.legs.first().ok_or("the transport file has no leg")?;
    let on = || legs.iter().enumerate().filter(|(_, leg)| leg.rtp_enabled);
    let programmed: Vec<Leg> = on().map(|(n, leg)| program(flow.legs.get(n).unwrap_or(first), leg, n)).collect();
    let numbers = on().map(|(n, _)| n).collect();
    let alone = parse(text.as_bytes(), Mode::Lenient).flows.len() == 1;
    // With no leg on it nothing is received, and the SDP is kept as it is.
    if programmed.is_empty() || (alone && programmed == flow.legs) {
        return Ok(Some(Wanted { sdp: text.to_owned(), flow, legs: numbers }));
    }
    let flow = Flow { legs: programmed, ..flow };
    let sdp = write(std::slice::from_ref(&flow));
    if !means(&sdp, &flow) {
        return Err(
            "these addresses do not fit this transport file: each leg needs an address and a port of its own".into()
        );
    }
    Ok(Some(Wanted { sdp, flow, legs: numbers }))
}

/// The SDP of what a receiver receives: of one that takes a flow of several, that flow alone, as controllers and this node take
/// the first one of an SDP.
pub fn own(receiver: &Receiver) -> Option<Cow<'_, str>> {
    let text = receiver.sdp.as_deref()?;
    let alone = receiver.side.flow.and_then(|number| alone(text, number));
    Some(alone.map_or(Cow::Borrowed(text), Cow::Owned))
}

fn alone(text: &str, number: usize) -> Option<String> {
    let flows = parse(text.as_bytes(), Mode::Lenient).flows;
    let flow = flows.get(number).filter(|_| flows.len() > 1)?;
    let sdp = write(std::slice::from_ref(flow));
    means(&sdp, flow).then_some(sdp)
}

/// Legs of the flow that a receiver takes: that of this number, or the first one of video.
pub fn legs_of(text: &str, flow: Option<usize>) -> usize {
    let description = parse(text.as_bytes(), Mode::Lenient);
    let video = |flow: &&Flow| matches!(flow.essence, Essence::Video(_));
    let taken = match flow {
        Some(number) => description.flows.get(number),
        None => description.usable_flows().find(video),
    };
    taken.map_or(0, |flow| flow.legs.len())
}

/// What was written is what is received: it must mean the same.
fn means(sdp: &str, flow: &Flow) -> bool {
    let again = parse(sdp.as_bytes(), Mode::Lenient);
    let read = again.usable_flows().next();
    read.is_some_and(|read| addresses(read) == addresses(flow) && picture(read) == picture(flow))
}

/// What is received, whatever edition of the standard it names.
fn picture(flow: &Flow) -> Essence {
    match &flow.essence {
        Essence::Video(video) => Essence::Video(Video { ssn: None, ..video.clone() }),
        other => other.clone(),
    }
}

fn addresses(flow: &Flow) -> Vec<(std::net::IpAddr, u16)> {
    flow.legs.iter().map(|leg| (leg.destination, leg.port)).collect()
}

fn program(described: &Leg, leg: &ActiveLeg, number: usize) -> Leg {
    let destination = match leg.multicast_ip {
        Some(group) => group,
        // Not known yet.
        None if leg.interface_ip.is_unspecified() => described.destination,
        None => leg.interface_ip,
    };
    let same = destination == described.destination;
    let sources = match (leg.source_ip, &described.sources) {
        // Parameters can name one source only, and none that is left out.
        (Some(ip), SourceFilter::Include(list)) if same && list.first() == Some(&ip) => described.sources.clone(),
        (None, SourceFilter::Exclude(_)) if same => described.sources.clone(),
        (Some(ip), _) => SourceFilter::Include(vec![ip]),
        (None, _) => SourceFilter::Any,
    };
    let mid = described.mid.clone().or_else(|| Some(format!("leg{}", number + 1)).filter(|_| number > 0));
    let ttl = described.ttl.filter(|_| same);
    Leg { destination, port: leg.destination_port, sources, ttl, mid }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn leg(group: Option<&str>, source: Option<&str>, interface: &str, port: u16) -> ActiveLeg {
        ActiveLeg {
            source_ip: source.map(|ip| ip.parse().unwrap()),
            multicast_ip: group.map(|ip| ip.parse().unwrap()),
            interface_ip: interface.parse().unwrap(),
            destination_port: port,
            rtp_enabled: true,
        }
    }
    fn medium(group: &str, port: u16, source: &str, mid: &str) -> String {
        format!(
            "m=video {port} RTP/AVP 103\r\nc=IN IP4 {group}/32\r\na=source-filter: incl IN IP4 {group} {source}\r\n\
             a=rtpmap:103 raw/90000\r\na=fmtp:103 sampling=YCbCr-4:2:2; width=1920; height=1080; exactframerate=50; \
             depth=10; TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
             a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\na=mid:{mid}\r\n"
        )
    }
    fn two() -> String {
        "v=0\r\no=- 1 1 IN IP4 10.0.0.1\r\ns=cam\r\nt=0 0\r\na=group:DUP a b\r\n".to_owned()
            + &medium("239.1.1.1", 5000, "10.0.0.1", "a")
            + &medium("239.1.2.1", 5002, "10.1.0.1", "b")
    }
    fn both() -> [ActiveLeg; 2] {
        [
            leg(Some("239.1.1.1"), Some("10.0.0.1"), "10.0.0.9", 5000),
            leg(Some("239.1.2.1"), Some("10.1.0.1"), "10.1.0.9", 5002),
        ]
    }

    #[test]
    fn what_nobody_changed_is_as_it_came() {
        let wanted = wanted(Some(&two()), &both()).unwrap().unwrap();
        assert_eq!((wanted.sdp, wanted.legs), (two(), vec![0, 1]));
    }

    #[test]
    fn parameters_go_before_the_sdp() {
        let mut legs = both();
        legs[1] = leg(Some("239.9.9.9"), None, "10.1.0.9", 7000);
        let other = wanted(Some(&two()), &legs).unwrap().unwrap();
        let read = parse(other.sdp.as_bytes(), Mode::Lenient).flows.remove(0);
        assert_eq!(
            addresses(&read),
            [("239.1.1.1".parse().unwrap(), 5000), ("239.9.9.9".parse::<IpAddr>().unwrap(), 7000)]
        );
        assert_eq!(read.legs[0].sources, SourceFilter::Include(vec!["10.0.0.1".parse().unwrap()]));
        assert_eq!(read.legs[1].sources, SourceFilter::Any);
        // The second one alone.
        let mut legs = both();
        legs[0].rtp_enabled = false;
        let second = wanted(Some(&two()), &legs).unwrap().unwrap();
        let read = parse(second.sdp.as_bytes(), Mode::Lenient).flows.remove(0);
        assert_eq!((addresses(&read), second.legs), (vec![("239.1.2.1".parse().unwrap(), 5002)], vec![1]));
        // A receiver with one leg takes the first one.
        let one = wanted(Some(&two()), &both()[..1]).unwrap().unwrap();
        let read = parse(one.sdp.as_bytes(), Mode::Lenient).flows.remove(0);
        assert_eq!(addresses(&read), [("239.1.1.1".parse::<IpAddr>().unwrap(), 5000)]);
        // Unicast is the interface's address.
        let unicast = wanted(Some(&two()), &[leg(None, None, "10.0.0.9", 6000)]).unwrap().unwrap();
        assert_eq!(addresses(&unicast.flow), [("10.0.0.9".parse::<IpAddr>().unwrap(), 6000)]);
    }

    #[test]
    fn legs_are_those_of_the_flow_that_is_taken() {
        let one = |port: u16| medium("239.3.3.3", port, "10.0.0.1", "c");
        let all = two() + &one(6000);
        assert_eq!([None, Some(0), Some(1), Some(2)].map(|flow| legs_of(&all, flow)), [2, 2, 1, 0]);
        assert_eq!(legs_of("v=0\r\n", None), 0);
    }

    #[test]
    fn nothing_is_nothing_and_half_is_refused() {
        assert_eq!(wanted(None, &[leg(None, None, "10.0.0.9", 5004)]).unwrap(), None);
        let half = wanted(None, &[leg(Some("239.1.1.1"), None, "10.0.0.9", 5004)]).unwrap_err();
        assert!(half.contains("SDP"), "{half}");
        assert!(wanted(Some("v=0\r\n"), &both()).is_err());
        let off = both().map(|leg| ActiveLeg { rtp_enabled: false, ..leg });
        let off = wanted(Some(&two()), &off).unwrap().unwrap();
        assert_eq!((off.sdp, off.legs), (two(), vec![]));
    }
}

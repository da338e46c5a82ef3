//! The fields of `m=` and `c=` lines.

use super::*;

/// An `m=` line, and how `sdp-types` may read it.
pub(super) fn media_line<'a>(line: &'a Line, f: &mut Findings) -> (Part<'a>, String) {
    const SHAPE: &str = "write m=<media> <port> RTP/AVP <payload type>";
    const CLAUSE: &str = "RFC 8866 5.14";
    let words = line.words();
    let mut words = words.as_slice();
    let mut media = words.first().map_or("", |w| w.text);
    match words {
        [first, rest @ ..] if !first.text.bytes().next().is_some_and(|b| b.is_ascii_digit()) => {
            words = rest;
            let lower = first.text.to_ascii_lowercase();
            let known = ["audio", "video", "text", "application", "message", "image"];
            if let Some(word) = known.iter().find(|k| **k == lower && lower != first.text) {
                let what = format!("the media type `{}` is not lower case", first.text);
                f.deviates("media-type", CLAUSE, line.at(first.at), "m=", what, "read as lower case");
                media = word;
            } else if !known.contains(&first.text) {
                let what = format!("there is no media type `{}`", clip(first.text));
                let cure = "the rtpmap decides what it is; write video, audio or application";
                f.deviates("media-type", CLAUSE, line.at(first.at), "m=", what, cure);
            }
        }
        _ => {
            media = "video";
            let what = "the m= line names no media type".to_owned();
            f.deviates("media-type", CLAUSE, line.at(0), "m=", what, SHAPE);
        }
    }
    let port_at = words.first().map_or(line.start(), |w| line.at(w.at));
    let is_proto = |w: &Token<'_>| w.text.contains('/') && w.text.starts_with(|c: char| c.is_ascii_alphabetic());
    let mut port = None;
    match words {
        [first, rest @ ..] if !is_proto(first) => {
            words = rest;
            port = port_field(line, first, f);
        }
        _ => {
            let what = "the m= line has no port".to_owned();
            f.error("port", CLAUSE, port_at, "m=", what, SHAPE);
        }
    }
    let mut proto = "RTP/AVP";
    match words {
        [first, rest @ ..] if !first.text.bytes().all(|b| b.is_ascii_digit()) => {
            words = rest;
            proto = first.text;
            let upper = first.text.to_ascii_uppercase();
            let repaired = match upper.as_str() {
                "RTP/AVP" | "AVP" | "RTP" | "RTP\\AVP" | "RTP/AVP/UDP" => Some("RTP/AVP"),
                _ => None,
            };
            if let Some(repaired) = repaired.filter(|r| *r != first.text) {
                let what = format!("`{}` in place of {repaired}", clip(first.text));
                f.deviates("protocol", CLAUSE, line.at(first.at), "m=", what, "read as the latter");
                proto = repaired;
            }
        }
        _ => {
            let what = "the m= line has no transport protocol".to_owned();
            f.deviates("protocol", CLAUSE, port_at, "m=", what, "RTP/AVP assumed; write it after the port");
        }
    }
    let formats: Vec<(String, At)> =
        words.iter().take(64).map(|w| (w.text.trim_end_matches([';', ',']).to_owned(), line.at(w.at))).collect();
    let list = formats.iter().map(|w| w.0.as_str()).collect::<Vec<_>>().join(" ");
    let list = if list.is_empty() { "-" } else { &list };
    let canonical = format!("{media} {} {proto} {list}", port.unwrap_or(0));
    let part =
        Part { m: line, port, port_at, formats, connection: Connection::Missing, attributes: vec![], titled: false };
    (part, canonical)
}

fn port_field(line: &Line, word: &Token<'_>, f: &mut Findings) -> Option<u16> {
    const CLAUSE: &str = "RFC 8866 5.14";
    let at = line.at(word.at);
    let (number, count) = word.text.split_once('/').map_or((word.text, None), |(n, c)| (n, Some(c)));
    if let Some(count) = count.filter(|c| *c != "1") {
        let what = format!("the port field has a count of `{}`", clip(count));
        f.warn("port", CLAUSE, at, "m=", what, "only the first port is received");
    }
    match number.parse::<u64>() {
        Ok(port) if port <= 65535 => {
            if (1..1024).contains(&port) {
                let what = format!("port {port} is in the range of system services");
                f.note("port", "RFC 6335 6", at, "m=", what, "opening it may need privileges; 5004 or above is usual");
            }
            Some(port as u16)
        }
        Ok(_) => {
            let what = format!("port {} is beyond 65535", clip(number));
            f.error("port", CLAUSE, at, "m=", what, "write the UDP port of the sender, 1 to 65535");
            None
        }
        Err(_) => {
            let what = format!("the port `{}` is not a number", clip(number));
            f.error("port", CLAUSE, at, "m=", what, "write the UDP port of the sender, 1 to 65535");
            None
        }
    }
}

/// A `c=` line; see RFC 8866 5.7.
pub(super) fn connection_line(line: &Line, f: &mut Findings) -> Connection {
    const CLAUSE: &str = "RFC 8866 5.7";
    const SHAPE: &str = "write c=IN IP4 <group>/<TTL>, c=IN IP4 <address> or c=IN IP6 <address>";
    let words = line.words();
    // The first word that holds digits and a dot or colon is meant as the address, whatever stands before it.
    let looks = |w: &&Token<'_>| {
        w.text.contains(['.', ':']) || (w.text.contains('/') && w.text.starts_with(|c: char| c.is_ascii_digit()))
    };
    let Some(position) = words.iter().position(|w| looks(&w)) else {
        f.error("address", CLAUSE, line.at(0), "c=", format!("`c={}` holds no address", clip(&line.value)), SHAPE);
        return Connection::Bad(line.at(0));
    };
    let (before, rest) = words.split_at(position);
    let [word, after @ ..] = rest else { return Connection::Bad(line.at(0)) };
    let at = line.at(word.at);
    let mut text = word.text.to_owned();
    match after {
        [] => {}
        [ttl, ..] if ttl.text.starts_with('/') => {
            f.deviates("address", CLAUSE, line.at(ttl.at), "c=", "blank before the /".to_owned(), "ignored");
            text.push_str(ttl.text);
        }
        [extra, ..] => {
            let what = format!("`{}` after the address", clip(extra.text));
            f.deviates("address", CLAUSE, line.at(extra.at), "c=", what, "ignored");
        }
    }
    let (host, suffix) = text.split_once('/').map_or((text.as_str(), None), |(h, s)| (h, Some(s)));
    let Some(address) = crate::tokens::address(host, at, "c=", f) else {
        let (what, cure) = if is_host_name(host) {
            (format!("`{}` is a host name, not an address", clip(host)), "write the address; names are not resolved")
        } else if host.contains(['x', 'X', '@', '<', '*', '?']) {
            (format!("`{}` is a placeholder, not an address", clip(host)), "put the address of the stream in its place")
        } else {
            (format!("`{}` is not an address", clip(host)), SHAPE)
        };
        f.error("address", CLAUSE, at, "c=", what, cure);
        return Connection::Bad(at);
    };
    network_words(line, before, address, f);
    let ttl = suffixes(address, suffix, at, f);
    crate::tokens::check_group(address, at, f);
    Connection::Given { address, ttl, at }
}

/// `IN IP4` before the address.
fn network_words(line: &Line, words: &[Token<'_>], address: IpAddr, f: &mut Findings) {
    const CLAUSE: &str = "RFC 8866 5.7";
    let family = if address.is_ipv4() { "IP4" } else { "IP6" };
    let written = words.iter().map(|w| w.text).collect::<Vec<_>>().join(" ");
    let right = format!("IN {family}");
    if written == right {
        return;
    }
    let at = words.last().map_or(line.at(0), |w| line.at(w.at));
    let what =
        if written.eq_ignore_ascii_case(&right) || written.eq_ignore_ascii_case(&format!("IN IPV{}", &family[2..])) {
            format!("`{written}` in place of {right}")
        } else if written.is_empty() {
            format!("{right} is missing before the address")
        } else if written.eq_ignore_ascii_case("IN IP4") || written.eq_ignore_ascii_case("IN IP6") {
            format!("`{written}` with an address of the other family ({address})")
        } else {
            format!("`{}` in place of {right}", clip(&written))
        };
    f.deviates("address-type", CLAUSE, at, "c=", what, &format!("{right} assumed"));
}

/// What follows the address after `/`: TTL and count (IPv4), count (IPv6). Returns the TTL.
fn suffixes(address: IpAddr, suffix: Option<&str>, at: At, f: &mut Findings) -> Option<u8> {
    const CLAUSE: &str = "RFC 8866 5.7";
    let parts: Vec<&str> = suffix.map_or(vec![], |s| s.split('/').take(4).collect());
    if !address.is_multicast() {
        if let Some(suffix) = suffix {
            let what = format!("`/{}` after the unicast address {address}", clip(suffix));
            f.deviates("ttl", CLAUSE, at, "c=", what, "ignored; a unicast address has neither TTL nor prefix length");
        }
        return None;
    }
    let (ttl, count, extra) = match (address, parts.as_slice()) {
        (IpAddr::V4(_), []) => {
            let what = format!("the multicast group {address} has no TTL");
            f.deviates(
                "ttl",
                CLAUSE,
                at,
                "c=",
                what,
                &format!("not needed to receive; write {address}/<TTL>, for example {address}/64"),
            );
            (None, None, None)
        }
        (IpAddr::V4(_), [ttl, rest @ ..]) => (Some(*ttl), rest.first(), rest.get(1)),
        (IpAddr::V6(_), rest) => (None, rest.first(), rest.get(1)),
    };
    if let Some(extra) = extra {
        let what = if address.is_ipv6() {
            "IPv6 has no TTL in c=".to_owned()
        } else {
            format!("`/{}` after TTL and count", clip(extra))
        };
        f.deviates("ttl", CLAUSE, at, "c=", what, "ignored");
    }
    if let Some(count) = count {
        match count.parse::<u32>() {
            Ok(1) => f.note(
                "ttl",
                CLAUSE,
                at,
                "c=",
                format!("{address} is written with a count of 1"),
                "the count can be left out",
            ),
            Ok(n) => {
                let what = format!("c= names {n} addresses from {address} on");
                f.warn(
                    "address-count",
                    CLAUSE,
                    at,
                    "c=",
                    what,
                    "only the first is received; ST 2110 uses one group a flow",
                );
            }
            Err(_) => {
                let what = format!("the count `{}` is not a number", clip(count));
                f.deviates("ttl", CLAUSE, at, "c=", what, "1 assumed");
            }
        }
    }
    let text = ttl?;
    match text.parse::<u32>() {
        Ok(0) => {
            let what = "TTL 0: such packets never leave the sender's machine".to_owned();
            f.warn("ttl", CLAUSE, at, "c=", what, "write the TTL of the sender, for example /64");
            Some(0)
        }
        Ok(ttl) if ttl <= 255 => Some(ttl as u8),
        _ => {
            let what = format!("the TTL `{}` is not a number from 0 to 255", clip(text));
            f.deviates("ttl", CLAUSE, at, "c=", what, "ignored; write for example /64");
            None
        }
    }
}

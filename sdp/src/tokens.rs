//! Words, addresses and numbers inside a line.

use crate::diagnostic::{At, Findings, clip};
use std::net::{IpAddr, Ipv4Addr};

/// A word and its offset in the value that it is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub text: &'a str,
    pub at: usize,
}

/// Words between blanks.
pub(crate) fn tokens(value: &str) -> Vec<Token<'_>> {
    let mut list = Vec::new();
    let mut start = None;
    for (at, octet) in value.bytes().enumerate() {
        match (octet == b' ', start) {
            (false, None) => start = Some(at),
            (true, Some(from)) => {
                list.push(Token { text: value.get(from..at).unwrap_or(""), at: from });
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        list.push(Token { text: value.get(from..).unwrap_or(""), at: from });
    }
    list
}

/// An IP address; leading zeros, a port, a scope and brackets are forgiven and reported.
pub(crate) fn address(text: &str, at: At, parameter: &str, f: &mut Findings) -> Option<IpAddr> {
    const CLAUSE: &str = "RFC 8866 5.7";
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    let mut said = |what: String, cure: &str| f.deviates("address", CLAUSE, at, parameter, what, cure);
    let bare = text.trim_matches(['[', ']', ';', ',', '<', '>', '"']);
    if let Ok(address) = bare.parse::<IpAddr>() {
        said(format!("`{}` is the address {address} with extra characters", clip(text)), "they are ignored");
        return Some(address);
    }
    if let Some(address) = bare.split_once('%').and_then(|(a, _)| a.parse::<IpAddr>().ok()) {
        said(format!("`{}` has a scope", clip(text)), "ignored; choose the interface with --interface");
        return Some(address);
    }
    if let Some((host, port)) = bare.rsplit_once(':')
        && port.parse::<u16>().is_ok()
        && let Ok(address) = host.parse::<Ipv4Addr>()
    {
        said(format!("`{}` has a port", clip(text)), "ignored; the port stands in the m= line");
        return Some(IpAddr::V4(address));
    }
    let parts: Vec<&str> = bare.split('.').take(5).collect();
    if parts.len() == 4 && parts.iter().all(|p| (1..=8).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_digit())) {
        let octets: Vec<u8> = parts.iter().filter_map(|p| p.parse().ok()).collect();
        if let [a, b, c, d] = octets.as_slice() {
            let address = Ipv4Addr::new(*a, *b, *c, *d);
            said(format!("`{}` has leading zeros", clip(text)), &format!("read as {address}"));
            return Some(IpAddr::V4(address));
        }
    }
    None
}

/// Groups that no stream may use, and addresses that nobody can receive on.
pub(crate) fn check_group(address: IpAddr, at: At, f: &mut Findings) {
    const CLAUSE: &str = "RFC 5771 4";
    let IpAddr::V4(v4) = address else { return };
    let [a, b, c, _] = v4.octets();
    if (a, b) == (224, 0) && c < 2 {
        let what = format!("{v4} is in 224.0.{c}.0/24, which is reserved for network protocols");
        f.deviates(
            "reserved-group",
            CLAUSE,
            at,
            "c=",
            what,
            "received all the same; choose a group in 239.0.0.0/8 or 232.0.0.0/8",
        );
    } else if a >= 240 {
        let what = format!("{v4} is neither a unicast nor a multicast address");
        f.warn("reserved-address", "RFC 1112 4", at, "c=", what, "write the group or the receiver's address");
    }
}

/// `AA-BB-…` of `count` octets in upper case, from whatever separates the octets; `None` when it is something else.
pub(crate) fn eui(text: &str, count: usize) -> Option<String> {
    let hex: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).map(|b| b.to_ascii_uppercase()).collect();
    let clean = text.bytes().all(|b| b.is_ascii_hexdigit() || b"-: .".contains(&b));
    (clean && hex.len() == 2 * count).then(|| {
        let pairs: Vec<String> = hex.chunks(2).map(|p| String::from_utf8_lossy(p).into_owned()).collect();
        pairs.join("-")
    })
}

/// Whether two names are the same but for case, dashes and the like.
pub(crate) fn same_word(a: &str, b: &str) -> bool {
    let plain = |text: &str| -> Vec<u8> {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|c| c.to_ascii_uppercase()).collect()
    };
    // Most names differ in their first letter: look before allocating.
    let first = |text: &str| text.bytes().find(u8::is_ascii_alphanumeric).map(|c| c.to_ascii_uppercase());
    first(a) == first(b) && a.len().abs_diff(b.len()) < 8 && plain(a) == plain(b)
}

/// Letters and digits only, in upper case: `YCbCr4:2:2` and `ycbcr-4:2:2` are the same word.
pub(crate) fn squeezed(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_uppercase()).collect()
}

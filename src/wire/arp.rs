//! ARP over Ethernet for IPv4 (RFC 826), for whoever answers in place of a kernel.

use super::{be16, be32};
use std::net::Ipv4Addr;

/// A packet behind its Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// It asks (1) or answers (2).
    pub operation: Operation,
    /// Hardware address of the sender.
    pub sender: [u8; 6],
    /// Its IPv4 address.
    pub sender_address: Ipv4Addr,
    /// Whom it is for; of a question nothing that means anything.
    pub target: [u8; 6],
    /// Who is asked for.
    pub target_address: Ipv4Addr,
}

/// What it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has that address?
    Request,
    /// I have it.
    Reply,
}

/// Octets of one.
pub const OCTETS: usize = 28;

/// Reads one; none where it is about other networks, or not whole.
pub fn parse(octets: &[u8]) -> Option<Arp> {
    // Ethernet, IPv4, and the octets that their addresses have.
    if (be16(octets, 0)?, be16(octets, 2)?, be16(octets, 4)?) != (1, 0x0800, 0x0604) {
        return None;
    }
    let operation = match be16(octets, 6)? {
        1 => Operation::Request,
        2 => Operation::Reply,
        _ => return None,
    };
    let hardware = |at: usize| octets.get(at..)?.first_chunk::<6>().copied();
    let address = |at: usize| be32(octets, at).map(Ipv4Addr::from_bits);
    Some(Arp {
        operation,
        sender: hardware(8)?,
        sender_address: address(14)?,
        target: hardware(18)?,
        target_address: address(24)?,
    })
}

/// Appends one to `out`.
pub fn emit(arp: &Arp, out: &mut Vec<u8>) {
    let operation = match arp.operation {
        Operation::Request => 1,
        Operation::Reply => 2,
    };
    out.extend([0, 1, 8, 0, 6, 4, 0, operation]);
    out.extend(arp.sender);
    out.extend(arp.sender_address.octets());
    out.extend(arp.target);
    out.extend(arp.target_address.octets());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_question_as_rfc_826_lays_it_out() {
        // Hardware Ethernet, protocol IPv4, lengths 6 and 4, request; then sender and target.
        let octets = [
            0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01, 0x02, 0, 0, 0, 0, 0x01, 10, 77, 0, 1, 0, 0, 0, 0, 0, 0, 10,
            77, 0, 10,
        ];
        let arp = parse(&octets).unwrap();
        let wanted = Arp {
            operation: Operation::Request,
            sender: [2, 0, 0, 0, 0, 1],
            sender_address: Ipv4Addr::new(10, 77, 0, 1),
            target: [0; 6],
            target_address: Ipv4Addr::new(10, 77, 0, 10),
        };
        assert_eq!(arp, wanted);
        let mut again = Vec::new();
        emit(&arp, &mut again);
        assert_eq!(again, octets);
        for (at, other) in [(1, 6), (2, 0x86), (4, 8), (5, 16), (7, 3)] {
            let mut wrong = octets;
            wrong[at] = other;
            assert_eq!(parse(&wrong), None, "octet {at}");
        }
        assert!((0..OCTETS).all(|len| parse(&octets[..len]).is_none()));
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(octets in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut octets = octets;
            let start = [0, 1, 8, 0, 6, 4, 0, 2];
            let n = start.len().min(octets.len());
            octets[..n].copy_from_slice(&start[..n]);
            if let Some(arp) = parse(&octets) {
                let mut again = Vec::new();
                emit(&arp, &mut again);
                prop_assert_eq!(&again[..], &octets[..OCTETS]);
            } else {
                prop_assert!(octets.len() < OCTETS);
            }
        }
    }
}

//! What the driver of an interface says about itself: `SIOCETHTOOL`, the requests that anybody may make.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

/// Answers; what the driver does not know is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ethtool {
    /// `mlx5_core`, `veth`.
    pub driver: Option<String>,
    /// Firmware of the card; empty where there is none.
    pub firmware: String,
    /// Packets that the receive ring has room for: now, and at most.
    pub ring: Option<(u32, u32)>,
    /// Generic receive offload is on.
    pub gro: Option<bool>,
    /// Time stamps.
    pub stamps: Option<Stamps>,
}

/// Time stamps of received packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// The card can stamp every packet.
    pub hardware: bool,
    /// The card's own clock: `/dev/ptpN`.
    pub clock: Option<u32>,
}

/// `ETHTOOL_G…` of linux/ethtool.h.
const DRIVER_INFO: u32 = 0x03;
const RING: u32 = 0x10;
const GRO: u32 = 0x2b;
const STAMPS: u32 = 0x41;
const STRINGS: u32 = 0x1b;
const STATISTICS: u32 = 0x1d;

/// Asks the driver of `interface`.
pub fn ask(interface: &str) -> Ethtool {
    let Ok(socket) = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None) else {
        return Ethtool::default();
    };
    let mut out = Ethtool::default();
    // Command, then texts of 32 octets: driver, version, firmware, bus; a reserve and five numbers end it.
    let mut info = [0u32; 49];
    if request(&socket, interface, DRIVER_INFO, &mut info).is_ok() {
        out.driver = Some(text(&info, 1)).filter(|t| !t.is_empty());
        out.firmware = text(&info, 17);
    }
    // Command, limits (receive, mini, jumbo, transmit), then what is set.
    let mut ring = [0u32; 9];
    if request(&socket, interface, RING, &mut ring).is_ok() && ring[1] > 0 {
        out.ring = Some((ring[5], ring[1]));
    }
    let mut gro = [0u32; 2];
    out.gro = request(&socket, interface, GRO, &mut gro).is_ok().then_some(gro[1] != 0);
    // Command, SOF_TIMESTAMPING_…, clock (-1: none), transmit types, reserve, receive filters, reserve.
    let mut stamps = [0u32; 11];
    if request(&socket, interface, STAMPS, &mut stamps).is_ok() {
        out.stamps = Some(read_stamps(&stamps));
    }
    out
}

fn read_stamps(answer: &[u32; 11]) -> Stamps {
    const RX_HARDWARE: u32 = 1 << 2;
    const FILTER_ALL: u32 = 1 << 1;
    Stamps {
        hardware: answer[1] & RX_HARDWARE != 0 && answer[7] & FILTER_ALL != 0,
        clock: Some(answer[2]).filter(|c| *c as i32 >= 0),
    }
}

/// Counters that the driver has of its own (`ethtool -S`), by their names; empty where it has none.
pub fn statistics(interface: &str) -> Vec<(String, u64)> {
    /// `ETH_SS_STATS`.
    const SET: u32 = 1;
    /// The largest drivers have some thousands.
    const MOST: usize = 1 << 16;
    let Ok(socket) = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None) else {
        return Vec::new();
    };
    let mut info = [0u32; 49];
    if request(&socket, interface, DRIVER_INFO, &mut info).is_err() {
        return Vec::new();
    }
    let count = info[45] as usize;
    if count == 0 || count > MOST {
        return Vec::new();
    }
    // The kernel writes as many as there are when it is asked: another number of queues may have come since.
    let room = 2 * count + 4096;
    // Command, set, number, then texts of 32 octets.
    let mut names = vec![0u32; 3 + 8 * room];
    names[1] = SET;
    // Command, number, then numbers of 64 bits.
    let mut values = vec![0u32; 2 + 2 * room];
    (names[2], values[1]) = (info[45], info[45]);
    if request(&socket, interface, STRINGS, &mut names).is_err()
        || request(&socket, interface, STATISTICS, &mut values).is_err()
        || names[2] != values[1]
    {
        return Vec::new();
    }
    read_statistics(&names, &values)
}

fn read_statistics(names: &[u32], values: &[u32]) -> Vec<(String, u64)> {
    let number = |words: &[u32]| words.iter().rev().fold(0, |all, word| all << 32 | u64::from(*word));
    let values = values.get(2..).unwrap_or_default().chunks_exact(2).map(|pair| match cfg!(target_endian = "little") {
        true => number(pair),
        false => u64::from(pair[0]) << 32 | u64::from(pair[1]),
    });
    let count = names.get(2).map_or(0, |n| *n as usize);
    (0..count).map(|n| text(names, 3 + 8 * n)).zip(values).collect()
}

/// 32 octets from number `at` on, up to their zero.
fn text(numbers: &[u32], at: usize) -> String {
    let octets: Vec<u8> =
        numbers.iter().skip(at).take(8).flat_map(|n| n.to_ne_bytes()).take_while(|o| *o != 0).collect();
    String::from_utf8_lossy(&octets).trim().to_owned()
}

fn request(socket: &socket2::Socket, name: &str, command: u32, value: &mut [u32]) -> io::Result<()> {
    let Some(first) = value.first_mut() else { return Ok(()) };
    *first = command;
    // SAFETY: plain C data.
    let mut ask: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, octet) in ask.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = octet as _;
    }
    ask.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    // SAFETY: the kernel writes no more than the command's structure, as long as which every caller's array is; lists of
    // counters have room for twice as many and some thousands more than there were a moment ago.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut ask) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_answers_what_it_has_and_nothing_else() {
        let lo = ask("lo");
        assert_eq!(lo.ring, None);
        assert!(lo.gro.is_some());
        assert_eq!(lo.stamps, Some(Stamps { hardware: false, clock: None }));
        assert_eq!(ask("nosuch0"), Ethtool::default());
        assert_eq!(ask("a name that is much too long for an interface"), Ethtool::default());
    }

    #[test]
    fn counters_of_a_driver() {
        let word = |text: &str| {
            let mut octets = [0u8; 32];
            octets[..text.len()].copy_from_slice(text.as_bytes());
            octets.chunks_exact(4).map(|c| u32::from_ne_bytes(c.try_into().unwrap())).collect::<Vec<_>>()
        };
        let mut names = vec![STRINGS, 1, 2];
        names.extend(word("rx_packets"));
        names.extend(word("rx_out_of_buffer"));
        let mut values = vec![STATISTICS, 2];
        for value in [7u64, 5 << 32 | 9] {
            values.extend(value.to_ne_bytes().chunks_exact(4).map(|c| u32::from_ne_bytes(c.try_into().unwrap())));
        }
        let wanted = [("rx_packets".to_owned(), 7), ("rx_out_of_buffer".to_owned(), 5 << 32 | 9)];
        assert_eq!(read_statistics(&names, &values), wanted);
        assert_eq!((read_statistics(&[], &[]), read_statistics(&names[..5], &values[..3])), (vec![], vec![]));
        // The loopback interface has none.
        assert_eq!((statistics("lo"), statistics("nosuch0")), (vec![], vec![]));
    }

    #[test]
    fn stamps_of_a_card_that_can() {
        let card = [STAMPS, 0x5f, 3, 3, 0, 0, 0, 0b11, 0, 0, 0];
        assert_eq!(read_stamps(&card), Stamps { hardware: true, clock: Some(3) });
        // Only PTP packets are stamped (filter 1 << 12).
        let ptp_only = [STAMPS, 0x5f, 0, 3, 0, 0, 0, 1 << 12 | 1, 0, 0, 0];
        assert_eq!(read_stamps(&ptp_only), Stamps { hardware: false, clock: Some(0) });
        let none = [STAMPS, 0x18, u32::MAX, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(read_stamps(&none), Stamps { hardware: false, clock: None });
    }
}

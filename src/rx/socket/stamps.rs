//! Time stamps of the card: whether an interface gives them to every packet, and how that is switched on.
#![allow(unsafe_code)]

use super::Stamping;
use crate::error::{Error, Kind};
use crate::unix::ethtool;
use std::io;
use std::os::fd::AsRawFd;

/// `linux/net_tstamp.h`: what a socket asks for.
const RX_HARDWARE: i32 = 1 << 2;
const RX_SOFTWARE: i32 = 1 << 3;
const SOFTWARE: i32 = 1 << 4;
const RAW_HARDWARE: i32 = 1 << 6;
/// Stamps of the kernel, and those of the card beside them.
pub(super) const BOTH: i32 = RX_HARDWARE | RX_SOFTWARE | SOFTWARE | RAW_HARDWARE;

const SIOCSHWTSTAMP: libc::Ioctl = 0x89b0;
const SIOCGHWTSTAMP: libc::Ioctl = 0x89b1;
/// `HWTSTAMP_FILTER_ALL`: every packet is stamped.
const FILTER_ALL: i32 = 1;

/// `struct hwtstamp_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Config {
    flags: i32,
    tx_type: i32,
    rx_filter: i32,
}

/// The card of `interface` stamps every packet; or why it does not. It is told to only where `choice` wants it so: others,
/// such as ptp4l, share the setting.
pub(in crate::rx) fn of_card(interface: &str, choice: Stamping) -> Result<(), String> {
    let able = ethtool::ask(interface).stamps.is_some_and(|stamps| stamps.hardware);
    if !able {
        return Err(format!("{interface} cannot stamp every packet"));
    }
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).map_err(|e| e.to_string())?;
    let now = ask(&socket, SIOCGHWTSTAMP, interface, Config::default());
    match (&now, choice) {
        (Ok(config), _) if config.rx_filter == FILTER_ALL => Ok(()),
        (_, Stamping::Hardware) => {
            // What others have set of the rest stays.
            let wanted = Config { rx_filter: FILTER_ALL, ..now.unwrap_or_default() };
            match ask(&socket, SIOCSHWTSTAMP, interface, wanted) {
                Ok(config) if config.rx_filter == FILTER_ALL => Ok(()),
                Ok(_) => Err(format!("{interface} stamps other packets only")),
                Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                    Err(format!("switching stamps on at {interface} needs the right cap_net_admin"))
                }
                Err(e) => Err(format!("{interface} refuses to stamp every packet: {e}")),
            }
        }
        _ => Err(format!("{interface} can, and is not told to: --stamps hardware")),
    }
}

/// Stamps of the card are demanded, and there are none.
pub(in crate::rx) fn none(why: &str) -> Error {
    Error::new(Kind::Unavailable, format!("no time stamps of the card: {why}"))
        .cure("leave --stamps out, and measure the timing of senders on a machine whose card stamps")
}

fn ask(socket: &socket2::Socket, request: libc::Ioctl, interface: &str, mut config: Config) -> io::Result<Config> {
    // SAFETY: plain C data.
    let mut ask: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, octet) in ask.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
        *to = octet as _;
    }
    ask.ifr_ifru.ifru_data = (&raw mut config).cast();
    // SAFETY: the kernel reads and writes one `hwtstamp_config`, which outlives the call.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut ask) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(config) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_no_card_and_says_so() {
        for choice in [Stamping::Auto, Stamping::Hardware] {
            let why = of_card("lo", choice).unwrap_err();
            assert!(why.contains("lo cannot stamp every packet"), "{why}");
        }
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        for request in [SIOCGHWTSTAMP, SIOCSHWTSTAMP] {
            assert!(ask(&socket, request, "lo", Config { rx_filter: FILTER_ALL, ..Config::default() }).is_err());
        }
    }
}

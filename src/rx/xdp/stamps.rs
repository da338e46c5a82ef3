//! Whose time stamps packets have: the card's by the second form of the filter, else those of the poll, and why.

use super::abi;
use super::btf;
use super::device::Attached;
use super::filter::Wish;
use super::program::{self, CALL, Stamp};
use crate::error::Result;
use crate::rx::socket::Stamping;
use crate::rx::socket::stamps::{none, of_card};
use crate::unix::netlink;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;

/// What was chosen for an interface, as far as it is known before a packet has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chosen {
    /// The card stamps every packet, and the filter takes its stamps.
    Card,
    /// The filter takes stamps where packets have them; why the card may give none.
    Asked(String),
    /// Arrivals are those of the poll; why.
    Poll(String),
}

impl Default for Chosen {
    /// Of a helper that knows of none.
    fn default() -> Self {
        Chosen::Poll("the xdp-helper is of a version that takes none of the card".into())
    }
}

impl Chosen {
    /// For the start block.
    pub fn note(&self) -> String {
        match self {
            Chosen::Card => "time stamps by the card".into(),
            Chosen::Asked(why) => {
                format!(
                    "time stamps by the card where packets have them, else arrival times are those of the poll: {why}"
                )
            }
            Chosen::Poll(why) => format!("arrival times are those of the poll: {why}"),
        }
    }
    /// Whether packets are to be looked at for stamps; and whether each of them is to have one.
    pub const fn takes(&self) -> Option<bool> {
        match self {
            Chosen::Card => Some(true),
            Chosen::Asked(_) => Some(false),
            Chosen::Poll(_) => None,
        }
    }
}

/// Who is to stamp packets of a device, whose filter is still to be loaded; or why nobody can.
pub fn stamp(index: u32, name: &str, wish: &Wish) -> std::result::Result<Stamp, String> {
    #[cfg(test)]
    if wish.stand_in {
        return Ok(Stamp::StandIn);
    }
    if wish.stamps == Stamping::Software {
        return Err(SOFTWARE.into());
    }
    if wish.attached == Some(Attached::Generic) {
        return Err(GENERIC.into());
    }
    // Before Linux 6.8 the kernel does not say.
    if netlink::features(index).and_then(|features| features.stamps) == Some(false) {
        return Err(format!("the driver of {name} offers none"));
    }
    btf::function(CALL).map(Stamp::Card)
}

/// Loads the second form of the filter for a device.
pub fn load(
    stamp: Stamp,
    name: abi::Name,
    index: u32,
    [flows, sockets]: [i32; 2],
) -> std::result::Result<OwnedFd, String> {
    abi::load(name, &program::assemble(flows, sockets, Some(stamp)), Some(index)).map_err(|e| refused(&e))
}

fn refused(e: &io::Error) -> String {
    // The verifier's words are in an error of ours, not in one of the system.
    match e.raw_os_error() {
        None => format!("the verifier refused: {e}"),
        Some(_) => format!("the kernel refuses a program that is bound to the device: {e}"),
    }
}

/// What stamps come, by a filter that takes them or (why) does not. The card is told to stamp every packet where `choice` wants it
/// so.
///
/// # Errors
/// Stamps of the card are demanded, and there are none.
pub fn choose(filter: &std::result::Result<(), String>, name: &str, wish: &Wish) -> Result<Chosen> {
    #[cfg(test)]
    if wish.stand_in && filter.is_ok() {
        return Ok(Chosen::Card);
    }
    let stamps = match (filter, wish.stamps) {
        (Err(why), _) => Err(why.clone()),
        (Ok(()), Stamping::Software) => return Ok(Chosen::Poll(SOFTWARE.into())),
        (Ok(()), choice) => of_card(name, choice),
    };
    match (stamps, wish.stamps, filter) {
        (Ok(()), ..) => Ok(Chosen::Card),
        (Err(why), Stamping::Hardware, _) => Err(none(&why)),
        (Err(why), _, Ok(())) => Ok(Chosen::Asked(why)),
        (Err(why), _, Err(_)) => Ok(Chosen::Poll(why)),
    }
}

const SOFTWARE: &str = "stamps of software were asked for";
/// Why a filter behind the driver has none.
pub const GENERIC: &str = "generic mode has no metadata of packets";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn wish(stamps: Stamping, attached: Option<Attached>) -> Wish {
        Wish { stamps, attached, ..Wish::default() }
    }

    #[test]
    fn who_cannot_have_stamps_is_told_why() {
        let asked = |stamps, attached| stamp(1, "lo", &wish(stamps, attached)).unwrap_err();
        assert_eq!(asked(Stamping::Software, None), "stamps of software were asked for");
        assert_eq!(asked(Stamping::Auto, Some(Attached::Generic)), "generic mode has no metadata of packets");
        let lo = asked(Stamping::Auto, None);
        let old = lo.contains("Linux 6.3") || lo.contains("no BTF");
        assert!(lo == "the driver of lo offers none" || old, "{lo}");
        assert!(refused(&io::Error::other("Invalid argument: R1 type=scalar")).starts_with("the verifier refused: "));
        assert!(refused(&io::Error::from_raw_os_error(libc::EINVAL)).contains("bound to the device: Invalid"));
    }

    #[test]
    fn what_is_chosen_hangs_on_filter_card_and_wish() {
        let (takes, not) = (Ok(()), Err("why not".to_owned()));
        let lo = |filter, stamps| choose(filter, "lo", &wish(stamps, None));
        assert_eq!(lo(&not, Stamping::Auto).unwrap().note(), "arrival times are those of the poll: why not");
        assert_eq!(lo(&takes, Stamping::Software).unwrap().takes(), None);
        // A filter that takes stamps, at an interface that has no card.
        let asked = lo(&takes, Stamping::Auto).unwrap();
        assert!(asked.note().ends_with("those of the poll: lo cannot stamp every packet"), "{}", asked.note());
        assert_eq!(asked.takes(), Some(false));
        assert_eq!((Chosen::Card.takes(), Chosen::Card.note()), (Some(true), "time stamps by the card".into()));
        for filter in [&takes, &not] {
            let error = lo(filter, Stamping::Hardware).unwrap_err();
            assert_eq!(error.kind(), Kind::Unavailable);
            assert!(error.to_string().contains("no time stamps of the card: ") && !error.cure_text().is_empty());
        }
    }
}

//! What may be chosen, and the size of a ring.

use crate::error::Result;
use crate::rx::socket::Stamping;
use crate::rx::words;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How packets are cut in two, counted from the Ethernet header on, for that is what the card does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// Behind 96 octets where the payload goes to a GPU; else not at all.
    #[default]
    Auto,
    /// Behind so many octets.
    At(u16),
    /// Not at all: packets lie whole in memory of the host.
    None,
}

/// Where packets may be cut. 14 octets of Ethernet, 20 of IPv4, 8 of UDP, 12 of RTP, and 20 of three SRDs with the extended
/// sequence number (RFC 4175) are 74; 22 more leave room for a VLAN tag and for options.
pub const CUTS: std::ops::RangeInclusive<u16> = 74..=96;

/// How to open a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Interface of each leg, by name or by one of its IPv4 addresses; the last one counts for all further legs; with none
    /// the routing table says.
    pub interfaces: Vec<String>,
    /// UDP payload octets of a packet at most, as the SDP says.
    pub max_octets: u16,
    /// Packets a second of one leg, for the size of the ring; 0 when not known.
    pub rate: u64,
    /// For how long packets have room: while this program is held up, and while a GPU reads them.
    pub hold: Duration,
    /// Packets in the ring of a leg, in place of what rate and hold say.
    pub capacity: Option<usize>,
    /// How packets are cut.
    pub cut: Cut,
    /// Whose time stamps are wanted.
    pub stamps: Stamping,
    /// Between polls the card's interrupt is waited for, instead of a fixed time.
    pub events: bool,
    /// VLAN of the flow; without one that of the interface (`eth1.100`), else none.
    pub vlan: Option<u16>,
    /// The library, in place of `libibverbs.so.1`.
    pub library: Option<PathBuf>,
    /// Where the kernel shows its devices.
    pub sysfs: PathBuf,
    /// Seconds that TAI is ahead of UTC, used when the kernel was never told.
    pub utc_offset_s: i32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            interfaces: Vec::new(),
            max_octets: 1452,
            rate: 0,
            hold: Duration::from_millis(30),
            capacity: None,
            cut: Cut::Auto,
            stamps: Stamping::Auto,
            events: false,
            vlan: None,
            library: None,
            sysfs: "/sys".into(),
            utc_offset_s: 37,
        }
    }
}

/// Packets of a ring: at least, when nothing is known, and at most.
const LEAST: usize = 1024;
const UNKNOWN: usize = 32_768;
const MOST: usize = 1 << 18;

impl Options {
    /// Packets that the ring of a leg is to hold: what comes during hold.
    pub fn packets(&self) -> usize {
        match (self.capacity, self.rate) {
            (Some(capacity), _) => capacity,
            (None, 0) => UNKNOWN,
            (None, rate) => {
                let wanted = u128::from(rate).saturating_mul(self.hold.as_nanos()) / 1_000_000_000;
                usize::try_from(wanted).unwrap_or(MOST).clamp(LEAST, MOST)
            }
        }
    }

    /// The interface that leg `number` is to use.
    pub(super) fn interface(&self, number: usize) -> Option<&str> {
        self.interfaces.get(number).or(self.interfaces.last()).map(String::as_str)
    }

    /// Changes what `text` says: words such as `cut=96`, `hold=40ms`, `events`, with commas between.
    ///
    /// # Errors
    /// A word is not known, or its value makes no sense.
    pub fn change(&mut self, text: &str) -> Result<()> {
        let known = "cut=auto|none|74..96, hold=TIME, capacity=PACKETS, stamps=auto|software|hardware, events, vlan=N, \
                     library=PATH, sysfs=PATH; times as 500us, 20ms or 1s";
        words::each(text, ',', "verbs", known, |name, value| self.change_one(name, value))
    }

    fn change_one(&mut self, name: &str, value: &str) -> Option<()> {
        match (name, value) {
            ("cut", value) => self.cut = value.parse().ok()?,
            ("hold", value) => self.hold = words::time(value)?,
            ("capacity", value) => self.capacity = Some(value.parse().ok().filter(|n| (64..=MOST).contains(n))?),
            ("stamps", value) => self.stamps = words::stamping(value)?,
            ("events", "") => self.events = true,
            ("vlan", value) => self.vlan = Some(words::vlan(value)?),
            ("library", path) if !path.is_empty() => self.library = Some(path.into()),
            ("sysfs", path) if !path.is_empty() => self.sysfs = path.into(),
            _ => return None,
        }
        Some(())
    }
}

impl FromStr for Cut {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        match text {
            "auto" => Ok(Cut::Auto),
            "none" => Ok(Cut::None),
            octets => octets.parse().ok().filter(|octets| CUTS.contains(octets)).map(Cut::At).ok_or(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_ring_holds_what_comes_while_it_is_needed() {
        let of = |rate, hold| Options { rate, hold: Duration::from_millis(hold), ..Options::default() }.packets();
        // 2160p59.94 in packets of 1260 octets of samples.
        assert_eq!((of(1_035_764, 30), of(1_035_764, 20)), (31_072, 20_715));
        assert_eq!((of(0, 20), of(10, 20), of(u64::MAX, 20)), (UNKNOWN, LEAST, MOST));
        assert_eq!(Options { capacity: Some(100), rate: 5, ..Options::default() }.packets(), 100);
    }

    #[test]
    fn words_change_options() {
        let mut options = Options::default();
        options
            .change("cut=74, hold=40ms,capacity=4096,stamps=hardware,events,vlan=100,library=/x/lib.so,sysfs=/y")
            .unwrap();
        let expected = Options {
            cut: Cut::At(74),
            hold: Duration::from_millis(40),
            capacity: Some(4096),
            stamps: Stamping::Hardware,
            events: true,
            vlan: Some(100),
            library: Some("/x/lib.so".into()),
            sysfs: "/y".into(),
            ..Options::default()
        };
        assert_eq!(options, expected);
        options.change("").unwrap();
        assert_eq!(options, expected);
        options.change("cut=none").unwrap();
        assert_eq!(options.cut, Cut::None);
        let wrong = ["cut=73", "cut=97", "cut=", "hold=5", "hold=ms", "capacity=1", "stamps=raw", "events=1", "vlan=0"];
        for wrong in wrong.into_iter().chain(["vlan=4095", "library=", "sysfs=", "what"]) {
            let error = options.change(wrong).unwrap_err();
            assert!(error.kind() == Kind::Usage && error.to_string().contains(wrong), "{wrong}: {error}");
        }
    }
}

//! What may be chosen, and the size of a ring.

use crate::error::Result;
use crate::format::WireFormat;
use crate::rx::words;
use std::str::FromStr;
use std::time::Duration;

/// How packets are cut into headers and data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// As the first packets of the flow show.
    #[default]
    Probe,
    /// Behind so many octets.
    At(u16),
    /// Not at all: packets lie whole in memory of the host, pinned where a GPU reads it.
    None,
}

/// In which slot of the ring a packet goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// [`Order::Extended`] for two legs, so that they can share a ring, else [`Order::Arrival`].
    #[default]
    Auto,
    /// The next one.
    Arrival,
    /// That of its extended sequence number (ST 2110-20), modulo the capacity.
    Extended,
}

/// Whose clock stamps arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    /// The card's counter.
    #[default]
    Raw,
    /// The card's PTP clock, which somebody else has to keep on time.
    Synced,
}

/// How to open a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Interface of each leg, by name or by one of its IPv4 addresses; the last one counts for all further legs; with none
    /// the routing table says.
    pub interfaces: Vec<String>,
    /// UDP payload octets of a packet at most, as the SDP says.
    pub max_octets: u16,
    /// RTP payload type, for looking at the first packets.
    pub payload_type: u8,
    /// Packets a second of one leg, for the size of the ring; 0 when not known.
    pub rate: u64,
    /// How long a packet is needed after its arrival: until it is unpacked, or as long as sinks use frames that lie in the
    /// ring.
    pub hold: Duration,
    /// By how much legs may differ (ST 2022-7 class A: 10 ms).
    pub skew: Duration,
    /// Packets in the ring, in place of what rate, hold and skew say. An eighth of them is its margin: packets that come
    /// out of order by more than that count as overwritten.
    pub capacity: Option<usize>,
    /// How packets are cut.
    pub split: Split,
    /// Where they go.
    pub order: Order,
    /// Slots are as large as the packets that were seen, where all are of one size, so that samples of a frame lie without
    /// gaps. A larger packet does not fit then, and is lost.
    pub exact: bool,
    /// Frames of this format are wanted as they come, and may be windows of the ring
    /// ([`Settings::windows`](crate::pipeline::Settings::windows)): where the first packets show that they can be, slots are
    /// exact and go by sequence number, and the ring is long enough. Not where `split`, `order`, `exact` or `capacity` say
    /// something themselves.
    pub windows: Option<WireFormat>,
    /// Whose clock stamps arrivals.
    pub stamps: Stamps,
    /// Between polls the card's interrupt is waited for, instead of a fixed time.
    pub events: bool,
    /// Cores for the library's own threads; the first receiver of a process decides.
    pub cores: Vec<usize>,
    /// How long to look for the first packets.
    pub probe: Duration,
    /// Seconds that TAI is ahead of UTC, used when the kernel was never told.
    pub utc_offset_s: i32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            interfaces: Vec::new(),
            max_octets: 1452,
            payload_type: 96,
            rate: 0,
            hold: Duration::from_millis(20),
            skew: Duration::from_millis(10),
            capacity: None,
            split: Split::Probe,
            order: Order::Auto,
            exact: false,
            windows: None,
            stamps: Stamps::Raw,
            events: false,
            cores: Vec::new(),
            probe: Duration::from_millis(500),
            utc_offset_s: 37,
        }
    }
}

/// Packets of a ring: at least, when nothing is known, and at most.
const LEAST: usize = 4096;
const UNKNOWN: usize = 65_536;
const MOST: usize = 1 << 20;
/// The highest number of a core, and one more, as Linux counts them.
const CORES: usize = 8192;
/// Frames that a ring of windows holds at least: those that wait for a sink and that it has in hand, that which is filled,
/// and the margin.
const FRAMES: u64 = 12;

impl Options {
    /// Packets that the ring is to hold: what comes during hold and skew, with the eighth that is its margin, as a power
    /// of two, which sequence numbers wrap at.
    pub fn packets(&self, legs: usize) -> usize {
        if let Some(capacity) = self.capacity {
            return capacity;
        }
        if self.rate == 0 {
            return UNKNOWN;
        }
        let skew = if legs > 1 { self.skew } else { Duration::ZERO };
        let time = self.hold.saturating_add(skew).as_nanos();
        let wanted = u128::from(self.rate).saturating_mul(time) / 1_000_000_000 * 8 / 7;
        usize::try_from(wanted).unwrap_or(MOST).min(MOST).next_power_of_two().clamp(LEAST, MOST)
    }

    /// Nothing was said that keeps frames from being windows of the ring, where they are wanted so.
    pub(super) fn lets_windows(&self) -> Option<WireFormat> {
        let plain = (self.split, self.order, self.exact, self.capacity) == (Split::Probe, Order::Auto, false, None);
        self.windows.filter(|_| plain)
    }

    /// The same for frames that are windows of the ring, of packets with so many octets of payload; none when the ring would
    /// be too long.
    pub(super) fn in_windows(&self, wire: WireFormat, payload: u16, legs: usize) -> Option<Self> {
        let packets = (FRAMES * u64::from(wire.frame_octets())).div_ceil(u64::from(payload.max(1)));
        let packets = usize::try_from(packets).ok()?.checked_next_power_of_two()?.max(self.packets(legs));
        (packets <= MOST).then(|| Options {
            order: Order::Extended,
            exact: true,
            capacity: Some(packets),
            ..self.clone()
        })
    }

    /// The interface that leg `number` is to use.
    pub(super) fn interface(&self, number: usize) -> Option<&str> {
        self.interfaces.get(number).or(self.interfaces.last()).map(String::as_str)
    }

    /// Changes what `text` says: words such as `split=26`, `order=extended`, `hold=40ms`, with commas between.
    ///
    /// # Errors
    /// A word is not known, or its value makes no sense.
    pub fn change(&mut self, text: &str) -> Result<()> {
        let known = "split=probe|none|20..255, order=auto|arrival|extended, stamps=raw|synced, hold=TIME, skew=TIME, probe=TIME, \
                     capacity=PACKETS, cores=2+3, events, exact; times as 500us, 20ms or 1s";
        words::each(text, ',', "Rivermax", known, |name, value| self.change_one(name, value))
    }

    fn change_one(&mut self, name: &str, value: &str) -> Option<()> {
        match (name, value) {
            ("split", value) => self.split = value.parse().ok()?,
            ("order", "auto") => self.order = Order::Auto,
            ("order", "arrival") => self.order = Order::Arrival,
            ("order", "extended") => self.order = Order::Extended,
            ("stamps", "raw") => self.stamps = Stamps::Raw,
            ("stamps", "synced") => self.stamps = Stamps::Synced,
            ("hold", value) => self.hold = words::time(value)?,
            ("skew", value) => self.skew = words::time(value)?,
            ("probe", value) => self.probe = words::time(value)?,
            ("capacity", value) => self.capacity = Some(value.parse().ok().filter(|n| (256..=MOST).contains(n))?),
            ("cores", value) => {
                let core = |text: &str| text.parse().ok().filter(|core| *core < CORES);
                self.cores = value.split('+').map(core).collect::<Option<_>>()?;
            }
            ("events", "") => self.events = true,
            ("exact", "") => self.exact = true,
            _ => return None,
        }
        Some(())
    }
}

impl FromStr for Split {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        match text {
            "probe" => Ok(Split::Probe),
            "none" => Ok(Split::None),
            // Longer than the payload header of one SRD; a card's limit is its own to tell.
            octets => octets.parse().ok().filter(|octets| (20..256).contains(octets)).map(Split::At).ok_or(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_ring_holds_what_comes_while_it_is_needed() {
        let of =
            |rate, hold, legs| Options { rate, hold: Duration::from_millis(hold), ..Options::default() }.packets(legs);
        // 2160p59.94: 20 715 packets in 20 ms, 31 072 in 30; an eighth more is the margin.
        assert_eq!((of(1_035_764, 20, 1), of(1_035_764, 20, 2)), (32_768, 65_536));
        assert_eq!((of(0, 20, 1), of(10, 20, 1), of(u64::MAX, 20, 1)), (UNKNOWN, LEAST, MOST));
        assert_eq!(Options { capacity: Some(100), rate: 5, ..Options::default() }.packets(2), 100);
    }

    #[test]
    fn words_change_options() {
        let mut options = Options::default();
        options
            .change("split=26, order=extended,stamps=synced,hold=40ms,cores=2+3,events,exact,capacity=4096")
            .unwrap();
        let expected = Options {
            split: Split::At(26),
            order: Order::Extended,
            stamps: Stamps::Synced,
            hold: Duration::from_millis(40),
            cores: vec![2, 3],
            events: true,
            exact: true,
            capacity: Some(4096),
            ..Options::default()
        };
        assert_eq!(options, expected);
        options.change("").unwrap();
        assert_eq!(options, expected);
        let wrong = ["split=19", "split=", "order=x", "hold=5", "hold=ms", "cores=", "events=1", "capacity=1", "what"];
        for wrong in wrong.into_iter().chain(["cores=8192", "cores=18446744073709551615", "probe=99999999999s"]) {
            let error = options.change(wrong).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{wrong}");
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }
}

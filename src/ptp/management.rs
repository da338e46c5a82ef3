//! Management messages of IEEE 1588-2008 (clause 15): a GET of a data set as octets, and its answer as values. Pure.
//!
//! A message is a header of 34 octets (13.3), the target's port identity (10), two counts of hops, the action, a reserve,
//! and a TLV: type, length, identifier, data (15.4). All numbers are big-endian.

use std::fmt;
use std::str::FromStr;

/// EUI-64 of a clock, written as SDPs do: `08-00-11-FF-FE-22-33-44`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClockIdentity(pub [u8; 8]);

impl fmt::Display for ClockIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, octet) in self.0.iter().enumerate() {
            write!(f, "{}{octet:02X}", if n == 0 { "" } else { "-" })?;
        }
        Ok(())
    }
}

impl FromStr for ClockIdentity {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut out = [0; 8];
        let mut parts = text.trim().split(['-', ':']);
        for octet in &mut out {
            let part = parts.next().filter(|p| p.len() == 2).ok_or(())?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| ())?;
        }
        if parts.next().is_some() { Err(()) } else { Ok(ClockIdentity(out)) }
    }
}

impl serde::Serialize for ClockIdentity {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// A data set that is asked for: its identifier (15.5.2.3, table 40).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Id {
    /// Of the clock itself.
    Default = 0x2000,
    /// How it stands to its master.
    Current = 0x2001,
    /// Its master and grandmaster.
    Parent = 0x2002,
    /// What the grandmaster's time is.
    TimeProperties = 0x2003,
    /// Of a port; every port answers for itself.
    Port = 0x2004,
    /// linuxptp's own: the last offset, whole and at once.
    TimeStatusNp = 0xc000,
}

impl Id {
    /// All that are asked for.
    pub const ALL: [Id; 6] = [Id::Default, Id::Current, Id::Parent, Id::TimeProperties, Id::Port, Id::TimeStatusNp];
}

/// State of a port (8.2.5.3.1, table 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PortState {
    /// No number of the standard.
    #[default]
    Unknown,
    /// Begins.
    Initializing,
    /// Has a fault.
    Faulty,
    /// Is off.
    Disabled,
    /// Waits for an Announce.
    Listening,
    /// Is about to be master.
    PreMaster,
    /// Others follow it.
    Master,
    /// Neither master nor slave.
    Passive,
    /// Has a master and is not settled.
    Uncalibrated,
    /// Follows a master.
    Slave,
}

impl PortState {
    const fn of(octet: u8) -> Self {
        match octet {
            1 => PortState::Initializing,
            2 => PortState::Faulty,
            3 => PortState::Disabled,
            4 => PortState::Listening,
            5 => PortState::PreMaster,
            6 => PortState::Master,
            7 => PortState::Passive,
            8 => PortState::Uncalibrated,
            9 => PortState::Slave,
            _ => PortState::Unknown,
        }
    }
    /// As the standard writes it.
    pub const fn name(self) -> &'static str {
        match self {
            PortState::Unknown => "of no known state",
            PortState::Initializing => "INITIALIZING",
            PortState::Faulty => "FAULTY",
            PortState::Disabled => "DISABLED",
            PortState::Listening => "LISTENING",
            PortState::PreMaster => "PRE_MASTER",
            PortState::Master => "MASTER",
            PortState::Passive => "PASSIVE",
            PortState::Uncalibrated => "UNCALIBRATED",
            PortState::Slave => "SLAVE",
        }
    }
}

/// What the time of a grandmaster is (15.5.3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TimeProperties {
    /// Seconds that TAI is ahead of UTC, as the grandmaster says.
    pub utc_offset_s: i16,
    /// It says that this is right.
    pub utc_offset_valid: bool,
    /// Its time counts from the epoch of PTP; else from where it pleases (ARB).
    pub ptp_timescale: bool,
    /// Time traceable to a primary reference.
    pub time_traceable: bool,
    /// Frequency traceable to a primary reference.
    pub frequency_traceable: bool,
    /// Where it has its time from (table 7): 0x20 GPS, 0xa0 its own oscillator.
    pub time_source: u8,
}

/// An answer's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSet {
    /// 15.5.3.3.
    Default {
        /// Of this clock.
        identity: ClockIdentity,
        /// Of this clock.
        domain: u8,
        /// It may only follow.
        slave_only: bool,
    },
    /// 15.5.3.4.
    Current {
        /// Clocks between this one and the grandmaster.
        steps_removed: u16,
        /// Nanoseconds that this clock is ahead of its master.
        offset_ns: i64,
        /// Nanoseconds of the way to it.
        path_delay_ns: i64,
    },
    /// 15.5.3.5.
    Parent {
        /// The clock whose time everybody has.
        grandmaster: ClockIdentity,
        /// Its class (7.6.2.4): 6 locked to a primary reference, 7 in holdover, 248 default.
        clock_class: u8,
        /// Its accuracy (table 6): 0x21 within 100 ns, 0xfe not known.
        clock_accuracy: u8,
    },
    /// 15.5.3.6.
    TimeProperties(TimeProperties),
    /// 15.5.3.7.
    Port {
        /// Number of the port, from 1.
        number: u16,
        /// Its state.
        state: PortState,
    },
    /// linuxptp, `struct time_status_np` of its `tlv.h`.
    TimeStatusNp {
        /// Nanoseconds that this clock is ahead of its master; none before a Sync of it came: ptp4l says 0 then.
        offset_ns: Option<i64>,
        /// The grandmaster where it is another clock.
        grandmaster: Option<ClockIdentity>,
    },
}

/// A response to a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Of the message.
    pub domain: u8,
    /// Of the request that it answers.
    pub sequence: u16,
    /// The clock that answers.
    pub from: ClockIdentity,
    /// What it says.
    pub data: DataSet,
}

/// Octets of a request.
const REQUEST: usize = 54;

/// GET of a data set, in a domain, of any clock and port.
pub fn get(domain: u8, sequence: u16, id: Id) -> [u8; REQUEST] {
    let mut out = [0; REQUEST];
    // Message type 0xd, version 2, length.
    out[..5].copy_from_slice(&[0x0d, 0x02, 0, REQUEST as u8, domain]);
    out[30..32].copy_from_slice(&sequence.to_be_bytes());
    // Control field 4: management; interval 0x7f: does not matter.
    out[32..34].copy_from_slice(&[4, 0x7f]);
    out[34..44].fill(0xff);
    // No hops: nothing goes out to the network. Then the action, GET, and the TLV.
    out[44..48].fill(0);
    for (at, number) in [(48, 1u16), (50, 2), (52, id as u16)] {
        out[at..at + 2].copy_from_slice(&number.to_be_bytes());
    }
    out
}

/// Reads a response; none for any other message, an error status, or a data set that was not asked for.
pub fn response(message: &[u8]) -> Option<Response> {
    let management = octet(message, 0)? & 0x0f == 0x0d;
    let response = octet(message, 46)? & 0x0f == 2;
    let tlv = u16_at(message, 48)? == 1;
    (management && response && tlv).then_some(())?;
    let len = usize::from(u16_at(message, 50)?);
    let data = message.get(54..)?.get(..len.checked_sub(2)?)?;
    Some(Response {
        domain: octet(message, 4)?,
        sequence: u16_at(message, 30)?,
        from: identity(message, 20)?,
        data: data_set(u16_at(message, 52)?, data)?,
    })
}

fn data_set(id: u16, data: &[u8]) -> Option<DataSet> {
    // A TimeInterval counts 2^-16 ns (5.3.2).
    let interval = |at| i64_at(data, at).map(|n| n >> 16);
    let id = *Id::ALL.iter().find(|known| **known as u16 == id)?;
    Some(match id {
        Id::Default => DataSet::Default {
            slave_only: octet(data, 0)? & 2 != 0,
            identity: identity(data, 10)?,
            domain: octet(data, 18)?,
        },
        Id::Current => {
            DataSet::Current { steps_removed: u16_at(data, 0)?, offset_ns: interval(2)?, path_delay_ns: interval(10)? }
        }
        Id::Parent => DataSet::Parent {
            clock_class: octet(data, 19)?,
            clock_accuracy: octet(data, 20)?,
            grandmaster: identity(data, 24)?,
        },
        Id::TimeProperties => {
            let flags = octet(data, 2)?;
            DataSet::TimeProperties(TimeProperties {
                utc_offset_s: u16_at(data, 0)? as i16,
                utc_offset_valid: flags & 4 != 0,
                ptp_timescale: flags & 8 != 0,
                time_traceable: flags & 16 != 0,
                frequency_traceable: flags & 32 != 0,
                time_source: octet(data, 3)?,
            })
        }
        Id::Port => DataSet::Port { number: u16_at(data, 8)?, state: PortState::of(octet(data, 10)?) },
        Id::TimeStatusNp => {
            // Offset (8), time of entry (8), rates (4, 4), time base (2), phase (12), presence (4), grandmaster (8).
            let present = data.get(38..42)?.iter().any(|o| *o != 0);
            let grandmaster = identity(data, 42)?;
            let (offset, entry) = (i64_at(data, 0)?, i64_at(data, 8)?);
            DataSet::TimeStatusNp {
                offset_ns: (entry != 0).then_some(offset),
                grandmaster: present.then_some(grandmaster),
            }
        }
    })
}

fn octet(octets: &[u8], at: usize) -> Option<u8> {
    octets.get(at).copied()
}
fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}
fn i64_at(octets: &[u8], at: usize) -> Option<i64> {
    octets.get(at..)?.first_chunk().map(|b| i64::from_be_bytes(*b))
}
fn identity(octets: &[u8], at: usize) -> Option<ClockIdentity> {
    octets.get(at..)?.first_chunk().map(|b| ClockIdentity(*b))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What ptp4l makes of a request: the response with this data.
    pub fn answer(to: &[u8], data: &[u8]) -> Vec<u8> {
        let mut out = to[..48].to_vec();
        out[46] = 2;
        out.extend([0, 1]);
        out.extend((data.len() as u16 + 2).to_be_bytes());
        out.extend(&to[52..54]);
        out.extend(data);
        out
    }

    const GRANDMASTER: [u8; 8] = [0x08, 0x00, 0x11, 0xff, 0xfe, 0x22, 0x33, 0x44];

    fn read(id: Id, data: &[u8]) -> Option<DataSet> {
        response(&answer(&get(127, 5, id), data)).map(|r| r.data)
    }

    #[test]
    fn requests_are_laid_out_as_the_standard_says() {
        let out = get(127, 258, Id::Port);
        assert_eq!(out[..5], [0x0d, 2, 0, 54, 127]);
        assert_eq!(out[30..34], [1, 2, 4, 0x7f]);
        assert_eq!(out[34..48], [255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0]);
        assert_eq!(out[48..], [0, 1, 0, 2, 0x20, 0x04]);
        assert_eq!(response(&out), None, "a request is no response");
    }

    #[test]
    fn data_sets_are_laid_out_as_the_standard_says() {
        // 15.5.3.3: flags, reserve, ports, priority, class, accuracy, variance, priority, identity, domain, reserve.
        let mut data = vec![3, 0, 0, 1, 128, 255, 0xfe, 0xff, 0xff, 128];
        data.extend(GRANDMASTER);
        data.extend([127, 0]);
        let want = DataSet::Default { identity: ClockIdentity(GRANDMASTER), domain: 127, slave_only: true };
        assert_eq!(read(Id::Default, &data), Some(want));
        // 15.5.3.4: -858 ns and 1519.5 ns in 2^-16 ns.
        let mut data = vec![0, 1];
        data.extend((-858i64 * 65536).to_be_bytes());
        data.extend((1519i64 * 65536 + 32768).to_be_bytes());
        let want = DataSet::Current { steps_removed: 1, offset_ns: -858, path_delay_ns: 1519 };
        assert_eq!(read(Id::Current, &data), Some(want));
        // 15.5.3.5: parent's port (10), statistics, reserve, variance (2), phase change (4), priority, class, accuracy,
        // variance (2), priority, grandmaster.
        let mut data =
            vec![1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 0, 0, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 100, 6, 0x21, 0x4e, 0x5d, 128];
        data.extend(GRANDMASTER);
        assert_eq!(data.len(), 32);
        let want = DataSet::Parent { grandmaster: ClockIdentity(GRANDMASTER), clock_class: 6, clock_accuracy: 0x21 };
        assert_eq!(read(Id::Parent, &data), Some(want));
        // 15.5.3.6: 37 s, valid, timescale PTP, both traceable, GPS.
        let want = TimeProperties {
            utc_offset_s: 37,
            utc_offset_valid: true,
            ptp_timescale: true,
            time_traceable: true,
            frequency_traceable: true,
            time_source: 0x20,
        };
        assert_eq!(read(Id::TimeProperties, &[0, 37, 0x3c, 0x20]), Some(DataSet::TimeProperties(want)));
        let arbitrary = TimeProperties { utc_offset_s: -1, time_source: 0xa0, ..TimeProperties::default() };
        assert_eq!(read(Id::TimeProperties, &[255, 255, 0, 0xa0]), Some(DataSet::TimeProperties(arbitrary)));
        // 15.5.3.7: identity of clock and port, state, and 15 octets more.
        let mut data = GRANDMASTER.to_vec();
        data.extend([0, 2, 9]);
        data.resize(26, 0);
        assert_eq!(read(Id::Port, &data), Some(DataSet::Port { number: 2, state: PortState::Slave }));
        // linuxptp's.
        let mut data = [(-37i64).to_be_bytes(), 1_700_000_000_000_000_000i64.to_be_bytes()].concat();
        data.resize(38, 0);
        data.extend([0, 0, 0, 1]);
        data.extend(GRANDMASTER);
        let master = Some(ClockIdentity(GRANDMASTER));
        let np = |offset_ns, grandmaster| Some(DataSet::TimeStatusNp { offset_ns, grandmaster });
        assert_eq!(read(Id::TimeStatusNp, &data), np(Some(-37), master));
        data[41] = 0;
        assert_eq!(read(Id::TimeStatusNp, &data), np(Some(-37), None));
        // Nothing came yet that an offset could be of.
        data[..16].fill(0);
        assert_eq!(read(Id::TimeStatusNp, &data), np(None, None));
    }

    #[test]
    fn data_that_is_cut_short_is_none() {
        for (id, len) in [
            (Id::Default, 20),
            (Id::Current, 18),
            (Id::Parent, 32),
            (Id::TimeProperties, 4),
            (Id::Port, 11),
            (Id::TimeStatusNp, 50),
        ] {
            let whole = vec![0; len];
            assert!(read(id, &whole).is_some(), "{id:?}");
            let enough = if id == Id::Default { 19 } else { len };
            assert_eq!(read(id, &whole[..enough - 1]), None, "{id:?}");
        }
    }

    #[test]
    fn identities_are_written_as_in_an_sdp() {
        let identity = ClockIdentity(GRANDMASTER);
        assert_eq!(identity.to_string(), "08-00-11-FF-FE-22-33-44");
        assert_eq!("08-00-11-ff-fe-22-33-44".parse(), Ok(identity));
        for wrong in ["", "08-00", "08-00-11-FF-FE-22-33-4", "08-00-11-FF-FE-22-33-44-55", "0800.11ff.fe22.3344"] {
            assert_eq!(wrong.parse::<ClockIdentity>(), Err(()), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read_without_harm(octets in proptest::collection::vec(0u8.., 0..120)) {
            let _ = response(&octets);
        }

        #[test]
        fn any_data_of_a_response_is_read_without_harm(n in 0usize..6, data in proptest::collection::vec(0u8.., 0..64)) {
            let id = Id::ALL[n];
            let message = answer(&get(3, 9, id), &data);
            if let Some(read) = response(&message) {
                prop_assert_eq!((read.domain, read.sequence), (3, 9));
            }
            for end in 0..message.len() {
                prop_assert_eq!(response(&message[..end]), None);
            }
        }
    }
}

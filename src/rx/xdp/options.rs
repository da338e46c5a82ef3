//! What an AF_XDP receiver is told.

use crate::error::Result;
use crate::rx::socket::Stamping;
use crate::rx::words;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// How packets get from the card to this program, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The card writes into this program's memory.
    ZeroCopy,
    /// The driver runs the filter, packets are copied once.
    Native,
    /// The kernel runs the filter behind the driver, packets are copied once. Works with every interface.
    Generic,
}

/// How to open an [`Xdp`](super::Xdp).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// As of [`crate::rx::socket::Options::interfaces`].
    pub interfaces: Vec<String>,
    /// UDP payload octets of a packet at most.
    pub max_octets: u16,
    /// Expected packets a second; 0 when not known.
    pub packets: u64,
    /// For how long packets have room: while this program is held up, and while a GPU reads them.
    pub hold: Duration,
    /// As of [`crate::rx::socket::Options::utc_offset_s`].
    pub utc_offset_s: i32,
    /// Whose time stamps are wanted: the card's are taken by the filter, in the driver only.
    pub stamps: Stamping,
    /// The only mode that will do; without one the best that works.
    pub mode: Option<Mode>,
    /// The only queue that is served; without one all of them.
    pub queue: Option<u32>,
    /// A rule of the card (n-tuple) may be made that leads the flow to one queue, where there is none.
    pub steer: bool,
    /// VLAN of the flow; without one that of the interface (`eth1.100`), else none.
    pub vlan: Option<u16>,
    /// Busy polling by the kernel.
    pub busy_poll: Option<BusyPoll>,
    /// Unix socket of a [`super::helper`] that has the rights for it.
    pub helper: Option<PathBuf>,
    /// The kernel's clock stands in for the card's.
    #[cfg(test)]
    pub(super) stand_in: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            interfaces: Vec::new(),
            max_octets: 1452,
            packets: 0,
            hold: Duration::from_millis(200),
            utc_offset_s: 37,
            stamps: Stamping::Auto,
            mode: None,
            queue: None,
            steer: false,
            vlan: None,
            busy_poll: None,
            helper: None,
            #[cfg(test)]
            stand_in: false,
        }
    }
}

/// Options of the kernel's busy polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long the kernel may look at the card in one call, in microseconds.
    pub micros: u32,
    /// Packets that it takes at most meanwhile.
    pub budget: u32,
}

/// Packets that the kernel takes at most in one look at the card.
const BUDGET: u32 = 64;

impl Options {
    /// The interface that leg `number` is to use.
    pub(super) fn interface(&self, number: u8) -> Option<&str> {
        self.interfaces.get(usize::from(number)).or(self.interfaces.last()).map(String::as_str)
    }

    /// Changes what `text` says: words such as `mode=generic`, `queue=3`, with commas between.
    ///
    /// # Errors
    /// A word is not known, or its value makes no sense.
    pub fn change(&mut self, text: &str) -> Result<()> {
        let known = "mode=zero-copy|native|generic, stamps=auto|software|hardware, queue=N, steer, vlan=N, hold=TIME, \
                     busy-poll=TIME, helper=PATH; times as 500us, 20ms or 1s";
        words::each(text, ',', "AF_XDP", known, |name, value| self.change_one(name, value))
    }

    fn change_one(&mut self, name: &str, value: &str) -> Option<()> {
        match (name, value) {
            ("mode", "zero-copy") => self.mode = Some(Mode::ZeroCopy),
            ("mode", "native") => self.mode = Some(Mode::Native),
            ("mode", "generic") => self.mode = Some(Mode::Generic),
            ("stamps", value) => self.stamps = words::stamping(value)?,
            ("queue", value) => self.queue = Some(value.parse().ok()?),
            ("steer", "") => self.steer = true,
            ("vlan", value) => self.vlan = Some(words::vlan(value)?),
            ("hold", value) => self.hold = words::time(value)?,
            ("busy-poll", value) => {
                let micros = u32::try_from(words::time(value)?.as_micros()).ok().filter(|n| *n > 0)?;
                self.busy_poll = Some(BusyPoll { micros, budget: BUDGET });
            }
            ("helper", path) if !path.is_empty() => self.helper = Some(path.into()),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn words_change_what_they_name() {
        let mut options = Options::default();
        options
            .change("mode=generic, stamps=software,queue=3,steer,vlan=100,hold=20ms,busy-poll=30us,helper=/run/x")
            .unwrap();
        let wanted = Options {
            mode: Some(Mode::Generic),
            stamps: Stamping::Software,
            queue: Some(3),
            steer: true,
            vlan: Some(100),
            hold: Duration::from_millis(20),
            busy_poll: Some(BusyPoll { micros: 30, budget: 64 }),
            helper: Some("/run/x".into()),
            ..Options::default()
        };
        assert_eq!(options, wanted);
        options.change("").unwrap();
        options.change("mode=zero-copy").unwrap();
        assert_eq!(options.mode, Some(Mode::ZeroCopy));
        options.change("stamps=hardware").unwrap();
        assert_eq!(options.stamps, Stamping::Hardware);
        options.change("stamps=auto").unwrap();
        assert_eq!(options.stamps, Stamping::Auto);
        for wrong in [
            "mode=fast",
            "stamps=raw",
            "stamps",
            "queue=-1",
            "vlan=0",
            "vlan=4095",
            "hold=2",
            "hold=2h",
            "busy-poll=0us",
            "helper=",
            "x",
            "queue",
            "steer=7",
        ] {
            let error = options.change(wrong).unwrap_err();
            assert!(error.kind() == Kind::Usage && error.to_string().contains(wrong), "{error}");
        }
    }
}

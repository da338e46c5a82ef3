//! What a receiver by DPDK is told.

use super::eal;
use crate::error::Result;
use crate::rx::socket::Stamping;
use crate::rx::words;
use crate::wire::igmp::Version;
use std::net::Ipv4Addr;
use std::time::Duration;

/// How to open a [`Dpdk`](super::Dpdk).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Port of each leg, the last one counts for all further legs: a PCI address, or a virtual device with what its driver is
    /// told (`net_af_packet,iface=eth1`). A device without a number at its end gets one.
    pub ports: Vec<String>,
    /// What DPDK's environment is told, word by word; none: whatever it was started with by another receiver will do.
    pub eal: Vec<String>,
    /// IPv4 address that is answered for on each port that no kernel has, the last one counts for all further ports.
    pub addresses: Vec<Ipv4Addr>,
    /// VLAN of the flow.
    pub vlan: Option<u16>,
    /// The only version of IGMP that is spoken; without one version 3, and what queriers ask in.
    pub igmp: Option<Version>,
    /// UDP payload octets of a packet at most.
    pub max_octets: u16,
    /// Expected packets a second; 0 when not known.
    pub packets: u64,
    /// For how long packets have room: while this program is held up, and while a GPU reads them.
    pub hold: Duration,
    /// As of [`crate::rx::socket::Options::utc_offset_s`].
    pub utc_offset_s: i32,
    /// Whose time stamps are wanted.
    pub stamps: Stamping,
    /// Queues that packets are spread over.
    pub queues: u16,
    /// Packets that a queue of a card holds.
    pub descriptors: u16,
    /// Octets of a frame that have room; none: as many as the flow needs, and not less than a driver asks for.
    pub room: Option<u16>,
    /// Rules of the card may be made for the flow.
    pub rules: bool,
    /// Octets of a packet, from its RTP header on, that go to memory of the host where its body goes elsewhere.
    pub split: u16,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            ports: Vec::new(),
            eal: Vec::new(),
            addresses: Vec::new(),
            vlan: None,
            igmp: None,
            max_octets: 1452,
            packets: 0,
            hold: Duration::from_millis(200),
            utc_offset_s: 37,
            stamps: Stamping::Auto,
            queues: 1,
            descriptors: 4096,
            room: None,
            rules: true,
            // Room for three sample row data headers.
            split: 32,
        }
    }
}

impl Options {
    /// Has DPDK run, as `eal=` says: it starts once in a process, and what was wrong with it is said in full that one time.
    ///
    /// # Errors
    /// It cannot start.
    pub fn start(&self) -> Result<()> {
        eal::start(&self.eal)
    }

    /// The address of port number `number` in [`Options::ports`].
    pub(super) fn address(&self, number: usize) -> Option<Ipv4Addr> {
        self.addresses.get(number).or(self.addresses.last()).copied()
    }

    /// Changes what `text` says: words such as `port=0000:3b:00.0`, `queues=2`, with semicolons between, for what a driver is
    /// told has commas in it.
    ///
    /// # Errors
    /// A word is not known, or its value makes no sense.
    pub fn change(&mut self, text: &str) -> Result<()> {
        let (mut ports, mut addresses) = (Vec::new(), Vec::new());
        let known = "port=PCI-ADDRESS or port=DRIVER,OPTIONS (one for each leg), eal=OPTIONS, address=IPV4, vlan=N, igmp=1|2|3, \
                     stamps=auto|software|hardware, hold=TIME, queues=N, descriptors=N, room=OCTETS, split=OCTETS, no-rules; \
                     semicolons between; times as 500us, 20ms or 1s";
        words::each(text, ';', "DPDK", known, |name, value| self.change_one(name, value, &mut ports, &mut addresses))?;
        if !ports.is_empty() {
            self.ports = ports;
        }
        if !addresses.is_empty() {
            self.addresses = addresses;
        }
        Ok(())
    }

    fn change_one(
        &mut self,
        name: &str,
        value: &str,
        ports: &mut Vec<String>,
        addresses: &mut Vec<Ipv4Addr>,
    ) -> Option<()> {
        match (name, value) {
            ("port", value) if !value.is_empty() && !value.contains('\0') => ports.push(value.to_owned()),
            ("eal", value) if !value.contains('\0') => self.eal = value.split_whitespace().map(str::to_owned).collect(),
            ("address", value) => addresses.push(value.parse().ok().filter(is_of_a_host)?),
            ("vlan", value) => self.vlan = Some(words::vlan(value)?),
            ("igmp", "1") => self.igmp = Some(Version::V1),
            ("igmp", "2") => self.igmp = Some(Version::V2),
            ("igmp", "3") => self.igmp = Some(Version::V3),
            ("stamps", value) => self.stamps = words::stamping(value)?,
            ("hold", value) => self.hold = words::time(value)?,
            ("queues", value) => self.queues = value.parse().ok().filter(|n| (1..=64).contains(n))?,
            ("descriptors", value) => self.descriptors = value.parse().ok().filter(|n| (64..=32_768).contains(n))?,
            ("room", value) => self.room = Some(value.parse().ok().filter(|n| (256..=16_384).contains(n))?),
            ("split", value) => self.split = value.parse().ok().filter(|n| (20..=256).contains(n))?,
            ("no-rules", "") => self.rules = false,
            _ => return None,
        }
        Some(())
    }
}

fn is_of_a_host(address: &Ipv4Addr) -> bool {
    !address.is_multicast() && !address.is_unspecified() && !address.is_broadcast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn words_change_what_they_name() {
        let mut options = Options::default();
        options
            .change(
                "port=net_af_packet0,iface=rx0; port=0000:3b:00.0;eal=--no-huge -m 512;address=10.0.0.5;vlan=100;igmp=2;\
                 stamps=hardware;hold=20ms;queues=4;descriptors=1024;room=9216;split=26;no-rules",
            )
            .unwrap();
        let wanted = Options {
            ports: vec!["net_af_packet0,iface=rx0".into(), "0000:3b:00.0".into()],
            eal: vec!["--no-huge".into(), "-m".into(), "512".into()],
            addresses: vec![Ipv4Addr::new(10, 0, 0, 5)],
            vlan: Some(100),
            igmp: Some(Version::V2),
            stamps: Stamping::Hardware,
            hold: Duration::from_millis(20),
            queues: 4,
            descriptors: 1024,
            room: Some(9216),
            split: 26,
            rules: false,
            ..Options::default()
        };
        assert_eq!(options, wanted);
        options.change("").unwrap();
        assert_eq!(options, wanted);
        for wrong in [
            "port=",
            "port",
            "eal=\0",
            "address=239.1.1.1",
            "address=0.0.0.0",
            "address=10.0.0.5/24",
            "vlan=0",
            "vlan=4095",
            "igmp=4",
            "stamps=raw",
            "hold=2",
            "queues=0",
            "queues=65",
            "descriptors=1",
            "room=1",
            "split=4",
            "no-rules=1",
            "x",
        ] {
            let error = options.change(wrong).unwrap_err();
            assert!(error.kind() == Kind::Usage && error.to_string().contains(wrong), "{error}");
        }
    }
}

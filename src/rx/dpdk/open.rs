//! Everything between the options and the first packet: ports, memory, pools. Cold.
#![allow(unsafe_code)]

use super::abi::{self, Packet, Pool};
use super::port::{Port, Ports};
use super::revive::Reviver;
use super::{BATCH, Dpdk, Options, eal};
use crate::error::{Error, Kind, Result};
#[cfg(feature = "cuda")]
use crate::mem::Device;
use crate::mem::Host;
use crate::ring::SplitRing;
use crate::rx::socket::{MAX_LEGS, tai_offset};
use crate::rx::{Caps, Planes};
use crate::stats::RxCounters;
use crate::time::Tai;
use crate::timing::Source;
use std::sync::Arc;

/// Buffers for packets that wait and that are read, at least and at most.
const BUFFERS: std::ops::RangeInclusive<u64> = 4096..=131_072;
/// Headers before a UDP payload at most: Ethernet with a tag, IPv6 (or IPv4 with 20 octets of options), UDP.
const HEADERS: u32 = 18 + 40 + 8;
/// Octets that a frame has at least: `net_af_packet` takes no less.
const LEAST_ROOM: u32 = 2048;
/// Cards round a buffer's room down, so that frames come in two pieces: to 128 octets (i40e, ice), to 1024 (ixgbe).
const ROOM_UNIT: u32 = 1024;
/// Headers before a UDP payload as a card is to cut it: Ethernet, IPv4, UDP; a tag comes on top.
const CUT_BEFORE: u16 = 14 + 20 + 8;

impl<M: Planes> Dpdk<M> {
    /// Opens the ports that the options name; packets lie whole in memory of the host. `from` gives the memory. Nothing is received
    /// before [`Receiver::join`](crate::rx::Receiver::join).
    ///
    /// # Errors
    /// DPDK does not start, a port cannot be had, or there is no memory; each has words of its own, and the process goes on.
    pub fn open(options: Options, from: &M::Source) -> Result<Self> {
        Self::build(options, false, |_, count, room, _| {
            let mut head = M::head(from, abi::octets_for(count, room).max(1))?;
            // SAFETY: the region becomes the ring's, to which DPDK alone writes, and which outlives the pool (the fields' order).
            let pool = unsafe { Pool::new(&mut head, count, room) }.map_err(|refused| no_pool(count, refused))?;
            Ok(Built { pool, bodies: None, ring: SplitRing::whole(head), split: None, place: M::NAME })
        })
    }

    /// `splits`: only ports that cut packets in two will do.
    fn build(
        options: Options,
        splits: bool,
        memory: impl FnOnce(&Options, u32, u32, &mut Vec<String>) -> Result<Built<M>>,
    ) -> Result<Self> {
        if options.ports.is_empty() {
            return Err(Error::new(Kind::Usage, "DPDK is told no port").cure(
                "name one for each leg: --dpdk port=0000:3b:00.0, or --dpdk 'port=net_af_packet,iface=eth1;eal=--no-huge'",
            ));
        }
        eal::start(&options.eal)?;
        let mut notes = vec![abi::version().to_owned()];
        let (mut ports, mut port_of) = (Ports::default(), Vec::new());
        for (number, spec) in options.ports.iter().enumerate() {
            let same = options.ports.iter().take(number).position(|other| other == spec);
            let known = same.and_then(|same| port_of.get(same).copied());
            if known.is_none() {
                ports.push(Port::open(spec, number, &options, &mut notes)?);
            }
            port_of.push(known.unwrap_or(number));
        }
        if let Some(port) = ports.iter().find(|port| splits && !port.info().splits) {
            return Err(Error::new(
                Kind::Unavailable,
                format!(
                    "driver {} of port {} does not cut packets in two (buffer split)",
                    port.info().driver,
                    port.name()
                ),
            )
            .cure("packets go into pinned memory, from where the GPU reads them"));
        }
        let needed = u32::from(options.max_octets) + HEADERS;
        let room = options.room.map_or_else(|| needed.max(LEAST_ROOM), u32::from);
        if room < needed {
            return Err(Error::new(
                Kind::Usage,
                format!("room={room} is too small for packets of {} octets", options.max_octets),
            )
            .cure(format!("at least room={needed}")));
        }
        let room = room.next_multiple_of(ROOM_UNIT);
        let wanted = match u128::from(options.packets) * options.hold.as_nanos() / 1_000_000_000 {
            _ if options.packets == 0 => 16_384,
            wanted => u64::try_from(wanted).unwrap_or(u64::MAX),
        };
        let wanted = wanted.clamp(*BUFFERS.start(), *BUFFERS.end()) as u32;
        let queues = ports.len() as u32 * u32::from(options.queues);
        let count = wanted + queues * u32::from(options.descriptors);
        // Places in a pool are numbers of 32 bits, and the pool of bodies is no larger.
        let octets = abi::octets_for(count, room);
        if u32::try_from(octets).is_err() {
            return Err(Error::new(
                Kind::Usage,
                format!("{count} buffers of {room} octets are {} MiB, and a receiver has 4095 at most", octets >> 20),
            )
            .cure("ask for fewer: queues=, descriptors=, hold=, room="));
        }
        let built = memory(&options, count, room, &mut notes)?;
        let mib = |octets: usize| octets.div_ceil(1 << 20);
        let mut note = format!("{count} buffers of {room} octets, {} MiB of {}", mib(built.ring.size()), built.place);
        if options.packets > 0 {
            let ms = f64::from(wanted) * 1e3 / options.packets as f64;
            note = format!("{note}: {ms:.0} ms at {} packets/s", options.packets);
        }
        notes.push(note);
        let split = built.split.zip(built.bodies.as_ref());
        // SAFETY: pools are dropped after ports: here, and by the fields' order.
        let mut start = |port: &mut Port| unsafe { port.start(&options, &built.pool, split, &mut notes) };
        if let Err(error) = ports.iter_mut().try_for_each(&mut start) {
            drop(ports);
            return Err(error);
        }
        if let gpus @ 1.. = abi::gpus() {
            notes.push(format!(
                "DPDK has a driver for {gpus} GPU(s) (rte_gpu); gdmedia registers memory with CUDA itself"
            ));
        }
        notes.push("UDP checksums are not checked; no merging (GRO)".into());
        let caps = Caps {
            backend: "dpdk",
            notes,
            batch: BATCH,
            buffer_octets: u64::from(count) * u64::from(options.max_octets),
            live: true,
            stamps: Source::Software,
        };
        let tai_offset = tai_offset(options.utc_offset_s);
        let (pool, bodies) = (Arc::new(built.pool), built.bodies.map(Arc::new));
        // With one port its receiver ends, and is opened anew.
        let several = ports.len() > 1;
        let reviver = several.then(|| Reviver::new(&options, &pool, built.split.zip(bodies.as_ref()))).flatten();
        let mut new = Dpdk {
            reviver,
            ports,
            bodies,
            pool,
            ring: built.ring,
            port_of,
            options,
            legs: [None, None],
            wanted: [None, None],
            turn: 0,
            packets: vec![Packet::EMPTY; BATCH],
            unwanted: Vec::with_capacity(BATCH),
            stamps: Vec::with_capacity(BATCH),
            spare: (0..8).map(|_| Vec::with_capacity(BATCH)).collect(),
            leased: 0,
            buffers: count as usize,
            caps,
            counters: RxCounters::default(),
            room,
            scattered: 0,
            outside: 0,
            lost: 0,
            lost_by_leg: [0; MAX_LEGS],
            broken: None,
            events: Vec::new(),
            looked: Tai(0),
            rejoined: Tai(0),
            tai_offset,
        };
        new.caps.stamps = new.source();
        Ok(new)
    }
}

#[cfg(feature = "cuda")]
impl Dpdk<Device> {
    /// The same with what follows the headers in memory of the GPU, where the driver cuts packets in two.
    ///
    /// # Errors
    /// As of [`Dpdk::open`]; or a driver does not, which is all but a few of PCI cards.
    pub fn open_split(options: Options, gpu: &std::sync::Arc<crate::gpu::Gpu>) -> Result<Self> {
        Self::build(options, true, |options, count, room, notes| two(gpu, options, count, room, notes))
    }
}

impl Dpdk<Host> {
    /// The same in memory of the host, where it is of no use: for tests on machines without a GPU.
    ///
    /// # Errors
    /// As of [`Dpdk::open`]; or a driver does not cut.
    #[doc(hidden)]
    pub fn open_split_in_host(options: Options) -> Result<Self> {
        Self::build(options, true, |options, count, room, notes| two(&(), options, count, room, notes))
    }
}

/// A pool for what is before the cut, one for what is behind it.
fn two<M: Planes>(
    from: &M::Source,
    options: &Options,
    count: u32,
    room: u32,
    notes: &mut Vec<String>,
) -> Result<Built<M>> {
    let cut = CUT_BEFORE + options.split + if options.vlan.is_some() { 4 } else { 0 };
    let mut head = M::head(from, abi::octets_for(count, u32::from(cut)))?;
    let stride = room as usize + HEADROOM;
    let octets = (stride * count as usize).next_multiple_of(PAGE);
    let mut body = M::body(from, octets, notes)?;
    // SAFETY: the regions become the ring's, to which DPDK alone writes, and which outlives the pools.
    let pools = unsafe { (Pool::new(&mut head, count, u32::from(cut)), Pool::over(&mut body, count, room)) };
    let pool = pools.0.map_err(|refused| no_pool(count, refused))?;
    let bodies = pools.1.map_err(|refused| no_pool(count, refused))?;
    Ok(Built { pool, bodies: Some(bodies), ring: SplitRing::split(head, body), split: Some(cut), place: M::NAME })
}

/// What DPDK keeps free before a packet (`RTE_PKTMBUF_HEADROOM`).
const HEADROOM: usize = 128;
/// What memory is registered in.
const PAGE: usize = 4096;

/// Memory, and the pools in it.
struct Built<M: Planes> {
    pool: Pool,
    bodies: Option<Pool>,
    ring: SplitRing<M>,
    /// Octets of a frame that go to the first pool.
    split: Option<u16>,
    place: &'static str,
}

fn no_pool(count: u32, refused: abi::Refused) -> Error {
    let cure = match refused.errno {
        libc::ENOMEM | libc::ENOSPC => {
            "give DPDK more memory (eal=… -m MIB), or hold packets for a shorter time (hold=)"
        }
        _ => "see docs/dpdk.md",
    };
    Error::new(Kind::Unavailable, format!("DPDK makes no pool of {count} buffers")).because(refused).cure(cure)
}

//! The filter that runs at the interface, assembled here: packets of wanted flows go to the socket of the queue that they
//! came by, all others on to the kernel.
//!
//! ```text
//! Ethernet, one 802.1Q tag or none, IPv4 or IPv6, UDP, no fragment      else pass
//! queues = flows[destination, source, port, VLAN]
//!       or flows[destination, any,    port, VLAN]                       else pass
//! queue that it came by is one of `queues`                              else pass
//! the card's stamp into 16 octets before the packet                     the second form only
//! redirect to sockets[queue]; pass when there is none (its owner has died)
//! ```
//!
//! IPv6 extension headers are passed on: who sends ST 2110 has no use for them.
//!
//! The second form calls the driver for the stamp of a packet (`bpf_xdp_metadata_rx_timestamp`, Linux 6.3). Such a program is
//! bound to one device and runs in the driver only, so it is chosen where that is had. Packets that go on to the kernel are
//! left as they are: octets before a packet would keep the kernel from merging them (GRO).
#![allow(unsafe_code)]

use super::abi::{Plain, XDP_PASS};
use crate::sdp::{Leg, SourceFilter};
use crate::wire::net::Datagram;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Queues of an interface that can be served: bits of [`Queues`].
pub const MAX_QUEUES: u32 = 64;
/// Flows of an interface, each source counted.
pub const MAX_FLOWS: u32 = 1024;

/// Which queues of a flow go to AF_XDP sockets.
pub type Queues = u64;

/// What the filter looks for. Addresses are IPv6 ones, IPv4 mapped into them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    destination: [u8; 16],
    /// All zero: any.
    source: [u8; 16],
    port: [u8; 2],
    /// VLAN identifier; 0 without a tag, or with one for priority only.
    vlan: [u8; 2],
}
// SAFETY: octets.
unsafe impl Plain for Key {}

impl Key {
    /// Of a flow from one source, or from any.
    pub fn new(destination: IpAddr, source: Option<IpAddr>, port: u16, vlan: u16) -> Self {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Key {
            destination: octets(destination),
            source: source.map(octets).unwrap_or_default(),
            port: port.to_be_bytes(),
            vlan: vlan.to_be_bytes(),
        }
    }
}

/// A flow as the filter sees it, and as a receiver recognises it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Multicast group, or an address of the interface.
    pub destination: IpAddr,
    /// UDP destination port.
    pub port: u16,
    /// Who may send; nobody in it: anybody.
    pub sources: Vec<IpAddr>,
    /// VLAN identifier, 0 without.
    pub vlan: u16,
}

impl Wanted {
    /// Of a leg. Sources that are excluded are told apart by the receiver.
    pub fn new(leg: &Leg, vlan: u16) -> Self {
        let sources = match &leg.sources {
            SourceFilter::Include(list) => list.clone(),
            SourceFilter::Any | SourceFilter::Exclude(_) => Vec::new(),
        };
        Wanted { destination: leg.destination, port: leg.port, sources, vlan }
    }
    /// What the filter has to look for.
    pub fn keys(&self) -> Vec<Key> {
        let key = |source| Key::new(self.destination, source, self.port, self.vlan);
        if self.sources.is_empty() { vec![key(None)] } else { self.sources.iter().map(|s| key(Some(*s))).collect() }
    }
    /// Whether a datagram goes there, whoever sent it.
    #[inline]
    pub fn matches(&self, datagram: &Datagram) -> bool {
        let vlan = match *datagram.vlans.as_slice() {
            [] => 0,
            [only] => only,
            _ => return false,
        };
        datagram.destination.ip() == self.destination && datagram.destination.port() == self.port && vlan == self.vlan
    }
}

/// `XDP_PASS`, `bpf_map_lookup_elem`, `bpf_redirect_map`, `bpf_xdp_adjust_meta`, `bpf_ktime_get_tai_ns`.
const PASS: i32 = XDP_PASS;
const MAP_LOOKUP: i32 = 1;
const REDIRECT_MAP: i32 = 51;
const ADJUST_META: i32 = 54;
#[cfg(test)]
const TAI_NOW: i32 = 208;

/// The driver's function that gives a packet's stamp.
pub const CALL: &str = "bpf_xdp_metadata_rx_timestamp";

/// Who stamps packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The card: number of [`CALL`] in the kernel's BTF.
    Card(u32),
    /// The kernel's TAI clock when the program runs, where a test has no card. The way of the stamp is the same.
    #[cfg(test)]
    StandIn,
}

/// Octets before a packet: [`MARK`] as 8 octets, then the stamp in nanoseconds of the card's clock, 0 where it gave none; both
/// in the processor's order.
pub const METADATA: usize = 16;
/// Says that the octets before a packet are of the filter.
pub const MARK: u64 = 0x6764_5453;

/// The stamp of the packet that begins at `start`, in nanoseconds of the card's clock; 0 without one.
///
/// What a frame's former packet left cannot be taken for it: the filter writes it for each packet or, where the driver has no
/// room for it, for none, and new memory is zero.
#[inline]
pub fn stamp_before(memory: &[u8], start: usize) -> u64 {
    let octets = start.checked_sub(METADATA).and_then(|at| memory.get(at..)?.first_chunk::<METADATA>());
    let word = |o: &[u8; METADATA], at: usize| o.get(at..)?.first_chunk().map(|w| u64::from_ne_bytes(*w));
    match octets {
        Some(octets) if word(octets, 0) == Some(MARK) => word(octets, 8).unwrap_or(0),
        _ => 0,
    }
}

/// Registers: results and arguments, the rest are kept over calls. `FP` is the end of the stack.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R5: u8 = 5;
const CONTEXT: u8 = 6;
const DATA: u8 = 7;
const END: u8 = 8;
const AT: u8 = 9;
const FP: u8 = 10;

/// Where the stamp and the key lie on the stack.
const STAMP: i16 = -48;
const KEY: i16 = -40;
const SOURCE: i16 = KEY + 16;
const PORT: i16 = KEY + 32;
const VLAN: i16 = KEY + 34;

/// Sizes of loads and stores, as the instruction codes have them.
#[derive(Clone, Copy)]
enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
    Double = 0x18,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Vlan,
    Network,
    V4,
    V6,
    Udp,
    Found,
    Stamped,
    Send,
    Pass,
}

/// An assembler: instructions, and the jumps whose targets are not known yet.
#[derive(Default)]
struct Code {
    insns: Vec<u64>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Code {
    /// Operation, destination, source, offset, immediate.
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        let registers = u64::from(to | from << 4);
        self.insns
            .push(u64::from(code) | registers << 8 | u64::from(offset as u16) << 16 | u64::from(value as u32) << 32);
    }
    fn copy(&mut self, to: u8, from: u8) {
        self.push(0xbf, to, from, 0, 0);
    }
    fn set(&mut self, to: u8, value: i32) {
        self.push(0xb7, to, 0, 0, value);
    }
    fn add(&mut self, to: u8, value: i32) {
        self.push(0x07, to, 0, 0, value);
    }
    fn and(&mut self, to: u8, value: i32) {
        self.push(0x57, to, 0, 0, value);
    }
    fn shift_left(&mut self, to: u8, value: i32) {
        self.push(0x67, to, 0, 0, value);
    }
    fn shift_right_register(&mut self, to: u8, from: u8) {
        self.push(0x7f, to, from, 0, 0);
    }
    fn load(&mut self, size: Size, to: u8, from: u8, offset: i16) {
        self.push(0x61 | size as u8, to, from, offset, 0);
    }
    fn store(&mut self, size: Size, to: u8, offset: i16, from: u8) {
        self.push(0x63 | size as u8, to, from, offset, 0);
    }
    fn store_value(&mut self, size: Size, to: u8, offset: i16, value: i32) {
        self.push(0x62 | size as u8, to, 0, offset, value);
    }
    fn map(&mut self, to: u8, fd: i32) {
        // Two instructions long; source 1 says that the value is a map's descriptor.
        self.push(0x18, to, 1, 0, fd);
        self.push(0, 0, 0, 0, 0);
    }
    fn call(&mut self, function: i32) {
        self.push(0x85, 0, 0, 0, function);
    }
    /// A function of the kernel, by its number in BTF (`BPF_PSEUDO_KFUNC_CALL`).
    fn call_kernel(&mut self, function: u32) {
        self.push(0x85, 0, 2, 0, function as i32);
    }
    fn exit(&mut self) {
        self.push(0x95, 0, 0, 0, 0);
    }
    fn jump(&mut self, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(0x05, 0, 0, 0, 0);
    }
    fn jump_if(&mut self, code: u8, register: u8, value: i32, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(code, register, 0, 0, value);
    }
    fn if_equal(&mut self, register: u8, value: i32, to: Label) {
        self.jump_if(0x15, register, value, to);
    }
    fn unless_equal(&mut self, register: u8, value: i32, to: Label) {
        self.jump_if(0x55, register, value, to);
    }
    fn if_above_or_equal(&mut self, register: u8, value: i32, to: Label) {
        self.jump_if(0x35, register, value, to);
    }
    fn if_below(&mut self, register: u8, value: i32, to: Label) {
        self.jump_if(0xa5, register, value, to);
    }
    /// The result of a call, of which 32 bits count.
    fn if_result(&mut self, value: i32, to: Label) {
        self.jump_if(0x16, R0, value, to);
    }
    fn unless_result(&mut self, value: i32, to: Label) {
        self.jump_if(0x56, R0, value, to);
    }
    /// Passes packets that end before `octets` behind `from`.
    fn need(&mut self, from: u8, octets: i32) {
        self.copy(R2, from);
        self.add(R2, octets);
        self.jump_if_above(R2, END, Label::Pass);
    }
    fn jump_if_above(&mut self, one: u8, other: u8, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(0x2d, one, other, 0, 0);
    }
    fn label(&mut self, label: Label) {
        self.labels.push((label, self.insns.len()));
    }
    fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let target = self.labels.iter().find(|(l, _)| *l == label).map_or(at, |(_, target)| *target);
            let offset = (target as i64 - at as i64 - 1) as i16;
            self.insns[at] |= u64::from(offset as u16) << 16;
        }
        self.insns
    }
}

/// A value of two octets in the packet's order, as the processor loads it.
const fn wire(value: u16) -> i32 {
    value.to_be() as i32
}

/// The program, with the descriptors of its two maps: [`Key`] to [`Queues`], and queue to socket.
pub fn assemble(flows: i32, sockets: i32, stamp: Option<Stamp>) -> Vec<u64> {
    use Size::{Byte, Double, Half, Word};
    let mut c = Code::default();
    c.copy(CONTEXT, R1);
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index.
    c.load(Word, DATA, CONTEXT, 0);
    c.load(Word, END, CONTEXT, 4);
    for at in (KEY..0).step_by(8) {
        c.store_value(Double, FP, at, 0);
    }

    c.need(DATA, 18);
    c.load(Half, R3, DATA, 12);
    c.copy(AT, DATA);
    c.add(AT, 14);
    c.if_equal(R3, wire(0x8100), Label::Vlan);
    c.if_equal(R3, wire(0x88a8), Label::Vlan);
    c.jump(Label::Network);

    c.label(Label::Vlan);
    c.load(Half, R4, DATA, 14);
    c.and(R4, wire(0x0fff));
    c.store(Half, FP, VLAN, R4);
    c.load(Half, R3, DATA, 16);
    c.add(AT, 4);

    c.label(Label::Network);
    c.if_equal(R3, wire(0x0800), Label::V4);
    c.if_equal(R3, wire(0x86dd), Label::V6);
    c.jump(Label::Pass);

    c.label(Label::V4);
    c.need(AT, 20);
    c.load(Byte, R4, AT, 0);
    c.copy(R5, R4);
    c.and(R5, 0xf0);
    c.unless_equal(R5, 0x40, Label::Pass);
    c.load(Byte, R5, AT, 9);
    c.unless_equal(R5, 17, Label::Pass);
    // More fragments, or not the first.
    c.load(Half, R5, AT, 6);
    c.and(R5, wire(0x3fff));
    c.unless_equal(R5, 0, Label::Pass);
    c.store_value(Half, FP, KEY + 10, 0xffff);
    c.load(Word, R5, AT, 16);
    c.store(Word, FP, KEY + 12, R5);
    c.store_value(Half, FP, SOURCE + 10, 0xffff);
    c.load(Word, R5, AT, 12);
    c.store(Word, FP, SOURCE + 12, R5);
    c.and(R4, 0x0f);
    c.shift_left(R4, 2);
    c.if_below(R4, 20, Label::Pass);
    c.add(AT, 20);
    // Options word by word: adding a register to a packet's address needs CAP_PERFMON besides CAP_BPF.
    for longer in (24..=60).step_by(4) {
        c.if_below(R4, longer, Label::Udp);
        c.add(AT, 4);
    }
    c.jump(Label::Udp);

    c.label(Label::V6);
    c.need(AT, 40);
    c.load(Byte, R5, AT, 0);
    c.and(R5, 0xf0);
    c.unless_equal(R5, 0x60, Label::Pass);
    c.load(Byte, R5, AT, 6);
    c.unless_equal(R5, 17, Label::Pass);
    for (to, from) in [(KEY, 24), (KEY + 8, 32), (SOURCE, 8), (SOURCE + 8, 16)] {
        c.load(Double, R5, AT, from);
        c.store(Double, FP, to, R5);
    }
    c.add(AT, 40);

    c.label(Label::Udp);
    c.need(AT, 8);
    c.load(Half, R5, AT, 2);
    c.store(Half, FP, PORT, R5);
    let look_up = |c: &mut Code| {
        c.map(R1, flows);
        c.copy(R2, FP);
        c.add(R2, KEY.into());
        c.call(MAP_LOOKUP);
    };
    look_up(&mut c);
    c.unless_equal(R0, 0, Label::Found);
    c.store_value(Double, FP, SOURCE, 0);
    c.store_value(Double, FP, SOURCE + 8, 0);
    look_up(&mut c);
    c.if_equal(R0, 0, Label::Pass);

    c.label(Label::Found);
    c.load(Word, R2, CONTEXT, 16);
    c.if_above_or_equal(R2, MAX_QUEUES as i32, Label::Pass);
    c.load(Double, R3, R0, 0);
    c.shift_right_register(R3, R2);
    c.and(R3, 1);
    c.if_equal(R3, 0, Label::Pass);
    if let Some(stamp) = stamp {
        // Nothing of the packet is looked at any more; the queue is kept over the calls.
        c.copy(DATA, R2);
        write_stamp(&mut c, stamp);
        c.copy(R2, DATA);
    }
    c.map(R1, sockets);
    // What becomes of a packet whose queue has no socket.
    c.set(R3, PASS);
    c.call(REDIRECT_MAP);
    c.exit();

    c.label(Label::Pass);
    c.set(R0, PASS);
    c.exit();
    c.finish()
}

/// Writes [`METADATA`] octets before the packet.
fn write_stamp(c: &mut Code, stamp: Stamp) {
    use Size::{Double, Word};
    c.store_value(Double, FP, STAMP, 0);
    match stamp {
        Stamp::Card(function) => {
            c.copy(R1, CONTEXT);
            c.copy(R2, FP);
            c.add(R2, STAMP.into());
            c.call_kernel(function);
            c.if_result(0, Label::Stamped);
            // The card has none for this packet (ENODATA), or for any (EOPNOTSUPP).
            c.store_value(Double, FP, STAMP, 0);
        }
        #[cfg(test)]
        Stamp::StandIn => {
            c.call(TAI_NOW);
            c.store(Double, FP, STAMP, R0);
        }
    }
    c.label(Label::Stamped);
    // After the call: some drivers keep the card's words where this makes room.
    c.copy(R1, CONTEXT);
    c.set(R2, -(METADATA as i32));
    c.call(ADJUST_META);
    c.unless_result(0, Label::Send);
    // struct xdp_md: data_meta, data.
    c.load(Word, R2, CONTEXT, 8);
    c.load(Word, R3, CONTEXT, 0);
    c.copy(R4, R2);
    c.add(R4, METADATA as i32);
    c.jump_if_above(R4, R3, Label::Send);
    c.store_value(Double, R2, 0, MARK as i32);
    c.load(Double, R5, FP, STAMP);
    c.store(Double, R2, 8, R5);
    c.label(Label::Send);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_the_kernels_documentation() {
        let mut c = Code::default();
        // r6 = r1; r3 = *(u16 *)(r7 + 12); if r3 == 8 goto +1; exit; r0 = 2; exit
        c.copy(CONTEXT, R1);
        c.load(Size::Half, R3, DATA, 12);
        c.if_equal(R3, 8, Label::Pass);
        c.exit();
        c.label(Label::Pass);
        c.set(R0, PASS);
        c.exit();
        let octets: Vec<[u8; 8]> = c.finish().iter().map(|i| i.to_le_bytes()).collect();
        assert_eq!(
            octets,
            [
                [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
                [0x69, 0x73, 12, 0, 0, 0, 0, 0],
                [0x15, 0x03, 1, 0, 8, 0, 0, 0],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
                [0xb7, 0x00, 0, 0, 2, 0, 0, 0],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    #[test]
    fn every_jump_leads_forward_into_the_program() {
        for code in [None, Some(Stamp::Card(77)), Some(Stamp::StandIn)].map(|stamp| assemble(3, 4, stamp)) {
            for (at, insn) in code.iter().enumerate() {
                let class = (insn & 7) as u8;
                let operation = (insn & 0xf0) as u8;
                if matches!(class, 5 | 6) && operation != 0x80 && operation != 0x90 {
                    let offset = (insn >> 16) as u16 as i16;
                    assert!(offset >= 0 && at + 1 + (offset as usize) < code.len(), "instruction {at}: {offset}");
                }
            }
        }
    }

    /// Octets by hand from the kernel's documentation of instructions (RFC 9669): the end of the second form.
    #[test]
    fn the_stamp_is_asked_for_and_written_before_the_packet() {
        let octets: Vec<[u8; 8]> =
            assemble(3, 4, Some(Stamp::Card(0x0001_2345))).iter().map(|i| i.to_le_bytes()).collect();
        let wanted: [[u8; 8]; 28] = [
            // r7 = r2; *(u64 *)(r10 - 48) = 0; r1 = r6; r2 = r10; r2 += -48; call of function 0x12345 by BTF
            [0xbf, 0x27, 0, 0, 0, 0, 0, 0],
            [0x7a, 0x0a, 0xd0, 0xff, 0, 0, 0, 0],
            [0xbf, 0x61, 0, 0, 0, 0, 0, 0],
            [0xbf, 0xa2, 0, 0, 0, 0, 0, 0],
            [0x07, 0x02, 0, 0, 0xd0, 0xff, 0xff, 0xff],
            [0x85, 0x20, 0, 0, 0x45, 0x23, 0x01, 0],
            // if w0 == 0 goto +1; *(u64 *)(r10 - 48) = 0
            [0x16, 0x00, 1, 0, 0, 0, 0, 0],
            [0x7a, 0x0a, 0xd0, 0xff, 0, 0, 0, 0],
            // r1 = r6; r2 = -16; call 54; if w0 != 0 goto +8
            [0xbf, 0x61, 0, 0, 0, 0, 0, 0],
            [0xb7, 0x02, 0, 0, 0xf0, 0xff, 0xff, 0xff],
            [0x85, 0x00, 0, 0, 54, 0, 0, 0],
            [0x56, 0x00, 8, 0, 0, 0, 0, 0],
            // r2 = data_meta; r3 = data; r4 = r2; r4 += 16; if r4 > r3 goto +3
            [0x61, 0x62, 8, 0, 0, 0, 0, 0],
            [0x61, 0x63, 0, 0, 0, 0, 0, 0],
            [0xbf, 0x24, 0, 0, 0, 0, 0, 0],
            [0x07, 0x04, 0, 0, 16, 0, 0, 0],
            [0x2d, 0x34, 3, 0, 0, 0, 0, 0],
            // *(u64 *)r2 = mark; r5 = *(u64 *)(r10 - 48); *(u64 *)(r2 + 8) = r5
            [0x7a, 0x02, 0, 0, 0x53, 0x54, 0x64, 0x67],
            [0x79, 0xa5, 0xd0, 0xff, 0, 0, 0, 0],
            [0x7b, 0x52, 8, 0, 0, 0, 0, 0],
            // r2 = r7; r1 = map 4; r3 = 2; call 51; exit
            [0xbf, 0x72, 0, 0, 0, 0, 0, 0],
            [0x18, 0x11, 0, 0, 4, 0, 0, 0],
            [0; 8],
            [0xb7, 0x03, 0, 0, 2, 0, 0, 0],
            [0x85, 0x00, 0, 0, 51, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
            // pass: r0 = 2; exit
            [0xb7, 0x00, 0, 0, 2, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(octets[octets.len() - wanted.len()..], wanted);
        let plain = assemble(3, 4, None);
        assert_eq!(octets.len(), plain.len() + 21, "and nothing else");
    }

    #[test]
    fn stamps_are_read_before_the_packet_and_nowhere_else() {
        let mut memory = vec![0u8; 64];
        assert_eq!(stamp_before(&memory, 32), 0, "new memory");
        memory[16..24].copy_from_slice(&0x6764_5453u64.to_ne_bytes());
        memory[24..32].copy_from_slice(&1_700_000_000_123_456_789u64.to_ne_bytes());
        assert_eq!(stamp_before(&memory, 32), 1_700_000_000_123_456_789);
        for elsewhere in [0, 15, 16, 31, 33, 64, 65, usize::MAX] {
            assert_eq!(stamp_before(&memory, elsewhere), 0, "{elsewhere}");
        }
        memory[16] ^= 1;
        assert_eq!(stamp_before(&memory, 32), 0, "another mark");
        // The kernel takes no more than 32 octets, in steps of 4 (xdp_metalen_invalid).
        assert!(METADATA <= 32 && METADATA.is_multiple_of(4));
        assert!(METADATA as u32 <= super::super::umem::HEADROOM);
    }

    #[test]
    fn keys_lie_as_the_program_builds_them() {
        let key = Key::new("239.1.2.3".parse().unwrap(), Some("10.0.0.1".parse().unwrap()), 5004, 100);
        // SAFETY: octets without padding.
        let octets: [u8; 36] = unsafe { std::mem::transmute(key) };
        let mut wanted = [0; 36];
        wanted[10..16].copy_from_slice(&[0xff, 0xff, 239, 1, 2, 3]);
        wanted[26..32].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        wanted[32..].copy_from_slice(&[0x13, 0x8c, 0, 100]);
        assert_eq!(octets, wanted);
        assert_eq!(Key::new("ff3e::1".parse().unwrap(), None, 1, 0).source, [0; 16]);
    }
}

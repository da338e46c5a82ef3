//! The filter that runs at the interface, assembled here: packets of wanted flows go to the socket of the queue that they
//! came by, all others on to the kernel.
//!
//! ```text
//! Ethernet, one 802.1Q tag or none, IPv4 or IPv6, UDP, no fragment      else pass
//! queues = flows[destination, source, port, VLAN]
//!       or flows[destination, any,    port, VLAN]                       else pass
//! queue that it came by is one of `queues`                              else pass
//! redirect to sockets[queue]; pass when there is none (its owner has died)
//! ```
//!
//! IPv6 extension headers are passed on: who sends ST 2110 has no use for them.
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

/// `XDP_PASS`, `bpf_map_lookup_elem`, `bpf_redirect_map`.
const PASS: i32 = XDP_PASS;
const MAP_LOOKUP: i32 = 1;
const REDIRECT_MAP: i32 = 51;

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

/// Where the key lies on the stack.
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
    fn add_register(&mut self, to: u8, from: u8) {
        self.push(0x0f, to, from, 0, 0);
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
    /// Passes packets that end before `octets` behind `from`.
    fn need(&mut self, from: u8, octets: i32) {
        self.copy(R2, from);
        self.add(R2, octets);
        self.jumps.push((self.insns.len(), Label::Pass));
        self.push(0x2d, R2, END, 0, 0);
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
pub fn assemble(flows: i32, sockets: i32) -> Vec<u64> {
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
    c.add_register(AT, R4);
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
        let code = assemble(3, 4);
        for (at, insn) in code.iter().enumerate() {
            let class = (insn & 7) as u8;
            let operation = (insn & 0xf0) as u8;
            if class == 5 && operation != 0x80 && operation != 0x90 {
                let offset = (insn >> 16) as u16 as i16;
                assert!(offset >= 0 && at + 1 + (offset as usize) < code.len(), "instruction {at}: {offset}");
            }
        }
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

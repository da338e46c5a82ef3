//! Writes what passes to a pcapng file, around any receiver whose packets the CPU can read.
//!
//! Reception never waits for the disk: packets are copied into chunks of memory that a thread of its own writes. When
//! no chunk is free, packets pass unwritten and are counted.

use super::{Caps, Receiver, RxError};
use crate::error::{Error, Kind, Result};
use crate::event::Event;
use crate::fault::FaultCounters;
use crate::mem::{CpuAccess, Host, Region};
use crate::ring::{Lease, Slot, SplitRing};
use crate::sdp::{Leg, SourceFilter};
use crate::stats::RxCounters;
use crate::time::Tai;
use crate::wire::capture::PcapngWriter;
use crate::wire::net::{Link, Route};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver as Pipe, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Octets of packets that one chunk holds: a lease of a full batch.
const CHUNK: usize = 1 << 20;
/// Packets of one chunk.
const PACKETS: usize = 4096;
/// Memory between reception and the disk unless the caller says otherwise: half a second of 1 Gbit/s.
pub const BUFFER: usize = 64 << 20;

/// What a tap has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapCounters {
    /// Packets handed to the file; after a failure its buffer may have kept the last ones.
    pub written: u64,
    /// Packets that passed unwritten because the disk was too slow, full, or failed.
    pub dropped: u64,
}

/// A receiver whose packets are also written to a file. Times in the file are the arrivals of the packets, so they run
/// on TAI; the frames around the packets are made up from the legs, since a receiver sees UDP payloads only: the sender
/// is the one that the source filter includes, else the unspecified address, and its port is the leg's.
pub struct Tap<R: Receiver> {
    inner: R,
    current: Option<Chunk>,
    full: SyncSender<Message>,
    empty: Pipe<Chunk>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    written: AtomicU64,
    dropped: AtomicU64,
    error: Mutex<Option<Error>>,
}

impl Shared {
    fn fail(&self, error: Error) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

enum Message {
    Leg(u8, Route),
    Packets(Chunk),
    End,
}

/// Copies of packets.
struct Chunk {
    memory: Region<Host>,
    used: usize,
    packets: Vec<Packet>,
}

struct Packet {
    at: u32,
    octets: u16,
    wire_octets: u16,
    leg: u8,
    arrival: Tai,
}

impl Chunk {
    fn new() -> Result<Self> {
        Ok(Chunk { memory: Region::host(CHUNK)?, used: 0, packets: Vec::with_capacity(PACKETS) })
    }
    fn clear(&mut self) {
        self.used = 0;
        self.packets.clear();
    }
    fn has_room(&self, octets: u16) -> bool {
        self.used + usize::from(octets) <= CHUNK && self.packets.len() < PACKETS
    }
    /// Copies a packet; one that does not lie in its ring is left out.
    fn push<M: CpuAccess>(&mut self, ring: &SplitRing<M>, slot: &Slot) {
        let Some(octets) = ring.octets(slot, 0, slot.octets) else { return };
        let Some(place) = self.memory.as_mut_slice().get_mut(self.used..self.used + usize::from(slot.octets)) else {
            return;
        };
        let (first, rest) = place.split_at_mut(octets.first_len);
        first.copy_from_slice(&octets.first[..octets.first_len]);
        rest.copy_from_slice(&octets.rest[..octets.rest_len]);
        self.packets.push(Packet {
            at: self.used as u32,
            octets: slot.octets,
            wire_octets: slot.wire_octets,
            leg: slot.leg,
            arrival: slot.arrival,
        });
        self.used += usize::from(slot.octets);
    }
}

impl<R: Receiver> Tap<R>
where
    R::Mem: CpuAccess,
{
    /// Creates the file and starts its thread, with [`BUFFER`] octets between.
    ///
    /// # Errors
    /// When the file cannot be created, and when there is no memory.
    pub fn create(inner: R, path: &Path) -> Result<Self> {
        Self::with_buffer(inner, path, BUFFER)
    }
    /// As [`Tap::create`], with another buffer size (two MiB at least).
    ///
    /// # Errors
    /// As [`Tap::create`].
    pub fn with_buffer(inner: R, path: &Path, octets: usize) -> Result<Self> {
        let chunks = (octets / CHUNK).max(2);
        let (full, to_write) = sync_channel(chunks + 8);
        let (back, empty) = sync_channel(chunks);
        for _ in 0..chunks {
            // The channel has room for all of them.
            let _ = back.try_send(Chunk::new()?);
        }
        let shared =
            Arc::new(Shared { written: AtomicU64::new(0), dropped: AtomicU64::new(0), error: Mutex::new(None) });
        let writer = Writer { file: Some(PcapngWriter::create(path)?), legs: Vec::new(), shared: shared.clone() };
        let thread =
            std::thread::Builder::new().name("tap".into()).spawn(move || writer.run(&to_write, &back)).map_err(
                |e| Error::new(Kind::Unavailable, "cannot start the tap's thread").because(e).cure("raise ulimit -u"),
            )?;
        Ok(Tap { inner, current: None, full, empty, shared, thread: Some(thread) })
    }
    /// Packets written and passed unwritten so far.
    pub fn recorded(&self) -> TapCounters {
        TapCounters { written: self.shared.written.load(Relaxed), dropped: self.shared.dropped.load(Relaxed) }
    }
    /// The error that ended the writing, once: a full disk. Reception goes on without the file.
    pub fn take_error(&mut self) -> Option<Error> {
        self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
    /// Writes what is still buffered and waits for it. What passes later is counted as dropped.
    ///
    /// # Errors
    /// The error that ended the writing, unless [`Tap::take_error`] has told it.
    pub fn finish(&mut self) -> Result<TapCounters> {
        self.close();
        let counters = self.recorded();
        self.take_error().map_or(Ok(counters), Err)
    }
    /// The receiver within.
    pub fn inner(&self) -> &R {
        &self.inner
    }
}

impl<R: Receiver> Tap<R> {
    /// Hands the current chunk to the writer; never waits, because the channel has a place for every chunk.
    fn send(&mut self) {
        if let Some(chunk) = self.current.take_if(|c| !c.packets.is_empty())
            && let Err(e) = self.full.try_send(Message::Packets(chunk))
            && let TrySendError::Full(Message::Packets(chunk)) | TrySendError::Disconnected(Message::Packets(chunk)) = e
        {
            self.shared.dropped.fetch_add(chunk.packets.len() as u64, Relaxed);
        }
    }
    fn close(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.send();
        // Waits for a place, as long as the disk takes: whoever closes receives no more.
        let _ = self.full.send(Message::End);
        let _ = thread.join();
    }
}

impl<R: Receiver> Drop for Tap<R> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<R: Receiver> Receiver for Tap<R>
where
    R::Mem: CpuAccess,
{
    type Mem = R::Mem;
    fn ring(&self) -> &SplitRing<R::Mem> {
        self.inner.ring()
    }
    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        let lease = match self.inner.poll() {
            Ok(lease) => lease,
            Err(e) => {
                self.send();
                return Err(e);
            }
        };
        if lease.is_empty() {
            self.send();
        }
        let mut dropped = 0;
        for slot in lease.slots() {
            if self.current.as_ref().is_some_and(|c| !c.has_room(slot.octets)) {
                self.send();
            }
            if self.current.is_none() {
                self.current = self.empty.try_recv().ok();
            }
            match &mut self.current {
                Some(chunk) => chunk.push(self.inner.ring(), slot),
                None => dropped += 1,
            }
        }
        if dropped > 0 {
            self.shared.dropped.fetch_add(dropped, Relaxed);
        }
        Ok(lease)
    }
    fn release(&mut self, lease: Lease) {
        self.inner.release(lease);
    }
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }
    fn join(&mut self, leg: u8, what: &Leg) -> Result<()> {
        self.inner.join(leg, what)?;
        if let Some(route) = route_of(what) {
            // Waits for a place if it must: joining is no hot path.
            let _ = self.full.send(Message::Leg(leg, route));
        }
        Ok(())
    }
    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }
    fn dropped(&self, leg: u8) -> u64 {
        self.inner.dropped(leg)
    }
    fn faults(&self) -> &[FaultCounters] {
        self.inner.faults()
    }
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        let inner = self.inner.finish(remarks);
        let counters = Tap::finish(self)?;
        remarks.push(format!("tap: {} packets written", counters.written));
        if counters.dropped > 0 {
            remarks.push(format!("tap: {} packets are missing in the file: the disk was too slow", counters.dropped));
        }
        inner
    }
    fn take_events(&mut self, events: &mut Vec<Event>) {
        self.inner.take_events(events);
    }
    fn now(&self) -> Option<Tai> {
        self.inner.now()
    }
    fn wait(&mut self, at_most: Duration) -> bool {
        self.inner.wait(at_most)
    }
}

fn route_of(leg: &Leg) -> Option<Route> {
    let unspecified = match leg.destination {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let source = match &leg.sources {
        SourceFilter::Include(only) => only.iter().find(|a| a.is_ipv4() == leg.destination.is_ipv4()).copied(),
        _ => None,
    };
    let source = SocketAddr::new(source.unwrap_or(unspecified), leg.port);
    Route::new(source, SocketAddr::new(leg.destination, leg.port))
}

/// The thread's side.
struct Writer {
    /// `None` after an error.
    file: Option<PcapngWriter<File>>,
    /// Number of the leg, its route, and its interface in the file.
    legs: Vec<(u8, Route, u32)>,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(mut self, messages: &Pipe<Message>, back: &SyncSender<Chunk>) {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Leg(leg, route) => {
                    if let Err(e) = self.leg(leg, route) {
                        self.fail(e);
                    }
                }
                Message::Packets(mut chunk) => {
                    self.packets(&chunk);
                    chunk.clear();
                    let _ = back.try_send(chunk);
                }
                Message::End => break,
            }
        }
        if let Some(Err(e)) = self.file.take().map(PcapngWriter::finish) {
            self.shared.fail(e);
        }
    }
    fn fail(&mut self, error: Error) {
        self.file = None;
        self.shared.fail(error);
    }
    fn leg(&mut self, leg: u8, route: Route) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let name = format!("leg {leg}: {} (times are TAI)", route.destination());
        let interface = file.interface(&name, Link::Ethernet)?;
        self.legs.push((leg, route, interface));
        Ok(())
    }
    fn packets(&mut self, chunk: &Chunk) {
        let mut written = 0;
        let mut error = None;
        if let Some(file) = &mut self.file {
            for packet in &chunk.packets {
                let Some((_, route, interface)) = self.legs.iter().rev().find(|(leg, ..)| *leg == packet.leg) else {
                    continue;
                };
                let at = packet.at as usize;
                let octets = chunk.memory.as_slice().get(at..at + usize::from(packet.octets)).unwrap_or_default();
                match file.datagram(*interface, packet.arrival.0, route, octets, packet.wire_octets) {
                    Ok(()) => written += 1,
                    Err(e) => {
                        error = Some(e);
                        break;
                    }
                }
            }
        }
        self.shared.written.fetch_add(written, Relaxed);
        self.shared.dropped.fetch_add(chunk.packets.len() as u64 - written, Relaxed);
        if let Some(e) = error {
            self.fail(e);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rx::{Pace, Pcap};
    use crate::wire::capture::{Capture, PcapWriter};

    fn leg(group: &str, source: Option<&str>) -> Leg {
        let sources = source.map_or(SourceFilter::Any, |s| SourceFilter::Include(vec![s.parse().unwrap()]));
        Leg { destination: group.parse().unwrap(), port: 5004, sources, ttl: None, mid: None }
    }

    /// A capture of two legs, IPv4 and IPv6; every seventh packet is cut.
    fn recorded(packets: u16) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut w = PcapWriter::create(file.path()).unwrap();
        let legs = [("10.0.0.1:5000", "239.0.0.1:5004"), ("[fd00::1]:5000", "[ff15::1]:5004")]
            .map(|(s, d)| Route::new(s.parse().unwrap(), d.parse().unwrap()).unwrap());
        for n in 0..packets {
            let mut frame = Vec::new();
            legs[usize::from(n % 2)].emit(&n.to_be_bytes().repeat(600), &mut frame).unwrap();
            let kept = if n % 7 == 0 { 128 } else { frame.len() };
            w.frame(1_000_000 + u64::from(n), &frame[..kept], frame.len() as u32).unwrap();
        }
        w.finish().unwrap();
        file
    }

    fn open(file: &tempfile::NamedTempFile) -> Pcap {
        Pcap::open(file.path(), Pace::Full).unwrap()
    }

    fn join(receiver: &mut impl Receiver) {
        receiver.join(0, &leg("239.0.0.1", Some("10.0.0.1"))).unwrap();
        receiver.join(1, &leg("ff15::1", None)).unwrap();
    }

    type Passed = (u8, u64, u16, Vec<u8>);

    fn drain<R: Receiver>(receiver: &mut R) -> Vec<Passed>
    where
        R::Mem: CpuAccess,
    {
        let mut out = Vec::new();
        while let Ok(lease) = receiver.poll() {
            out.extend(
                lease.slots().iter().map(|s| (s.leg, s.arrival.0, s.wire_octets, receiver.ring().head(s).to_vec())),
            );
            receiver.release(lease);
        }
        out
    }

    #[test]
    fn what_passes_is_what_the_file_holds() {
        let source = recorded(3000);
        let out = tempfile::NamedTempFile::new().unwrap();
        let mut tap = Tap::create(open(&source), out.path()).unwrap();
        join(&mut tap);
        let passed = drain(&mut tap);
        assert_eq!(passed.len(), 3000);
        assert_eq!(tap.finish().unwrap(), TapCounters { written: 3000, dropped: 0 });
        let mut again = open(&out);
        join(&mut again);
        assert!(drain(&mut again) == passed, "another reading gives the same packets");
        // Leg by leg on interfaces of their own.
        let mut capture = Capture::open(out.path()).unwrap();
        assert_eq!(capture.next_record().unwrap().map(|r| (r.interface, r.time)), Some((0, 1_000_000)));
        assert_eq!(capture.next_record().unwrap().map(|r| (r.interface, r.time)), Some((1, 1_000_001)));
    }

    #[test]
    fn a_full_disk_is_told_once_and_reception_goes_on() {
        let source = recorded(3000);
        let mut tap = Tap::create(open(&source), "/dev/full".as_ref()).unwrap();
        join(&mut tap);
        assert_eq!(drain(&mut tap).len(), 3000);
        let error = tap.finish().unwrap_err();
        assert_eq!(error.kind(), Kind::Output);
        assert!(error.to_string().contains("the disk is full"), "{error}");
        let counters = tap.recorded();
        assert_eq!(counters.written + counters.dropped, 3000);
        assert!(counters.dropped > 0);
        assert!(tap.finish().is_ok(), "told once");
    }

    #[test]
    fn a_slow_disk_costs_records_and_no_packets() {
        // A pipe that nobody reads takes 64 KiB and then blocks the writer.
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::File::open(pipe).unwrap()
        });
        let source = recorded(9000);
        let mut tap = Tap::with_buffer(open(&source), &pipe, 0).unwrap();
        let mut held = reader.join().unwrap();
        join(&mut tap);
        // 10 MB pass, of which the buffers hold less than 3.
        assert_eq!(drain(&mut tap).len(), 9000);
        assert!(tap.recorded().dropped > 5000, "{:?}", tap.recorded());
        let rest = std::thread::spawn(move || std::io::copy(&mut held, &mut std::io::sink()).unwrap());
        let counters = tap.finish().unwrap();
        assert_eq!(counters.written + counters.dropped, 9000);
        assert!(rest.join().unwrap() > counters.written * 100);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_an_error() {
        let source = recorded(1);
        let error = Tap::create(open(&source), "/nonexistent/a.pcapng".as_ref()).err().unwrap();
        assert_eq!(error.kind(), Kind::Output);
    }
}

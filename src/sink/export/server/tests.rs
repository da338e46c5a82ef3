//! Real sockets, and frames in ordinary memory.

use super::super::protocol::tests::hello;
use super::super::protocol::{Hello, release};
use super::super::{Consumer, ExportKind};
use super::*;
use crate::format::{Layout, Output, WireFormat};
use crate::frame::{Frame, FramePool};
use crate::mem::Host;
use crate::sdp::{Depth, Sampling, Scan};
use socket2::{Domain, Type};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use tempfile::TempDir;

struct Bench {
    _dir: TempDir,
    path: PathBuf,
    server: Server<Frame<Host>>,
    pool: FramePool<Host>,
    number: u64,
}

impl Bench {
    fn new(limits: Limits, frames: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("frames");
        let hello = hello(ExportKind::DmaBuf).to_json();
        let server = Server::bind(&path, hello, None, limits).unwrap();
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D8, 4, 2, Scan::Progressive).unwrap();
        let pool = FramePool::host(Layout::new(wire, Output::Planar).unwrap(), frames).unwrap();
        Bench { _dir: dir, path, server, pool, number: 0 }
    }

    /// Connects and takes the hello.
    fn join(&mut self) -> Socket {
        let socket = self.connect();
        self.server.serve();
        let (octets, passed) = descriptor::receive(&socket, 4096).unwrap();
        assert_eq!(Hello::from_json(&octets).unwrap(), hello(ExportKind::DmaBuf));
        assert!(passed.is_none());
        socket.set_nonblocking(true).unwrap();
        socket
    }

    fn connect(&self) -> Socket {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        socket.connect(&socket2::SockAddr::unix(&self.path).unwrap()).unwrap();
        socket
    }

    /// A frame as the sink gets it: taken from the pool, sealed, offered, dropped. False when the pool is empty.
    fn frame(&mut self) -> bool {
        let Some(mut buf) = self.pool.take() else { return false };
        self.server.serve();
        buf.meta_mut().number = self.number;
        let index = u32::try_from(self.number % 100).unwrap();
        self.number += 1;
        let frame = buf.seal();
        let offer = Offer::new(index, frame.meta());
        self.server.offer(&frame, &offer);
        true
    }

    fn counts(&self) -> Counts {
        self.server.board().read()
    }

    /// Frames that nobody holds.
    fn idle(&self) -> usize {
        let all: Vec<_> = std::iter::from_fn(|| self.pool.take()).collect();
        let idle = all.len();
        all.into_iter().for_each(crate::frame::FrameBuf::discard);
        idle
    }
}

fn offers(socket: &Socket) -> Vec<Offer> {
    let mut octets = [0; 65];
    let next = || {
        let len = { socket }.read(&mut octets).ok().filter(|&len| len > 0)?;
        Some(Offer::from_octets(&octets[..len]).expect("an offer"))
    };
    std::iter::from_fn(next).collect()
}

fn numbers(socket: &Socket) -> Vec<u64> {
    offers(socket).iter().map(|offer| offer.number).collect()
}

#[test]
fn frames_go_round() {
    let mut bench = Bench::new(Limits::default(), 4);
    assert!(bench.frame(), "without consumers");
    assert_eq!(bench.idle(), 4);
    let consumer = bench.join();
    for number in 1..=50 {
        assert!(bench.frame());
        assert_eq!(numbers(&consumer), [number]);
        assert_eq!(bench.idle(), 3);
        consumer.send(&release((number % 100) as u32)).unwrap();
    }
    bench.server.serve();
    assert_eq!(bench.idle(), 4);
    let counts = bench.counts();
    assert_eq!((counts.offered, counts.released, counts.skipped, counts.connected), (50, 50, 0, 1));
    assert_eq!(counts.to_string(), "50 frames to 1 consumers, 0 skipped");
}

#[test]
fn who_never_releases_gets_no_more_and_blocks_nobody() {
    let mut bench = Bench::new(Limits::default(), 8);
    let (greedy, good) = (bench.join(), bench.join());
    for number in 0..20 {
        assert!(bench.frame());
        assert_eq!(numbers(&good), [number]);
        good.send(&release(number as u32)).unwrap();
    }
    assert_eq!(numbers(&greedy), [0, 1, 2]);
    bench.server.serve();
    assert_eq!(bench.idle(), 5);
    let counts = bench.counts();
    assert_eq!((counts.offered, counts.skipped, counts.connected), (23, 17, 2));
    // It gives one back and is told what it missed.
    greedy.send(&release(1)).unwrap();
    assert!(bench.frame());
    let last = offers(&greedy);
    assert_eq!((last.len(), last[0].number, last[0].skipped), (1, 20, 17));
}

#[test]
fn the_dead_give_their_frames_back() {
    let mut bench = Bench::new(Limits::default(), 4);
    let consumer = bench.join();
    for _ in 0..3 {
        assert!(bench.frame());
    }
    assert_eq!(bench.idle(), 1);
    drop(consumer);
    bench.server.serve();
    assert_eq!((bench.idle(), bench.counts().connected), (4, 0));
    assert_eq!(bench.counts().misbehaved, 0);
    // One that dies between being heard and being given something.
    let consumer = bench.join();
    let buf = bench.pool.take().unwrap().seal();
    bench.server.serve();
    drop(consumer);
    bench.server.offer(&buf, &Offer::new(0, buf.meta()));
    assert_eq!(bench.counts().connected, 0);
}

#[test]
fn nonsense_ends_the_consumer() {
    let twice = [release(0), release(0)];
    let cases: [(&str, Vec<Vec<u8>>); 7] = [
        ("a frame that it does not hold", vec![release(99).to_vec()]),
        ("the same frame twice", twice.iter().map(|m| m.to_vec()).collect()),
        ("an unknown message", vec![vec![3, 0, 0, 0, 0, 0, 0, 0]]),
        ("half a message", vec![release(0)[..4].to_vec()]),
        ("one message and a half", vec![[release(0), release(1)].concat()]),
        ("an octet too much", vec![[&release(0)[..], &[0]].concat()]),
        ("much", vec![vec![2; 60_000]]),
    ];
    for (what, messages) in cases {
        let mut bench = Bench::new(Limits::default(), 4);
        let (bad, good) = (bench.join(), bench.join());
        assert!(bench.frame() && bench.frame());
        for message in messages {
            bad.send(&message).unwrap();
        }
        bench.server.serve();
        let counts = bench.counts();
        assert_eq!((counts.misbehaved, counts.connected), (1, 1), "{what}");
        // The other one still holds both.
        assert_eq!(bench.idle(), 2, "{what}");
        (0..2).for_each(|index| assert_eq!(good.send(&release(index)).unwrap(), 8));
        bench.server.serve();
        assert_eq!((bench.idle(), bench.counts().connected), (4, 1), "{what}");
        assert_eq!(numbers(&bad), [0, 1], "{what}");
        assert_eq!({ &bad }.read(&mut [0; 8]).unwrap_or(0), 0, "{what}: it is told by the end of the socket");
    }
}

#[test]
fn a_flood_is_cut_off() {
    let mut bench = Bench::new(Limits::default(), 4);
    let consumer = bench.join();
    let mut sent = 0;
    while consumer.send(&release(0)).is_ok() {
        sent += 1;
    }
    assert!(sent > 10);
    bench.server.serve();
    assert_eq!((bench.counts().misbehaved, bench.counts().connected), (1, 0));
}

#[test]
fn there_are_places_for_eight() {
    let mut bench = Bench::new(Limits::default(), 4);
    let mut inside: Vec<_> = (0..8).map(|_| bench.join()).collect();
    let ninth = bench.connect();
    bench.server.serve();
    let (octets, _) = descriptor::receive(&ninth, 4096).unwrap();
    let error = Hello::from_json(&octets).unwrap_err();
    assert!(error.to_string().contains("8 consumers are connected already"), "{error}");
    assert!(descriptor::receive(&ninth, 4096).unwrap().0.is_empty());
    assert_eq!((bench.counts().connected, bench.counts().refused), (8, 1));
    // Every one of them gets the same frame, and it is one frame.
    assert!(bench.frame());
    assert_eq!(bench.idle(), 3);
    assert!(inside.iter().all(|socket| numbers(socket) == [0]));
    inside.pop();
    let _tenth = bench.join();
    assert_eq!(bench.counts().connected, 8);
}

#[test]
fn all_together_hold_no_more_than_allowed_and_the_stalled_are_dropped() {
    let limits = Limits { consumers: 8, held: 3, frames: 4, patience: Duration::from_millis(50) };
    let mut bench = Bench::new(limits, 16);
    let first = bench.join();
    assert!((0..3).all(|_| bench.frame()));
    let second = bench.join();
    assert!((0..3).all(|_| bench.frame()));
    // Three with the first, one with the second: that is all, though the second might hold two more.
    assert_eq!((numbers(&first).len(), numbers(&second).len(), bench.idle()), (3, 1, 12));
    second.send(&release(3)).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    assert!(bench.frame());
    assert_eq!((bench.counts().stalled, bench.counts().connected), (0, 2), "nobody is in need");
    assert!(bench.frame());
    assert_eq!((bench.counts().stalled, bench.counts().connected), (1, 1));
    assert_eq!((numbers(&second), bench.idle()), (vec![6, 7], 14));
    assert!(bench.counts().to_string().ends_with("1 dropped for holding frames too long"));
}

#[test]
fn a_frame_that_comes_again_is_not_given_twice() {
    let mut bench = Bench::new(Limits::default(), 4);
    let consumer = bench.join();
    let frame = bench.pool.take().unwrap().seal();
    for _ in 0..3 {
        bench.server.offer(&frame, &Offer::new(5, frame.meta()));
    }
    assert_eq!((offers(&consumer).len(), bench.counts().skipped), (1, 2));
    consumer.send(&release(5)).unwrap();
    bench.server.serve();
    bench.server.offer(&frame, &Offer::new(5, frame.meta()));
    assert_eq!(offers(&consumer).len(), 1);
}

#[test]
fn at_the_end_consumers_may_finish() {
    let mut bench = Bench::new(Limits::default(), 4);
    let slow = bench.join();
    assert!(bench.frame());
    let path = bench.path.clone();
    slow.set_nonblocking(false).unwrap();
    let consumer = std::thread::spawn(move || {
        let mut octets = [0; 65];
        assert_eq!({ &slow }.read(&mut octets).unwrap(), 64);
        assert_eq!({ &slow }.read(&mut octets).unwrap(), 0);
        std::thread::sleep(Duration::from_millis(20));
        slow.send(&release(0)).unwrap();
        assert!(!path.exists(), "nobody can connect any more");
    });
    let start = Instant::now();
    bench.server.finish(Duration::from_secs(20));
    assert!(start.elapsed() < Duration::from_secs(10));
    consumer.join().unwrap();
    assert_eq!((bench.counts().released, bench.counts().connected, bench.idle()), (1, 0, 4));
    // One that never does is not waited for.
    let mut bench = Bench::new(Limits::default(), 4);
    let _deaf = bench.join();
    assert!(bench.frame());
    bench.server.finish(Duration::from_millis(10));
    assert_eq!((bench.counts().connected, bench.idle()), (0, 4));
}

#[test]
fn a_descriptor_goes_with_every_hello() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("frames");
    let file = tempfile::tempfile().unwrap();
    file.set_len(12_345).unwrap();
    let octets = hello(ExportKind::DmaBuf).to_json();
    let mut server = Server::<()>::bind(&path, octets, Some(file.into()), Limits::default()).unwrap();
    let own = server.passed.as_ref().unwrap().as_raw_fd();
    for _ in 0..2 {
        let connecting = std::thread::spawn({
            let path = path.clone();
            move || Consumer::connect(&path).unwrap()
        });
        while server.counts.accepted == 0 || !connecting.is_finished() {
            server.serve();
        }
        let mut consumer = connecting.join().unwrap();
        let passed = consumer.take_dma_buf().unwrap();
        assert_ne!(passed.as_raw_fd(), own);
        assert_eq!(std::fs::File::from(passed).metadata().unwrap().len(), 12_345);
        assert!(consumer.take_dma_buf().is_none());
    }
}

#[test]
fn the_library_s_consumer_receives_and_releases() {
    let mut bench = Bench::new(Limits::default(), 4);
    let path = bench.path.clone();
    let consumer = std::thread::spawn(move || {
        let consumer = Consumer::connect(&path).unwrap();
        consumer.set_patience(Some(Duration::from_secs(20))).unwrap();
        let mut got = Vec::new();
        while let Some(offer) = consumer.next().unwrap() {
            got.push(offer.number);
            // The hello speaks of four frames: what lies outside is refused here.
            consumer.release(offer).unwrap();
        }
        got
    });
    while bench.server.is_empty() {
        bench.server.serve();
    }
    for number in 0..4 {
        assert!(bench.frame());
        while bench.counts().released <= number {
            bench.server.serve();
        }
    }
    bench.server.finish(Duration::from_secs(5));
    assert_eq!(consumer.join().unwrap(), [0, 1, 2, 3]);
    assert!(Consumer::connect(&bench.path).unwrap_err().to_string().contains("nobody exports"));
}

#[test]
fn the_library_s_consumer_refuses_frames_outside_of_the_memory() {
    let mut bench = Bench::new(Limits::default(), 4);
    let connecting = std::thread::spawn({
        let path = bench.path.clone();
        move || Consumer::connect(&path).unwrap()
    });
    while bench.server.is_empty() {
        bench.server.serve();
    }
    let consumer = connecting.join().unwrap();
    let frame = bench.pool.take().unwrap().seal();
    bench.server.offer(&frame, &Offer::new(4, frame.meta()));
    assert_eq!(consumer.next().unwrap_err().kind(), crate::Kind::Data);
    consumer.set_patience(Some(Duration::from_millis(10))).unwrap();
    assert_eq!(consumer.next().unwrap_err().kind(), crate::Kind::NoMedia);
}

//! What receiving costs at least: a bare receiver of 4:2:2 10-bit that drains as ours does, checks bounds and copies
//! rows into one of three frames, and nothing else. With `--mode socket` the same copying behind [`Socket`], to see
//! what the receiver itself adds. CPU is the receiving thread's own, from the scheduler's account.
//!
//! ```text
//! cargo bench --bench floor -- --address 127.0.0.1 --port 5004 --seconds 6
//! cargo bench --bench floor -- --send --fps 60 --mode socket
//! ```

use gdmedia::rx::socket::Options;
use gdmedia::rx::{Receiver, Socket, Wait};
use gdmedia::sdp::{Leg, SourceFilter};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "floor: bare receiver of RFC 4175 4:2:2 10-bit; prints the CPU of its thread per frame and packet
  --address A (127.0.0.1) --port P (5004) --seconds S (6) --width W (1920) --height H (1080)
  --mode floor|socket|both (floor)   own receive loop, or that of the library, or one after the other
  --sleep-us N (500)                 between drained polls
  --cpu N                            pin the receiving thread
  --send                             also send: --fps F (60) --octets-per-packet N (1200) --group N (32) --send-cpu N";

#[derive(Clone)]
struct Args {
    address: IpAddr,
    port: u16,
    seconds: f64,
    width: usize,
    height: usize,
    modes: Vec<&'static str>,
    sleep: Duration,
    cpu: Option<usize>,
    send: bool,
    fps: f64,
    octets: usize,
    group: usize,
    send_cpu: Option<usize>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench" && a != "--test").collect();
    // A plain `cargo bench` or `cargo test --benches` has no stream to offer.
    if words.is_empty() {
        println!("{USAGE}");
        return;
    }
    let Some(args) = parse(&words) else {
        eprintln!("{USAGE}");
        std::process::exit(64);
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        if args.send {
            s.spawn(|| send(&args, &stop));
        }
        for mode in &args.modes {
            let receiver = s.spawn(|| {
                if let Some(cpu) = args.cpu {
                    pin(cpu);
                }
                let mut frames = Frames::new(args.width, args.height);
                let figures = if *mode == "floor" { floor(&args, &mut frames) } else { library(&args, &mut frames) };
                report(mode, &frames, &figures);
            });
            receiver.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn parse(words: &[String]) -> Option<Args> {
    let mut args = Args {
        address: Ipv4Addr::LOCALHOST.into(),
        port: 5004,
        seconds: 6.0,
        width: 1920,
        height: 1080,
        modes: vec!["floor"],
        sleep: Duration::from_micros(500),
        cpu: None,
        send: false,
        fps: 60.0,
        octets: 1200,
        group: 32,
        send_cpu: None,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--send" {
            args.send = true;
            continue;
        }
        let value = words.next()?;
        match word.as_str() {
            "--address" => args.address = value.parse().ok()?,
            "--port" => args.port = value.parse().ok()?,
            "--seconds" => args.seconds = value.parse().ok()?,
            "--width" => args.width = value.parse().ok()?,
            "--height" => args.height = value.parse().ok()?,
            "--mode" => {
                args.modes = match value.as_str() {
                    "floor" => vec!["floor"],
                    "socket" => vec!["socket"],
                    "both" => vec!["floor", "socket"],
                    _ => return None,
                }
            }
            "--sleep-us" => args.sleep = Duration::from_micros(value.parse().ok()?),
            "--cpu" => args.cpu = Some(value.parse().ok()?),
            "--fps" => args.fps = value.parse().ok()?,
            "--octets-per-packet" => args.octets = value.parse().ok()?,
            "--group" => args.group = value.parse().ok()?,
            "--send-cpu" => args.send_cpu = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(args)
}

/// Three frames in the wire format, and the sums of what was put there.
struct Frames {
    rows: usize,
    row_octets: usize,
    memory: [Vec<u8>; 3],
    open: usize,
    frames: u64,
    packets: u64,
    refused: u64,
    lost: u64,
    last: Option<u32>,
}

impl Frames {
    fn new(width: usize, rows: usize) -> Self {
        let row_octets = width.div_ceil(2) * 5;
        // Written once, so that no page fault is measured.
        let memory = [1, 2, 3].map(|n| vec![n; rows * row_octets]);
        Frames { rows, row_octets, memory, open: 0, frames: 0, packets: 0, refused: 0, lost: 0, last: None }
    }

    /// Copies the segments of one packet to their rows.
    #[inline]
    fn place(&mut self, packet: &[u8]) {
        self.packets += 1;
        if packet.len() < 20 || packet[0] != 0x80 {
            self.refused += 1;
            return;
        }
        let short = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        let sequence = (short(12) << 16 | short(2)) as u32;
        if let Some(last) = self.last {
            self.lost += u64::from(sequence.wrapping_sub(last).wrapping_sub(1));
        }
        self.last = Some(sequence);
        let mut headers = 14;
        while packet.len() >= headers + 6 && short(headers + 4) & 0x8000 != 0 && headers < 26 {
            headers += 6;
        }
        let (mut header, mut at) = (14, headers + 6);
        while header <= headers && packet.len() >= at {
            let (len, row, x) = (short(header), short(header + 2) & 0x7fff, short(header + 4) & 0x7fff);
            let first = x / 2 * 5;
            if row >= self.rows || first + len > self.row_octets || at + len > packet.len() {
                self.refused += 1;
                return;
            }
            let to = row * self.row_octets + first;
            self.memory[self.open][to..to + len].copy_from_slice(&packet[at..at + len]);
            (header, at) = (header + 6, at + len);
        }
        if packet[1] & 0x80 != 0 {
            self.frames += 1;
            self.open = (self.open + 1) % 3;
        }
    }
}

struct Figures {
    cpu: Duration,
    calls: u64,
    merged: u64,
}

/// The account of the calling thread: time on a CPU.
fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// The floor: UDP_GRO, `recvmmsg` of 8 messages of 64 KiB, place, sleep when drained.
fn floor(args: &Args, frames: &mut Frames) -> Figures {
    const MESSAGES: usize = 8;
    const CHAIN: usize = 65_536;
    let socket = UdpSocket::bind((args.address, args.port)).expect("the address and port");
    let set = |level, option, value: libc::c_int| {
        // SAFETY: `value` is readable for its size.
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), 4) }
    };
    if set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20) != 0 {
        set(libc::SOL_SOCKET, libc::SO_RCVBUF, 64 << 20);
    }
    assert_eq!(set(libc::SOL_UDP, libc::UDP_GRO, 1), 0, "UDP_GRO");

    let mut memory = vec![0_u8; MESSAGES * CHAIN];
    let mut controls = vec![[0_u64; 8]; MESSAGES];
    let base = memory.as_mut_ptr();
    let mut vectors: Vec<libc::iovec> = (0..MESSAGES)
        // SAFETY: inside of `memory`.
        .map(|i| libc::iovec { iov_base: unsafe { base.add(i * CHAIN) }.cast(), iov_len: CHAIN })
        .collect();
    // SAFETY: all-zero octets are a valid header.
    let mut messages: Vec<libc::mmsghdr> = (0..MESSAGES).map(|_| unsafe { std::mem::zeroed() }).collect();
    for (i, m) in messages.iter_mut().enumerate() {
        m.msg_hdr.msg_iov = &raw mut vectors[i];
        m.msg_hdr.msg_iovlen = 1;
        m.msg_hdr.msg_control = controls[i].as_mut_ptr().cast();
    }

    let mut wait = Wait::new(args.sleep);
    let (mut calls, mut merged) = (0, 0);
    let mut window = Window::new(args.seconds);
    while window.open(frames) {
        loop {
            for m in &mut messages {
                m.msg_hdr.msg_controllen = 64;
            }
            calls += 1;
            // SAFETY: the headers point to memory that outlives the call.
            let n = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    messages.as_mut_ptr(),
                    MESSAGES as _,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            };
            if n <= 0 {
                break;
            }
            for (i, m) in messages.iter().enumerate().take(n as usize) {
                let len = m.msg_len as usize;
                // SAFETY: the kernel wrote `len` octets there, at most CHAIN.
                let octets = unsafe { std::slice::from_raw_parts(base.add(i * CHAIN), len.min(CHAIN)) };
                // One control message at most: {16 octets of header, int}.
                let stride = if m.msg_hdr.msg_controllen >= 20 { controls[i][2] as u32 as usize } else { len };
                if stride < len {
                    merged += len.div_ceil(stride.max(1)) as u64;
                }
                octets.chunks(stride.max(1)).for_each(|packet| frames.place(packet));
            }
        }
        wait.sleep();
    }
    Figures { cpu: window.cpu(), calls, merged }
}

/// The same work behind the library's receiver.
fn library(args: &Args, frames: &mut Frames) -> Figures {
    let mut rx = Socket::open(Options::default()).expect("memory");
    let leg = Leg { destination: args.address, port: args.port, sources: SourceFilter::Any, ttl: None, mid: None };
    if let Err(e) = rx.join(0, &leg) {
        eprintln!("{e}");
        std::process::exit(69);
    }
    let mut wait = Wait::new(args.sleep);
    let mut window = Window::new(args.seconds);
    while window.open(frames) {
        loop {
            let lease = rx.poll().expect("the socket");
            if lease.is_empty() {
                break;
            }
            for slot in lease.slots() {
                frames.place(rx.ring().head(slot));
            }
            rx.release(lease);
        }
        wait.sleep();
    }
    let c = rx.counters();
    if c.kernel_dropped > 0 {
        println!("socket: the kernel dropped {}", c.kernel_dropped);
    }
    Figures { cpu: window.cpu(), calls: c.calls, merged: c.merged }
}

/// A time in which CPU and frames are counted; it begins a while after the first packet.
struct Window {
    length: Duration,
    waits_until: Instant,
    begun: Option<(Instant, Duration)>,
}

impl Window {
    fn new(seconds: f64) -> Self {
        Window {
            length: Duration::from_secs_f64(seconds),
            waits_until: Instant::now() + Duration::from_secs(10),
            begun: None,
        }
    }
    fn open(&mut self, frames: &mut Frames) -> bool {
        let now = Instant::now();
        match self.begun {
            Some((since, _)) => now < since + self.length,
            None if frames.frames >= 10 => {
                (frames.frames, frames.packets, frames.lost, frames.refused) = (0, 0, 0, 0);
                self.begun = Some((now, thread_cpu()));
                true
            }
            None => now < self.waits_until,
        }
    }
    fn cpu(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |(_, before)| thread_cpu().saturating_sub(before))
    }
}

fn report(mode: &str, frames: &Frames, f: &Figures) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?");
    if frames.frames == 0 || frames.packets == 0 {
        println!("{mode}: no frames came");
        return;
    }
    println!(
        "{mode}: {:.2} ms CPU a frame, {:.0} ns a packet; {} frames, {} packets, {} lost, {} refused; {} calls, {} % merged; load {load}",
        f.cpu.as_secs_f64() * 1e3 / frames.frames as f64,
        f.cpu.as_secs_f64() * 1e9 / frames.packets as f64,
        frames.frames,
        frames.packets,
        frames.lost,
        frames.refused,
        f.calls,
        (f.merged * 100 / frames.packets).min(100),
    );
}

/// Sends random pixels in groups that the kernel cuts, evenly spread over each frame, until told to stop.
fn send(args: &Args, stop: &AtomicBool) {
    if let Some(cpu) = args.send_cpu {
        pin(cpu);
    }
    let row_octets = args.width.div_ceil(2) * 5;
    let octets = args.octets / 5 * 5;
    assert!(octets > 0 && row_octets.is_multiple_of(octets), "--octets-per-packet must divide a row of {row_octets}");
    let size = 20 + octets;
    let count = args.height * row_octets / octets;
    let mut frame = vec![0_u8; count * size];
    let mut random = 1_u32;
    for (i, packet) in frame.chunks_mut(size).enumerate() {
        let (row, first) = (i * octets / row_octets, i * octets % row_octets);
        for octet in packet.iter_mut() {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *octet = (random >> 24) as u8;
        }
        packet[0] = 0x80;
        packet[1] = 96 | if i + 1 == count { 0x80 } else { 0 };
        packet[14..16].copy_from_slice(&(octets as u16).to_be_bytes());
        packet[16..18].copy_from_slice(&(row as u16).to_be_bytes());
        packet[18..20].copy_from_slice(&((first / 5 * 2) as u16).to_be_bytes());
    }
    let socket = UdpSocket::bind((args.address, 0)).expect("a socket");
    socket.connect((args.address, args.port)).expect("the address");
    let segment = size as libc::c_int;
    // SAFETY: `segment` is readable for its size.
    let rc = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const segment).cast(), 4)
    };
    assert_eq!(rc, 0, "UDP_SEGMENT");

    let groups = count.div_ceil(args.group);
    let step = Duration::from_secs_f64(1.0 / args.fps / groups as f64);
    let (mut sequence, mut due, mut number) = (0_u32, Instant::now(), 0_u32);
    while !stop.load(Ordering::Relaxed) {
        number = number.wrapping_add(1);
        for group in frame.chunks_mut(args.group * size) {
            for packet in group.chunks_mut(size) {
                packet[2..4].copy_from_slice(&(sequence as u16).to_be_bytes());
                packet[12..14].copy_from_slice(&((sequence >> 16) as u16).to_be_bytes());
                packet[4..8].copy_from_slice(&number.wrapping_mul(1500).to_be_bytes());
                sequence = sequence.wrapping_add(1);
            }
            let now = Instant::now();
            if due > now {
                // Sleep most of it, spin the rest: a short sleep takes longer than asked for.
                if due - now > Duration::from_micros(300) {
                    std::thread::sleep(due - now - Duration::from_micros(200));
                }
                while Instant::now() < due {
                    std::hint::spin_loop();
                }
            } else if now - due > Duration::from_millis(2) {
                // No burst to catch up after a stall.
                due = now;
            }
            due += step;
            // Nobody listens between two modes.
            let _ = socket.send(group);
        }
    }
}

fn pin(cpu: usize) {
    // SAFETY: an all-zero set is valid; the call concerns the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        if libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) != 0 {
            eprintln!("floor: cannot pin to CPU {cpu}");
        }
    }
}

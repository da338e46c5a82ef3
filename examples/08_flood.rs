//! Sends random datagrams to an address as fast as it is told: what a receiver has to bear beside its stream (scripts/flood).
//!
//!     cargo run --release --example 08_flood -- FROM TO:PORT PACKETS_A_SECOND SECONDS [OCTETS]
//!
//! Half of them are octets without meaning, half begin like RTP of payload type 96. Ends with one line of JSON.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Datagrams of a call: the kernel cuts what it is given into them (UDP_SEGMENT).
const GROUP: usize = 32;

fn usage<T>() -> Result<T, Box<dyn std::error::Error>> {
    Err("wanted: FROM TO:PORT PACKETS_A_SECOND SECONDS [OCTETS]".into())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, rate, seconds, octets @ ..] = &arguments[..] else { return usage() };
    let (rate, seconds): (f64, f64) = (rate.parse()?, seconds.parse()?);
    let octets: usize = octets.first().map_or(Ok(200), |octets| octets.parse())?;
    if !(20..=1452).contains(&octets) || rate <= 0.0 {
        return usage();
    }
    let socket = UdpSocket::bind((from.as_str(), 0))?;
    socket.connect(to.parse::<SocketAddr>()?)?;
    let segment = octets as libc::c_int;
    // SAFETY: sets an option of a socket that is ours, from an integer that outlives the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const segment).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if set != 0 {
        return Err(std::io::Error::last_os_error().into());
    }

    let mut noise = vec![0u8; octets * GROUP];
    let (mut state, mut sent, mut refused) = (0x9e37_79b9_7f4a_7c15_u64, 0u64, 0u64);
    let begun = Instant::now();
    let end = Duration::from_secs_f64(seconds);
    while begun.elapsed() < end {
        let due = (begun.elapsed().as_secs_f64() * rate) as u64;
        if sent + refused >= due {
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        for word in noise.as_chunks_mut::<8>().0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *word = state.to_le_bytes();
        }
        for head in noise.chunks_mut(octets).step_by(2) {
            head[..2].copy_from_slice(&[0x80, 96]);
        }
        match socket.send(&noise) {
            Ok(_) => sent += GROUP as u64,
            Err(_) => refused += GROUP as u64,
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!("{{\"sent\": {sent}, \"refused\": {refused}, \"packets_a_second\": {:.0}}}", sent as f64 / took);
    Ok(())
}

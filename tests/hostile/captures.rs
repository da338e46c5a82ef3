//! Captures that lie about lengths, and gzip that unfolds to a thousand times as much.

use crate::bounded;
use crate::common::{sdp, temp};
use std::io::Write as _;

/// Plays a capture with 512 MiB of address space, and expects words about it, with a cure.
fn refused(name: &str, octets: &[u8]) {
    let folder = temp();
    let (capture, stream) = (folder.join("hostile.pcap"), folder.write("stream.sdp", &sdp(5004)));
    std::fs::write(&capture, octets).unwrap();
    let Some(output) = bounded(512, &format!("gdmedia --pcap {} --sdp {stream} --headless --json", capture.display()))
    else {
        return;
    };
    assert!(output.code != 0, "{name}: nothing was received, and it was not said: {}", output.stderr);
    assert!(output.stderr.contains("\"cure\""), "{name}: {}", output.stderr);
}

fn word(value: u32) -> [u8; 4] {
    value.to_le_bytes()
}

/// The header of a pcap file of Ethernet.
fn pcap(snap: u32) -> Vec<u8> {
    [&word(0xa1b2_3c4d)[..], &[2, 0, 4, 0], &[0; 8], &word(snap), &word(1)].concat()
}

/// A block that says that it has so many octets.
fn block(kind: u32, total: u32, body: &[u8]) -> Vec<u8> {
    [&word(kind)[..], &word(total), body, &word(total)].concat()
}

fn section() -> Vec<u8> {
    block(0x0a0d_0d0a, 28, &[&word(0x1a2b_3c4d)[..], &[1, 0, 0, 0], &[0xff; 8]].concat())
}

fn interface() -> Vec<u8> {
    block(1, 20, &[&[1, 0, 0, 0][..], &word(0xffff_ffff)].concat())
}

#[test]
fn lengths_that_are_lies_end_in_an_error_or_the_end() {
    let record = |here: u32, wire: u32| [word(1), word(0), word(here), word(wire)].concat();
    let packet = |here: u32| [&[0; 12][..], &word(here), &word(0xffff_ffff)].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a record of 4 GiB", [pcap(0xffff_ffff), record(0xffff_ffff, 0xffff_ffff)].concat()),
        ("a record of 1 MiB that is not there", [pcap(65_535), record(1 << 20, 1 << 20)].concat()),
        ("a record with less on the wire", [pcap(0), record(64, 0), vec![0; 64]].concat()),
        ("a record of nothing, 4 GiB on the wire", [pcap(0), record(0, 0xffff_ffff)].concat()),
        (
            "a section of 4 GiB",
            block(0x0a0d_0d0a, 0xffff_fffc, &[&word(0x1a2b_3c4d)[..], &[1, 0, 0, 0], &[0; 8]].concat()),
        ),
        ("a block of 4 GiB", [section(), interface(), block(5, 0xffff_ffff, &[0; 64])].concat()),
        ("a block of nothing", [section(), interface(), block(5, 0, &[])].concat()),
        ("a packet larger than its block", [section(), interface(), block(6, 32, &packet(0xffff_ffff))].concat()),
        ("an interface of 1 GiB of options", [section(), block(1, 1 << 30, &[0; 64])].concat()),
        ("a million sections", section().repeat(100_000)),
        ("interfaces without end", [section(), interface().repeat(100_000)].concat()),
        ("options that reach beyond their block", {
            let body = [&[1, 0, 0, 0][..], &word(0), &[9, 0, 0xff, 0xff], &[0; 4]].concat();
            [section(), block(1, 28, &body)].concat()
        }),
    ];
    for (name, octets) in cases {
        refused(name, &octets);
    }
}

/// Packets of nothing without end, and zeros without end, a thousandth of their size.
#[test]
fn gzip_bombs_pass_in_constant_memory() {
    let record = [word(1), word(0), word(0), word(0)].concat();
    for (name, begin, piece) in [
        ("records of nothing", pcap(0), record.repeat(4096)),
        ("zeros", pcap(0), vec![0; 65_536]),
        ("zeros alone", Vec::new(), vec![0; 65_536]),
        ("blocks of nobody", section(), block(0x0bad, 65_536, &vec![0; 65_524])),
    ] {
        let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        bomb.write_all(&begin).unwrap();
        // 64 MiB: an eighth of the memory that there is, were it kept; the buffers are 256 KiB.
        (0..1024).for_each(|_| bomb.write_all(&piece).unwrap());
        let bomb = bomb.finish().unwrap();
        assert!(bomb.len() < 1 << 20, "{name}: {}", bomb.len());
        refused(name, &bomb);
    }
}

//! The switches that programs as they are get from the environment. One test: they are read once.

mod common;

use common::{TIME, capture, packets, ready};
use rivermax_sys::{EntrySize, Library, Status, StreamOption, StreamParams};
use std::net::Ipv4Addr;

#[test]
fn devices_behave_as_the_environment_says() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, capture(&packets(0..100))).unwrap();
    let variables = [
        ("RIVERMAX_STAND_IN", "extra-stride=56,capacity-multiple=64,raw-offset=5,idle-polls=1,after-detach=32"),
        ("RIVERMAX_STAND_IN_CAPTURE", file.path().to_str().unwrap()),
        ("RIVERMAX_STAND_IN_FAULTS", "seed=42,lose=20"),
        ("RIVERMAX_STAND_IN_FAIL", "rmx_input_destroy_stream=14"),
    ];
    for (name, value) in variables {
        // SAFETY: no other thread reads the environment: this is the only test here.
        unsafe { std::env::set_var(name, value) };
    }
    let session = Library::load(None).unwrap().session().unwrap();
    let params = StreamParams::new(&session, Ipv4Addr::LOCALHOST).option(StreamOption::InfoPerPacket);
    let mut stream = ready(params.capacity(100).sub_blocks(&[EntrySize::up_to(200)]), 1000);
    assert_eq!((stream.layout().capacity, stream.layout().blocks[0].stride), (128, 256));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let mut times = Vec::new();
    // The capture has 100, and this seed loses four: see tests/stand_in/queue.rs.
    while times.len() < 96 && std::time::Instant::now() < end {
        let chunk = stream.next_chunk().unwrap();
        times.extend((0..chunk.len()).map(|i| chunk.packet(i).unwrap().timestamp()));
    }
    let kept = (0..100).filter(|n| ![62, 66, 94, 95].contains(n));
    assert_eq!(times, kept.map(|n| TIME + 1000 * n + 5).collect::<Vec<_>>());
    stream.detach(&rivermax_sys::Flow::to(common::GROUP).tag(7)).unwrap();
    assert_eq!(stream.next_chunk().unwrap_err().status, Status::NotImplemented);
    assert_eq!(stream.destroy().unwrap_err().status, Status::HwCompletionIssue);
}

use crate::common::{Bench, TIME, capture, drain, in_flight, manual, packet, packets, wait_for};
use rivermax_sys::Status;
use rivermax_sys::stand_in::Faults;

/// Sequence numbers of what comes, of a hundred packets.
fn arrive(bench: &Bench, faults: &Faults) -> Vec<u32> {
    let mut stream = bench.whole(1000);
    let sent = packets(0..100);
    let queued = bench.stand_in.queue(bench.ip, &in_flight(&sent), faults).unwrap();
    assert_eq!(bench.stand_in.step(bench.ip, 1000), queued);
    assert_eq!(bench.stand_in.step(bench.ip, 1), 0);
    let got = drain(&mut stream);
    assert_eq!(got.len(), queued);
    got.iter().map(|data| u32::from(data[2]) << 8 | u32::from(data[3])).collect()
}

#[test]
fn packets_come_when_they_are_let() {
    let bench = manual(80);
    let mut stream = bench.whole(100);
    let sent = packets(0..5);
    assert_eq!(bench.stand_in.queue(bench.ip, &in_flight(&sent), &Faults::default()), Some(5));
    assert_eq!(stream.next_chunk().unwrap().len(), 0);
    assert_eq!(bench.stand_in.step(bench.ip, 2), 2);
    assert_eq!(drain(&mut stream), sent[..2]);
    assert_eq!(bench.stand_in.queue(bench.ip, &in_flight(&sent), &Faults::default()), Some(8));
    assert_eq!(bench.stand_in.step(bench.ip, 100), 8);
    assert_eq!(drain(&mut stream), [&sent[2..], &sent].concat());
}

#[test]
fn a_seed_makes_the_same_faults_again() {
    let bench = manual(81);
    let faults = Faults { seed: 7, lose: 10, duplicate: 10, reorder: 10, reorder_by: 4, ..Faults::default() };
    let first = arrive(&bench, &faults);
    assert_eq!(arrive(&bench, &faults), first);
    assert_ne!(arrive(&bench, &Faults { seed: 8, ..faults }), first);
    assert_eq!(arrive(&bench, &Faults::default()), (0..100).collect::<Vec<_>>());
}

#[test]
fn each_fault_does_what_it_says_and_nothing_else() {
    let bench = manual(82);
    let all: Vec<u32> = (0..100).collect();
    let lost = arrive(&bench, &Faults { seed: 1, lose: 5, ..Faults::default() });
    assert!(lost.len() < 100 && lost.is_sorted_by(|a, b| a < b));

    let mut twice = arrive(&bench, &Faults { seed: 1, duplicate: 5, ..Faults::default() });
    assert!(twice.len() > 100 && twice.is_sorted());
    twice.dedup();
    assert_eq!(twice, all);

    let mut moved = arrive(&bench, &Faults { seed: 1, reorder: 5, reorder_by: 3, ..Faults::default() });
    assert_ne!(moved, all);
    let farthest = moved.iter().enumerate().map(|(i, &n)| i.abs_diff(n as usize)).max();
    assert!(farthest <= Some(3), "{moved:?}");
    moved.sort();
    assert_eq!(moved, all);

    // Ten packet times late: behind ten others.
    let mut late = arrive(&bench, &Faults { seed: 1, delay: 20, delay_ns: 10, ..Faults::default() });
    assert_ne!(late, all);
    late.sort();
    assert_eq!(late, all);
}

#[test]
fn the_exact_faults_of_a_seed() {
    // Fixed, so that a seed means the same in every version: splitmix64, five numbers a packet, lost where 20 divides
    // the first.
    let bench = manual(83);
    let lost = arrive(&bench, &Faults { seed: 42, lose: 20, ..Faults::default() });
    let missing: Vec<u32> = (0..100).filter(|n| !lost.contains(n)).collect();
    assert_eq!(missing, [62, 66, 94, 95]);
}

#[test]
fn a_thread_plays_the_queue() {
    let bench = manual(84);
    let mut stream = bench.whole(100);
    let sent = packets(0..50);
    bench.stand_in.queue(bench.ip, &in_flight(&sent), &Faults::default()).unwrap();
    assert_eq!(bench.stand_in.play(bench.ip), Status::Ok);
    assert_eq!(wait_for(&mut stream, 50), sent);
    assert_eq!(bench.stand_in.play(bench.ip), Status::Busy);
    bench.stand_in.queue(bench.ip, &in_flight(&sent), &Faults::default()).unwrap();
    assert_eq!(wait_for(&mut stream, 50), sent);
}

#[test]
fn a_capture_is_a_queue() {
    let bench = manual(85);
    let mut stream = bench.whole(100);
    let sent = packets(0..6);
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes = capture(&sent);
    std::fs::write(&file, &bytes).unwrap();
    assert_eq!(bench.stand_in.queue_capture(bench.ip, file.path(), &Faults::default()), Some(6));
    bench.stand_in.step(bench.ip, 6);
    {
        let chunk = stream.next_chunk().unwrap();
        assert_eq!((chunk.timestamp_first(), chunk.timestamp_last()), (TIME, TIME + 5000));
        assert_eq!(crate::common::octets(&chunk, 200, 0, 3), packet(3, 100));
    }
    // What is cut off in a packet, or is no capture, is refused.
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(bench.stand_in.queue_capture(bench.ip, file.path(), &Faults::default()), None);
    std::fs::write(&file, b"text").unwrap();
    assert_eq!(bench.stand_in.queue_capture(bench.ip, file.path(), &Faults::default()), None);
    assert_eq!(bench.stand_in.queue_capture(bench.ip, "/nonexistent".as_ref(), &Faults::default()), None);
}

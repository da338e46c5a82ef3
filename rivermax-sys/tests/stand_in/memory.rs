use crate::common::{Bench, Pages, drain, manual, packets, ready};
use rivermax_sys::stand_in::{MEMORY_NOT_ALIGNED, MEMORY_NOT_REGISTERED};
use rivermax_sys::{DeterminedStream, EntrySize, Flow, Registration, Stream, StreamOption};
use std::sync::Arc;

const SPLIT: [EntrySize; 2] = [EntrySize::exactly(20), EntrySize::up_to(200)];

fn split(bench: &Bench) -> DeterminedStream {
    bench.params().capacity(64).sub_blocks(&SPLIT).determine().unwrap()
}

fn receives(bench: &Bench, mut stream: Stream) {
    stream.set_completion_moderation(0, 100, 0).unwrap();
    stream.attach(&Flow::to(crate::common::GROUP)).unwrap();
    let sent = packets(0..5);
    assert_eq!(bench.deliver(&sent), 5);
    assert_eq!(drain(&mut stream), sent);
    stream.destroy().unwrap();
}

#[test]
fn the_library_allocates() {
    let bench = manual(10);
    receives(&bench, split(&bench).create().unwrap());
}

#[test]
fn memory_by_address_is_kept_until_the_stream_is_destroyed() {
    let bench = manual(11);
    let mut determined = split(&bench);
    let memory: Vec<_> = determined.layout().blocks.iter().map(|b| Arc::new(Pages::new(b.length))).collect();
    for (i, pages) in memory.iter().enumerate() {
        // SAFETY: long enough, and the stream keeps it.
        unsafe { determined.set_memory(i, pages.at(0), Arc::clone(pages)) };
    }
    let mut stream = determined.create().unwrap();
    assert!(memory.iter().all(|pages| Arc::strong_count(pages) == 2));
    stream.set_completion_moderation(0, 100, 0).unwrap();
    stream.attach(&Flow::to(crate::common::GROUP)).unwrap();
    bench.deliver(&packets([3]));
    let chunk = stream.next_chunk().unwrap();
    assert_eq!([chunk.first(0), chunk.first(1)], [Some(memory[0].at(0)), Some(memory[1].at(0))]);
    drop(stream);
    assert!(memory.iter().all(|pages| Arc::strong_count(pages) == 1));
}

#[test]
fn memory_is_aligned_to_cache_lines_and_with_placement_to_pages() {
    let bench = manual(12);
    let create = |placed: bool, offset: usize| {
        let params = bench.params().capacity(64).sub_blocks(&SPLIT);
        let params = if placed { params.option(StreamOption::SequencePlacement) } else { params };
        let mut determined = params.determine().unwrap();
        let pages = Arc::new(Pages::new(determined.layout().blocks[1].length));
        // SAFETY: long enough from any offset, and the stream keeps it.
        unsafe { determined.set_memory(1, pages.at(offset), pages.clone()) };
        determined.create().map(drop).map_err(|e| e.status)
    };
    assert_eq!(create(false, 0), Ok(()));
    assert_eq!(create(false, 64), Ok(()));
    assert_eq!(create(false, 32), Err(MEMORY_NOT_ALIGNED));
    assert_eq!(create(true, 0), Ok(()));
    assert_eq!(create(true, 64), Err(MEMORY_NOT_ALIGNED));
}

fn register(bench: &Bench, length: usize) -> Arc<Registration> {
    let pages = Pages::new(length);
    let iface = bench.session.iface(bench.ip).unwrap();
    // SAFETY: long enough, and the registration keeps it.
    Arc::new(unsafe { bench.session.register(&iface, pages.at(0), length, pages) }.unwrap())
}

#[test]
fn registered_memory_outlives_the_stream_and_serves_two() {
    let bench = manual(13);
    let mut determined = split(&bench);
    let registered: Vec<_> = determined.layout().blocks.iter().map(|b| register(&bench, b.length)).collect();
    let mut other = split(&bench);
    for (i, registration) in registered.iter().enumerate() {
        determined.set_registered(i, registration);
        other.set_registered(i, registration);
    }
    let (stream, other) = (determined.create().unwrap(), other.create().unwrap());
    drop(other);
    let weak = Arc::downgrade(&registered[0]);
    drop(registered);
    assert!(weak.upgrade().is_some(), "the stream holds it");
    receives(&bench, stream);
    assert!(weak.upgrade().is_none());
}

#[test]
#[should_panic(expected = "for 12800")]
fn registered_memory_that_is_too_short_is_a_fault_of_the_caller() {
    let bench = manual(14);
    let registration = register(&bench, 64);
    split(&bench).set_registered(1, &registration);
}

#[test]
fn memory_is_registered_with_one_nic() {
    let (bench, other) = (manual(15), manual(16));
    let registration = register(&other, 64 * 200);
    let mut determined = split(&bench);
    determined.set_registered(1, &registration);
    assert_eq!(determined.create().unwrap_err().status, MEMORY_NOT_REGISTERED);
}

#[test]
fn memory_that_cannot_be_registered_is_an_error_of_either_way() {
    let bench = manual(17);
    let iface = bench.session.iface(bench.ip).unwrap();
    bench.stand_in.fail(Some(bench.ip), "rmx_register_memory", MEMORY_NOT_REGISTERED, 2);
    let pages = Arc::new(Pages::new(64 * 200));
    // SAFETY: long enough, and kept.
    let error = unsafe { bench.session.register(&iface, pages.at(0), 64 * 200, pages.clone()) }.unwrap_err();
    assert_eq!(error.to_string(), "rmx_register_memory: RMX_MEMORY_NOT_REGISTERED (64)");
    let mut determined = split(&bench);
    // SAFETY: as above.
    unsafe { determined.set_memory(1, pages.at(0), pages.clone()) };
    let error = determined.create().unwrap_err();
    assert_eq!(error.to_string(), "rmx_input_create_stream: RMX_MEMORY_NOT_REGISTERED (64)");
    assert_eq!(Arc::strong_count(&pages), 1, "what failed keeps nothing");
}

#[test]
fn without_a_split_packets_lie_whole_in_the_payload_block() {
    let bench =
        crate::common::bench(18, rivermax_sys::stand_in::Device { manual: true, no_split: true, ..Default::default() });
    let mut stream = ready(bench.params().capacity(8).sub_blocks(&SPLIT), 100);
    let sent = packets([1, 2]);
    bench.deliver(&sent);
    let chunk = stream.next_chunk().unwrap();
    assert_eq!(chunk.first(0), None);
    assert_eq!([chunk.packet(1).unwrap().size(0), chunk.packet(1).unwrap().size(1)], [0, 100]);
    assert_eq!(crate::common::octets(&chunk, 200, 1, 1), sent[1]);
    assert_eq!(stream.next_chunk().map(|chunk| chunk.len()), Ok(0));
}

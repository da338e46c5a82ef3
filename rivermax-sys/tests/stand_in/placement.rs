use crate::common::{GROUP, Pages, drain, manual, octets, packet, packets, ready};
use rivermax_sys::{EntrySize, StreamOption};
use std::sync::Arc;

const SPLIT: [EntrySize; 2] = [EntrySize::exactly(20), EntrySize::up_to(80)];

/// The slots of what is delivered.
fn slots(option: StreamOption, n: u8, capacity: usize, sequences: &[u32]) -> Vec<usize> {
    let bench = manual(n);
    let params = bench.params().capacity(capacity).sub_blocks(&SPLIT).option(option);
    let mut determined = params.determine().unwrap();
    let pages = Arc::new(Pages::new(determined.layout().blocks[1].length));
    // SAFETY: long enough, and kept.
    unsafe { determined.set_memory(1, pages.at(0), pages.clone()) };
    let mut stream = determined.create().unwrap();
    stream.set_completion_moderation(0, 1000, 0).unwrap();
    stream.attach(&rivermax_sys::Flow::to(GROUP)).unwrap();
    let place = |&sequence: &u32| {
        assert_eq!(bench.deliver(&packets([sequence])), 1);
        let chunk = stream.next_chunk().unwrap();
        assert_eq!(octets(&chunk, 80, 1, 0), packet(sequence, 100)[20..]);
        (chunk.first(1).unwrap().as_ptr() as usize - pages.at(0).as_ptr() as usize) / 80
    };
    sequences.iter().map(place).collect()
}

#[test]
fn slots_are_in_order_of_sixteen_bits() {
    // 65535 % 10 = 5; the 16 bits of 65536 are 0.
    let sequences = [8, 9, 11, 10, 65_535, 65_536];
    assert_eq!(slots(StreamOption::SequencePlacement, 40, 10, &sequences), [8, 9, 1, 0, 5, 0]);
}

#[test]
fn slots_are_in_order_of_thirty_two_bits() {
    let sequences = [8, 9, 11, 10, 65_535, 65_536, u32::MAX];
    // 2^32 - 1 = 429496729 x 10 + 5.
    assert_eq!(slots(StreamOption::ExtendedSequencePlacement, 41, 10, &sequences), [8, 9, 1, 0, 5, 6, 5]);
}

#[test]
fn a_gap_ends_a_chunk() {
    let bench = manual(42);
    let params = bench.params().capacity(16).sub_blocks(&SPLIT).option(StreamOption::SequencePlacement);
    let mut stream = ready(params, 100);
    bench.deliver(&packets([3, 4, 6, 7, 5]));
    let mut next = || stream.next_chunk().map(|chunk| (chunk.len(), chunk.more())).unwrap();
    assert_eq!([next(), next(), next(), next()], [(2, true), (2, true), (1, false), (0, false)]);
}

#[test]
fn packets_without_a_sequence_number_are_dropped_in_silence() {
    for (n, option, least) in
        [(43, StreamOption::SequencePlacement, 12), (44, StreamOption::ExtendedSequencePlacement, 14)]
    {
        let bench = manual(n);
        let mut stream = ready(bench.params().capacity(16).sub_blocks(&SPLIT).option(option), 100);
        assert_eq!(bench.deliver(&[packet(1, least - 1), packet(2, least)]), 1);
        assert_eq!(drain(&mut stream), [packet(2, least)]);
        assert_eq!(bench.stand_in.counts(&stream).no_header, 1);
    }
}

#[test]
fn two_legs_over_one_buffer_fill_each_others_gaps() {
    let legs = [manual(45), manual(46)];
    let mut memory: Vec<Arc<Pages>> = Vec::new();
    let mut streams: Vec<_> = legs
        .iter()
        .map(|bench| {
            let params = bench.params().capacity(8).sub_blocks(&SPLIT).option(StreamOption::SequencePlacement);
            let mut determined = params.determine().unwrap();
            for (i, block) in determined.layout().blocks.clone().iter().enumerate() {
                if memory.len() == i {
                    memory.push(Arc::new(Pages::new(block.length)));
                }
                // SAFETY: long enough, and kept by both.
                unsafe { determined.set_memory(i, memory[i].at(0), memory[i].clone()) };
            }
            let mut stream = determined.create().unwrap();
            stream.set_completion_moderation(0, 100, 0).unwrap();
            stream.attach(&rivermax_sys::Flow::to(GROUP)).unwrap();
            stream
        })
        .collect();
    legs[0].deliver(&packets([0, 1, 3]));
    legs[1].deliver(&packets([0, 2, 3]));
    // Each leg tells of its own packets; together the buffer has all.
    assert_eq!(drain(&mut streams[0]), packets([0, 1, 3]));
    assert_eq!(drain(&mut streams[1]), packets([0, 2, 3]));
    for i in 0..4_usize {
        let sent = packet(i as u32, 100);
        // SAFETY: nobody writes now.
        let (head, body) = unsafe {
            (
                std::slice::from_raw_parts(memory[0].at(0).as_ptr().add(20 * i), 20),
                std::slice::from_raw_parts(memory[1].at(0).as_ptr().add(80 * i), 80),
            )
        };
        assert_eq!([head, body].concat(), sent);
    }
}

#[test]
fn contributing_sources_move_the_extended_sequence_number() {
    // RFC 3550, 5.1: CC = 1, so that four octets lie between header and payload.
    let bench = manual(47);
    let params = bench.params().capacity(10).sub_blocks(&SPLIT).option(StreamOption::ExtendedSequencePlacement);
    let mut stream = ready(params, 100);
    let mut moved = packet(0, 100);
    moved[0] |= 1;
    moved[12..14].copy_from_slice(&[0, 0]);
    moved[16..18].copy_from_slice(&[0, 1]);
    // 65536 % 10 = 6, and 5 comes before; in the usual place it would be 0.
    bench.deliver(&[packet(5, 100), moved]);
    assert_eq!(stream.next_chunk().unwrap().len(), 2, "slots 5 and 6");
}

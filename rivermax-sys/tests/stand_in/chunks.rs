use crate::common::{TIME, bench, drain, manual, octets, packet, packets, ready};
use rivermax_sys::stand_in::{Counts, Device};
use rivermax_sys::{EntrySize, Flow, Status, StreamOption, StreamParams, TimestampFormat, raw};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

const SPLIT: [EntrySize; 2] = [EntrySize::exactly(20), EntrySize::up_to(80)];

#[test]
fn nothing_is_ok_with_no_packets() {
    let bench = manual(20);
    let mut stream = bench.whole(8);
    let chunk = stream.next_chunk().unwrap();
    assert!(chunk.is_empty() && !chunk.more() && !chunk.checksum_issue());
    assert_eq!((chunk.first(0), chunk.timestamp_first(), chunk.timestamp_last()), (None, 0, 0));
    assert!(chunk.packet(0).is_none());
}

#[test]
fn split_packets_lie_a_stride_apart_with_their_true_sizes() {
    let bench = bench(21, Device { manual: true, extra_stride: 12, ..Device::default() });
    let mut stream = ready(bench.params().capacity(8).sub_blocks(&SPLIT), 100);
    // Whole; payload short; all of it in the header; header itself short.
    let sent = [packet(1, 100), packet(2, 50), packet(3, 20), packet(4, 13)];
    assert_eq!(bench.deliver(&sent), 4);
    let chunk = stream.next_chunk().unwrap();
    assert_eq!(chunk.len(), 4);
    let sizes: Vec<_> = (0..4).map(|i| chunk.packet(i).unwrap()).map(|p| (p.size(0), p.size(1), p.size(2))).collect();
    assert_eq!(sizes, [(20, 80, 0), (20, 30, 0), (20, 0, 0), (13, 0, 0)]);
    for (i, sent) in sent.iter().enumerate() {
        assert_eq!([octets(&chunk, 32, 0, i), octets(&chunk, 92, 1, i)].concat(), *sent);
    }
    assert_eq!((chunk.timestamp_first(), chunk.timestamp_last()), (TIME, TIME + 3));
    assert_eq!(chunk.packet(2).map(|p| (p.timestamp(), p.flow_tag())), Some((TIME + 2, 7)));
    assert!(chunk.packet(4).is_none());
}

#[test]
fn packets_that_no_entry_holds_are_dropped_in_silence() {
    let bench = manual(22);
    let mut stream = ready(bench.params().capacity(8).sub_blocks(&SPLIT), 100);
    assert_eq!(bench.deliver(&[packet(1, 101), packet(2, 100)]), 1);
    assert_eq!(drain(&mut stream), [packet(2, 100)]);
    assert_eq!(bench.stand_in.counts(&stream), Counts { written: 1, too_long: 1, taken: 1, ..Counts::default() });
}

#[test]
fn information_needs_its_option() {
    let bench = manual(23);
    let params = StreamParams::new(&bench.session, bench.ip).capacity(8).sub_blocks(&SPLIT);
    let mut stream = ready(params, 100);
    bench.deliver(&packets([1]));
    let chunk = stream.next_chunk().unwrap();
    assert_eq!(chunk.len(), 1);
    assert!(chunk.packet(0).is_none());
}

#[test]
fn a_chunk_ends_at_the_end_of_the_ring_and_says_that_there_is_more() {
    let bench = manual(24);
    let mut stream = bench.whole(8);
    bench.deliver(&packets(0..6));
    assert_eq!(drain(&mut stream).len(), 6);
    bench.deliver(&packets(6..11));
    let chunk = stream.next_chunk().unwrap();
    assert_eq!((chunk.len(), chunk.more()), (2, true));
    let first = chunk.first(0).unwrap();
    let chunk = stream.next_chunk().unwrap();
    assert_eq!((chunk.len(), chunk.more()), (3, false));
    assert_eq!(first.as_ptr() as usize - chunk.first(0).unwrap().as_ptr() as usize, 6 * 200);
}

#[test]
fn moderation_limits_what_a_chunk_has() {
    let bench = manual(25);
    let mut stream = bench.whole(64);
    let mut lens = |min, max, timeout, sent| {
        stream.set_completion_moderation(min, max, timeout).unwrap();
        bench.deliver(&packets(0..sent));
        let mut next = || stream.next_chunk().map(|chunk| (chunk.len(), chunk.more())).unwrap();
        [next(), next(), next()]
    };
    assert_eq!(lens(0, 4, 0, 10), [(4, true), (4, true), (2, false)]);
    // Half an hour: three are held back until there are four.
    assert_eq!(lens(4, 100, 3_600_000_000 / 2, 3), [(0, false); 3]);
    assert_eq!(lens(4, 100, 3_600_000_000 / 2, 1), [(4, false), (0, false), (0, false)]);
    assert_eq!(stream.set_completion_moderation(5, 4, 0).unwrap_err().status, Status::InvalidParam2);
    assert_eq!(stream.set_completion_moderation(0, 0, 0).unwrap_err().status, Status::InvalidParam2);
}

#[test]
fn what_is_held_back_comes_when_the_time_has_passed() {
    let bench = manual(26);
    let mut stream = bench.whole(64);
    stream.set_completion_moderation(4, 100, 20_000).unwrap();
    let began = Instant::now();
    bench.deliver(&packets(0..2));
    while stream.next_chunk().unwrap().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10), "it never came");
    }
    assert!(began.elapsed() >= Duration::from_millis(20));
}

#[test]
fn without_moderation_there_are_no_chunks() {
    let bench = manual(27);
    let mut stream = bench.params().capacity(8).sub_blocks(&SPLIT).determine().unwrap().create().unwrap();
    let error = stream.next_chunk().unwrap_err();
    assert_eq!(error.to_string(), "rmx_input_get_next_chunk: RMX_NOT_INITIALIZED (31)");
}

#[test]
fn a_late_reader_finds_what_came_later() {
    let bench = manual(28);
    let mut stream = bench.whole(4);
    bench.deliver(&packets(0..6));
    // Six completions over four slots: the first two show the packets that came a lap later.
    assert_eq!(drain(&mut stream), packets([4, 5, 2, 3, 4, 5]));
    bench.deliver(&packets(10..20));
    // No more than two laps are remembered.
    assert_eq!(drain(&mut stream), packets([16, 17, 18, 19, 16, 17, 18, 19]));
    let counts = bench.stand_in.counts(&stream);
    assert_eq!((counts.written, counts.taken, counts.forgotten), (16, 14, 2));
    assert_eq!(counts.lapped, 2 + 6);
}

#[test]
fn time_stamps_are_raw_or_tai() {
    let offset = 5_000_000;
    let bench = bench(29, Device { manual: true, raw_clock_offset: offset, ..Device::default() });
    for (format, from) in
        [(TimestampFormat::RawNano, TIME + offset as u64), (TimestampFormat::Synced, TIME + 37_000_000_000)]
    {
        let mut stream = ready(bench.params().capacity(8).sub_blocks(&SPLIT).timestamp_format(format), 100);
        bench.deliver(&packets(0..3));
        let chunk = stream.next_chunk().unwrap();
        assert_eq!((chunk.timestamp_first(), chunk.timestamp_last()), (from, from + 2), "{format:?}");
        assert_eq!(chunk.packet(1).unwrap().timestamp(), from + 1);
    }
}

#[test]
fn polls_may_be_in_vain_while_there_is_data() {
    let bench = bench(33, Device { manual: true, idle_polls: 2, ..Device::default() });
    let mut stream = ready(bench.params().capacity(64).sub_blocks(&SPLIT), 2);
    bench.deliver(&packets(0..3));
    let lens = [(); 8].map(|()| stream.next_chunk().unwrap().len());
    assert_eq!(lens, [0, 0, 2, 0, 0, 1, 0, 0]);
}

#[test]
fn what_a_poll_tells_is_spoiled_by_the_next_one() {
    let bench = manual(34);
    let stream = bench.whole(8);
    let mut handle = Box::new(MaybeUninit::uninit());
    bench.deliver(&packets([1]));
    // SAFETY: a handle of our own for the stream, which nobody else polls; what it tells lies in memory of the library
    // that stays readable while the stream lives.
    unsafe {
        let handle = handle.as_mut_ptr();
        raw::rmx_input_init_chunk_handle(handle, &stream.id());
        assert_eq!(Status::from_raw(raw::rmx_input_get_next_chunk(handle)), Status::Ok);
        let completion = raw::rmx_input_get_chunk_completion(handle);
        let info = raw::rmx_input_get_packet_info(handle, 0);
        assert_eq!(raw::rmx_input_get_completion_chunk_size(completion), 1);
        assert_eq!(raw::rmx_input_get_packet_timestamp(info), TIME);
        assert_eq!(Status::from_raw(raw::rmx_input_get_next_chunk(handle)), Status::Ok);
        assert_eq!(raw::rmx_input_get_completion_chunk_size(completion), 0);
        assert_eq!(raw::rmx_input_get_packet_timestamp(info), 0xeeee_eeee_eeee_eeee);
        assert!(raw::rmx_input_get_packet_info(handle, 0).is_null());
    }
}

#[test]
fn what_is_left_can_be_read_after_the_last_flow_is_detached() {
    let gone = rivermax_sys::stand_in::NOT_ATTACHED;
    for (n, answer) in [(30, Ok(0)), (31, Err(gone))] {
        let status = answer.err().unwrap_or(Status::Ok);
        let bench = bench(n, Device { manual: true, after_detach: status, ..Device::default() });
        let mut stream = bench.whole(8);
        bench.deliver(&packets(0..3));
        stream.detach(&Flow::to(crate::common::GROUP).tag(7)).unwrap();
        assert_eq!(bench.deliver(&packets(3..6)), 0);
        assert_eq!(stream.next_chunk().unwrap().len(), 3);
        assert_eq!(stream.next_chunk().map(|chunk| chunk.len()).map_err(|e| e.status), answer);
    }
}

#[test]
fn payloads_may_be_written_before_headers() {
    // What is there in the end is the same.
    let bench = bench(32, Device { manual: true, payload_first: true, ..Device::default() });
    let params = bench.params().capacity(8).sub_blocks(&SPLIT).option(StreamOption::SequencePlacement);
    let mut stream = ready(params, 100);
    bench.deliver(&packets(0..3));
    assert_eq!(drain(&mut stream), packets(0..3));
}

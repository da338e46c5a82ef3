use super::*;

#[test]
fn a_leased_cell_is_not_free_and_the_last_given_back_is_next() {
    let mut cells = Cells::new(CELLS);
    let (a, mut b) = (cells.lease(), cells.lease());
    for _ in 0..3 {
        let cell = cells.free.pop().unwrap();
        cells.hold(&a, cell);
    }
    let cell = cells.free.pop().unwrap();
    cells.hold(&b, cell);
    assert_eq!(cells.free.len(), CELLS - 4);
    assert!([0, 1, 2, 3].iter().all(|c| !cells.free.contains(c)));
    b.slots.push(Slot { head_at: 0, body_at: 0, head: 0, octets: 0, wire_octets: 0, leg: 0, arrival: Tai(0) });
    cells.release(a);
    cells.release(b);
    assert_eq!(cells.free.last(), Some(&3));
    assert_eq!((cells.free.len(), cells.tokens.len()), (CELLS, CELLS));
    assert!(cells.lease().slots.is_empty(), "recycled slots are empty");
    cells.release(Lease::new(Vec::new(), Cells::NONE));
    assert_eq!(cells.free.len(), CELLS);
}

#[test]
fn every_cell_lies_in_the_region_with_slack_behind_it() {
    let end = Cells::at(CELLS as u16 - 1) + CHAIN + SLACK;
    assert!(end <= Cells::region_octets(CELLS) && Cells::region_octets(MAX_CELLS) < u32::MAX as usize);
}

#[test]
fn the_kernels_tai_offset_counts_when_it_has_one() {
    assert_eq!(whole_seconds(37_000_000_900), Some(37_000_000_000));
    assert_eq!(whole_seconds(250), None);
}

#[test]
fn a_ring_holds_what_comes_while_a_gpu_works() {
    use std::time::Duration;
    // 2160p59.94: 17280 packets a frame.
    assert_eq!(cells_for(1_035_764, Duration::from_millis(2)), 2112);
    assert_eq!(cells_for(0, Duration::from_millis(2)), CELLS);
    assert_eq!(cells_for(u64::MAX, Duration::from_secs(9)), MAX_CELLS);
}

/// A leg whose card is told to stamp every packet.
fn stamped() -> LegSocket {
    LegSocket {
        socket: socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap(),
        batch: Batch::new(false),
        sizer: Sizer::new(),
        sources: SourceFilter::Any,
        drops: 0,
        arrival: Tai(0),
        card: Some(Stamps::new(37_000_000_000, true)),
        note: None,
    }
}

#[test]
fn arrivals_are_the_cards_while_every_datagram_has_a_stamp_of_its_own() {
    const NOW: u64 = 1_700_000_037_000_000_000;
    let utc = NOW - 37_000_000_000;
    let single = Message { octets: 1000, time: Some(utc), card: Some(NOW - 9_000), ..Message::default() };
    let merged = Message { octets: 4000, stride: 1000, ..single };
    let without = Message { card: None, ..single };
    for (message, source, arrivals) in [
        (single, Source::Hardware, vec![NOW - 9_000]),
        // Four datagrams, one stamp.
        (merged, Source::Software, vec![NOW - 9_000; 4]),
        (without, Source::Software, vec![NOW]),
    ] {
        let (mut leg, mut slots, mut counters) = (stamped(), Vec::new(), RxCounters::default());
        let card = leg.card.as_mut().unwrap();
        card.read(message.card.unwrap_or(0), Tai(NOW));
        leg.take(message, 0, 0, true, 37_000_000_000, &mut slots, &mut counters);
        let card = leg.card.as_mut().unwrap();
        card.judge(Tai(NOW));
        assert_eq!(card.source(), source, "{message:?}");
        assert_eq!(slots.iter().map(|slot| slot.arrival.0).collect::<Vec<_>>(), arrivals, "{message:?}");
        // What is not wanted says nothing of the card.
        let mut leg = stamped();
        leg.take(message, 0, 0, false, 37_000_000_000, &mut slots, &mut counters);
        let card = leg.card.as_mut().unwrap();
        card.judge(Tai(NOW));
        assert_eq!(card.source(), Source::Hardware);
    }
}

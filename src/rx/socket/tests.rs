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

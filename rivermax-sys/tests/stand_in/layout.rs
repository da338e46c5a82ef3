use crate::common::{bench, manual};
use rivermax_sys::stand_in::{Device, INVALID_PARAM_1, NO_SUCH_DEVICE};
use rivermax_sys::{Block, EntrySize, MemLayout, Status, StreamOption, StreamParams};
use std::net::Ipv4Addr;

const SPLIT: [EntrySize; 2] = [EntrySize::exactly(20), EntrySize::up_to(1400)];

#[test]
fn blocks_follow_from_entries_and_capacity() {
    let bench = manual(1);
    let whole = bench.params().capacity(1000).sub_blocks(&[EntrySize::up_to(1500)]).determine().unwrap();
    assert_eq!(*whole.layout(), MemLayout { capacity: 1000, blocks: vec![Block { stride: 1500, length: 1_500_000 }] });
    let split = bench.params().capacity(1000).sub_blocks(&SPLIT).determine().unwrap();
    let blocks = vec![Block { stride: 20, length: 20_000 }, Block { stride: 1400, length: 1_400_000 }];
    assert_eq!(*split.layout(), MemLayout { capacity: 1000, blocks });
}

#[test]
fn stride_and_capacity_need_not_be_what_was_asked() {
    let bench = bench(2, Device { extra_stride: 44, capacity_multiple: 1024, ..Device::default() });
    let split = bench.params().capacity(1000).sub_blocks(&SPLIT).determine().unwrap();
    let blocks = vec![Block { stride: 64, length: 65_536 }, Block { stride: 1444, length: 1_478_656 }];
    assert_eq!(*split.layout(), MemLayout { capacity: 1024, blocks });
}

#[test]
fn a_nic_that_does_not_split_has_no_header_block() {
    let bench = bench(3, Device { no_split: true, ..Device::default() });
    let split = bench.params().capacity(8).sub_blocks(&SPLIT).determine().unwrap();
    assert_eq!(split.layout().blocks, [Block { stride: 0, length: 0 }, Block { stride: 1400, length: 11_200 }]);
}

#[test]
#[should_panic(expected = "3 sub-blocks")]
fn a_record_has_no_room_for_more_than_two_sub_blocks() {
    let _ = manual(5).params().sub_blocks(&[EntrySize::exactly(20); 3]);
}

#[test]
fn parameters_that_contradict_each_other_are_refused() {
    let bench = manual(4);
    let refused = |params: StreamParams| params.determine().unwrap_err().status;
    let good = || bench.params().capacity(8).sub_blocks(&SPLIT);
    assert_eq!(refused(good().capacity(0)), INVALID_PARAM_1);
    assert_eq!(refused(good().sub_blocks(&[])), INVALID_PARAM_1);
    assert_eq!(refused(good().sub_blocks(&[EntrySize::up_to(0)])), INVALID_PARAM_1);
    let both = good().option(StreamOption::SequencePlacement).option(StreamOption::ExtendedSequencePlacement);
    assert_eq!(refused(both), INVALID_PARAM_1);
    // A header of any length is a split that moves.
    assert_eq!(refused(good().sub_blocks(&[EntrySize::up_to(20), EntrySize::up_to(9)])), Status::NotImplemented);
    // An address of nobody here (TEST-NET-3).
    let nowhere = StreamParams::new(&bench.session, Ipv4Addr::new(203, 0, 113, 9)).capacity(8);
    assert_eq!(refused(nowhere.sub_blocks(&SPLIT)), NO_SUCH_DEVICE);
    let error = bench.session.iface(Ipv4Addr::new(203, 0, 113, 9)).unwrap_err();
    assert_eq!(error.to_string(), "rmx_retrieve_device_iface_ipv4: RMX_NO_SUCH_DEVICE (61)");
    assert_eq!(bench.session.iface(bench.ip).unwrap().ip(), bench.ip);
}

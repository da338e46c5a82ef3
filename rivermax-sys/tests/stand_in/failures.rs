use crate::common::{drain, manual, packets};
use rivermax_sys::stand_in::NO_HARDWARE_RESOURCES;
use rivermax_sys::{EntrySize, Flow, Status};

const WHOLE: [EntrySize; 1] = [EntrySize::up_to(200)];

#[test]
fn a_failure_is_of_its_call_its_device_and_so_many_times() {
    let (bench, other) = (manual(70), manual(71));
    bench.stand_in.fail(Some(bench.ip), "rmx_input_create_stream", NO_HARDWARE_RESOURCES, 1);
    let create = |bench: &crate::common::Bench| {
        let determined = bench.params().capacity(8).sub_blocks(&WHOLE).determine().unwrap();
        determined.create().map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(create(&other), Ok(()));
    assert_eq!(create(&bench), Err("rmx_input_create_stream: RMX_NO_HARDWARE_RESOURCES (63)".into()));
    assert_eq!(create(&bench), Ok(()));
}

#[test]
fn every_call_that_answers_can_fail() {
    let bench = manual(72);
    let fail = |call| bench.stand_in.fail(Some(bench.ip), call, Status::HwCompletionIssue, 1);
    let failed = |call, status: Result<(), rivermax_sys::Error>| {
        assert_eq!(status, Err(rivermax_sys::Error { call, status: Status::HwCompletionIssue }));
    };
    let once = |call| {
        fail(call);
        call
    };
    let call = once("rmx_retrieve_device_iface_ipv4");
    failed(call, bench.session.iface(bench.ip).map(drop));
    let call = once("rmx_input_determine_mem_layout");
    failed(call, bench.params().capacity(8).sub_blocks(&WHOLE).determine().map(drop));
    let mut stream = bench.whole(8);
    let call = once("rmx_input_set_completion_moderation");
    failed(call, stream.set_completion_moderation(0, 1, 0));
    let call = once("rmx_input_attach_flow");
    failed(call, stream.attach(&Flow::to("239.9.9.9:1".parse().unwrap())));
    let call = once("rmx_establish_event_channel");
    failed(call, stream.open_events());
    stream.open_events().unwrap();
    let call = once("rmx_request_notification");
    failed(call, stream.request_notification().map(drop));
    let call = once("rmx_input_detach_flow");
    failed(call, stream.detach(&Flow::to(crate::common::GROUP).tag(7)));
    // Those that keep what they were given, for good: tests/kept.rs.
}

#[test]
fn a_wrong_checksum_comes_with_its_data() {
    let bench = manual(73);
    let mut stream = bench.whole(8);
    bench.stand_in.fail(Some(bench.ip), "rmx_input_get_next_chunk", Status::ChecksumIssue, 1);
    assert!(!stream.next_chunk().unwrap().checksum_issue(), "there is nothing to be wrong");
    bench.deliver(&packets([1, 2]));
    let chunk = stream.next_chunk().unwrap();
    assert_eq!((chunk.len(), chunk.checksum_issue()), (2, true));
    assert!(!stream.next_chunk().unwrap().checksum_issue());
}

#[test]
fn a_completion_with_an_error_is_an_error_and_the_next_one_is_not() {
    let bench = manual(74);
    let mut stream = bench.whole(8);
    bench.stand_in.fail(Some(bench.ip), "rmx_input_get_next_chunk", Status::HwCompletionIssue, 1);
    bench.deliver(&packets([1, 2]));
    let error = stream.next_chunk().unwrap_err();
    assert_eq!(error.to_string(), "rmx_input_get_next_chunk: RMX_HW_COMPLETION_ISSUE (14)");
    assert_eq!(drain(&mut stream), packets([1, 2]));
}

//! What the library does not let go is never given back. By itself: a sanitizer calls it a leak.

mod common;

use common::{GROUP, Pages, manual};
use rivermax_sys::stand_in::NO_HARDWARE_RESOURCES;
use rivermax_sys::{EntrySize, Flow};
use std::sync::Arc;

const SPLIT: [EntrySize; 2] = [EntrySize::exactly(20), EntrySize::up_to(200)];

#[test]
fn what_the_library_keeps_is_never_given_back() {
    let bench = manual(19);
    let given = |call: &str| {
        let mut determined = bench.params().capacity(64).sub_blocks(&SPLIT).determine().unwrap();
        let pages = Arc::new(Pages::new(determined.layout().blocks[1].length));
        let iface = bench.session.iface(bench.ip).unwrap();
        let length = determined.layout().blocks[1].length;
        // SAFETY: long enough, and the registration keeps it.
        let registered = unsafe { bench.session.register(&iface, pages.at(0), length, pages.clone()) }.unwrap();
        determined.set_registered(1, &Arc::new(registered));
        let mut stream = determined.create().unwrap();
        stream.set_completion_moderation(0, 100, 0).unwrap();
        stream.attach(&Flow::to(GROUP)).unwrap();
        bench.stand_in.fail(Some(bench.ip), call, NO_HARDWARE_RESOURCES, 1);
        (stream.destroy().map_err(|error| error.call), pages)
    };
    // A flow that stays attached goes with its stream.
    let (answer, pages) = given("rmx_input_detach_flow");
    assert_eq!((answer, Arc::strong_count(&pages)), (Err("rmx_input_detach_flow"), 1));
    // A stream that was not destroyed may write on.
    let (answer, pages) = given("rmx_input_destroy_stream");
    assert_eq!((answer, Arc::strong_count(&pages)), (Err("rmx_input_destroy_stream"), 2));
    let (answer, pages) = given("rmx_deregister_memory");
    assert_eq!((answer, Arc::strong_count(&pages)), (Ok(()), 2));
    assert_eq!(bench.stand_in.misuse(), 0);
}

use crate::common::{manual, packets};
use rivermax_sys::{Notification, Status};
use std::time::Duration;

const SOON: Duration = Duration::ZERO;
const PLENTY: Duration = Duration::from_secs(10);

#[test]
fn a_wait_ends_with_data() {
    let bench = manual(60);
    let mut stream = bench.whole(8);
    assert_eq!(stream.request_notification().unwrap_err().status, Status::NotInitialized);
    assert!(stream.events().is_none() && stream.wait(SOON).is_err());
    stream.open_events().unwrap();
    stream.open_events().unwrap();
    assert_eq!(stream.request_notification(), Ok(Notification::Armed));
    assert!(!stream.wait(SOON).unwrap());
    bench.deliver(&packets([1]));
    assert!(stream.wait(SOON).unwrap());
    // Data is there: no wait.
    assert_eq!(stream.request_notification(), Ok(Notification::Busy));
    assert_eq!(stream.next_chunk().unwrap().len(), 1);
    assert_eq!(stream.request_notification(), Ok(Notification::Armed));
    assert!(!stream.wait(SOON).unwrap());
}

#[test]
fn a_request_is_for_one_notification() {
    let bench = manual(61);
    let mut stream = bench.whole(8);
    stream.open_events().unwrap();
    bench.deliver(&packets([1]));
    assert!(!stream.wait(SOON).unwrap(), "nobody asked");
    assert_eq!(stream.next_chunk().unwrap().len(), 1);
    assert_eq!(stream.request_notification(), Ok(Notification::Armed));
    bench.deliver(&packets([2]));
    assert_eq!(stream.next_chunk().unwrap().len(), 1);
    assert_eq!(stream.request_notification(), Ok(Notification::Armed));
    assert!(!stream.wait(SOON).unwrap(), "that of before is gone");
}

#[test]
fn another_thread_ends_the_wait() {
    let bench = manual(62);
    let mut stream = bench.whole(8);
    stream.open_events().unwrap();
    assert_eq!(stream.request_notification(), Ok(Notification::Armed));
    std::thread::scope(|scope| {
        scope.spawn(|| bench.deliver(&packets([1])));
        assert!(stream.wait(PLENTY).unwrap());
    });
    assert_eq!(stream.next_chunk().unwrap().len(), 1);
}

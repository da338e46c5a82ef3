//! What belongs to the process: initialisation, clock, signals, and what was done in a wrong order. One at a time.

mod common;

use common::{GROUP, Pages, manual, packets};
use rivermax_sys::stand_in::{
    Device, INVALID_PARAM_1, LICENSE_REFUSED, MEMORY_NOT_REGISTERED, NO_HARDWARE_RESOURCES, StandIn,
};
use rivermax_sys::{EntrySize, Flow, Library, Notification, Status, raw};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const WHOLE: [EntrySize; 1] = [EntrySize::up_to(200)];

/// Alone, with an open library that is not initialised.
fn alone() -> (MutexGuard<'static, ()>, &'static Library, StandIn) {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let library = Library::load(None).unwrap();
    (guard, library, library.stand_in())
}

#[test]
fn without_a_licence_there_is_no_session() {
    let (_alone, library, stand_in) = alone();
    stand_in.fail(None, "rmx_init", LICENSE_REFUSED, 1);
    assert_eq!(library.session().unwrap_err().to_string(), "rmx_init: RMX_LICENSE_REFUSED (62)");
    library.session().unwrap();
}

#[test]
fn the_last_session_cleans_up_and_streams_hold_one() {
    let (_alone, library, _) = alone();
    // Refused while the library is initialised, and so tells whether it is.
    let initialised = || library.set_cpu_affinity(&[0]).map_err(|e| e.status) == Err(Status::Busy);
    assert!(!initialised());
    let bench = manual(1);
    let other = bench.session.clone();
    let stream = bench.whole(8);
    assert!(initialised());
    drop((bench, other));
    assert!(initialised());
    drop(stream);
    assert!(!initialised());
}

#[test]
fn the_librarys_threads_run_where_they_are_told() {
    let (_alone, library, stand_in) = alone();
    assert_eq!(library.set_cpu_affinity(&[5000]).unwrap_err().status, Status::InvalidParam2);
    library.set_cpu_affinity(&[0]).unwrap();
    let ip = Ipv4Addr::new(127, 77, 1, 2);
    stand_in.set_device(ip, &Device::default());
    let session = library.session().unwrap();
    let params = rivermax_sys::StreamParams::new(&session, ip).capacity(8).sub_blocks(&WHOLE);
    let mut stream = params.determine().unwrap().create().unwrap();
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    stream.attach(&Flow::to(std::net::SocketAddrV4::new(ip, port))).unwrap();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let thread = tasks.into_iter().find(|task| std::fs::read_to_string(task.join("comm")).unwrap() == "rmx-stand-in\n");
    let status = std::fs::read_to_string(thread.expect("the thread that receives").join("status")).unwrap();
    assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
}

#[test]
fn the_ptp_clock_is_taken_once() {
    let (_alone, _, stand_in) = alone();
    for _ in 0..2 {
        let bench = manual(3);
        let iface = bench.session.iface(bench.ip).unwrap();
        assert_eq!(bench.session.ptp_time().unwrap_err().status, Status::NotInitialized);
        bench.session.use_ptp_clock(&iface).unwrap();
        assert_eq!(bench.session.use_ptp_clock(&iface).unwrap_err().status, Status::Busy);
        stand_in.fail(None, "rmx_check_clock_steady", Status::Busy, 1);
        assert_eq!(bench.session.clock_is_steady(), Ok(false));
        assert_eq!(bench.session.clock_is_steady(), Ok(true));
        let utc = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let (before, time, after) = (utc(), bench.session.ptp_time().unwrap(), utc());
        // TAI is 37 s ahead since 2017, and further if the kernel knows of more.
        let ahead = 37_000_000_000;
        assert!(time >= before + ahead && time < after + 2 * ahead, "{before} {time} {after}");
    }
}

#[test]
fn a_signal_ends_polls_and_waits() {
    let (_alone, library, _) = alone();
    library.enable_system_signal_handling().unwrap();
    {
        let bench = manual(4);
        let mut stream = bench.whole(8);
        stream.open_events().unwrap();
        bench.deliver(&packets([1]));
        assert_eq!(stream.next_chunk().unwrap().len(), 1);
        assert_eq!(stream.request_notification(), Ok(Notification::Armed));
        // SAFETY: the library has taken the signal.
        unsafe { libc::raise(libc::SIGINT) };
        assert!(stream.wait(Duration::from_secs(10)).unwrap());
        assert_eq!(stream.request_notification(), Ok(Notification::Signal));
        assert_eq!(stream.next_chunk().unwrap_err().status, Status::Signal);
        // Answers so too, and has detached.
        stream.detach(&Flow::to(GROUP).tag(7)).unwrap();
        assert_eq!(bench.deliver(&packets([2])), 0);
    }
    let bench = manual(4);
    assert_eq!(bench.whole(8).next_chunk().map(|chunk| chunk.len()), Ok(0));
}

#[test]
fn streams_are_not_without_number() {
    let (_alone, _, _) = alone();
    let bench = manual(5);
    let create = || bench.params().capacity(8).sub_blocks(&WHOLE).determine().unwrap().create();
    let streams: Vec<_> = std::iter::from_fn(|| create().ok()).take(1000).collect();
    assert_eq!(streams.len(), 256);
    assert_eq!(create().unwrap_err().status, NO_HARDWARE_RESOURCES);
    drop(streams);
    create().unwrap();
}

fn status(raw: c_int) -> Status {
    Status::from_raw(raw)
}

#[test]
fn nothing_works_before_it_is_initialised() {
    let (_alone, _, _) = alone();
    let mut params = Box::new(MaybeUninit::uninit());
    let mut iface = MaybeUninit::uninit();
    let mut region = MaybeUninit::uninit();
    let mut registry = MaybeUninit::uninit();
    let page = Pages::new(4096);
    let ip = libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) };
    // SAFETY: records that the init calls fill.
    unsafe {
        raw::rmx_input_init_stream(params.as_mut_ptr(), raw::GDMEDIA_APP_PROTOCOL_PACKET as i64);
        assert_eq!(status(raw::rmx_input_determine_mem_layout(params.as_mut_ptr())), Status::NotInitialized);
        let answer = raw::rmx_retrieve_device_iface_ipv4(iface.as_mut_ptr(), (&raw const ip).cast());
        assert_eq!(status(answer), Status::NotInitialized);
        raw::gdmedia_region_set(region.as_mut_ptr(), page.at(0).as_ptr().cast(), 4096);
        raw::rmx_init_mem_registry(registry.as_mut_ptr(), MaybeUninit::zeroed().as_ptr());
        let answer = raw::rmx_register_memory(region.as_mut_ptr(), registry.as_mut_ptr());
        assert_eq!(status(answer), Status::NotInitialized);
        assert_eq!(status(raw::rmx_check_clock_steady()), Status::NotInitialized);
        assert_eq!(status(raw::rmx_cleanup()), Status::NotInitialized);
    }
}

#[test]
fn what_is_done_in_a_wrong_order_is_refused_and_counted() {
    let (_alone, _, stand_in) = alone();
    let bench = manual(6);
    let before = stand_in.misuse();
    assert_eq!(stand_in.registered(), 0);
    let mut params = Box::new(MaybeUninit::<raw::rmx_input_stream_params>::uninit());
    let mut registry = MaybeUninit::uninit();
    let mut region = MaybeUninit::uninit();
    let mut iface = MaybeUninit::uninit();
    let mut id = MaybeUninit::uninit();
    let page = Pages::new(4096);
    let ip = libc::in_addr { s_addr: u32::from_ne_bytes(bench.ip.octets()) };
    let nic = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: ip,
        sin_zero: [0; 8],
    };
    // SAFETY: records that the init calls fill; the memory is there to the end.
    unsafe {
        let p = params.as_mut_ptr();
        raw::rmx_input_init_stream(p, raw::GDMEDIA_APP_PROTOCOL_PACKET as i64);
        raw::rmx_input_set_stream_nic_address(p, (&raw const nic).cast());
        raw::rmx_input_set_mem_capacity_in_packets(p, 8);
        raw::rmx_input_set_entry_uniform_size(p, 0, 200);
        // Never determined, and determined elsewhere.
        assert_eq!(status(raw::rmx_input_create_stream(p, id.as_mut_ptr())), INVALID_PARAM_1);
        assert_eq!(status(raw::rmx_input_determine_mem_layout(p)), Status::Ok);
        let mut moved = Box::new(*params);
        assert_eq!(status(raw::rmx_input_create_stream(moved.as_mut_ptr(), id.as_mut_ptr())), INVALID_PARAM_1);
        assert_eq!(stand_in.misuse(), before + 2);

        raw::rmx_retrieve_device_iface_ipv4(iface.as_mut_ptr(), (&raw const ip).cast());
        raw::gdmedia_region_set(region.as_mut_ptr(), page.at(0).as_ptr().cast(), 4096);
        raw::rmx_init_mem_registry(registry.as_mut_ptr(), iface.as_ptr());
        assert_eq!(status(raw::rmx_register_memory(region.as_mut_ptr(), registry.as_mut_ptr())), Status::Ok);
        assert_eq!(stand_in.registered(), 1);
        raw::gdmedia_region_give_registered(raw::rmx_input_get_mem_block_buffer(p, 0), region.as_ptr());
        assert_eq!(status(raw::rmx_input_create_stream(p, id.as_mut_ptr())), Status::Ok);
        // Under a stream; cleaned up with both left; twice.
        let deregister = |region: *mut _| status(raw::rmx_deregister_memory(region, iface.as_ptr()));
        assert_eq!(deregister(region.as_mut_ptr()), Status::Busy);
        assert_eq!(status(raw::rmx_cleanup()), Status::Busy);
        assert_eq!(status(raw::rmx_input_destroy_stream(id.as_ptr())), Status::Ok);
        assert_eq!(status(raw::rmx_input_destroy_stream(id.as_ptr())), INVALID_PARAM_1);
        assert_eq!(status(raw::rmx_cleanup()), Status::Busy);
        assert_eq!(deregister(region.as_mut_ptr()), Status::Ok);
        assert_eq!(deregister(region.as_mut_ptr()), MEMORY_NOT_REGISTERED);
        assert_eq!(stand_in.misuse(), before + 6);
    }
    assert_eq!(stand_in.registered(), 0);
}

#[test]
fn the_result_level_makes_no_such_mistake() {
    let (_alone, _, stand_in) = alone();
    let before = stand_in.misuse();
    {
        let bench = manual(7);
        let iface = bench.session.iface(bench.ip).unwrap();
        let mut determined = bench.params().capacity(8).sub_blocks(&WHOLE).determine().unwrap();
        let pages = Pages::new(1600);
        // SAFETY: long enough, and the registration keeps it.
        let registration = unsafe { bench.session.register(&iface, pages.at(0), 1600, pages) }.unwrap();
        let registration = std::sync::Arc::new(registration);
        determined.set_registered(0, &registration);
        let stream = determined.create().unwrap();
        // In the wrong order, as far as that goes.
        drop(registration);
        drop(bench);
        assert_eq!(stand_in.registered(), 1);
        drop(stream);
    }
    assert_eq!((stand_in.registered(), stand_in.misuse()), (0, before));
}

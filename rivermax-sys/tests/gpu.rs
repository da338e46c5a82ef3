//! Memory of a real GPU, where there is one.

mod common;

use common::{manual, packets};
use rivermax_sys::{EntrySize, Flow};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

type Init = unsafe extern "C" fn(u32) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type Push = unsafe extern "C" fn(*mut c_void) -> c_int;
type Alloc = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Read = unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;

#[test]
fn payloads_are_in_the_gpu_when_they_are_shown() {
    // SAFETY: the driver's initialisers.
    let Ok(driver) = (unsafe { libloading::Library::new("libcuda.so.1") }) else {
        return println!("skipped: no CUDA driver");
    };
    // SAFETY: the driver's functions with their documented types, called as documented.
    unsafe {
        let init = driver.get::<Init>("cuInit").unwrap();
        let retain = driver.get::<Retain>("cuDevicePrimaryCtxRetain").unwrap();
        let push = driver.get::<Push>("cuCtxPushCurrent_v2").unwrap();
        let alloc = driver.get::<Alloc>("cuMemAlloc_v2").unwrap();
        let read = driver.get::<Read>("cuMemcpyDtoH_v2").unwrap();
        let free = driver.get::<Free>("cuMemFree_v2").unwrap();
        let mut context = std::ptr::null_mut();
        if init(0) != 0 || retain(&mut context, 0) != 0 {
            return println!("skipped: no CUDA device");
        }
        assert_eq!(push(context), 0);

        let bench = manual(1);
        let sizes = [EntrySize::exactly(20), EntrySize::up_to(200)];
        let mut determined = bench.params().capacity(64).sub_blocks(&sizes).determine().unwrap();
        let block = determined.layout().blocks[1];
        let mut memory = 0;
        assert_eq!(alloc(&mut memory, block.length), 0);
        determined.set_memory(1, NonNull::new(memory as *mut u8).unwrap(), ());
        let mut stream = determined.create().unwrap();
        stream.set_completion_moderation(0, 100, 0).unwrap();
        stream.attach(&Flow::to(common::GROUP)).unwrap();
        let sent = packets(0..50);
        assert_eq!(bench.deliver(&sent), 50);
        let chunk = stream.next_chunk().unwrap();
        assert_eq!((chunk.len(), chunk.first(1).unwrap().as_ptr() as u64), (50, memory));
        let mut got = vec![0; block.length];
        assert_eq!(read(got.as_mut_ptr().cast(), memory, block.length), 0);
        for (i, data) in sent.iter().enumerate() {
            assert_eq!(got[i * block.stride..][..80], data[20..], "packet {i}");
        }
        drop(stream);
        assert_eq!(free(memory), 0);
    }
}

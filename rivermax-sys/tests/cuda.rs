//! Memory of a GPU, with a library in place of the CUDA driver that holds copies back until it is told to finish them.

mod common;

use common::{drain, manual, packets};
use rivermax_sys::stand_in::MEMORY_NOT_REGISTERED;
use rivermax_sys::{EntrySize, Flow, Status};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Device memory is what `device_memory` says. Copies happen in `cuStreamSynchronize`, and only with the context that
/// belongs to the device.
const DRIVER: &str = r#"
#include <stddef.h>
#include <string.h>
static _Alignas(4096) unsigned char memory[1 << 16];
unsigned char *device_memory(void) { return memory; }
static struct { void *to; const void *from; size_t length; } copies[256];
static unsigned count;
static int pushed;
unsigned fail_streams, fail_copies, streams, contexts, finishes;
int cuInit(unsigned flags) { return flags; }
int cuPointerGetAttribute(void *value, int attribute, unsigned long long p) {
    unsigned char *at = (unsigned char *)p;
    if (at < memory || at >= memory + sizeof memory) return 1;
    *(int *)value = attribute == 2 ? 2 : attribute == 9 ? 3 : 99;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)77; contexts++; return device != 3; }
int cuDevicePrimaryCtxRelease_v2(int device) { contexts--; return device != 3; }
int cuCtxPushCurrent_v2(void *context) { if (context != (void *)77) return 201; pushed++; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = (void *)77; pushed--; return 0; }
int cuStreamCreate(void **stream, unsigned flags) {
    if (pushed != 1 || flags != 1 || fail_streams) return 2;
    *stream = (void *)88; streams++; return 0;
}
int cuStreamDestroy_v2(void *stream) { streams--; return pushed != 1 || stream != (void *)88; }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t length, void *stream) {
    if (pushed != 1 || stream != (void *)88 || count == 256 || fail_copies) return 1;
    copies[count].to = (void *)to; copies[count].from = from; copies[count++].length = length;
    return 0;
}
int cuStreamSynchronize(void *stream) {
    if (pushed != 1 || stream != (void *)88) return 1;
    for (unsigned i = 0; i < count; i++) memcpy(copies[i].to, copies[i].from, copies[i].length);
    count = 0; finishes++;
    return 0;
}
"#;

#[test]
fn payloads_are_in_gpu_memory_before_they_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (c, so) = (folder.path().join("driver.c"), folder.path().join("driver.so"));
    std::fs::write(&c, DRIVER).unwrap();
    assert!(Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).arg(&so).arg(&c).status().unwrap().success());
    // SAFETY: no other thread reads the environment: this is the only test here.
    unsafe { std::env::set_var("RIVERMAX_STAND_IN_CUDA", &so) };
    // SAFETY: as its source says; kept open to the end.
    let driver = unsafe { libloading::Library::new(&so) }.unwrap();
    let count = |name: &str| {
        // SAFETY: an unsigned number, which the library only writes under the stream's lock.
        unsafe { driver.get::<*const AtomicU32>(name).unwrap() }
    };
    let read = |name: &str| {
        // SAFETY: as above.
        unsafe { &**count(name) }.load(Relaxed)
    };
    // SAFETY: takes nothing and returns a pointer.
    let memory = unsafe { driver.get::<extern "C" fn() -> *mut u8>("device_memory").unwrap()() };
    let memory = NonNull::new(memory).unwrap();

    let bench = manual(1);
    let determined = || {
        let sizes = [EntrySize::exactly(20), EntrySize::up_to(200)];
        let mut determined = bench.params().capacity(64).sub_blocks(&sizes).determine().unwrap();
        // SAFETY: the library's memory is longer, and never freed.
        unsafe { determined.set_memory(1, memory, ()) };
        determined
    };
    {
        let mut stream = determined().create().unwrap();
        assert_eq!((read("streams"), read("contexts")), (1, 1));
        stream.set_completion_moderation(0, 100, 0).unwrap();
        stream.attach(&Flow::to(common::GROUP)).unwrap();
        let sent = packets(0..10);
        bench.deliver(&sent);
        assert_eq!(read("finishes"), 1, "once for all ten");
        // The "device" is readable here.
        assert_eq!(drain(&mut stream), sent);

        // What cannot be copied is an error, and is never shown.
        // SAFETY: as above.
        unsafe { &**count("fail_copies") }.store(1, Relaxed);
        bench.deliver(&sent);
        assert_eq!(stream.next_chunk().unwrap_err().status, Status::HwCompletionIssue);
        assert_eq!(stream.next_chunk().map(|chunk| chunk.len()), Ok(0));
    }
    assert_eq!((read("streams"), read("contexts")), (0, 0));

    // A GPU that cannot be written to is refused, and leaves nothing behind.
    // SAFETY: as above.
    unsafe { &**count("fail_streams") }.store(1, Relaxed);
    assert_eq!(determined().create().unwrap_err().status, MEMORY_NOT_REGISTERED);
    assert_eq!((read("streams"), read("contexts")), (0, 0));
}

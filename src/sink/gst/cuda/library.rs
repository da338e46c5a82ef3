//! GStreamer's CUDA library (`libgstcuda-1.0.so.0`), found at run time, and the few of its functions that are needed.
//!
//! Its interface is called unstable upstream. What is used of it here has had the same form from 1.22 to 1.28
//! (`gst-plugins-bad/gst-libs/gst/cuda`: gstcudaloader.h, gstcudacontext.h, gstcudautils.h, gstcudabufferpool.h,
//! gstcudamemory.h); none of its structures is looked into.
#![allow(unsafe_code)]

use crate::gpu::Gpu;
use gstreamer as gst;
use gstreamer::glib::ffi::{GDestroyNotify, GFALSE, gboolean, gpointer};
use gstreamer::glib::translate::{ToGlibPtr, from_glib_full};
use gstreamer::prelude::*;
use gstreamer::{ffi, glib};
use gstreamer_video as gst_video;
use std::ffi::{CStr, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Its name since 1.22, the first release that installs it.
const NAME: &CStr = c"libgstcuda-1.0.so.0";
/// The kind of context that elements on GPUs ask for.
pub(super) const CONTEXT: &str = "gst.cuda.context";
/// `GST_MAP_CUDA`: the address on the GPU is wanted.
const MAP_CUDA: ffi::GstMapFlags = ffi::GST_MAP_FLAG_LAST << 1;

/// `gst_cuda_allocator_alloc_wrapped` (1.24): allocator, context, stream, layout, address, data, what to call with it.
pub(super) type AllocWrapped = unsafe extern "C" fn(
    gpointer,
    *mut ffi::GstObject,
    gpointer,
    *const gst_video::ffi::GstVideoInfo,
    u64,
    gpointer,
    GDestroyNotify,
) -> *mut ffi::GstMemory;

/// The library. Never unloaded: types that it registers stay for the life of the process.
#[derive(Debug)]
pub(super) struct Library {
    load: unsafe extern "C" fn() -> gboolean,
    memory_init: unsafe extern "C" fn(),
    context_new_wrapped: unsafe extern "C" fn(*mut c_void, c_int) -> *mut ffi::GstObject,
    new_context: unsafe extern "C" fn(*mut ffi::GstObject) -> *mut ffi::GstContext,
    pool_new: unsafe extern "C" fn(*mut ffi::GstObject) -> *mut ffi::GstBufferPool,
    is_cuda: unsafe extern "C" fn(*mut ffi::GstMemory) -> gboolean,
    /// Memory of others can be lent (1.24).
    alloc_wrapped: Option<AllocWrapped>,
}

impl Library {
    /// Finds it, once; does not ask for a GPU yet.
    ///
    /// # Errors
    /// It is not installed, or is not what its name says.
    pub fn find() -> Result<&'static Library, String> {
        static FOUND: OnceLock<Result<Library, String>> = OnceLock::new();
        FOUND.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Library, String> {
        // SAFETY: loads a library by name; its initialisers are GStreamer's.
        let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: no arguments.
            let text = unsafe { libc::dlerror() };
            // SAFETY: when not null, a text that stays until the thread's next call.
            let why = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
            let why = why.map_or_else(String::new, |text| format!(" ({})", text.to_string_lossy()));
            return Err(format!("GStreamer's CUDA library is not installed{why}"));
        }
        let find = |name: &CStr| {
            // SAFETY: the handle is valid, the name ends with a zero.
            let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if symbol.is_null() {
                return Err(format!("GStreamer's CUDA library has no {}", name.to_string_lossy()));
            }
            Ok(symbol)
        };
        // SAFETY: these are functions of the types that the headers of the library give them.
        unsafe {
            use std::mem::transmute;
            Ok(Library {
                load: transmute::<*mut c_void, unsafe extern "C" fn() -> gboolean>(find(c"gst_cuda_load_library")?),
                memory_init: transmute::<*mut c_void, unsafe extern "C" fn()>(find(c"gst_cuda_memory_init_once")?),
                context_new_wrapped: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, c_int) -> *mut ffi::GstObject,
                >(find(c"gst_cuda_context_new_wrapped")?),
                new_context: transmute::<*mut c_void, unsafe extern "C" fn(*mut ffi::GstObject) -> *mut ffi::GstContext>(
                    find(c"gst_context_new_cuda_context")?,
                ),
                pool_new: transmute::<*mut c_void, unsafe extern "C" fn(*mut ffi::GstObject) -> *mut ffi::GstBufferPool>(
                    find(c"gst_cuda_buffer_pool_new")?,
                ),
                is_cuda: transmute::<*mut c_void, unsafe extern "C" fn(*mut ffi::GstMemory) -> gboolean>(find(
                    c"gst_is_cuda_memory",
                )?),
                alloc_wrapped: find(c"gst_cuda_allocator_alloc_wrapped")
                    .ok()
                    .map(|symbol| transmute::<*mut c_void, AllocWrapped>(symbol)),
            })
        }
    }

    /// Makes GStreamer load the driver and know CUDA memory. GStreamer has been initialised.
    ///
    /// # Errors
    /// It finds no driver.
    pub fn start(&self) -> Result<(), String> {
        // SAFETY: no arguments; may be called again and again, from any thread.
        if unsafe { (self.load)() } == GFALSE {
            return Err("GStreamer's CUDA library finds no NVIDIA driver (libcuda.so.1)".into());
        }
        // SAFETY: as above.
        unsafe { (self.memory_init)() };
        Ok(())
    }

    /// The GPU's primary context as GStreamer's; the same one each time, for elements pass memory on without a copy
    /// only when their contexts are the same object.
    ///
    /// # Errors
    /// GStreamer refuses it.
    pub fn context(&self, gpu: &Arc<Gpu>) -> Result<Context, String> {
        static KNOWN: Mutex<Vec<(u32, glib::WeakRef<gst::Object>)>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, context)| context.upgrade().is_some());
        if let Some(object) = known.iter().find(|(n, _)| *n == gpu.number()).and_then(|(_, context)| context.upgrade())
        {
            return Ok(Context(object));
        }
        // SAFETY: the context and the device belong together; both live as long as the object, see below.
        let raw = unsafe { (self.context_new_wrapped)(gpu.context().cast(), gpu.device()) };
        if raw.is_null() {
            return Err(format!("GStreamer does not take the CUDA context of GPU {}", gpu.number()));
        }
        // SAFETY: a new object, whose reference is ours.
        let object: gst::Object = unsafe { from_glib_full(raw) };
        // SAFETY: nobody else uses this key. Elements and memory hold the object beyond our sink; the primary context
        // goes when the object is finalised, not before.
        unsafe { object.set_data("gdmedia-gpu", gpu.clone()) };
        known.push((gpu.number(), object.downgrade()));
        Ok(Context(object))
    }

    /// What elements get that ask for a context.
    ///
    /// # Errors
    /// GStreamer makes none.
    pub fn share(&self, context: &Context) -> Result<gst::Context, String> {
        // SAFETY: a context of this library.
        let raw = unsafe { (self.new_context)(context.raw()) };
        if raw.is_null() {
            return Err("GStreamer cannot share its CUDA context".into());
        }
        // SAFETY: new, and ours.
        Ok(unsafe { from_glib_full(raw) })
    }

    /// Buffers in memory of the GPU that GStreamer owns and uses again, for pictures of these caps.
    ///
    /// # Errors
    /// The GPU has no room.
    pub fn pool(&self, context: &Context, caps: &gst::Caps, size: u32) -> Result<gst::BufferPool, glib::BoolError> {
        // SAFETY: a context of this library.
        let raw = unsafe { (self.pool_new)(context.raw()) };
        if raw.is_null() {
            return Err(glib::bool_error!("no pool"));
        }
        // SAFETY: new, and ours.
        let pool: gst::BufferPool = unsafe { from_glib_full(raw) };
        let mut config = pool.config();
        config.set_params(Some(caps), size, 0, 0);
        config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_META.as_ref());
        pool.set_config(config)?;
        pool.set_active(true)?;
        Ok(pool)
    }

    /// Calls `fill` with the address and the length of a buffer's memory on the GPU; none when it has no such memory,
    /// or somebody else has it.
    pub fn write<T>(&self, buffer: &mut gst::BufferRef, fill: impl FnOnce(u64, usize) -> T) -> Option<T> {
        if buffer.n_memory() != 1 {
            return None;
        }
        // SAFETY: the buffer is ours alone and has one memory, which it keeps meanwhile.
        let memory = unsafe { ffi::gst_buffer_peek_memory(buffer.as_mut_ptr(), 0) };
        // SAFETY: a memory.
        if unsafe { (self.is_cuda)(memory) } == GFALSE {
            return None;
        }
        let mut info = std::mem::MaybeUninit::uninit();
        // SAFETY: a memory, and room for what is said of it.
        if unsafe { ffi::gst_memory_map(memory, info.as_mut_ptr(), ffi::GST_MAP_WRITE | MAP_CUDA) } == GFALSE {
            return None;
        }
        // SAFETY: written by a call that succeeded.
        let mut info = unsafe { info.assume_init() };
        let done = fill(info.data as u64, info.size);
        // SAFETY: mapped above.
        unsafe { ffi::gst_memory_unmap(memory, &mut info) };
        Some(done)
    }

    /// Lends memory to others (1.24).
    pub fn lender(&self) -> Option<AllocWrapped> {
        self.alloc_wrapped
    }
}

/// A CUDA context as GStreamer has it.
#[derive(Clone, Debug)]
pub(super) struct Context(gst::Object);

impl Context {
    pub fn raw(&self) -> *mut ffi::GstObject {
        self.0.to_glib_none().0
    }
    /// For tests: any object in its place.
    #[cfg(test)]
    pub fn stand_in(object: gst::Object) -> Self {
        Context(object)
    }
}

/// The CUDA context that a shared context brings.
pub(super) fn brought(shared: &gst::Context) -> Option<gst::Object> {
    shared.structure().get(CONTEXT).ok()
}

/// Memory of the GPU at `address`, laid out as `info` says, in GStreamer's hands until it drops `keep`; none when it
/// does not take it.
///
/// # Safety
/// `lend` is the library's and `context` is one of it. The memory is `info.size()` octets long, stays valid and is not
/// written while `keep` lives.
pub(super) unsafe fn lend<T: Send + 'static>(
    lend: AllocWrapped,
    context: &Context,
    info: &gst_video::VideoInfo,
    address: u64,
    keep: T,
) -> Option<gst::Memory> {
    unsafe extern "C" fn give_back<T>(keep: gpointer) {
        // SAFETY: made from a box below, and given back once.
        drop(unsafe { Box::from_raw(keep.cast::<T>()) });
    }
    let none = std::ptr::null_mut();
    let keep = Box::into_raw(Box::new(keep));
    // SAFETY: promised by the caller; no allocator and no stream means the library's own.
    let raw =
        unsafe { lend(none, context.raw(), none, info.to_glib_none().0, address, keep.cast(), Some(give_back::<T>)) };
    if raw.is_null() {
        // SAFETY: nobody else has it.
        drop(unsafe { Box::from_raw(keep) });
        return None;
    }
    // SAFETY: new, and ours.
    Some(unsafe { from_glib_full(raw) })
}

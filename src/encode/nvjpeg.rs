//! nvJPEG: JPEG pictures by the cores of a GPU, from frames in its memory. A part of CUDA's libraries for users
//! (`libnvjpeg.so`), found at run time; its interface has been the same from CUDA 11 to 13.
#![allow(unsafe_code)]

use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output};
use crate::frame::Frame;
use crate::gpu::{Event, EventKind, Function, Gpu, Stream};
use crate::kernel::cuda::image::{self, Wanted};
use crate::mem::{Device, Region};
use std::ffi::{c_int, c_uchar, c_void};
use std::sync::{Arc, OnceLock};

/// Names of it, newest first.
const NAMES: [&str; 4] = ["libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11", "libnvjpeg.so"];
/// `NVJPEG_INPUT_RGBI`: R G B, one behind the other.
const INPUT_RGBI: c_int = 5;
/// `NVJPEG_CSS_422`: two columns share their colour.
const CSS_422: c_int = 1;
/// Threads of a block, as in `kernels/frame.cu`.
const BLOCK: u32 = 128;

/// `nvjpegStatus_t`, by number.
const STATUS: [&str; 11] = [
    "success",
    "not initialised",
    "invalid parameter",
    "bad JPEG",
    "JPEG not supported",
    "allocator failure",
    "execution failed",
    "architecture mismatch",
    "internal error",
    "implementation not supported",
    "incomplete bitstream",
];

/// `nvjpegImage_t`.
#[repr(C)]
struct Image {
    channel: [*mut c_uchar; 4],
    pitch: [usize; 4],
}

type Handle = *mut c_void;
type Make = unsafe extern "C" fn(Handle, *mut Handle, *mut c_void) -> c_int;
type Destroy = unsafe extern "C" fn(Handle) -> c_int;
type SetNumber = unsafe extern "C" fn(Handle, c_int, *mut c_void) -> c_int;

/// Its functions. Never unloaded.
#[derive(Debug)]
struct Library {
    create: unsafe extern "C" fn(*mut Handle) -> c_int,
    destroy: Destroy,
    state_create: Make,
    state_destroy: Destroy,
    params_create: Make,
    params_destroy: Destroy,
    set_quality: SetNumber,
    set_sampling: SetNumber,
    encode: unsafe extern "C" fn(Handle, Handle, Handle, *const Image, c_int, c_int, c_int, *mut c_void) -> c_int,
    retrieve: unsafe extern "C" fn(Handle, Handle, *mut c_uchar, *mut usize, *mut c_void) -> c_int,
}

impl Library {
    fn find() -> std::result::Result<&'static Library, String> {
        static FOUND: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
        FOUND.get_or_init(|| Self::open(&NAMES)).as_ref().map_err(Clone::clone)
    }

    fn open(names: &[&str]) -> std::result::Result<Library, String> {
        // SAFETY: loads a library by name; its initialisers are NVIDIA's.
        let found = names.iter().find_map(|name| unsafe { libloading::Library::new(*name) }.ok());
        let Some(library) = found else {
            let name = names.first().copied().unwrap_or_default();
            return Err(format!("no nvJPEG: {name}, a part of CUDA (or pip's nvidia-nvjpeg), is not installed"));
        };
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type of the field is the one that nvjpeg.h gives the function.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                    .map_err(|_| concat!("no nvJPEG: the library has no ", $name).to_owned())?
            };
        }
        let functions = Library {
            create: function!("nvjpegCreateSimple"),
            destroy: function!("nvjpegDestroy"),
            state_create: function!("nvjpegEncoderStateCreate"),
            state_destroy: function!("nvjpegEncoderStateDestroy"),
            params_create: function!("nvjpegEncoderParamsCreate"),
            params_destroy: function!("nvjpegEncoderParamsDestroy"),
            set_quality: function!("nvjpegEncoderParamsSetQuality"),
            set_sampling: function!("nvjpegEncoderParamsSetSamplingFactors"),
            encode: function!("nvjpegEncodeImage"),
            retrieve: function!("nvjpegEncodeRetrieveBitstream"),
        };
        // Stays for the life of the process, as its functions do.
        std::mem::forget(library);
        Ok(functions)
    }
}

fn check(call: &str, status: c_int) -> std::result::Result<(), String> {
    match usize::try_from(status).ok().and_then(|n| STATUS.get(n)) {
        Some(&"success") => Ok(()),
        Some(words) => Err(format!("nvJPEG: {call} answered {words}")),
        None => Err(format!("nvJPEG: {call} answered {status}")),
    }
}

/// Can this GPU make JPEG pictures? Starts the library there.
///
/// # Errors
/// It cannot; in a few words.
pub fn probe(gpu: &Arc<Gpu>) -> std::result::Result<(), String> {
    let library = Library::find()?;
    let stream = Stream::new(gpu, false).map_err(|e| e.to_string())?;
    Handles::new(library, stream.raw().cast(), 85).map(|_| ())
}

/// What the library made; given back in the opposite order.
#[derive(Debug)]
struct Handles {
    library: &'static Library,
    handle: Handle,
    state: Handle,
    params: Handle,
}

// SAFETY: the library may be called from any thread, one at a time for its handles.
unsafe impl Send for Handles {}

impl Handles {
    /// The GPU's context is bound.
    fn new(library: &'static Library, stream: *mut c_void, quality: u8) -> std::result::Result<Handles, String> {
        let none = std::ptr::null_mut();
        let mut all = Handles { library, handle: none, state: none, params: none };
        // SAFETY: writes a handle; a context is bound.
        check("create", unsafe { (library.create)(&mut all.handle) })?;
        // SAFETY: a handle of the library and a stream of the context.
        check("create state", unsafe { (library.state_create)(all.handle, &mut all.state, stream) })?;
        // SAFETY: likewise.
        check("create parameters", unsafe { (library.params_create)(all.handle, &mut all.params, stream) })?;
        // SAFETY: likewise.
        check("set quality", unsafe { (library.set_quality)(all.params, quality.into(), stream) })?;
        // SAFETY: likewise.
        check("set sampling", unsafe { (library.set_sampling)(all.params, CSS_422, stream) })?;
        Ok(all)
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        for (handle, destroy) in [
            (self.params, self.library.params_destroy),
            (self.state, self.library.state_destroy),
            (self.handle, self.library.destroy),
        ] {
            if !handle.is_null() {
                // SAFETY: made by the library, and given back once.
                let _ = unsafe { destroy(handle) };
            }
        }
    }
}

/// Makes JPEG pictures of RGBA frames in the GPU's memory: 4:2:2, full range, BT.601, as JPEG files are.
#[derive(Debug)]
pub struct NvJpeg {
    handles: Handles,
    drop_alpha: Function,
    /// R G B of the picture.
    rgb: Region<Device>,
    done: Event,
    // Last: what is above works in it.
    stream: Stream,
    size: (u32, u32),
    stride: u32,
    offset: u64,
}

impl NvJpeg {
    /// For frames of `layout`, which is of RGBA. `quality`: 1 to 100.
    ///
    /// # Errors
    /// Another layout; no library; no memory.
    pub fn new(gpu: &Arc<Gpu>, layout: &Layout, quality: u8) -> Result<NvJpeg> {
        let unavailable = |why: String| Error::new(Kind::Unavailable, why).cure("rung=jpeg encodes on the CPU");
        let plane = match (layout.output, layout.planes.first()) {
            (Output::Rgba, Some(plane)) => plane,
            _ => return Err(Error::new(Kind::Internal, "nvJPEG is given RGBA")),
        };
        let size = (layout.wire.width, layout.wire.height);
        let library = Library::find().map_err(unavailable)?;
        let stream = Stream::new(gpu, false)?;
        let handles = Handles::new(library, stream.raw().cast(), quality).map_err(unavailable)?;
        let (drop_alpha, _) = image::load(gpu, &Wanted::of_frame("drop_alpha"))?;
        let rgb = Region::device(gpu, pitch(size.0) as usize * size.1 as usize)?;
        let done = Event::new(gpu, EventKind::Sleep)?;
        let stride = u32::try_from(plane.stride).unwrap_or(u32::MAX);
        Ok(NvJpeg { handles, drop_alpha, rgb, done, stream, size, stride, offset: plane.offset as u64 })
    }

    /// The GPU is of no more use.
    pub fn is_lost(&self) -> bool {
        self.stream.gpu().is_lost()
    }

    /// Encodes a frame; returns a whole JPEG file.
    ///
    /// # Errors
    /// The frame is of another layout; the GPU is lost, or the library fails.
    pub fn encode_frame(&mut self, frame: &Frame<Device>) -> Result<Vec<u8>> {
        let layout = frame.layout();
        let size = (layout.wire.width, layout.wire.height);
        if layout.output != Output::Rgba || size != self.size || frame.is_window() {
            return Err(Error::new(Kind::Internal, "a frame of another layout for nvJPEG"));
        }
        if let Some(fence) = frame.fence() {
            fence.queue(&self.stream)?;
        }
        // SAFETY: a frame of the layout, finished for what comes in the stream, and held until the work is done.
        unsafe { self.encode(frame.start() as u64) }
    }

    /// The same of the frame at address `frame`.
    ///
    /// # Safety
    /// It is one of the layout, at a multiple of 64, which nobody writes meanwhile but work that the stream waits for.
    unsafe fn encode(&mut self, frame: u64) -> Result<Vec<u8>> {
        let failed =
            |why: String| Error::new(Kind::Output, why).cure("see dmesg and nvidia-smi; rung=jpeg encodes on the CPU");
        let (width, height) = self.size;
        let (mut from, mut to) = (frame + self.offset, self.rgb.address());
        let (mut stride, mut pitch, mut groups) = (self.stride, pitch(width), width.div_ceil(4));
        let blocks = [groups.div_ceil(BLOCK), height, 1];
        let mut parameters: [*mut c_void; 5] = [
            (&raw mut from).cast(),
            (&raw mut to).cast(),
            (&raw mut stride).cast(),
            (&raw mut pitch).cast(),
            (&raw mut groups).cast(),
        ];
        // SAFETY: the parameters of frame.cu; a row of the frame has room for whole groups of four pixels, as its stride is a
        // multiple of 64, and so has one of the region.
        unsafe { self.stream.launch(&self.drop_alpha, blocks, BLOCK, &mut parameters) }?;
        let Handles { library, handle, state, params } = self.handles;
        let none = std::ptr::null_mut();
        let image = Image { channel: [to as *mut c_uchar, none, none, none], pitch: [pitch as usize, 0, 0, 0] };
        let (raw, size) = (self.stream.raw().cast(), [width, height].map(|n| c_int::try_from(n).unwrap_or(c_int::MAX)));
        // SAFETY: handles of the library; the picture has `height` rows of `pitch` octets in the GPU's memory.
        let status = unsafe { (library.encode)(handle, state, params, &image, INPUT_RGBI, size[0], size[1], raw) };
        check("encode", status).map_err(failed)?;
        let mut len = 0usize;
        // SAFETY: without a place to write to it says how much there is.
        let status = unsafe { (library.retrieve)(handle, state, none.cast(), &mut len, raw) };
        check("length", status).map_err(failed)?;
        self.wait()?;
        let mut octets = vec![0; len];
        // SAFETY: room for `len` octets, which stays until the stream is done.
        let status = unsafe { (library.retrieve)(handle, state, octets.as_mut_ptr(), &mut len, raw) };
        let read = check("retrieve", status).map_err(failed);
        self.wait()?;
        read?;
        octets.truncate(len);
        Ok(octets)
    }

    fn wait(&self) -> Result<()> {
        self.stream.record(&self.done)?;
        Ok(self.done.wait()?)
    }
}

/// Octets of a row of R G B: whole groups of four pixels.
const fn pitch(width: u32) -> u32 {
    width.div_ceil(4) * 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let why = Library::open(&["libno-such-jpeg.so.13"]).unwrap_err();
        assert_eq!(why, "no nvJPEG: libno-such-jpeg.so.13, a part of CUDA (or pip's nvidia-nvjpeg), is not installed");
        assert_eq!(Library::open(&["libc.so.6"]).unwrap_err(), "no nvJPEG: the library has no nvjpegCreateSimple");
        assert_eq!(check("encode", 7).unwrap_err(), "nvJPEG: encode answered architecture mismatch");
        assert_eq!(check("encode", -1).unwrap_err(), "nvJPEG: encode answered -1");
        assert!(check("encode", 0).is_ok());
    }

    #[test]
    fn rows_are_whole_groups() {
        assert_eq!([1, 4, 5, 1920].map(pitch), [12, 12, 24, 5760]);
        assert_eq!((size_of::<Image>(), std::mem::offset_of!(Image, pitch)), (64, 32));
    }
}

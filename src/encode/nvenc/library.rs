//! The library: found at run time, its calls by their names, its answers in words.
#![allow(unsafe_code)]

use super::abi::*;
use super::settings::{Settings, Wanted, has_fields};
use crate::gpu::Gpu;
use gdmedia_sdp::Video;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::sync::{Arc, OnceLock};

const NAME: &str = "libnvidia-encode.so.1";

/// Structures of numbers and addresses that are all valid when zero.
///
/// # Safety
/// Zero octets are a value of the type.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($of:ty),*) => {
        $(
            // SAFETY: numbers, addresses, functions that may be missing, and arrays of them.
            unsafe impl Plain for $of {}
        )*
    };
}

plain!(
    NV_ENC_CAPS_PARAM,
    NV_ENC_CREATE_INPUT_BUFFER,
    NV_ENC_CREATE_BITSTREAM_BUFFER,
    NV_ENC_CONFIG,
    NV_ENC_INITIALIZE_PARAMS,
    NV_ENC_PRESET_CONFIG,
    NV_ENC_PIC_PARAMS,
    NV_ENC_LOCK_BITSTREAM,
    NV_ENC_LOCK_INPUT_BUFFER,
    NV_ENC_MAP_INPUT_RESOURCE,
    NV_ENC_REGISTER_RESOURCE,
    NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS,
    NV_ENCODE_API_FUNCTION_LIST
);

/// A structure with nothing said, as the library wants what is reserved.
pub fn zeroed<T: Plain>() -> T {
    // SAFETY: promised by the trait.
    unsafe { std::mem::zeroed() }
}

impl NV_ENC_CODEC_CONFIG {
    /// As the part for H.264.
    pub fn h264(&self) -> NV_ENC_CONFIG_H264 {
        // SAFETY: every bit pattern is one of numbers and addresses.
        unsafe { self.h264Config }
    }
    /// As the part for HEVC.
    pub fn hevc(&self) -> NV_ENC_CONFIG_HEVC {
        // SAFETY: as above.
        unsafe { self.hevcConfig }
    }
    /// As the part for AV1.
    pub fn av1(&self) -> NV_ENC_CONFIG_AV1 {
        // SAFETY: as above.
        unsafe { self.av1Config }
    }
}

/// A call that was not answered with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What was asked for, in two words.
    pub call: &'static str,
    /// The answer.
    pub status: Status,
    /// More, where the library says it.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = usize::try_from(self.status.0).ok().and_then(|n| STATUS.get(n));
        match words {
            Some(words) => write!(f, "{} answered {words}", self.call)?,
            None => write!(f, "{} answered {}", self.call, self.status.0)?,
        }
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

impl std::error::Error for Fault {}

type Answer<T> = Result<T, Fault>;

/// The library's functions. Never unloaded.
#[derive(Clone, Copy)]
pub struct Library {
    list: NV_ENCODE_API_FUNCTION_LIST,
}

// SAFETY: addresses of functions, which may be called from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Library")
    }
}

impl Library {
    /// Finds it, once.
    ///
    /// # Errors
    /// It is not installed, or older than version 12.1 of its interface; in a few words.
    pub fn find() -> Result<&'static Library, String> {
        static FOUND: OnceLock<Result<Library, String>> = OnceLock::new();
        FOUND.get_or_init(|| Self::open(NAME)).as_ref().map_err(Clone::clone)
    }

    pub(super) fn open(name: &str) -> Result<Library, String> {
        // SAFETY: loads a library by name; its initialisers are the driver's.
        let library = unsafe { libloading::Library::new(name) };
        let library = library.map_err(|_| format!("{name}, a part of NVIDIA's driver, is not installed"))?;
        let missing = |what: &str| format!("{name} has no {what}");
        // SAFETY: the type that the header gives it.
        let newest =
            unsafe { library.get::<unsafe extern "C" fn(*mut u32) -> Status>(b"NvEncodeAPIGetMaxSupportedVersion\0") };
        let newest = newest.map_err(|_| missing("NvEncodeAPIGetMaxSupportedVersion"))?;
        // SAFETY: likewise.
        let create = unsafe {
            library
                .get::<unsafe extern "C" fn(*mut NV_ENCODE_API_FUNCTION_LIST) -> Status>(b"NvEncodeAPICreateInstance\0")
        };
        let create = create.map_err(|_| missing("NvEncodeAPICreateInstance"))?;
        let mut version = 0;
        // SAFETY: writes a number.
        let status = unsafe { newest(&mut version) };
        answer("version", status).map_err(|e| e.to_string())?;
        new_enough(version)?;
        let mut list: NV_ENCODE_API_FUNCTION_LIST = zeroed();
        list.version = NV_ENCODE_API_FUNCTION_LIST_VER;
        // SAFETY: fills the list, which has the size of its version.
        let status = unsafe { create(&mut list) };
        answer("create instance", status).map_err(|e| e.to_string())?;
        // Stays for the life of the process, as its functions do.
        std::mem::forget(library);
        Ok(Library { list })
    }

    /// One with these functions.
    #[cfg(test)]
    pub(super) fn of(list: NV_ENCODE_API_FUNCTION_LIST) -> Library {
        Library { list }
    }

    /// Does this GPU encode what is wanted? Opens a session and asks.
    ///
    /// # Errors
    /// It does not; in a few words.
    pub fn probe(&self, gpu: &Arc<Gpu>, video: &Video, wanted: &Wanted) -> Result<Fits, String> {
        gpu.bind().map_err(|e| e.to_string())?;
        let mut fits = Session::open(*self, gpu.context().cast()).map_err(|e| e.to_string())?.fits(wanted)?;
        fits.fields &= has_fields(video);
        Ok(fits)
    }
}

/// `version`: major version times 16 and minor version.
fn new_enough(version: u32) -> Result<(), String> {
    if version >= 12 << 4 | 1 {
        return Ok(());
    }
    let (major, minor) = (version >> 4, version & 15);
    Err(format!("the driver has version {major}.{minor} of its interface, needed is 12.1 (driver 530)"))
}

fn answer(call: &'static str, status: Status) -> Answer<()> {
    if status == NV_ENC_SUCCESS { Ok(()) } else { Err(Fault { call, status, detail: String::new() }) }
}

/// What a GPU can do for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fits {
    /// It encodes 10 bits.
    pub ten_bit: bool,
    /// It encodes fields, and there are some.
    pub fields: bool,
}

/// Something of the library's, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(*mut c_void);

// SAFETY: a name for the library, which may be called from any thread; nobody looks behind it.
unsafe impl Send for Handle {}

/// An encoder of a GPU that somebody has opened.
pub struct Session {
    list: NV_ENCODE_API_FUNCTION_LIST,
    encoder: *mut c_void,
}

// SAFETY: the library may be called from any thread, one at a time for a session.
unsafe impl Send for Session {}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?})", self.encoder)
    }
}

/// A call of a session: its name, its function, its arguments behind the session.
macro_rules! call {
    ($session:expr, $name:literal, $function:ident $(, $argument:expr)*) => {
        match $session.list.$function {
            // SAFETY: a function of the library, called as its header says, with the session that it opened and structures
            // of the versions that they name.
            Some(function) => $session.answer($name, unsafe { function($session.encoder $(, $argument)*) }),
            None => Err(Fault { call: $name, status: NV_ENC_ERR_INVALID_CALL, detail: "not in this driver".into() }),
        }
    };
}

impl Session {
    /// Opens one; `device` is the CUDA context.
    ///
    /// # Errors
    /// What the library answers; a GPU without NVENC answers "unsupported device".
    pub(super) fn open(library: Library, device: *mut c_void) -> Answer<Session> {
        let mut session = Session { list: library.list, encoder: std::ptr::null_mut() };
        let mut parameters: NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS = zeroed();
        parameters.version = NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS_VER;
        parameters.deviceType = NV_ENC_DEVICE_TYPE_CUDA;
        parameters.device = device;
        parameters.apiVersion = API_VERSION;
        let Some(open) = library.list.nvEncOpenEncodeSessionEx else {
            return Err(Fault { call: "open session", status: NV_ENC_ERR_INVALID_CALL, detail: String::new() });
        };
        // SAFETY: as the header says; the session is ended in `drop` also where it was not opened, as the header wants it.
        let status = unsafe { open(&mut parameters, &mut session.encoder) };
        answer("open session", status)?;
        Ok(session)
    }

    fn answer(&self, call: &'static str, status: Status) -> Answer<()> {
        let Err(mut fault) = answer(call, status) else { return Ok(()) };
        if let Some(last) = self.list.nvEncGetLastErrorString.filter(|_| status != NV_ENC_ERR_NEED_MORE_INPUT) {
            // SAFETY: a session of the library.
            let text = unsafe { last(self.encoder) };
            if !text.is_null() {
                // SAFETY: a text of the library, which stays until its next call.
                fault.detail = unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned();
            }
        }
        Err(fault)
    }

    /// Codecs that the GPU encodes.
    fn codecs(&self) -> Answer<Vec<GUID>> {
        let mut count = 0;
        call!(self, "count codecs", nvEncGetEncodeGUIDCount, &mut count)?;
        let mut guids = vec![GUID { Data1: 0, Data2: 0, Data3: 0, Data4: [0; 8] }; count as usize];
        let mut filled = 0;
        call!(self, "list codecs", nvEncGetEncodeGUIDs, guids.as_mut_ptr(), count, &mut filled)?;
        guids.truncate(filled as usize);
        Ok(guids)
    }
    fn capability(&self, codec: GUID, which: u32) -> Answer<i32> {
        let mut parameters: NV_ENC_CAPS_PARAM = zeroed();
        (parameters.version, parameters.capsToQuery) = (NV_ENC_CAPS_PARAM_VER, which);
        let mut value: c_int = 0;
        call!(self, "capability", nvEncGetEncodeCaps, codec, &mut parameters, &mut value)?;
        Ok(value)
    }

    /// Does the GPU encode this?
    ///
    /// # Errors
    /// It does not; in a few words.
    pub(super) fn fits(&self, wanted: &Wanted) -> Result<Fits, String> {
        let text = |fault: Fault| fault.to_string();
        let guid = wanted.guid();
        if !self.codecs().map_err(text)?.contains(&guid) {
            return Err(format!("it does not encode {}", wanted.codec));
        }
        let most = (
            self.capability(guid, NV_ENC_CAPS_WIDTH_MAX).map_err(text)?,
            self.capability(guid, NV_ENC_CAPS_HEIGHT_MAX).map_err(text)?,
        );
        let beyond = |size: u32, most: i32| u32::try_from(most).map_or(true, |most| size > most);
        if beyond(wanted.width, most.0) || beyond(wanted.height, most.1) {
            return Err(format!("it encodes {} up to {}x{}", wanted.codec, most.0, most.1));
        }
        Ok(Fits {
            ten_bit: self.capability(guid, NV_ENC_CAPS_SUPPORT_10BIT_ENCODE).map_err(text)? > 0,
            fields: self.capability(guid, NV_ENC_CAPS_SUPPORT_FIELD_ENCODING).map_err(text)? > 0,
        })
    }

    /// Makes it an encoder of these settings.
    ///
    /// # Errors
    /// What the library answers.
    pub(super) fn initialize(&self, settings: &Settings) -> Answer<()> {
        let mut preset: NV_ENC_PRESET_CONFIG = zeroed();
        preset.version = NV_ENC_PRESET_CONFIG_VER;
        preset.presetCfg.version = NV_ENC_CONFIG_VER;
        let (codec, named, tuning) = (settings.wanted.guid(), settings.preset_guid(), settings.tuning());
        call!(self, "preset", nvEncGetEncodePresetConfigEx, codec, named, tuning, &mut preset)?;
        settings.apply(&mut preset.presetCfg);
        let mut parameters = settings.parameters(&mut preset.presetCfg);
        call!(self, "initialise encoder", nvEncInitializeEncoder, &mut parameters)
    }

    pub(super) fn create_output(&self) -> Answer<Handle> {
        let mut parameters: NV_ENC_CREATE_BITSTREAM_BUFFER = zeroed();
        parameters.version = NV_ENC_CREATE_BITSTREAM_BUFFER_VER;
        call!(self, "create bitstream buffer", nvEncCreateBitstreamBuffer, &mut parameters)?;
        Ok(Handle(parameters.bitstreamBuffer))
    }
    pub(super) fn destroy_output(&self, output: Handle) {
        let _ = call!(self, "destroy bitstream buffer", nvEncDestroyBitstreamBuffer, output.0);
    }
    pub(super) fn create_input(&self, settings: &Settings) -> Answer<Handle> {
        let mut parameters: NV_ENC_CREATE_INPUT_BUFFER = zeroed();
        parameters.version = NV_ENC_CREATE_INPUT_BUFFER_VER;
        (parameters.width, parameters.height) = (settings.wanted.width, settings.wanted.height);
        parameters.bufferFmt = settings.format();
        call!(self, "create input buffer", nvEncCreateInputBuffer, &mut parameters)?;
        Ok(Handle(parameters.inputBuffer))
    }
    pub(super) fn destroy_input(&self, input: Handle) {
        let _ = call!(self, "destroy input buffer", nvEncDestroyInputBuffer, input.0);
    }

    /// Writes rows into an input buffer: `row` gives the octets of each, of the luminance and then of the colour.
    ///
    /// # Errors
    /// What the library answers.
    pub(super) fn write_input<'a>(
        &self,
        input: Handle,
        settings: &Settings,
        row: impl Fn(usize, usize) -> &'a [u8],
    ) -> Answer<()> {
        let mut parameters: NV_ENC_LOCK_INPUT_BUFFER = zeroed();
        (parameters.version, parameters.inputBuffer) = (NV_ENC_LOCK_INPUT_BUFFER_VER, input.0);
        call!(self, "lock input buffer", nvEncLockInputBuffer, &mut parameters)?;
        let (pitch, height) = (parameters.pitch as usize, settings.wanted.height as usize);
        let octets = settings.wanted.width as usize * if settings.wanted.bits == 10 { 2 } else { 1 };
        let to = parameters.bufferDataPtr.cast::<u8>();
        if !to.is_null() && octets <= pitch {
            for (plane, rows, first) in [(0, height, 0), (1, height / 2, height)] {
                for n in 0..rows {
                    let from = row(plane, n);
                    let count = from.len().min(octets);
                    // SAFETY: a locked buffer of this size has `height` rows of luminance and half as many of colour
                    // behind them, all `pitch` octets apart; no row is longer.
                    unsafe { to.add((first + n) * pitch).copy_from_nonoverlapping(from.as_ptr(), count) };
                }
            }
        }
        call!(self, "unlock input buffer", nvEncUnlockInputBuffer, input.0)
    }

    /// Makes memory of the GPU known; it stays as it is until [`Session::unregister`].
    pub(super) fn register(&self, settings: &Settings, address: u64, pitch: u32) -> Answer<Handle> {
        let mut parameters: NV_ENC_REGISTER_RESOURCE = zeroed();
        parameters.version = NV_ENC_REGISTER_RESOURCE_VER;
        parameters.resourceType = NV_ENC_INPUT_RESOURCE_TYPE_CUDADEVICEPTR;
        (parameters.width, parameters.height) = (settings.wanted.width, settings.wanted.height);
        parameters.pitch = pitch;
        parameters.resourceToRegister = address as *mut c_void;
        parameters.bufferFormat = settings.format();
        parameters.bufferUsage = NV_ENC_INPUT_IMAGE;
        call!(self, "register resource", nvEncRegisterResource, &mut parameters)?;
        Ok(Handle(parameters.registeredResource))
    }
    pub(super) fn unregister(&self, resource: Handle) {
        let _ = call!(self, "unregister resource", nvEncUnregisterResource, resource.0);
    }
    pub(super) fn map(&self, resource: Handle) -> Answer<Handle> {
        let mut parameters: NV_ENC_MAP_INPUT_RESOURCE = zeroed();
        (parameters.version, parameters.registeredResource) = (NV_ENC_MAP_INPUT_RESOURCE_VER, resource.0);
        call!(self, "map resource", nvEncMapInputResource, &mut parameters)?;
        Ok(Handle(parameters.mappedResource))
    }
    pub(super) fn unmap(&self, mapped: Handle) -> Answer<()> {
        call!(self, "unmap resource", nvEncUnmapInputResource, mapped.0)
    }

    /// Encodes one picture; false when its octets come with a later one.
    pub(super) fn encode(
        &self,
        settings: &Settings,
        number: u64,
        input: Handle,
        pitch: u32,
        output: Handle,
    ) -> Answer<bool> {
        let mut parameters: NV_ENC_PIC_PARAMS = zeroed();
        parameters.version = NV_ENC_PIC_PARAMS_VER;
        (parameters.inputWidth, parameters.inputHeight) = (settings.wanted.width, settings.wanted.height);
        parameters.inputPitch = pitch;
        parameters.encodePicFlags = if number == 0 { NV_ENC_PIC_FLAG_FORCEIDR } else { 0 };
        parameters.frameIdx = number as u32;
        parameters.inputTimeStamp = number;
        parameters.inputBuffer = input.0;
        parameters.outputBitstream = output.0;
        parameters.bufferFmt = settings.format();
        parameters.pictureStruct = settings.structure();
        self.goes_on(call!(self, "encode picture", nvEncEncodePicture, &mut parameters))
    }
    /// No more pictures: what is left comes out.
    pub(super) fn end(&self) -> Answer<()> {
        let mut parameters: NV_ENC_PIC_PARAMS = zeroed();
        parameters.version = NV_ENC_PIC_PARAMS_VER;
        parameters.encodePicFlags = NV_ENC_PIC_FLAG_EOS;
        self.goes_on(call!(self, "end of stream", nvEncEncodePicture, &mut parameters)).map(|_| ())
    }
    fn goes_on(&self, answer: Answer<()>) -> Answer<bool> {
        match answer {
            Ok(()) => Ok(true),
            Err(fault) if fault.status == NV_ENC_ERR_NEED_MORE_INPUT => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// Waits for an output and copies it: its octets, whether they are a key frame, and the picture's number.
    pub(super) fn read_output(&self, output: Handle) -> Answer<(Vec<u8>, bool, u64)> {
        let mut parameters: NV_ENC_LOCK_BITSTREAM = zeroed();
        (parameters.version, parameters.outputBitstream) = (NV_ENC_LOCK_BITSTREAM_VER, output.0);
        call!(self, "lock bitstream", nvEncLockBitstream, &mut parameters)?;
        let (from, len) = (parameters.bitstreamBufferPtr.cast::<u8>(), parameters.bitstreamSizeInBytes as usize);
        let octets = if from.is_null() || len == 0 {
            Vec::new()
        } else {
            // SAFETY: a locked bitstream has so many octets there, until it is unlocked below.
            unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
        };
        let key = parameters.pictureType == NV_ENC_PIC_TYPE_IDR;
        call!(self, "unlock bitstream", nvEncUnlockBitstream, output.0)?;
        Ok((octets, key, parameters.outputTimeStamp))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.encoder.is_null() {
            let _ = call!(self, "destroy encoder", nvEncDestroyEncoder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_old_is_said() {
        let why = Library::open("libno-such-encoder.so.1").unwrap_err();
        assert_eq!(why, "libno-such-encoder.so.1, a part of NVIDIA's driver, is not installed");
        let why = Library::open("libc.so.6").unwrap_err();
        assert_eq!(why, "libc.so.6 has no NvEncodeAPIGetMaxSupportedVersion");
        let why = new_enough(0xb1).unwrap_err();
        assert_eq!(why, "the driver has version 11.1 of its interface, needed is 12.1 (driver 530)");
        assert!(new_enough(0xc0).is_err() && new_enough(0xc1).is_ok() && new_enough(0xd0).is_ok());
    }

    #[test]
    fn versions_of_structures_as_the_header_has_them() {
        // NVENCAPI_STRUCT_VERSION of 12.1: major | minor << 24 | version << 16 | 7 << 28.
        assert_eq!(API_VERSION, 0x0100_000c);
        assert_eq!(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS_VER, 0x7101_000c);
        assert_eq!(NV_ENC_CONFIG_VER, 0xf108_000c);
        assert_eq!(NV_ENC_MAP_INPUT_RESOURCE_VER, 0x7104_000c);
        assert_eq!(NV_ENC_LOCK_BITSTREAM_VER, 0xf101_000c);
        assert_eq!(NV_ENCODE_API_FUNCTION_LIST_VER, 0x7102_000c);
    }

    #[test]
    fn answers_in_words() {
        let fault = |status, detail: &str| Fault { call: "open session", status, detail: detail.into() };
        assert_eq!(fault(NV_ENC_ERR_UNSUPPORTED_DEVICE, "").to_string(), "open session answered unsupported device");
        assert_eq!(fault(Status(99), "who knows").to_string(), "open session answered 99 (who knows)");
    }
}

//! In place of the library: checks versions and order of calls, and gives back a canned bitstream. The CUDA context that
//! a session is opened with is the address of a [`Script`].
#![allow(unsafe_code)]

use super::abi::*;
use super::library::{Library, zeroed};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

/// What a stand-in does, and what was done to it.
#[derive(Debug, Default)]
pub struct Script {
    /// The answer to opening a session.
    pub open: u32,
    /// Codecs it has.
    pub codecs: Vec<GUID>,
    /// Capabilities, by number; 0 where none is said.
    pub capabilities: Vec<(u32, i32)>,
    /// Compressed pictures, and whether they are key frames; each comes out again and again in turn.
    pub pictures: Vec<(Vec<u8>, bool)>,
    /// Pictures that stay in the encoder before the first comes out.
    pub delay: usize,
    /// Fails at the picture of this number.
    pub fails_at: Option<u64>,
    /// What was called, with what matters of its arguments.
    pub log: Mutex<Vec<String>>,
}

impl Script {
    fn say(&self, text: impl Into<String>) {
        self.log.lock().unwrap().push(text.into());
    }
    /// The calls so far.
    pub fn calls(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
    /// What a session is opened with.
    pub fn device(self: &Arc<Self>) -> *mut c_void {
        Arc::as_ptr(self).cast_mut().cast()
    }
}

/// A session of the stand-in.
struct State {
    script: *const Script,
    initialised: Option<NV_ENC_CONFIG>,
    outputs: Vec<(usize, Option<u64>)>,
    inputs: Vec<(usize, Vec<u8>, bool)>,
    registered: Vec<(usize, u64)>,
    mapped: Vec<usize>,
    /// Pictures that wait in the encoder: number and output.
    waiting: Vec<(u64, usize)>,
    next: usize,
    last_error: Vec<u8>,
}

const BAD: Status = NV_ENC_ERR_INVALID_PARAM;

/// # Safety
/// `encoder` is a session of the stand-in.
unsafe fn state<'a>(encoder: *mut c_void) -> (&'a mut State, &'a Script) {
    // SAFETY: promised by the caller; the script outlives the test's sessions.
    unsafe {
        let state = &mut *encoder.cast::<State>();
        let script = &*state.script;
        (state, script)
    }
}

fn refuse(state: &mut State, why: &str) -> Status {
    state.last_error = format!("{why}\0").into_bytes();
    BAD
}

impl State {
    fn handle(&mut self) -> usize {
        self.next += 0x10;
        self.next
    }
}

unsafe extern "C" fn open(p: *mut NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS, out: *mut *mut c_void) -> Status {
    // SAFETY: structures of a test.
    unsafe {
        let p = &*p;
        if p.version != NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS_VER || p.apiVersion != API_VERSION || p.deviceType != 1 {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        let script = &*p.device.cast::<Script>();
        script.say("open");
        if script.open != 0 {
            return Status(script.open);
        }
        *out = Box::into_raw(Box::new(State {
            script,
            initialised: None,
            outputs: vec![],
            inputs: vec![],
            registered: vec![],
            mapped: vec![],
            waiting: vec![],
            next: 0x1000,
            last_error: vec![0],
        }))
        .cast();
        NV_ENC_SUCCESS
    }
}

unsafe extern "C" fn guid_count(encoder: *mut c_void, out: *mut u32) -> Status {
    // SAFETY: a session and a number.
    unsafe { *out = state(encoder).1.codecs.len() as u32 };
    NV_ENC_SUCCESS
}

unsafe extern "C" fn guids(encoder: *mut c_void, to: *mut GUID, room: u32, out: *mut u32) -> Status {
    // SAFETY: a session, and room for so many names.
    unsafe {
        let codecs = &state(encoder).1.codecs;
        if (room as usize) < codecs.len() {
            return BAD;
        }
        to.copy_from_nonoverlapping(codecs.as_ptr(), codecs.len());
        *out = codecs.len() as u32;
    }
    NV_ENC_SUCCESS
}

unsafe extern "C" fn capability(encoder: *mut c_void, _: GUID, p: *mut NV_ENC_CAPS_PARAM, out: *mut c_int) -> Status {
    // SAFETY: a session and structures of a test.
    unsafe {
        if (*p).version != NV_ENC_CAPS_PARAM_VER {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        let which = (*p).capsToQuery;
        *out = state(encoder).1.capabilities.iter().find(|(n, _)| *n == which).map_or(0, |(_, value)| *value);
    }
    NV_ENC_SUCCESS
}

unsafe extern "C" fn preset(
    encoder: *mut c_void,
    _: GUID,
    _: GUID,
    tuning: u32,
    p: *mut NV_ENC_PRESET_CONFIG,
) -> Status {
    // SAFETY: a session and structures of a test.
    unsafe {
        if (*p).version != NV_ENC_PRESET_CONFIG_VER || (*p).presetCfg.version != NV_ENC_CONFIG_VER {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        // As presets do: pictures that refer to later ones.
        (*p).presetCfg.frameIntervalP = 3;
        state(encoder).1.say(format!("preset {tuning}"));
    }
    NV_ENC_SUCCESS
}

unsafe extern "C" fn initialise(encoder: *mut c_void, p: *mut NV_ENC_INITIALIZE_PARAMS) -> Status {
    // SAFETY: a session and structures of a test.
    unsafe {
        let (state, script) = state(encoder);
        let p = &*p;
        if p.version != NV_ENC_INITIALIZE_PARAMS_VER {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        let config = &*p.encodeConfig;
        if config.version != NV_ENC_CONFIG_VER || config.rcParams.version != NV_ENC_RC_PARAMS_VER {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        if p.enablePTD != 1 || p.enableEncodeAsync != 0 || config.frameIntervalP != 1 || state.initialised.is_some() {
            return refuse(state, "pictures out of order");
        }
        script.say(format!(
            "initialise {}x{} {}:{} {}/{} gop {} rate {}",
            p.encodeWidth,
            p.encodeHeight,
            p.darWidth,
            p.darHeight,
            p.frameRateNum,
            p.frameRateDen,
            config.gopLength,
            config.rcParams.averageBitRate
        ));
        state.initialised = Some(*config);
    }
    NV_ENC_SUCCESS
}

unsafe extern "C" fn create_output(encoder: *mut c_void, p: *mut NV_ENC_CREATE_BITSTREAM_BUFFER) -> Status {
    // SAFETY: a session and structures of a test.
    unsafe {
        let (state, _) = state(encoder);
        if (*p).version != NV_ENC_CREATE_BITSTREAM_BUFFER_VER {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        if state.initialised.is_none() {
            return refuse(state, "no encoder yet");
        }
        let handle = state.handle();
        state.outputs.push((handle, None));
        (*p).bitstreamBuffer = handle as *mut c_void;
    }
    NV_ENC_SUCCESS
}

unsafe extern "C" fn destroy_output(encoder: *mut c_void, handle: *mut c_void) -> Status {
    // SAFETY: a session.
    let (state, _) = unsafe { state(encoder) };
    let before = state.outputs.len();
    state.outputs.retain(|(h, _)| *h != handle as usize);
    if state.outputs.len() + 1 == before { NV_ENC_SUCCESS } else { refuse(state, "no such output") }
}

unsafe extern "C" fn create_input(encoder: *mut c_void, p: *mut NV_ENC_CREATE_INPUT_BUFFER) -> Status {
    // SAFETY: a session and structures of a test.
    unsafe {
        let (state, script) = state(encoder);
        if (*p).version != NV_ENC_CREATE_INPUT_BUFFER_VER {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        let pitch = pitch((*p).width, (*p).bufferFmt);
        let handle = state.handle();
        state.inputs.push((handle, vec![0xEE; pitch * (*p).height as usize * 3 / 2], false));
        (*p).inputBuffer = handle as *mut c_void;
        script.say(format!("input {}x{} of {:#x}", (*p).width, (*p).height, (*p).bufferFmt));
    }
    NV_ENC_SUCCESS
}

/// Rows of buffers are longer than the picture's.
fn pitch(width: u32, format: u32) -> usize {
    let octets = if format == NV_ENC_BUFFER_FORMAT_YUV420_10BIT { 2 } else { 1 };
    (width as usize * octets).next_multiple_of(32) + 32
}

unsafe extern "C" fn destroy_input(encoder: *mut c_void, handle: *mut c_void) -> Status {
    // SAFETY: a session.
    let (state, _) = unsafe { state(encoder) };
    let before = state.inputs.len();
    state.inputs.retain(|(h, ..)| *h != handle as usize);
    if state.inputs.len() + 1 == before { NV_ENC_SUCCESS } else { refuse(state, "no such input") }
}

unsafe extern "C" fn lock_input(encoder: *mut c_void, p: *mut NV_ENC_LOCK_INPUT_BUFFER) -> Status {
    // SAFETY: a session and structures of a test.
    unsafe {
        let (state, _) = state(encoder);
        if (*p).version != NV_ENC_LOCK_INPUT_BUFFER_VER {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        let wanted = (*p).inputBuffer as usize;
        let Some((_, octets, locked)) = state.inputs.iter_mut().find(|(h, ..)| *h == wanted) else {
            return refuse(state, "no such input");
        };
        *locked = true;
        (*p).bufferDataPtr = octets.as_mut_ptr().cast();
        (*p).pitch = 96;
    }
    NV_ENC_SUCCESS
}

unsafe extern "C" fn unlock_input(encoder: *mut c_void, handle: *mut c_void) -> Status {
    // SAFETY: a session.
    let (state, script) = unsafe { state(encoder) };
    let Some((_, octets, locked)) = state.inputs.iter_mut().find(|(h, ..)| *h == handle as usize) else {
        return refuse(state, "no such input");
    };
    *locked = false;
    script.say(format!("written {:02x?}", &octets[..4]));
    NV_ENC_SUCCESS
}

unsafe extern "C" fn register(encoder: *mut c_void, p: *mut NV_ENC_REGISTER_RESOURCE) -> Status {
    // SAFETY: a session and structures of a test.
    unsafe {
        let (state, script) = state(encoder);
        let p = &mut *p;
        if p.version != NV_ENC_REGISTER_RESOURCE_VER {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        if p.resourceType != 1 || p.bufferUsage != 0 || !p.pitch.is_multiple_of(4) {
            return refuse(state, "no such resource");
        }
        let handle = state.handle();
        state.registered.push((handle, p.resourceToRegister as u64));
        p.registeredResource = handle as *mut c_void;
        script.say(format!("register {:#x} pitch {}", p.resourceToRegister as u64, p.pitch));
    }
    NV_ENC_SUCCESS
}

unsafe extern "C" fn unregister(encoder: *mut c_void, handle: *mut c_void) -> Status {
    // SAFETY: a session.
    let (state, _) = unsafe { state(encoder) };
    if state.mapped.contains(&(handle as usize)) {
        return refuse(state, "still mapped");
    }
    let before = state.registered.len();
    state.registered.retain(|(h, _)| *h != handle as usize);
    if state.registered.len() + 1 == before { NV_ENC_SUCCESS } else { refuse(state, "not registered") }
}

unsafe extern "C" fn map(encoder: *mut c_void, p: *mut NV_ENC_MAP_INPUT_RESOURCE) -> Status {
    // SAFETY: a session and structures of a test.
    unsafe {
        let (state, _) = state(encoder);
        if (*p).version != NV_ENC_MAP_INPUT_RESOURCE_VER {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        let handle = (*p).registeredResource as usize;
        if !state.registered.iter().any(|(h, _)| *h == handle) || state.mapped.contains(&handle) {
            return refuse(state, "mapped twice, or not registered");
        }
        state.mapped.push(handle);
        // Another address than the registered one.
        (*p).mappedResource = (handle | 1) as *mut c_void;
    }
    NV_ENC_SUCCESS
}

unsafe extern "C" fn unmap(encoder: *mut c_void, handle: *mut c_void) -> Status {
    // SAFETY: a session.
    let (state, _) = unsafe { state(encoder) };
    let before = state.mapped.len();
    state.mapped.retain(|h| *h | 1 != handle as usize);
    if state.mapped.len() + 1 == before { NV_ENC_SUCCESS } else { refuse(state, "not mapped") }
}

unsafe extern "C" fn encode(encoder: *mut c_void, p: *mut NV_ENC_PIC_PARAMS) -> Status {
    // SAFETY: a session and structures of a test.
    unsafe {
        let (state, script) = state(encoder);
        let p = &*p;
        if p.version != NV_ENC_PIC_PARAMS_VER {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        if p.encodePicFlags & NV_ENC_PIC_FLAG_EOS != 0 {
            script.say("end");
            for (number, output) in std::mem::take(&mut state.waiting) {
                state.outputs.iter_mut().filter(|(h, _)| *h == output).for_each(|(_, n)| *n = Some(number));
            }
            return NV_ENC_SUCCESS;
        }
        if script.fails_at == Some(p.inputTimeStamp) {
            return refuse(state, "the encoder is tired");
        }
        let input = p.inputBuffer as usize;
        let ready = state.inputs.iter().any(|(h, _, locked)| *h == input && !locked)
            || state.mapped.iter().any(|h| h | 1 == input);
        let output = p.outputBitstream as usize;
        if !ready || !state.outputs.iter().any(|(h, n)| *h == output && n.is_none()) {
            return refuse(state, "input or output is not ready");
        }
        let flags = if p.encodePicFlags & NV_ENC_PIC_FLAG_FORCEIDR != 0 { " key" } else { "" };
        script.say(format!("encode {} of {:#x} as {}{flags}", p.inputTimeStamp, p.bufferFmt, p.pictureStruct));
        state.waiting.push((p.inputTimeStamp, output));
        if state.waiting.len() <= script.delay {
            return NV_ENC_ERR_NEED_MORE_INPUT;
        }
        // Everything that waits comes out.
        for (number, output) in std::mem::take(&mut state.waiting) {
            state.outputs.iter_mut().filter(|(h, _)| *h == output).for_each(|(_, n)| *n = Some(number));
        }
    }
    NV_ENC_SUCCESS
}

unsafe extern "C" fn lock_output(encoder: *mut c_void, p: *mut NV_ENC_LOCK_BITSTREAM) -> Status {
    // SAFETY: a session and structures of a test.
    unsafe {
        let (state, script) = state(encoder);
        let p = &mut *p;
        if p.version != NV_ENC_LOCK_BITSTREAM_VER {
            return NV_ENC_ERR_INVALID_VERSION;
        }
        let wanted = p.outputBitstream as usize;
        let Some(number) = state.outputs.iter().find(|(h, _)| *h == wanted).and_then(|(_, n)| *n) else {
            return refuse(state, "nothing in this output");
        };
        let (octets, key) = &script.pictures[number as usize % script.pictures.len()];
        p.bitstreamBufferPtr = octets.as_ptr().cast_mut().cast();
        p.bitstreamSizeInBytes = octets.len() as u32;
        p.outputTimeStamp = number;
        p.pictureType = if *key { NV_ENC_PIC_TYPE_IDR } else { 0 };
    }
    NV_ENC_SUCCESS
}

unsafe extern "C" fn unlock_output(encoder: *mut c_void, handle: *mut c_void) -> Status {
    // SAFETY: a session.
    let (state, _) = unsafe { state(encoder) };
    state.outputs.iter_mut().filter(|(h, _)| *h == handle as usize).for_each(|(_, n)| *n = None);
    NV_ENC_SUCCESS
}

unsafe extern "C" fn destroy(encoder: *mut c_void) -> Status {
    // SAFETY: a session, which is not used again.
    unsafe {
        let (state, script) = state(encoder);
        script.say(format!(
            "destroy, left: {} outputs, {} inputs, {} registered, {} mapped",
            state.outputs.len(),
            state.inputs.len(),
            state.registered.len(),
            state.mapped.len()
        ));
        drop(Box::from_raw(encoder.cast::<State>()));
    }
    NV_ENC_SUCCESS
}

unsafe extern "C" fn last_error(encoder: *mut c_void) -> *const c_char {
    // SAFETY: a session.
    unsafe { state(encoder).0.last_error.as_ptr().cast() }
}

/// The stand-in as a library.
pub fn library() -> Library {
    let mut list: NV_ENCODE_API_FUNCTION_LIST = zeroed();
    list.version = NV_ENCODE_API_FUNCTION_LIST_VER;
    list.nvEncOpenEncodeSessionEx = Some(open);
    list.nvEncGetEncodeGUIDCount = Some(guid_count);
    list.nvEncGetEncodeGUIDs = Some(guids);
    list.nvEncGetEncodeCaps = Some(capability);
    list.nvEncGetEncodePresetConfigEx = Some(preset);
    list.nvEncInitializeEncoder = Some(initialise);
    list.nvEncCreateBitstreamBuffer = Some(create_output);
    list.nvEncDestroyBitstreamBuffer = Some(destroy_output);
    list.nvEncCreateInputBuffer = Some(create_input);
    list.nvEncDestroyInputBuffer = Some(destroy_input);
    list.nvEncLockInputBuffer = Some(lock_input);
    list.nvEncUnlockInputBuffer = Some(unlock_input);
    list.nvEncRegisterResource = Some(register);
    list.nvEncUnregisterResource = Some(unregister);
    list.nvEncMapInputResource = Some(map);
    list.nvEncUnmapInputResource = Some(unmap);
    list.nvEncEncodePicture = Some(encode);
    list.nvEncLockBitstream = Some(lock_output);
    list.nvEncUnlockBitstream = Some(unlock_output);
    list.nvEncDestroyEncoder = Some(destroy);
    list.nvEncGetLastErrorString = Some(last_error);
    Library::of(list)
}

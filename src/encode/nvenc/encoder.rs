//! Pictures in, compressed ones out.

use super::library::{Fault, Handle, Library, Session};
use super::settings::Settings;
use crate::error::{Error, Kind, Result};
use std::collections::VecDeque;
use std::ffi::c_void;

/// Pictures that may be in the encoder.
const DEPTH: usize = 8;
/// Frames of a pool whose memory stays known to the library.
const KNOWN: usize = 64;

/// Where a picture is.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// In the GPU's memory: luminance, and right behind it the colour, rows equally far apart.
    Device {
        /// Its first octet.
        address: u64,
        /// Octets from row to row.
        pitch: u32,
    },
    /// In system memory: octets of a row of the luminance (plane 0) or the colour (plane 1).
    Host(&'a dyn Fn(usize, usize) -> &'a [u8]),
}

/// A compressed picture, and what came with it.
#[derive(Debug)]
pub struct Coded<T> {
    /// Its octets.
    pub octets: Vec<u8>,
    /// It needs no other picture.
    pub key: bool,
    /// What was handed over with the picture.
    pub tag: T,
}

#[derive(Debug)]
struct Pending<T> {
    number: u64,
    output: Handle,
    mapped: Option<Handle>,
    input: Option<Handle>,
    tag: T,
}

/// A running encoder. `T` is handed over with each picture and comes back with its octets: what has to live so long.
#[derive(Debug)]
pub struct Nvenc<T> {
    session: Session,
    settings: Settings,
    pending: VecDeque<Pending<T>>,
    outputs: Vec<Handle>,
    inputs: Vec<Handle>,
    registered: Vec<(u64, u32, Handle)>,
    number: u64,
}

fn broken(fault: Fault) -> Error {
    Error::new(Kind::Output, "NVENC fails").because(fault).cure("see dmesg and nvidia-smi; rung=cpu encodes on the CPU")
}

impl<T> Nvenc<T> {
    /// Opens a session on `device`, a CUDA context, and makes it an encoder.
    ///
    /// # Errors
    /// What the library answers.
    pub fn open(library: Library, device: *mut c_void, settings: Settings) -> Result<Self> {
        let session = Session::open(library, device).map_err(broken)?;
        session.initialize(&settings).map_err(broken)?;
        let mut encoder = Nvenc {
            session,
            settings,
            pending: VecDeque::with_capacity(DEPTH),
            outputs: Vec::with_capacity(DEPTH),
            inputs: Vec::new(),
            registered: Vec::new(),
            number: 0,
        };
        for _ in 0..DEPTH {
            let output = encoder.session.create_output().map_err(broken)?;
            encoder.outputs.push(output);
        }
        Ok(encoder)
    }

    /// Encodes a picture; what is ready goes to `out`, in the order in which it was handed over.
    ///
    /// # Errors
    /// What the library answers. The encoder is of no more use then.
    pub fn encode(&mut self, picture: Input<'_>, tag: T, out: &mut Vec<Coded<T>>) -> Result<()> {
        let Some(output) = self.outputs.pop() else {
            return Err(Error::new(Kind::Internal, format!("NVENC keeps more than {DEPTH} pictures")));
        };
        let (input, pitch, mapped, own) = match picture {
            Input::Device { address, pitch } => {
                let resource = self.resource(address, pitch).map_err(broken)?;
                let mapped = self.session.map(resource).map_err(broken)?;
                (mapped, pitch, Some(mapped), None)
            }
            Input::Host(row) => {
                let own = match self.inputs.pop() {
                    Some(input) => input,
                    None => self.session.create_input(&self.settings).map_err(broken)?,
                };
                self.session.write_input(own, &self.settings, row).map_err(broken)?;
                (own, self.settings.wanted.width, None, Some(own))
            }
        };
        let number = self.number;
        self.number += 1;
        self.pending.push_back(Pending { number, output, mapped, input: own, tag });
        if self.session.encode(&self.settings, number, input, pitch, output).map_err(broken)? {
            self.collect(out)?;
        }
        Ok(())
    }

    /// No more pictures: what is still in the encoder goes to `out`.
    ///
    /// # Errors
    /// What the library answers.
    pub fn finish(&mut self, out: &mut Vec<Coded<T>>) -> Result<()> {
        self.session.end().map_err(broken)?;
        self.collect(out)
    }

    /// Reads everything that has been encoded.
    fn collect(&mut self, out: &mut Vec<Coded<T>>) -> Result<()> {
        while let Some(pending) = self.pending.pop_front() {
            let read = self.session.read_output(pending.output).map_err(broken);
            let unmapped = pending.mapped.map_or(Ok(()), |mapped| self.session.unmap(mapped)).map_err(broken);
            self.inputs.extend(pending.input);
            self.outputs.push(pending.output);
            let (octets, key, number) = read?;
            unmapped?;
            if number != pending.number {
                let what = format!("NVENC gives picture {number} where {} was next", pending.number);
                return Err(Error::new(Kind::Internal, what));
            }
            out.push(Coded { octets, key, tag: pending.tag });
        }
        Ok(())
    }

    /// The library's name of memory, which is made known when it is met first.
    fn resource(&mut self, address: u64, pitch: u32) -> std::result::Result<Handle, Fault> {
        if let Some((.., resource)) = self.registered.iter().find(|(a, p, _)| (*a, *p) == (address, pitch)) {
            return Ok(*resource);
        }
        if self.registered.len() >= KNOWN && self.pending.is_empty() {
            self.registered.drain(..).for_each(|(.., resource)| self.session.unregister(resource));
        }
        let resource = self.session.register(&self.settings, address, pitch)?;
        self.registered.push((address, pitch, resource));
        Ok(resource)
    }
}

impl<T> Drop for Nvenc<T> {
    fn drop(&mut self) {
        for pending in self.pending.drain(..) {
            if let Some(mapped) = pending.mapped {
                let _ = self.session.unmap(mapped);
            }
            self.inputs.extend(pending.input);
            self.outputs.push(pending.output);
        }
        self.registered.drain(..).for_each(|(.., resource)| self.session.unregister(resource));
        self.inputs.drain(..).for_each(|input| self.session.destroy_input(input));
        self.outputs.drain(..).for_each(|output| self.session.destroy_output(output));
    }
}

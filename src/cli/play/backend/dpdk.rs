//! Whether DPDK receives, and into which memory.

use super::{Inputs, Passed, Receiving};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::gpu::Gpu;
use std::sync::Arc;
#[cfg(feature = "dpdk")]
use {
    super::super::report,
    super::{Backend, HostReceiver},
    gdmedia::mem::Host,
    gdmedia::rx::dpdk::{self, Dpdk},
    gdmedia::rx::renewed::Renewed,
};

#[cfg(not(feature = "dpdk"))]
impl Inputs<'_> {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)]
    pub(super) fn check_dpdk(self) -> Result<()> {
        Ok(())
    }

    #[allow(clippy::unused_self)]
    pub(super) fn dpdk(self, _: usize, _: Option<&Arc<Gpu>>, _: &mut Vec<Passed>) -> Result<Receiving> {
        Err(Error::new(Kind::Unavailable, "this gdmedia was built without DPDK")
            .cure("install libdpdk-dev and build with: cargo build --release --features dpdk (docs/dpdk.md)"))
    }
}

#[cfg(feature = "dpdk")]
impl Inputs<'_> {
    fn dpdk_options(self) -> Result<dpdk::Options> {
        let mut options = dpdk::Options {
            max_octets: self.max_octets(),
            packets: report::packet_rate(self.flow, self.video),
            utc_offset_s: self.args.utc_offset,
            stamps: self.args.stamps.into(),
            ..dpdk::Options::default()
        };
        options.change(self.args.dpdk.as_deref().unwrap_or_default())?;
        Ok(options)
    }

    /// The words of `--dpdk` are known.
    pub(super) fn check_dpdk(self) -> Result<()> {
        self.dpdk_options().map(drop)
    }

    /// Of the first `legs` legs.
    pub(super) fn dpdk(self, legs: usize, gpu: Option<&Arc<Gpu>>, passed: &mut Vec<Passed>) -> Result<Receiving> {
        let mut options = self.dpdk_options()?;
        if options.ports.is_empty() && self.backend(0) == Backend::Auto {
            return Err(Error::new(Kind::Unavailable, "no port is named for it: --dpdk port=…"));
        }
        options.ports.truncate(legs);
        if !options.ports.is_empty() {
            options.start()?;
        }
        #[cfg(feature = "cuda")]
        if let Some(gpu) = gpu {
            let opened = match legs == self.flow.legs.len() {
                true => self.in_device(gpu, || Dpdk::open_split(options.clone(), gpu)),
                false => Err(Error::new(Kind::Unavailable, "a leg comes by another backend")),
            };
            match opened {
                Ok(receiver) => return Ok(Receiving::Device(receiver)),
                Err(error) => passed.push(Passed { backend: "dpdk into the GPU", reason: error.in_one_line() }),
            }
        }
        let _ = passed;
        let receiver: HostReceiver = match gpu {
            // It knows the ring, which then stays the one that it is.
            Some(_) => Box::new(Dpdk::<Host>::open(options, &())?),
            None => Box::new(Renewed::new(Box::new(move || -> Result<HostReceiver> {
                Ok(Box::new(Dpdk::<Host>::open(options.clone(), &())?))
            }))?),
        };
        Ok(Receiving::Host(self.wrapped(receiver)?))
    }
}

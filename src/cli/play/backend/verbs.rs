//! Whether ibverbs receives, and into which memory.

use super::{Inputs, Passed, Receiving};
use gdmedia::error::Result;
#[cfg(any(feature = "cuda", not(feature = "verbs")))]
use gdmedia::error::{Error, Kind};
use gdmedia::gpu::Gpu;
#[cfg(all(feature = "cuda", feature = "verbs"))]
use gdmedia::mem::Device;
use std::sync::Arc;
#[cfg(feature = "verbs")]
use {
    super::super::report,
    super::HostReceiver,
    gdmedia::mem::Host,
    gdmedia::rx::renewed::Renewed,
    gdmedia::rx::verbs::{self, Cut, Verbs},
};

#[cfg(not(feature = "verbs"))]
impl Inputs<'_> {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)]
    pub(super) fn check_verbs(self) -> Result<()> {
        Ok(())
    }

    #[allow(clippy::unused_self)]
    pub(super) fn verbs(self, _: usize, _: Option<&Arc<Gpu>>, _: &mut Vec<Passed>) -> Result<Receiving> {
        Err(Error::new(Kind::Unavailable, "this gdmedia was built without ibverbs")
            .cure("install libibverbs-dev and build with: cargo build --release --features verbs (docs/verbs.md)"))
    }
}

#[cfg(feature = "verbs")]
impl Inputs<'_> {
    fn verbs_options(self) -> Result<verbs::Options> {
        let mut options = verbs::Options {
            interfaces: self.args.interface.clone(),
            max_octets: self.max_octets(),
            rate: report::packet_rate(self.flow, self.video),
            stamps: self.args.stamps.into(),
            utc_offset_s: self.args.utc_offset,
            ..verbs::Options::default()
        };
        options.change(self.args.verbs.as_deref().unwrap_or_default())?;
        Ok(options)
    }

    /// The words of `--verbs` are known.
    pub(super) fn check_verbs(self) -> Result<()> {
        self.verbs_options().map(drop)
    }

    /// Of the first `legs` legs.
    pub(super) fn verbs(self, legs: usize, gpu: Option<&Arc<Gpu>>, passed: &mut Vec<Passed>) -> Result<Receiving> {
        let options = self.verbs_options()?;
        let all = legs == self.flow.legs.len();
        let legs = self.flow.legs.get(..legs).unwrap_or_default();
        for (number, leg) in legs.iter().enumerate() {
            let named = self.args.interface.get(number).or(self.args.interface.last());
            verbs::usable(named.map(String::as_str), leg.destination, &options)?;
        }
        #[cfg(feature = "cuda")]
        if let Some(gpu) = gpu {
            let opened = match all {
                true if options.cut == Cut::None => {
                    Err(Error::new(Kind::Unavailable, "--verbs cut=none leaves packets in memory of the host"))
                }
                true => self.in_device(gpu, || Verbs::<Device>::open(&options, &self.flow.legs, gpu)),
                false => Err(Error::new(Kind::Unavailable, "a leg comes by another backend")),
            };
            match opened {
                Ok(receiver) => return Ok(Receiving::Device(receiver)),
                Err(error) => passed.push(Passed { backend: "verbs into the GPU", reason: error.in_one_line() }),
            }
        }
        let _ = (passed, all);
        // A GPU reads packets that lie whole in one plane.
        let cut = if gpu.is_some() { Cut::None } else { options.cut };
        let (options, legs) = (verbs::Options { cut, ..options }, legs.to_vec());
        let open = move || -> Result<HostReceiver> { Ok(Box::new(Verbs::<Host>::open(&options, &legs, &())?)) };
        let receiver: HostReceiver = match gpu {
            // It knows the ring, which then stays the one that it is.
            Some(_) => open()?,
            None => Box::new(Renewed::new(Box::new(open))?),
        };
        Ok(Receiving::Host(self.wrapped(receiver)?))
    }
}

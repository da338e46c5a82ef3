//! Whether Rivermax receives, and into which memory.

use super::{Inputs, Passed, Receiving};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::gpu::Gpu;
#[cfg(all(feature = "cuda", feature = "rivermax"))]
use gdmedia::mem::Device;
use std::sync::Arc;
#[cfg(feature = "rivermax")]
use {
    super::super::report,
    super::Backend,
    gdmedia::format::Output,
    gdmedia::mem::Host,
    gdmedia::rx::rivermax::{self, Rivermax, Split},
};

#[cfg(not(feature = "rivermax"))]
impl Inputs<'_> {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)]
    pub(super) fn check_rivermax(self) -> Result<()> {
        Ok(())
    }

    #[allow(clippy::unused_self)]
    pub(super) fn rivermax(self, _: usize, _: Option<&Arc<Gpu>>, _: &mut Vec<Passed>) -> Result<Receiving> {
        Err(Error::new(Kind::Unavailable, "this gdmedia was built without Rivermax")
            .cure("install the SDK and build with: cargo build --release --features rivermax (docs/rivermax.md)"))
    }
}

#[cfg(feature = "rivermax")]
impl Inputs<'_> {
    fn options(self) -> Result<rivermax::Options> {
        let mut options = rivermax::Options {
            interfaces: self.args.interface.clone(),
            max_octets: self.max_octets(),
            payload_type: self.flow.payload_type,
            rate: report::packet_rate(self.flow, self.video),
            utc_offset_s: self.args.utc_offset,
            windows: self.may_be_windows().then_some(self.layout.wire),
            ..rivermax::Options::default()
        };
        options.change(self.args.rivermax.as_deref().unwrap_or_default())?;
        Ok(options)
    }

    /// The words of `--rivermax` are known.
    pub(super) fn check_rivermax(self) -> Result<()> {
        self.options().map(drop)
    }

    /// Frames are wanted as they come, and by nobody who keeps them.
    fn may_be_windows(self) -> bool {
        let args = self.args;
        let kept = args.sink.is_some() || args.snapshot.is_some() || args.export.is_some();
        self.layout.output == Output::Wire && !kept && (args.headless || args.out.is_some())
    }

    /// Of the first `legs` legs.
    pub(super) fn rivermax(self, legs: usize, gpu: Option<&Arc<Gpu>>, passed: &mut Vec<Passed>) -> Result<Receiving> {
        let options = self.options()?;
        let all = legs == self.flow.legs.len();
        let legs = self.flow.legs.get(..legs).unwrap_or_default();
        if self.backend(0) == Backend::Auto {
            // What is for tests is taken where a test asks for it.
            if cfg!(feature = "rivermax-stand-in") && std::env::var_os("RIVERMAX_STAND_IN").is_none() {
                return Err(Error::new(Kind::Unavailable, "this gdmedia was built with its stand-in, for tests only"));
            }
        }
        let usable = legs.iter().enumerate().map(|(number, leg)| {
            let named = self.args.interface.get(number).or(self.args.interface.last());
            rivermax::usable(named.map(String::as_str), leg.destination, &options)
        });
        // Held until one of the receivers below is open.
        let _usable = usable.collect::<Result<Vec<_>>>()?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = gpu {
            let opened = match all {
                true if options.split == Split::None => {
                    Err(Error::new(Kind::Unavailable, "--rivermax split=none leaves packets in memory of the host"))
                }
                true => self.in_device(gpu, || {
                    Rivermax::<Device>::open_while(&options, &self.flow.legs, gpu, &|| self.goes_on())
                }),
                false => Err(Error::new(Kind::Unavailable, "a leg comes by another backend")),
            };
            match opened {
                Ok(receiver) => return Ok(Receiving::Device(receiver)),
                Err(error) => passed.push(Passed { backend: "rivermax into the GPU", reason: error.in_one_line() }),
            }
        }
        let _ = (passed, all);
        // A GPU reads packets that lie whole in one plane.
        let split = if gpu.is_some() { Split::None } else { options.split };
        let options = rivermax::Options { split, ..options };
        let receiver = Rivermax::<Host>::open_while(&options, legs, &(), &|| self.goes_on())?;
        Ok(Receiving::Host(self.wrapped(Box::new(receiver))?))
    }
}

//! Whether DPDK receives, and into which memory.

use super::{Inputs, Passed, Receiving};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::gpu::Gpu;
use std::sync::Arc;

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

//! What may be chosen, and what is counted.

/// How octets come from pinned memory to the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transfer {
    /// Kernels read small batches over the bus, copy engines bring those of a MiB and more: whichever is sooner done.
    /// Where they are equally soon was measured on PCI Express 5 (see RESULTS.md); it depends on the bus little.
    #[default]
    Auto,
    /// Copy engines bring them, kernels read them there.
    Copy,
    /// Kernels read them over the bus.
    Mapped,
}

/// When work is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// While the frame arrives, batch by batch.
    #[default]
    SubFrame,
    /// When the frame is whole. To compare with: it costs the time of the whole frame after its last packet.
    WholeFrame,
}

/// What may be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The way to the GPU.
    pub transfer: Transfer,
    /// When work is started.
    pub schedule: Schedule,
}

/// What a kernel has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CudaCounters {
    /// Batches started.
    pub batches: u64,
    /// Pieces in them.
    pub pieces: u64,
    /// Octets that copy engines brought, gaps between packets included.
    pub copied: u64,
    /// Octets that kernels read over the bus.
    pub mapped: u64,
    /// Placements that lie outside of their packet, ring or frame: none, unless whoever made them is wrong.
    pub refused: u64,
    /// How often the GPU was slower than the stream.
    pub waited: u64,
}

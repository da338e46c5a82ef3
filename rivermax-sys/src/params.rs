//! What a stream is created from: parameters, the layout that the library determines, and memory.

use crate::raw;
use crate::session::{Registration, Session};
use crate::status::{Error, check};
use crate::stream::{Stream, socket_address};
use std::any::Any;
use std::fmt;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::NonNull;
use std::sync::Arc;

/// Sub-blocks of a stream at most.
const MOST: usize = 2;

/// An option of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOption {
    /// [`Chunk::packet`](crate::Chunk::packet) has answers.
    InfoPerPacket,
    /// A packet goes to slot (RTP sequence number, 16 bits) modulo capacity.
    SequencePlacement,
    /// A packet goes to slot (ST 2110-20 extended sequence number, 32 bits) modulo capacity.
    ExtendedSequencePlacement,
}

/// Of which clock time stamps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampFormat {
    /// The NIC's own, in ns.
    RawNano,
    /// That which the library uses (PTP), in ns.
    Synced,
}

/// The sizes of packets, or of their pieces, in one sub-block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySize {
    min: usize,
    max: usize,
}

impl EntrySize {
    /// All of one size.
    pub const fn exactly(size: usize) -> Self {
        EntrySize { min: size, max: size }
    }
    /// From nothing to this size.
    pub const fn up_to(max: usize) -> Self {
        EntrySize { min: 0, max }
    }
}

/// Room for one sub-block of all packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// From one packet to the next, in bytes: as the library says, which need not be the entry's size.
    pub stride: usize,
    /// Of the block, in bytes. 0 for the header block: the NIC does not split.
    pub length: usize,
}

/// What the library made of the parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemLayout {
    /// Packets in the ring: need not be what was asked for.
    pub capacity: usize,
    /// One for each sub-block. With two, the first is that of the headers.
    pub blocks: Vec<Block>,
}

/// Memory or a registration that a stream holds until it is destroyed.
pub(crate) type Keep = Box<dyn Any + Send + Sync>;

/// The library's record of parameters; regions point into it, so it stays where it is.
pub(crate) type Params = Box<MaybeUninit<raw::rmx_input_stream_params>>;

/// Parameters of a stream of packets that begin at their RTP header.
pub struct StreamParams {
    raw: Params,
    session: Session,
    sub_blocks: usize,
}

// SAFETY: a record that only its owner uses; the library keeps no address of it before the stream is created.
unsafe impl Send for StreamParams {}

impl StreamParams {
    /// A stream of the NIC port that has this address.
    pub fn new(session: &Session, nic: Ipv4Addr) -> Self {
        let mut raw = Params::new(MaybeUninit::uninit());
        let address = socket_address(SocketAddrV4::new(nic, 0));
        // SAFETY: the first call fills the record; the address is copied.
        unsafe {
            raw::rmx_input_init_stream(raw.as_mut_ptr(), raw::GDMEDIA_APP_PROTOCOL_PACKET as i64);
            raw::rmx_input_set_stream_nic_address(raw.as_mut_ptr(), (&raw const address).cast());
        }
        StreamParams { raw, session: session.clone(), sub_blocks: 1 }
    }

    /// Turns an option on.
    #[must_use]
    pub fn option(mut self, option: StreamOption) -> Self {
        let option = match option {
            StreamOption::InfoPerPacket => raw::GDMEDIA_INFO_PER_PACKET as i64,
            StreamOption::SequencePlacement => raw::GDMEDIA_SEQN_PLACEMENT as i64,
            StreamOption::ExtendedSequencePlacement => raw::GDMEDIA_EXT_SEQN_PLACEMENT as i64,
        };
        // SAFETY: `new` has filled the record.
        unsafe { raw::rmx_input_enable_stream_option(self.raw.as_mut_ptr(), option) };
        self
    }

    /// Packets in the ring; the library may make it more.
    #[must_use]
    pub fn capacity(mut self, packets: usize) -> Self {
        // SAFETY: `new` has filled the record.
        unsafe { raw::rmx_input_set_mem_capacity_in_packets(self.raw.as_mut_ptr(), packets) };
        self
    }

    /// One: packets whole. Two: headers, then payloads (header-data split; the first of one exact size).
    ///
    /// # Panics
    /// There are more: nothing public says that the library looks at the number before it writes a size.
    #[must_use]
    pub fn sub_blocks(mut self, sizes: &[EntrySize]) -> Self {
        assert!(sizes.len() <= MOST, "{} sub-blocks", sizes.len());
        self.sub_blocks = sizes.len();
        let raw = self.raw.as_mut_ptr();
        // SAFETY: `new` has filled the record, which has room for so many; the library checks the sizes.
        unsafe {
            raw::rmx_input_set_mem_sub_block_count(raw, sizes.len());
            for (i, &EntrySize { min, max }) in sizes.iter().enumerate() {
                if min == max {
                    raw::rmx_input_set_entry_uniform_size(raw, i, max);
                } else {
                    raw::rmx_input_set_entry_size_range(raw, i, min, max);
                }
            }
        }
        self
    }

    /// Of which clock time stamps are.
    #[must_use]
    pub fn timestamp_format(mut self, format: TimestampFormat) -> Self {
        let format = match format {
            TimestampFormat::RawNano => raw::GDMEDIA_TIMESTAMP_RAW_NANO as i64,
            TimestampFormat::Synced => raw::GDMEDIA_TIMESTAMP_SYNCED as i64,
        };
        // SAFETY: `new` has filled the record.
        unsafe { raw::rmx_input_set_timestamp_format(self.raw.as_mut_ptr(), format) };
        self
    }

    /// Lets the library say what memory it needs.
    ///
    /// # Errors
    /// As the library answers: parameters that contradict each other, no such NIC.
    pub fn determine(self) -> Result<DeterminedStream, Error> {
        let StreamParams { mut raw, session, sub_blocks } = self;
        let params = raw.as_mut_ptr();
        // SAFETY: the record is filled. After OK the library answers for each sub-block that it accepted.
        let layout = unsafe {
            check("rmx_input_determine_mem_layout", raw::rmx_input_determine_mem_layout(params))?;
            let block = |i| Block {
                stride: raw::rmx_input_get_stride_size(params, i),
                length: raw::gdmedia_region_length(raw::rmx_input_get_mem_block_buffer(params, i)),
            };
            let blocks = (0..sub_blocks).map(block).collect();
            MemLayout { capacity: raw::rmx_input_get_mem_capacity_in_packets(params), blocks }
        };
        Ok(DeterminedStream { raw, layout, keep: Vec::new(), session })
    }
}

impl fmt::Debug for StreamParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamParams").field("sub_blocks", &self.sub_blocks).finish_non_exhaustive()
    }
}

/// Parameters with the layout that the library determined. Memory is given now, in one of three ways for each block:
/// not at all (the library allocates), by address, or registered before.
pub struct DeterminedStream {
    raw: Params,
    layout: MemLayout,
    keep: Vec<Keep>,
    session: Session,
}

// SAFETY: as `StreamParams`; what is kept is Send.
unsafe impl Send for DeterminedStream {}

impl DeterminedStream {
    /// What memory the library needs.
    pub fn layout(&self) -> &MemLayout {
        &self.layout
    }

    /// Memory for one sub-block, of the host or of the GPU; the library registers it. The stream drops `keep` once it
    /// is destroyed.
    ///
    /// Aligned to cache lines; with sequence placement, to pages.
    ///
    /// # Safety
    /// The memory is valid for the block's length for as long as `keep` lives, and whoever else reads or writes it
    /// expects that the NIC writes to it at any time.
    ///
    /// # Panics
    /// There is no such sub-block.
    pub unsafe fn set_memory(&mut self, sub_block: usize, address: NonNull<u8>, keep: impl Any + Send + Sync) {
        assert!(sub_block < self.layout.blocks.len(), "sub-block {sub_block} of {}", self.layout.blocks.len());
        // SAFETY: the sub-block exists and its region lies in the record, which has not moved.
        unsafe {
            let region = raw::rmx_input_get_mem_block_buffer(self.raw.as_mut_ptr(), sub_block);
            raw::gdmedia_region_give(region, address.as_ptr().cast());
        }
        self.keep.push(Box::new(keep));
    }

    /// Memory that is registered already, from its beginning. One registration serves several streams of one NIC port.
    ///
    /// # Panics
    /// There is no such sub-block, or it is longer than the registered memory.
    pub fn set_registered(&mut self, sub_block: usize, registration: &Arc<Registration>) {
        let block = self.layout.blocks[sub_block];
        assert!(block.length <= registration.length(), "{} bytes for {}", registration.length(), block.length);
        // SAFETY: as above; the registration outlives the stream, which holds it.
        unsafe {
            let region = raw::rmx_input_get_mem_block_buffer(self.raw.as_mut_ptr(), sub_block);
            raw::gdmedia_region_give_registered(region, &*registration.region);
        }
        self.keep.push(Box::new(Arc::clone(registration)));
    }

    /// Creates the stream.
    ///
    /// # Errors
    /// As the library answers: memory that is not aligned or cannot be registered, no hardware resources, no licence.
    pub fn create(self) -> Result<Stream, Error> {
        let DeterminedStream { mut raw, layout, keep, session } = self;
        let mut id = MaybeUninit::uninit();
        // SAFETY: the record is where it was when the layout was determined; the memory is valid until `keep` is
        // dropped, which the stream does last.
        let id = unsafe {
            check("rmx_input_create_stream", raw::rmx_input_create_stream(raw.as_mut_ptr(), id.as_mut_ptr()))?;
            id.assume_init()
        };
        Ok(Stream::new(id, raw, layout, keep, session))
    }
}

impl fmt::Debug for DeterminedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeterminedStream").field("layout", &self.layout).finish_non_exhaustive()
    }
}

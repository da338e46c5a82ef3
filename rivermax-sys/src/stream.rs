//! A stream: flows, chunks of received packets, and waiting for them.

use crate::params::{Keep, MemLayout, Params};
use crate::raw;
use crate::session::Session;
use crate::status::{Error, Status, check};
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

/// Which packets go to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    local: SocketAddrV4,
    remote: Option<SocketAddrV4>,
    tag: u32,
}

impl Flow {
    /// Packets to this group or address and port, from anywhere.
    pub fn to(destination: SocketAddrV4) -> Self {
        Flow { local: destination, remote: None, tag: 0 }
    }
    /// Only from this address and port; port 0 is any.
    #[must_use]
    pub fn from(mut self, source: SocketAddrV4) -> Self {
        self.remote = Some(source);
        self
    }
    /// Marks its packets: [`PacketInfo::flow_tag`].
    #[must_use]
    pub fn tag(mut self, tag: u32) -> Self {
        self.tag = tag;
        self
    }
}

pub(crate) fn socket_address(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// What [`Stream::request_notification`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Notification {
    /// The descriptor becomes readable when there is data: wait on it.
    Armed,
    /// There is data already: do not wait.
    Busy,
    /// A signal asked the process to stop.
    Signal,
}

type FlowRecord = Box<MaybeUninit<raw::gdmedia_flow>>;

/// The way for the library to say that there is data.
struct Events {
    epoll: OwnedFd,
    // The library may keep their addresses.
    _fd: Box<c_int>,
    _params: Box<MaybeUninit<raw::gdmedia_event_channel>>,
    notification: Box<MaybeUninit<raw::gdmedia_notification>>,
}

/// A stream. Used by one thread at a time.
///
/// There is nothing to give back: a slot is written again when the ring comes round, whether it was read or not, and
/// nobody says so. A reader finds out by looking at what it has read once more.
pub struct Stream {
    id: raw::rmx_stream_id,
    chunk: Box<MaybeUninit<raw::gdmedia_chunk_handle>>,
    layout: MemLayout,
    flows: Vec<(Flow, FlowRecord)>,
    events: Option<Events>,
    ended: bool,
    held: ManuallyDrop<Held>,
}

/// What has to be there until the library has destroyed the stream, and for good where it did not. Dropped in this order.
struct Held {
    // What the library refused to detach; it may still look at them.
    refused: Vec<FlowRecord>,
    _params: Params,
    _keep: Vec<Keep>,
    _session: Session,
}

// SAFETY: the library's objects belong to the stream, not to a thread; `&mut self` keeps them to one at a time.
unsafe impl Send for Stream {}

impl Stream {
    pub(crate) fn new(
        id: raw::rmx_stream_id,
        params: Params,
        layout: MemLayout,
        keep: Vec<Keep>,
        session: Session,
    ) -> Self {
        let mut chunk = Box::new(MaybeUninit::uninit());
        // SAFETY: the call fills the handle for a stream that exists.
        unsafe { raw::rmx_input_init_chunk_handle(chunk.as_mut_ptr(), &id) };
        Stream {
            id,
            chunk,
            layout,
            flows: Vec::new(),
            events: None,
            ended: false,
            held: ManuallyDrop::new(Held { refused: Vec::new(), _params: params, _keep: keep, _session: session }),
        }
    }

    /// The layout that it was created with.
    pub fn layout(&self) -> &MemLayout {
        &self.layout
    }

    /// The library's name for it, for [`raw`].
    pub fn id(&self) -> raw::rmx_stream_id {
        self.id
    }

    /// How many packets a chunk has: fewer than `min` only when `timeout_us` have passed, never more than `max`. Has to
    /// be called before the first chunk.
    ///
    /// # Errors
    /// As the library answers.
    pub fn set_completion_moderation(&mut self, min: usize, max: usize, timeout_us: u32) -> Result<(), Error> {
        // SAFETY: the stream exists.
        let status = unsafe { raw::rmx_input_set_completion_moderation(&self.id, min, max, timeout_us) };
        check("rmx_input_set_completion_moderation", status)
    }

    /// Receives a flow from now on. Joining a multicast group is the caller's, with a socket of the system.
    ///
    /// # Errors
    /// As the library answers: attached already.
    pub fn attach(&mut self, flow: &Flow) -> Result<(), Error> {
        let mut raw = Box::new(MaybeUninit::uninit());
        let local = socket_address(flow.local);
        // SAFETY: the first call fills the record, addresses are copied, and the record stays where it is until the
        // flow is detached.
        unsafe {
            raw::rmx_input_init_flow(raw.as_mut_ptr());
            raw::rmx_input_set_flow_local_addr(raw.as_mut_ptr(), (&raw const local).cast());
            if let Some(remote) = flow.remote {
                let remote = socket_address(remote);
                raw::rmx_input_set_flow_remote_addr(raw.as_mut_ptr(), (&raw const remote).cast());
            }
            raw::rmx_input_set_flow_tag(raw.as_mut_ptr(), flow.tag);
            check("rmx_input_attach_flow", raw::rmx_input_attach_flow(&self.id, raw.as_mut_ptr()))?;
        }
        self.flows.push((*flow, raw));
        Ok(())
    }

    /// Receives a flow no longer. What is in the ring can still be read; what [`next_chunk`](Self::next_chunk) answers
    /// once nothing is attached differs between libraries: chunks with no packets, or an error.
    ///
    /// # Errors
    /// As the library answers; a flow that was never attached is [`Status::InvalidParam2`].
    pub fn detach(&mut self, flow: &Flow) -> Result<(), Error> {
        const CALL: &str = "rmx_input_detach_flow";
        let Some(at) = self.flows.iter().position(|(attached, _)| attached == flow) else {
            return Err(Error { call: CALL, status: Status::InvalidParam2 });
        };
        let (_, mut raw) = self.flows.swap_remove(at);
        // SAFETY: the record that was attached.
        match check(CALL, unsafe { raw::rmx_input_detach_flow(&self.id, raw.as_mut_ptr()) }) {
            // Detached, and the process is asked to stop.
            Ok(()) | Err(Error { status: Status::Signal, .. }) => Ok(()),
            Err(error) => {
                self.held.refused.push(raw);
                Err(error)
            }
        }
    }

    /// What has been received since the last chunk, in one piece: often nothing, with OK.
    ///
    /// # Errors
    /// As the library answers: a signal, a hardware completion with an error. A wrong checksum is no error here:
    /// [`Chunk::checksum_issue`].
    #[inline]
    pub fn next_chunk(&mut self) -> Result<Chunk<'_>, Error> {
        // SAFETY: the handle is that of the stream, which exists; the completion is valid until the next call, which
        // the borrow keeps away.
        unsafe {
            let handle = self.chunk.as_mut_ptr();
            let status = Status::from_raw(raw::rmx_input_get_next_chunk(handle));
            if !matches!(status, Status::Ok | Status::ChecksumIssue) {
                return Err(Error { call: "rmx_input_get_next_chunk", status });
            }
            let completion = raw::rmx_input_get_chunk_completion(handle);
            let len = if completion.is_null() { 0 } else { raw::rmx_input_get_completion_chunk_size(completion) };
            Ok(Chunk { stream: self, completion, len, checksum_issue: status == Status::ChecksumIssue })
        }
    }

    /// Makes the descriptor of [`events`](Self::events), once.
    ///
    /// # Errors
    /// As the library answers; the system's refusal to make the descriptor is [`Status::NotImplemented`].
    pub fn open_events(&mut self) -> Result<(), Error> {
        const CALL: &str = "rmx_establish_event_channel";
        if self.events.is_some() {
            return Ok(());
        }
        let epoll = epoll().map_err(|_| Error { call: CALL, status: Status::NotImplemented })?;
        let mut fd = Box::new(epoll.as_raw_fd());
        let mut params = Box::new(MaybeUninit::uninit());
        let mut notification = Box::new(MaybeUninit::uninit());
        // SAFETY: the init calls fill the records; all that the library may keep addresses of stays where it is until
        // the stream is destroyed.
        unsafe {
            raw::rmx_init_event_channel(params.as_mut_ptr(), &self.id);
            raw::rmx_set_event_channel_handle(params.as_mut_ptr(), &mut *fd);
            check(CALL, raw::rmx_establish_event_channel(params.as_mut_ptr()))?;
            raw::rmx_init_notification(notification.as_mut_ptr(), &self.id);
        }
        self.events = Some(Events { epoll, _fd: fd, _params: params, notification });
        Ok(())
    }

    /// An epoll set that is readable when there is data, after [`request_notification`](Self::request_notification);
    /// nothing has to be read from it. None before [`open_events`](Self::open_events).
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(|events| events.epoll.as_fd())
    }

    /// Asks to be told of the next data, once. Before each wait.
    ///
    /// # Errors
    /// As the library answers; without [`open_events`](Self::open_events), [`Status::NotInitialized`].
    pub fn request_notification(&mut self) -> Result<Notification, Error> {
        const CALL: &str = "rmx_request_notification";
        let Some(events) = &mut self.events else {
            return Err(Error { call: CALL, status: Status::NotInitialized });
        };
        // SAFETY: the record is filled, and the stream exists.
        match Status::from_raw(unsafe { raw::rmx_request_notification(events.notification.as_mut_ptr()) }) {
            Status::Ok => Ok(Notification::Armed),
            Status::Busy => Ok(Notification::Busy),
            Status::Signal => Ok(Notification::Signal),
            status => Err(Error { call: CALL, status }),
        }
    }

    /// Waits until there is data or the time has passed. True: the descriptor was readable.
    ///
    /// # Errors
    /// As the system answers; without [`open_events`](Self::open_events), not found.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let Some(events) = &self.events else { return Err(io::ErrorKind::NotFound.into()) };
        // Rounded up: a wait of 100 us is no spinning.
        let timeout = timeout.as_nanos().div_ceil(1_000_000).min(c_int::MAX as u128) as c_int;
        let mut event = MaybeUninit::<libc::epoll_event>::uninit();
        // SAFETY: room for one event.
        let n = unsafe { libc::epoll_wait(events.epoll.as_raw_fd(), event.as_mut_ptr(), 1, timeout) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n > 0) }
    }

    /// Detaches what is attached and destroys the stream, as dropping it does, and tells of a failure.
    ///
    /// # Errors
    /// As the library answers. A stream that it did not destroy may still be written to: its memory is never given back
    /// then, and the library not cleaned up.
    pub fn destroy(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let mut answer = Ok(());
        while let Some(&(flow, _)) = self.flows.last() {
            answer = answer.and(self.detach(&flow));
        }
        // SAFETY: the stream exists, and this is the last that is called with it.
        let destroyed = check("rmx_input_destroy_stream", unsafe { raw::rmx_input_destroy_stream(&self.id) });
        if destroyed.is_ok() {
            // SAFETY: once, since `ended` was not set before, and nothing but this uses it from then on.
            unsafe { ManuallyDrop::drop(&mut self.held) };
        }
        answer.and(destroyed)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // There is nobody to tell of a failure.
        let _ = self.end();
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("layout", &self.layout).finish_non_exhaustive()
    }
}

fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: a descriptor of our own.
    unsafe {
        match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Packets that lie one after the other in the ring, a stride apart.
///
/// The borrow keeps the completion valid, not the packets: the ring comes round when it does.
#[derive(Debug)]
pub struct Chunk<'a> {
    stream: &'a Stream,
    completion: *const raw::rmx_input_completion,
    len: usize,
    checksum_issue: bool,
}

impl Chunk<'_> {
    /// Packets in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Nothing was received.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the first packet's piece of a sub-block lies: in host or GPU memory, as the block does. Packet `i` is `i`
    /// strides further. None: no packets, or no such sub-block.
    #[inline]
    pub fn first(&self, sub_block: usize) -> Option<NonNull<u8>> {
        if self.len == 0 || sub_block >= self.stream.layout.blocks.len() {
            return None;
        }
        // SAFETY: the completion is valid while the stream is borrowed, and the sub-block exists.
        NonNull::new(unsafe { raw::rmx_input_get_completion_ptr(self.completion, sub_block) }.cast_mut().cast())
    }

    /// There is more to be had at once.
    #[inline]
    pub fn more(&self) -> bool {
        // SAFETY: the completion is valid while the stream is borrowed.
        !self.completion.is_null()
            && unsafe { raw::rmx_input_get_completion_flag(self.completion, raw::GDMEDIA_FLAG_MORE as i64) != 0 }
    }

    /// The checksum of a packet in it is wrong.
    #[inline]
    pub fn checksum_issue(&self) -> bool {
        self.checksum_issue
    }

    /// When the first packet arrived, in ns of [`TimestampFormat`](crate::TimestampFormat). 0 without packets.
    #[inline]
    pub fn timestamp_first(&self) -> u64 {
        if self.len == 0 {
            return 0;
        }
        // SAFETY: the completion is valid while the stream is borrowed.
        unsafe { raw::rmx_input_get_completion_timestamp_first(self.completion) }
    }

    /// When the last packet arrived.
    #[inline]
    pub fn timestamp_last(&self) -> u64 {
        if self.len == 0 {
            return 0;
        }
        // SAFETY: the completion is valid while the stream is borrowed.
        unsafe { raw::rmx_input_get_completion_timestamp_last(self.completion) }
    }

    /// About packet `i`. None: not that many packets, or the stream is without
    /// [`StreamOption::InfoPerPacket`](crate::StreamOption::InfoPerPacket).
    #[inline]
    pub fn packet(&self, i: usize) -> Option<PacketInfo<'_>> {
        if i >= self.len {
            return None;
        }
        // SAFETY: the handle belongs to the borrowed stream and holds the chunk that this is; asking changes nothing.
        let raw = unsafe { raw::rmx_input_get_packet_info(self.stream.chunk.as_ptr().cast_mut(), i) };
        NonNull::new(raw.cast_mut()).map(|raw| PacketInfo {
            raw,
            sub_blocks: self.stream.layout.blocks.len(),
            _chunk: self,
        })
    }
}

/// About one packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketInfo<'a> {
    raw: NonNull<raw::rmx_input_packet_info>,
    sub_blocks: usize,
    _chunk: &'a Chunk<'a>,
}

impl PacketInfo<'_> {
    /// Bytes in a sub-block; 0 where there is none.
    #[inline]
    pub fn size(&self, sub_block: usize) -> usize {
        if sub_block >= self.sub_blocks {
            return 0;
        }
        // SAFETY: the information is valid while the chunk is borrowed, and the sub-block exists.
        unsafe { raw::rmx_input_get_packet_size(self.raw.as_ptr(), sub_block) }
    }
    /// The mark of its flow.
    #[inline]
    pub fn flow_tag(&self) -> u32 {
        // SAFETY: as above.
        unsafe { raw::rmx_input_get_packet_flow_tag(self.raw.as_ptr()) }
    }
    /// When it arrived, in ns of [`TimestampFormat`](crate::TimestampFormat).
    #[inline]
    pub fn timestamp(&self) -> u64 {
        // SAFETY: as above.
        unsafe { raw::rmx_input_get_packet_timestamp(self.raw.as_ptr()) }
    }
}

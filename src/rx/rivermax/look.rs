//! Looks at the first packets of a flow, by streams that do not split.

use super::failure;
use super::leg::Leg;
use super::open::Library;
use super::options::Options;
use super::probe::Seen;
use crate::error::Result;
use rivermax_sys::{EntrySize, Error, Status, Stream, StreamOption, StreamParams};
use std::time::{Duration, Instant};

/// Packets of its ring; more are looked at only while there is no end of a frame among them.
const RING: usize = 4096;
/// Packets that are looked at, at most.
const PACKETS: u32 = 65_536;
/// Octets of a packet at most: those of the extended UDP size limit of ST 2110-10, and no MTU has more.
const OCTETS: usize = 9000;

/// Between polls that bring nothing.
const PAUSE: Duration = Duration::from_micros(200);

/// What the first packets say, on the leg that showed most; nothing seen is an answer. Ends early when it is not to go on.
///
/// # Errors
/// The library gives no stream, or a flow is refused.
pub fn look(library: &Library, legs: &[Leg], options: &Options, goes_on: &dyn Fn() -> bool) -> Result<Seen> {
    let mut looks = legs.iter().map(|leg| Look::begin(library, leg, options)).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    let enough = |looks: &[Look]| looks.iter().any(Look::is_whole) || !looks.iter().any(Look::wants_more);
    while begun.elapsed() < options.probe && !enough(&looks) && goes_on() {
        let mut silent = true;
        for look in looks.iter_mut().filter(|look| look.wants_more()) {
            silent &= !look.take(options.payload_type);
        }
        if silent {
            std::thread::sleep(PAUSE);
        }
    }
    let seen = looks.into_iter().map(|look| look.seen);
    Ok(seen.max_by_key(|seen| (seen.is_whole(), seen.packets)).unwrap_or_default())
}

/// One leg's stream.
struct Look {
    stream: Stream,
    stride: usize,
    seen: Seen,
    broken: bool,
}

impl Look {
    fn begin(library: &Library, leg: &Leg, options: &Options) -> Result<Self> {
        let failed =
            |error| failure::call(format_args!("looking at the first packets of {}", leg.destination()), error);
        let octets = OCTETS.max(options.max_octets.into());
        let determined = StreamParams::new(library.session(), leg.address)
            .option(StreamOption::InfoPerPacket)
            .capacity(RING)
            .sub_blocks(&[EntrySize::exactly(octets)])
            .determine()
            .map_err(failed)?;
        let stride = determined.layout().blocks.first().map_or(0, |block| block.stride);
        let mut stream = determined.create().map_err(failed)?;
        stream.set_completion_moderation(0, RING / 8, 0).map_err(failed)?;
        for flow in &leg.flows {
            stream.attach(flow).map_err(|error| leg.not_attached(error))?;
        }
        Ok(Look { stream, stride, seen: Seen::default(), broken: false })
    }
    fn is_whole(&self) -> bool {
        self.seen.is_whole()
    }
    fn wants_more(&self) -> bool {
        !self.broken && self.seen.packets < PACKETS
    }
    /// Says whether packets came.
    fn take(&mut self, payload_type: u8) -> bool {
        match self.stream.next_chunk() {
            Ok(chunk) => {
                let seen = &mut self.seen;
                super::chunks::show(&chunk, self.stride, |head, octets| seen.look(head, octets, payload_type));
                !chunk.is_empty()
            }
            // The next one may be right.
            Err(Error { status: Status::HwCompletionIssue, .. }) => false,
            // The receiver's own stream tells of it.
            Err(_) => {
                self.broken = true;
                false
            }
        }
    }
}

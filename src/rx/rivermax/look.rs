//! Looks at the first packets of a flow, by a stream that does not split.

use super::failure;
use super::leg::Leg;
use super::open::Library;
use super::options::Options;
use super::probe::Seen;
use crate::error::Result;
use rivermax_sys::{EntrySize, StreamOption, StreamParams};
use std::time::{Duration, Instant};

/// Packets of its ring; more are looked at only while there is no end of a frame among them.
const RING: usize = 4096;
/// Packets that are looked at, at most.
const PACKETS: u32 = 65_536;
/// Octets of a packet at most: those of the extended UDP size limit of ST 2110-10, and no MTU has more.
const OCTETS: usize = 9000;

/// Between polls that bring nothing.
const PAUSE: Duration = Duration::from_micros(200);

/// What the first packets of a leg say, the next one when one is silent; nothing seen is an answer.
///
/// # Errors
/// The library gives no stream.
pub fn look(library: &Library, legs: &[Leg], options: &Options) -> Result<Seen> {
    let mut seen = Seen::default();
    for leg in legs {
        look_at(library, leg, options, &mut seen)?;
        if seen.packets > 0 {
            break;
        }
    }
    Ok(seen)
}

fn look_at(library: &Library, leg: &Leg, options: &Options, seen: &mut Seen) -> Result<()> {
    let failed = |error| failure::call(format_args!("looking at the first packets of {}", leg.destination()), error);
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
        stream.attach(flow).map_err(failed)?;
    }
    let begun = Instant::now();
    while begun.elapsed() < options.probe && seen.packets < PACKETS && !seen.is_whole() {
        let Ok(chunk) = stream.next_chunk() else { break };
        let empty = chunk.is_empty();
        super::chunks::show(&chunk, stride, |head, octets| seen.look(head, octets, options.payload_type));
        if empty {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

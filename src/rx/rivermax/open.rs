//! What is opened once: the library, the ring's memory, and the streams. Cold; every refusal says why.
#![allow(unsafe_code)]

use super::chunks::Source;
use super::failure;
use super::leg::Leg;
use super::options::{Options, Order, Stamps};
use super::shape::Shape;
use crate::error::{Error, Kind, Result};
use crate::mem::{Region, Space};
use crate::ring::{Geometry, SLACK, SplitRing};
use crate::rx::card::Clock;
use crate::rx::planes::{PAGE, Planes};
use crate::rx::socket::Interface;
use rivermax_sys as sys;
use std::net::Ipv4Addr;
use std::ptr::NonNull;
use std::sync::{Arc, Once};

/// What memory is aligned to; to pages where slots go by sequence number.
const CACHE_LINE: usize = 64;
/// Legs that one receiver takes (ST 2022-7).
pub const MAX_LEGS: usize = 2;
/// Packets of a chunk at most: with two legs so few that one does not hold up the other's packets.
pub const CHUNK: usize = 1024;
pub const CHUNK_OF_TWO: usize = 64;
/// Microseconds after which the card tells of what has come, where its interrupt is waited for.
const TELL_US: u32 = 1000;

/// The library, initialised.
pub struct Library {
    session: sys::Session,
}

impl Library {
    /// Finds and starts it.
    pub fn open(options: &Options, notes: &mut Vec<String>) -> Result<Self> {
        let library = sys::Library::load(None).map_err(failure::library)?;
        // Before the library starts; later receivers find it started.
        static CORES: Once = Once::new();
        if !options.cores.is_empty() && !CORES.is_completed() {
            if let Some(core) = options.cores.iter().find(|core| !is_core(**core)) {
                let what = format!("Rivermax: its threads cannot have core {core}, which this machine has not");
                return Err(Error::new(Kind::Usage, what).cure("name others with --rivermax cores=…; see lscpu -e"));
            }
            let what = format!("giving its threads the cores {:?}", options.cores);
            library.set_cpu_affinity(&options.cores).map_err(|error| failure::call(what, error))?;
            CORES.call_once(|| {});
        }
        let session = library.session().map_err(|error| failure::call("starting the library", error))?;
        if cfg!(feature = "rivermax-stand-in") {
            notes.push("warning: built with the stand-in for Rivermax: sockets, no card; for tests only".into());
        }
        notes.push(format!("Rivermax {}", library.version()));
        Ok(Library { session })
    }
    pub const fn session(&self) -> &sys::Session {
        &self.session
    }
    /// Is this one of its cards' ports?
    pub fn port(&self, interface: &Interface, address: Ipv4Addr) -> Result<sys::Iface> {
        self.session.iface(address).map_err(|error| {
            let what = format!("{} ({address}) as a port of one of its cards", interface.name);
            failure::call(what, error)
        })
    }
}

/// Where the system does not tell, any is.
fn is_core(number: usize) -> bool {
    let all = std::path::Path::new("/sys/devices/system/cpu");
    !all.exists() || all.join(format!("cpu{number}")).exists()
}

/// The clock of the first leg's card.
pub fn clock(library: &Library, leg: &Leg, options: &Options, notes: &mut Vec<String>) {
    if options.stamps == Stamps::Raw {
        return;
    }
    let name = &leg.interface.name;
    match library.session.use_ptp_clock(&leg.port) {
        Ok(()) => notes.push(format!("arrivals by the PTP clock of {name}")),
        Err(sys::Error { status: sys::Status::Busy, .. }) => {
            notes.push("the library's PTP clock is in use already: arrivals are by the one that was set first".into());
        }
        Err(error) => {
            notes.push(format!("warning: no PTP clock on {name} ({error}): arrivals are by the library's own clock"));
            return;
        }
    }
    if library.session.clock_is_steady() == Ok(false) {
        notes.push("warning: the PTP clock has not settled yet; is ptp4l or a PTP service running on the card?".into());
    }
}

/// The order that packets are put in.
pub fn order(options: &Options, legs: usize) -> Order {
    match options.order {
        Order::Auto if legs > 1 => Order::Extended,
        Order::Auto => Order::Arrival,
        order => order,
    }
}

/// One leg's stream before its memory is known, and the layout that the library wants.
fn determine(
    library: &Library,
    leg: &Leg,
    options: &Options,
    shape: Shape,
    capacity: usize,
    legs: usize,
) -> Result<sys::DeterminedStream> {
    let octets = usize::from(shape.octets);
    let format = match options.stamps {
        Stamps::Raw => sys::TimestampFormat::RawNano,
        Stamps::Synced => sys::TimestampFormat::Synced,
    };
    let params = sys::StreamParams::new(library.session(), leg.address)
        .option(sys::StreamOption::InfoPerPacket)
        .capacity(capacity)
        .timestamp_format(format);
    // Sizes are the most that fits; shorter packets are received and say their size. One size each, as all public callers
    // of the library give it.
    let params = match shape.split.map(usize::from) {
        Some(split) => params.sub_blocks(&[sys::EntrySize::exactly(split), sys::EntrySize::exactly(octets - split)]),
        None => params.sub_blocks(&[sys::EntrySize::exactly(octets)]),
    };
    let params = match order(options, legs) {
        Order::Extended => params.option(sys::StreamOption::ExtendedSequencePlacement),
        _ => params,
    };
    let what = format_args!("a layout for {capacity} packets of {octets} octets on {}", leg.interface.name).to_string();
    params.determine().map_err(|error| failure::call(what, error))
}

/// A ring with its streams.
pub struct Built<M: Space> {
    pub ring: SplitRing<M>,
    pub sources: Vec<Source>,
    /// Packets of the ring, of one leg.
    pub slots: usize,
    /// Octets of a packet that a slot holds at most.
    pub octets: u16,
    /// Octets from payload to payload, where they follow one another in the order of their numbers.
    pub payload: Option<usize>,
}

/// Everything between the shape and the first flow.
///
/// # Errors
/// No memory, or the library refuses.
pub fn build<M: Planes>(
    library: &Library,
    legs: &[Leg],
    options: &Options,
    mut shape: Shape,
    from: &M::Source,
    notes: &mut Vec<String>,
) -> Result<Built<M>> {
    let capacity = options.packets(legs.len());
    let each = |shape| -> Result<Vec<sys::DeterminedStream>> {
        legs.iter().map(|leg| determine(library, leg, options, shape, capacity, legs.len())).collect()
    };
    let mut determined = each(shape)?;
    let splits = |stream: &sys::DeterminedStream| stream.layout().blocks.first().is_some_and(|block| block.length > 0);
    if shape.split.is_some() && !determined.iter().all(splits) {
        notes.push("this card does not split headers and data: packets lie whole in memory of the host".into());
        shape.split = None;
        determined = each(shape)?;
    }
    let alike = determined.windows(2).all(|two| two[0].layout() == two[1].layout());
    if !alike {
        return Err(Error::new(Kind::Unavailable, "the two legs' cards lay their rings out differently")
            .cure("use ports of one card, or of two cards with the same firmware; or --backend socket"));
    }
    let layout = determined.first().map(|stream| stream.layout().clone());
    let Some(layout) = layout else { return Err(Error::new(Kind::Internal, "a receiver without a leg")) };
    if layout.capacity != capacity {
        notes.push(format!("the library makes the ring {} packets long, {capacity} were asked for", layout.capacity));
    }
    let in_sequence = order(options, legs.len()) == Order::Extended;
    if legs.len() > 1 && in_sequence {
        match Plan::new(&layout, shape, 1, in_sequence)?.build::<M>(library, legs, determined, options, from, notes) {
            Ok(built) => {
                notes.push("both legs share one ring: whichever packet comes first fills its slot".into());
                return Ok(built);
            }
            Err(error) => {
                let text = error.to_string();
                let why = text.lines().next().unwrap_or_default();
                notes.push(format!("each leg has a ring of its own, for they cannot share one: {why}"));
            }
        }
        determined = each(shape)?;
    }
    Plan::new(&layout, shape, legs.len(), in_sequence)?.build::<M>(library, legs, determined, options, from, notes)
}

/// Sizes of a ring.
struct Plan {
    geometry: Geometry,
    shape: Shape,
    /// Octets of one leg's part of each plane, and what the library wants of it.
    head: [usize; 2],
    body: [usize; 2],
}

impl Plan {
    fn new(layout: &sys::MemLayout, shape: Shape, rings: usize, in_sequence: bool) -> Result<Self> {
        let internal = |what: String| Error::new(Kind::Unavailable, what).cure("use --backend socket, and report this");
        let entries = match shape.split {
            Some(split) => vec![usize::from(split), usize::from(shape.octets - split)],
            None => vec![usize::from(shape.octets)],
        };
        // Read back, never assumed: strides may be longer than entries, blocks longer than their slots.
        let sound = layout.blocks.len() == entries.len()
            && layout.capacity >= 16
            && layout.blocks.iter().zip(&entries).all(|(block, entry)| {
                block.stride >= *entry
                    && layout.capacity.checked_mul(block.stride).is_some_and(|octets| {
                        // The last slot needs no more than its entry.
                        octets - (block.stride - entry) <= block.length
                    })
            });
        if !sound {
            return Err(internal(format!("a layout that holds no {} packets: {layout:?}", layout.capacity)));
        }
        let part = |n: usize| -> [usize; 2] {
            layout.blocks.get(n).map_or([0, 0], |block| [layout.capacity * block.stride, block.length])
        };
        let (head, body) = (part(0), part(1));
        // One behind the other: the second begins where the first one's slots end, and must be aligned there.
        let align = if in_sequence { PAGE } else { CACHE_LINE };
        let apart =
            rings == 1 || [head, body].iter().all(|[slots, length]| slots.is_multiple_of(align) && length <= slots);
        if !apart {
            return Err(internal("two rings of this layout cannot lie one behind the other".into()));
        }
        let stride = |n: usize| layout.blocks.get(n).map_or(0, |block| block.stride);
        let short = |n: usize| u32::try_from(n).map_err(|_| internal(format!("a ring of {n} packets is too long")));
        let all = [head, body].iter().all(|[slots, length]| {
            rings.saturating_mul(*slots.max(length)).saturating_add(2 * PAGE) <= u32::MAX as usize
        });
        if !all {
            return Err(Error::new(Kind::Unavailable, format!("a ring of {} packets exceeds 4 GiB", layout.capacity))
                .cure("use a shorter ring (--rivermax hold=…, capacity=…)"));
        }
        let geometry = Geometry {
            slots: short(layout.capacity)?,
            rings: short(rings)?,
            head: short(stride(0))?,
            body: short(stride(1))?,
            margin: short(layout.capacity / 8)?,
            in_sequence,
        };
        Ok(Plan { geometry, shape, head, body })
    }

    fn build<M: Planes>(
        &self,
        library: &Library,
        legs: &[Leg],
        determined: Vec<sys::DeterminedStream>,
        options: &Options,
        from: &M::Source,
        notes: &mut Vec<String>,
    ) -> Result<Built<M>> {
        let rings = self.geometry.rings as usize;
        let octets = |[slots, length]: [usize; 2]| (rings * slots.max(length) + SLACK).next_multiple_of(PAGE);
        let head = M::head(from, octets(self.head))?;
        let body = self.shape.split.map(|_| M::body(from, octets(self.body), notes)).transpose()?;
        let mut sources = Vec::with_capacity(legs.len());
        let mut given: Vec<Given> = Vec::new();
        for (number, (leg, mut stream)) in legs.iter().zip(determined).enumerate() {
            let ring = if rings == 1 { 0 } else { number };
            let known = given.iter().position(|g| g.address == leg.address && g.ring == ring);
            let known = match known {
                Some(known) => known,
                None => {
                    given.push(self.give(library, leg, ring, &head, body.as_ref())?);
                    given.len() - 1
                }
            };
            for (block, plane) in given[known].planes.iter().flatten().enumerate() {
                stream.set_registered(block, plane);
            }
            let what = format!("a stream on {}", leg.interface.name);
            let mut stream = stream.create().map_err(|error| failure::call(what, error))?;
            let chunk = if legs.len() > 1 { CHUNK_OF_TWO } else { CHUNK };
            let chunk = chunk.min(self.geometry.slots as usize / 8);
            let timeout = if options.events { TELL_US } else { 0 };
            let failed = |error| failure::call("setting how it tells of packets", error);
            stream.set_completion_moderation(0, chunk, timeout).map_err(failed)?;
            if options.events {
                stream.open_events().map_err(|error| failure::call("waiting for the card", error))?;
            }
            sources.push(Source::new(stream, number as u8, self.planes(&head, body.as_ref()), Clock::new(0)));
        }
        let ring = match body {
            Some(body) => SplitRing::split(head, body),
            None => SplitRing::whole(head),
        };
        let Geometry { slots, rings, body, in_sequence, .. } = self.geometry;
        let payload = (in_sequence && rings == 1 && body > 0).then_some(body as usize);
        Ok(Built {
            ring: ring.overwritten_in_time(self.geometry)?,
            sources,
            slots: slots as usize,
            octets: self.shape.octets,
            payload,
        })
    }

    /// Gives the planes of a leg's ring to its card.
    fn give<M: Space>(
        &self,
        library: &Library,
        leg: &Leg,
        ring: usize,
        head: &Region<M::Head>,
        body: Option<&Region<M>>,
    ) -> Result<Given> {
        let head = register(library, leg, head, ring * self.head[0], self.head[1])?;
        let body = body.map(|body| register(library, leg, body, ring * self.body[0], self.body[1])).transpose()?;
        Ok(Given { address: leg.address, ring, planes: [Some(head), body] })
    }

    /// Where slots lie, for telling pointers.
    fn planes<M: Space>(&self, head: &Region<M::Head>, body: Option<&Region<M>>) -> [super::chunks::Plane; 2] {
        let all = self.geometry.slots as usize * self.geometry.rings as usize;
        let split = self.shape.split.unwrap_or(self.shape.octets);
        let plane = |base: usize, stride: u32, entry: u16| super::chunks::Plane {
            base,
            stride: stride as usize,
            octets: all * stride as usize,
            entry: entry.into(),
        };
        [
            plane(head.as_ptr() as usize, self.geometry.head, split),
            plane(body.map_or(0, |body| body.as_ptr() as usize), self.geometry.body, self.shape.octets - split),
        ]
    }
}

/// What a card has been given of a ring: once for all streams of one port.
struct Given {
    address: Ipv4Addr,
    ring: usize,
    planes: [Option<Arc<sys::Registration>>; 2],
}

/// Gives a part of a plane to a card.
fn register<M: Space>(
    library: &Library,
    leg: &Leg,
    plane: &Region<M>,
    at: usize,
    length: usize,
) -> Result<Arc<sys::Registration>> {
    let internal = || Error::new(Kind::Internal, "a ring's part outside of its memory").cure("please report this");
    if at.checked_add(length).is_none_or(|end| end > plane.len()) {
        return Err(internal());
    }
    let start = NonNull::new(plane.as_ptr().cast_mut()).ok_or_else(internal)?;
    // SAFETY: inside of the plane, checked above.
    let start = unsafe { start.add(at) };
    // SAFETY: the plane's owner, kept by the registration, keeps the memory; its readers are those of a ring that is
    // overwritten in time.
    let registered = unsafe { library.session().register(&leg.port, start, length, plane.owner()) };
    let mib = length.div_ceil(1 << 20);
    let what = format!("giving {mib} MiB to {}", leg.interface.name);
    registered.map(Arc::new).map_err(|error| failure::call(what, error))
}

//! What is opened once: the library, devices, the ring's memory, and a queue a leg. Cold; every refusal says why.

use super::failure;
use super::feed::{Clock, Feed};
use super::leg::Leg;
use super::library::{self, Device, Library, Memory, Plane, Stamping};
use super::options::Options;
use super::payload::Payload;
use super::ring::Shape;
use super::slots::Slots;
use crate::error::{Error, Kind, Result};
use crate::mem::Region;
use crate::ring::SplitRing;
use crate::rx::socket::{self, tai_offset};
use std::path::PathBuf;
use std::sync::Arc;

/// Names the library in place of `libibverbs.so.1`.
const VARIABLE: &str = "GDMEDIA_VERBS_LIBRARY";

/// With these libibverbs is told of further drivers.
const DRIVERS: [&str; 2] = ["RDMAV_DRIVERS", "IBV_DRIVERS"];

/// The library that is asked for.
pub fn library(options: &Options, notes: &mut Vec<String>) -> Result<Library> {
    let path = match &options.library {
        Some(path) => Some(path.clone()),
        None => std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from),
    };
    // Whoever may start a program with rights of its own may not choose what runs with these.
    if path.is_some() && library::has_rights_of_its_own() {
        return Err(Error::new(
            Kind::Usage,
            "this program has file capabilities or is setuid: it takes no other library",
        )
        .cure(format!("take library=… and {VARIABLE} away, or run it as root without them")));
    }
    // Nor does libibverbs look who chose: it compares user ids, which are the same where a file has capabilities.
    let chosen = DRIVERS.into_iter().find(|name| std::env::var_os(name).is_some());
    if let Some(name) = chosen.filter(|_| library::has_rights_of_its_own()) {
        return Err(Error::new(
            Kind::Usage,
            format!("this program has file capabilities or is setuid, and {name} names drivers that would run with these rights"),
        )
        .cure(format!("take {name} away")));
    }
    if let Some(path) = &path {
        notes.push(format!("verbs by the library {}", path.display()));
    }
    let library = Library::load(path.as_deref()).map_err(failure::library)?;
    // Some make their devices, and the files that show them, when they are asked for the first time.
    let _ = library.devices();
    Ok(library)
}

/// Opens a device by its name.
pub fn device(library: Library, name: &str) -> Result<Arc<Device>> {
    Device::open(library, name).map_err(|why| {
        let known = library.devices().unwrap_or_default();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        failure::call(format_args!("opening {name} (the library knows {known})"), why)
    })
}

/// A ring with its queues.
pub struct Built<M: Payload> {
    pub ring: SplitRing<M>,
    pub feeds: Vec<Feed>,
    pub shape: Shape,
}

/// Everything between the legs and the first packet.
///
/// # Errors
/// No memory, no rights, or a device refuses.
pub fn build<M: Payload>(
    library: Library,
    legs: &[Leg],
    options: &Options,
    from: &M::Source,
    notes: &mut Vec<String>,
) -> Result<Built<M>> {
    let shape = Shape::new(options, legs.len(), M::CUT)?;
    let [head_octets, body_octets] = shape.planes();
    // Legs by one device share it, and what it was given.
    let mut devices: Vec<(&str, Arc<Device>)> = Vec::new();
    for leg in legs {
        if !devices.iter().any(|(name, _)| *name == leg.port.device) {
            devices.push((&leg.port.device, device(library, &leg.port.device)?));
        }
    }
    let head = M::head(from, head_octets)?;
    let body = if shape.is_cut() { Some(M::body(from, body_octets, notes)?) } else { None };
    let mut given = Vec::new();
    for (name, device) in &devices {
        let mib = head.len().div_ceil(1 << 20);
        let kept =
            device.register(&head).map_err(|why| failure::call(format_args!("giving {mib} MiB to {name}"), why))?;
        let cut = body.as_ref().map(|body| M::give(device, body, from, notes)).transpose()?;
        given.push((kept, cut));
    }
    let mut feeds = Vec::with_capacity(legs.len());
    for (number, leg) in legs.iter().enumerate() {
        let place = devices.iter().position(|(name, _)| *name == leg.port.device).unwrap_or(0);
        let (Some((_, device)), Some((kept, cut))) = (devices.get(place), given.get(place)) else {
            return Err(Error::new(Kind::Internal, "a leg without a device"));
        };
        let planes = [Some(plane(kept, &head, shape.head_stride, shape.head)), None];
        let planes = match (cut, &body) {
            (Some(cut), Some(body)) => {
                let [head, _] = planes;
                [head, Some(plane(cut, body, shape.body_stride, shape.body))]
            }
            _ => planes,
        };
        feeds.push(feed(number, leg, device, planes, &shape, options, notes)?);
    }
    let ring = match body {
        Some(body) => SplitRing::split(head, body),
        None => SplitRing::whole(head),
    };
    notes.push(ring_note(&ring, &shape, options, M::NAME));
    Ok(Built { ring, feeds, shape })
}

fn plane<M: crate::mem::Space>(memory: &Arc<Memory>, region: &Region<M>, stride: u32, octets: u16) -> Plane {
    Plane { memory: memory.clone(), start: region.as_ptr() as u64, stride, octets: octets.into() }
}

/// The queue of a leg, which takes what its rules give it, and has entries.
fn feed(
    number: usize,
    leg: &Leg,
    device: &Arc<Device>,
    planes: [Option<Plane>; 2],
    shape: &Shape,
    options: &Options,
    notes: &mut Vec<String>,
) -> Result<Feed> {
    let name = &leg.port.device;
    let limits = device.limits();
    if shape.is_cut() && limits.pieces < 2 {
        return Err(Error::new(Kind::Unavailable, format!("{name} cannot cut packets in two"))
            .cure("receive into memory of the host: --gpu off, or --verbs cut=none"));
    }
    let entries = shape.slots.min(limits.entries.max(1)).min(limits.completions.max(1));
    let mut told = Vec::new();
    if entries < shape.slots {
        let time = match options.rate {
            0 => String::new(),
            rate => format!(", {:.0} ms", f64::from(entries) * 1e3 / rate as f64),
        };
        told.push(format!("{name} takes {entries} entries at a time{time}; the ring has {}", shape.slots));
    }
    let wanted = match options.stamps {
        socket::Stamping::Software => Stamping::None,
        _ => Stamping::Nanos,
    };
    let queue = library::Queue::open(device, leg.port.number, planes, entries, wanted, options.events)
        .map_err(|why| failure::call(format_args!("a queue on {name} ({})", leg.interface.name), why))?;
    let clock = Clock::new(queue.stamps(), device, tai_offset(options.utc_offset_s));
    let without = match (&clock, queue.stamps()) {
        (Some(_), Stamping::Nanos) => None,
        (Some(_), _) => {
            told.push(format!("time stamps by the counter of {name}, {} kHz", limits.clock_khz));
            None
        }
        (None, _) if options.stamps == socket::Stamping::Software => Some("stamps of software were asked for".into()),
        (None, Stamping::None) => Some(format!("{name} stamps no completions")),
        (None, _) => Some(format!("{name} does not say how fast its counter is")),
    };
    match without {
        None if queue.stamps() == Stamping::Nanos => told.push(format!("time stamps by the clock of {name}")),
        None => {}
        Some(why) if options.stamps == socket::Stamping::Hardware => return Err(socket::stamps::none(&why)),
        Some(why) => told.push(format!("arrival times are those of the poll: {why}")),
    }
    let prefix = |note: String| if number == 0 { note } else { format!("leg {number}: {note}") };
    notes.extend(told.into_iter().map(prefix));
    let slots = Slots::new(number as u32 * shape.slots, shape.slots as usize, entries as usize);
    let before = leg.port.out_of_buffer();
    if before.is_none() {
        notes.push(format!("warning: {name} does not count packets for which there was no entry (out_of_buffer)"));
    }
    let mut feed = Feed::new(queue, slots, device.clone(), clock, before.unwrap_or(0));
    feed.replenish();
    if let Some(error) = feed.refused.filter(|_| feed.slots.posted() == 0) {
        let why = library::Failure { call: "ibv_post_recv".into(), error, text: String::new() };
        return Err(failure::call(format_args!("handing entries to {name}"), why));
    }
    feed.refused = None;
    Ok(feed)
}

fn ring_note<M: Payload>(ring: &SplitRing<M>, shape: &Shape, options: &Options, name: &str) -> String {
    let mib = |octets: usize| octets.div_ceil(1 << 20);
    let time = match options.rate {
        0 => String::new(),
        rate => format!(", {:.0} ms", f64::from(shape.slots) * 1e3 / rate as f64),
    };
    let legs = if shape.legs > 1 { " a leg" } else { "" };
    let heads = mib(ring.head_plane().len());
    let place = match ring.body_plane().map(Region::len) {
        Some(body) => {
            let (head, body) = (shape.head, mib(body));
            format!("the first {head} octets of frames in {heads} MiB of the host, the rest in {body} MiB, {name}")
        }
        None => format!("packets whole in {heads} MiB, {}", if M::CUT { "memory of the host" } else { name }),
    };
    format!("ring of {} packets{legs}{time}: {place}", shape.slots)
}

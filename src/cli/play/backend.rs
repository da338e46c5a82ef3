//! Which receiver is used, and why no other: `--backend`.

mod dpdk;
mod rivermax;
mod verbs;

use super::{Args, CaptureClock, HOLD, Pace, report};
use clap::ValueEnum;
use gdmedia::error::{Error, Kind, Result};
use gdmedia::format::Layout;
use gdmedia::gpu::Gpu;
#[cfg(all(feature = "cuda", feature = "bypass"))]
use gdmedia::mem::Device;
use gdmedia::mem::Host;
use gdmedia::rx::{Receiver, fault, pcap, renewed, socket, tap, xdp};
use gdmedia::sdp::{Flow, Video};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
#[cfg(feature = "bypass")]
use std::sync::atomic::Ordering;

/// Where packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The best that this machine and the interface have
    Auto,
    /// UDP sockets of the operating system
    Socket,
    /// AF_XDP: packets are taken before the kernel's network stack; needs rights, or a helper
    Xdp,
    /// NVIDIA Rivermax: the card writes into the ring by itself
    Rivermax,
    /// ibverbs: a card of Mellanox or NVIDIA writes into the ring by itself; needs no licence
    Verbs,
    /// DPDK: its drivers take a port away from the kernel, or a virtual one
    Dpdk,
}

/// Opens the receiver of so many legs, the first ones; `gpu`: frames are to be unpacked there. What it had to do without is
/// added to the list.
type Open = fn(Inputs<'_>, usize, Option<&Arc<Gpu>>, &mut Vec<Passed>) -> Result<Receiving>;

/// Those that go round the kernel and may write into memory of the GPU, in the order in which `auto` tries them.
const BYPASS: [(Backend, &str, Open); 3] = [
    (Backend::Rivermax, "rivermax", |inputs, legs, gpu, passed| inputs.rivermax(legs, gpu, passed)),
    (Backend::Verbs, "verbs", |inputs, legs, gpu, passed| inputs.verbs(legs, gpu, passed)),
    (Backend::Dpdk, "dpdk", |inputs, legs, gpu, passed| inputs.dpdk(legs, gpu, passed)),
];

impl Backend {
    fn is_bypass(self) -> bool {
        BYPASS.iter().any(|one| one.0 == self)
    }
}

/// A receiver of the CPU.
pub type HostReceiver = Box<dyn Receiver<Mem = Host>>;

/// A receiver by where its octets lie.
pub enum Receiving {
    Host(HostReceiver),
    /// In memory of the GPU.
    #[cfg(all(feature = "cuda", feature = "bypass"))]
    Device(Box<dyn Receiver<Mem = Device>>),
}

/// A backend that is not used although it might have been.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Passed {
    pub backend: &'static str,
    pub reason: String,
}

/// What was chosen.
pub struct Opened {
    pub receiver: Receiving,
    /// Those of legs that have another backend than the first one, or an interface of their own.
    pub more: Vec<HostReceiver>,
    /// Of each leg: who receives it, 0 the first one.
    pub legs: Vec<usize>,
    pub passed: Vec<Passed>,
}

impl Opened {
    /// One receiver of all legs.
    fn one(receiver: Receiving, passed: Vec<Passed>) -> Self {
        Opened { receiver, more: Vec::new(), legs: Vec::new(), passed }
    }
}

/// What receivers are made from.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub args: &'a Args,
    pub flow: &'a Flow,
    pub video: &'a Video,
    /// Of the frames that are wanted.
    #[cfg_attr(not(feature = "rivermax"), allow(dead_code))]
    pub layout: &'a Layout,
    /// The run is to end.
    #[cfg_attr(not(feature = "rivermax"), allow(dead_code))]
    pub stop: &'a AtomicBool,
}

impl Inputs<'_> {
    /// The receiver that the options ask for. `gpu`: frames are to be unpacked there.
    ///
    /// # Errors
    /// A backend is named that cannot be had, or none can.
    pub fn open(self, gpu: Option<&Arc<Gpu>>) -> Result<Opened> {
        let named = |backend| self.args.backend.contains(&backend);
        let told = [
            (Backend::Rivermax, "rivermax", &self.args.rivermax),
            (Backend::Verbs, "verbs", &self.args.verbs),
            (Backend::Dpdk, "dpdk", &self.args.dpdk),
        ];
        let left_out = |(backend, _, words): &&(Backend, &str, &Option<String>)| words.is_some() && !named(*backend);
        if let Some((_, name, _)) = told.iter().find(left_out).filter(|_| !named(Backend::Auto)) {
            return Err(Error::new(
                Kind::Usage,
                format!("--{name} tells {name} something, and --backend leaves it out"),
            )
            .cure("leave one of them out"));
        }
        if !named(Backend::Xdp) && self.args.xdp.is_some() {
            return Err(Error::new(Kind::Usage, "--xdp tells AF_XDP something, and --backend does not name it")
                .cure("add --backend xdp, or leave --xdp out"));
        }
        if let Some(path) = &self.args.pcap {
            let pace = match self.args.pace {
                Pace::Full => pcap::Pace::Full,
                Pace::Recorded => pcap::Pace::Recorded,
            };
            let mut capture = pcap::Pcap::open(path, pace)?;
            if matches!(self.args.pcap_clock, CaptureClock::Utc) {
                capture.set_offset(self.args.utc_offset.into());
            }
            return Ok(Opened::one(Receiving::Host(self.wrapped(Box::new(capture))?), Vec::new()));
        }
        // A word that nobody knows is no reason to receive otherwise.
        self.check_rivermax()?;
        self.check_verbs()?;
        self.check_dpdk()?;
        let mut passed = Vec::new();
        let legs = self.receivers()?;
        let mut all = Vec::new();
        for (number, backend) in legs.iter().enumerate().filter(|(n, _)| !legs[..*n].iter().any(|l| l.0 == legs[*n].0))
        {
            let of_it = legs.iter().filter(|leg| leg.0 == backend.0).count();
            let receiver = self.open_one(backend.1, number, of_it, gpu, &mut passed)?;
            all.push(receiver);
        }
        let mut all = all.into_iter();
        let Some(receiver) = all.next() else {
            return Err(Error::new(Kind::Internal, "a flow without legs"));
        };
        let more = all.map(|receiver| match receiver {
            Receiving::Host(receiver) => Ok(receiver),
            #[cfg(all(feature = "cuda", feature = "bypass"))]
            Receiving::Device(_) => Err(Error::new(Kind::Internal, "a second receiver in memory of the GPU")),
        });
        Ok(Opened {
            receiver,
            more: more.collect::<Result<_>>()?,
            legs: legs.iter().map(|leg| leg.0).collect(),
            passed,
        })
    }

    /// The backend that is asked for a leg.
    fn backend(self, leg: usize) -> Backend {
        let named = &self.args.backend;
        named.get(leg).or(named.last()).copied().unwrap_or(Backend::Auto)
    }

    /// By leg: the number of its receiver, and the backend of that. Legs of one backend share a receiver; but with AF_XDP
    /// each interface has one, so that one that vanishes is no other's business.
    ///
    /// # Errors
    /// What is asked for needs one receiver for all legs, or one that goes round the kernel is not to have the first ones.
    fn receivers(self) -> Result<Vec<(usize, Backend)>> {
        let alone = self.args.tap.as_ref().map(|_| "--tap").or(self.args.fault.as_ref().map(|_| "--fault"));
        let interface = |leg: usize| self.args.interface.get(leg).or(self.args.interface.last());
        let mut list: Vec<(usize, Backend)> = Vec::new();
        for leg in 0..self.flow.legs.len() {
            let backend = self.backend(leg);
            let apart = backend == Backend::Xdp && alone.is_none();
            let same = |(n, other): &(usize, &(usize, Backend))| {
                other.1 == backend && (!apart || interface(*n) == interface(leg))
            };
            let known = list.iter().enumerate().find(same).map(|(_, (receiver, _))| *receiver);
            let next = list.iter().map(|(receiver, _)| receiver + 1).max().unwrap_or(0);
            list.push((known.unwrap_or(next), backend));
        }
        if let (Some(option), true) = (alone, list.iter().any(|leg| leg.0 > 0)) {
            return Err(Error::new(Kind::Usage, format!("{option} wants all legs from one receiver"))
                .cure(format!("name one backend for all legs, or leave {option} out")));
        }
        let first_ones = list.iter().take_while(|leg| leg.0 == 0).count();
        let later = |leg: &&(usize, Backend)| leg.1.is_bypass() || leg.0 == 0 && list[0].1 == Backend::Auto;
        if let Some(leg) = list.iter().skip(first_ones).find(later) {
            let name = BYPASS.iter().find(|one| one.0 == leg.1).map_or("rivermax", |one| one.1);
            return Err(Error::new(
                Kind::Usage,
                format!("{name} can take the first legs only, beside another backend"),
            )
            .cure(format!("name it first: --backend {name},socket; or take socket or xdp")));
        }
        Ok(list)
    }

    /// The receiver of `count` legs, of which the first one is `leg`.
    fn open_one(
        self,
        backend: Backend,
        leg: usize,
        count: usize,
        gpu: Option<&Arc<Gpu>>,
        passed: &mut Vec<Passed>,
    ) -> Result<Receiving> {
        if backend == Backend::Xdp {
            return Ok(Receiving::Host(self.wrapped(self.xdp(gpu.is_some())?)?));
        }
        for (one, name, open) in BYPASS {
            if leg > 0 || !(backend == one || backend == Backend::Auto) {
                continue;
            }
            match open(self, count, gpu, passed) {
                Ok(receiver) => return Ok(receiver),
                Err(error) if backend == one => return Err(error),
                Err(error) => passed.push(Passed { backend: name, reason: error.in_one_line() }),
            }
        }
        if backend == Backend::Auto {
            let reason =
                "it takes the flow away from the kernel and needs rights, so it has to be asked for: --backend xdp";
            passed.push(Passed { backend: "xdp", reason: reason.into() });
        }
        Ok(Receiving::Host(self.wrapped(self.socket(gpu.is_some())?)?))
    }

    /// UDP sockets; `gpu`: a GPU reads their ring.
    pub fn socket(self, gpu: bool) -> Result<HostReceiver> {
        let Inputs { args, flow, video, .. } = self;
        Ok(Box::new(socket::Socket::open(socket::Options {
            interfaces: args.interface.clone(),
            max_octets: self.max_octets(),
            buffer_octets: args.buffer << 20,
            rate: report::bit_rate(flow, video),
            utc_offset_s: args.utc_offset,
            stamps: args.stamps.into(),
            cells: if gpu { socket::cells_for(report::packet_rate(flow, video), HOLD) } else { socket::CELLS },
            ..socket::Options::default()
        })?))
    }

    /// AF_XDP; `gpu`: a GPU reads its ring, which then stays the one that it knows.
    fn xdp(self, gpu: bool) -> Result<HostReceiver> {
        let mut options = xdp::Options {
            interfaces: self.args.interface.clone(),
            max_octets: self.max_octets(),
            packets: report::packet_rate(self.flow, self.video),
            utc_offset_s: self.args.utc_offset,
            stamps: self.args.stamps.into(),
            ..xdp::Options::default()
        };
        options.change(self.args.xdp.as_deref().unwrap_or_default())?;
        if gpu {
            return Ok(Box::new(xdp::Xdp::open(options)?));
        }
        let open = move || -> Result<HostReceiver> { Ok(Box::new(xdp::Xdp::open(options.clone())?)) };
        Ok(Box::new(renewed::Renewed::new(Box::new(open))?))
    }

    /// The limits of ST 2110-10 count the UDP header.
    fn max_octets(self) -> u16 {
        u16::try_from(self.video.max_udp.saturating_sub(8)).unwrap_or(u16::MAX)
    }

    /// With the faults and the tap that are asked for.
    fn wrapped(self, mut receiver: HostReceiver) -> Result<HostReceiver> {
        if let Some(plan) = &self.args.fault {
            receiver = Box::new(fault::Fault::new(receiver, fault::FaultPlan::named(plan)?)?);
        }
        if let Some(path) = &self.args.tap {
            receiver = Box::new(tap::Tap::create(receiver, path)?);
        }
        Ok(receiver)
    }
}

/// What those that go round the kernel share.
#[cfg(feature = "bypass")]
impl Inputs<'_> {
    #[cfg_attr(not(feature = "rivermax"), allow(dead_code))]
    fn goes_on(self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// A receiver that writes into memory of the GPU, by `open`.
    ///
    /// # Errors
    /// The CPU is to read or to write octets, which it cannot there; or as of `open`.
    #[cfg(feature = "cuda")]
    fn in_device<R: Receiver<Mem = Device> + 'static>(
        self,
        gpu: &Gpu,
        open: impl FnOnce() -> Result<R>,
    ) -> Result<Box<dyn Receiver<Mem = Device>>> {
        if self.args.tap.is_some() {
            return Err(Error::new(Kind::Unavailable, "--tap records octets, which the CPU cannot read there"));
        }
        let plan = self.args.fault.as_deref().map(fault::FaultPlan::named).transpose()?;
        if plan.as_ref().is_some_and(fault::FaultPlan::alters) {
            return Err(Error::new(Kind::Unavailable, "--fault changes octets, which the CPU cannot write there"));
        }
        if let Some(mib) = self.args.gpu_memory {
            gpu.budget().set_limit(mib.saturating_mul(1 << 20));
        }
        let receiver = open()?;
        match plan {
            Some(plan) => Ok(Box::new(fault::Fault::unaltered(receiver, plan)?)),
            None => Ok(Box::new(receiver)),
        }
    }
}

impl Inputs<'_> {
    /// What takes the place of a receiver in memory of the GPU, when the GPU cannot be used after all.
    ///
    /// # Errors
    /// As of [`Inputs::open`].
    pub fn in_host(self, receiver: Receiving, passed: &mut Vec<Passed>) -> Result<HostReceiver> {
        let _ = &passed;
        match receiver {
            Receiving::Host(receiver) => Ok(receiver),
            #[cfg(all(feature = "cuda", feature = "bypass"))]
            receiver @ Receiving::Device(_) => {
                drop(receiver);
                let opened = self.open(None)?;
                passed.extend(opened.passed);
                match opened.receiver {
                    Receiving::Host(receiver) => Ok(receiver),
                    Receiving::Device(_) => Err(Error::new(Kind::Internal, "a receiver for a GPU that is not used")),
                }
            }
        }
    }
}

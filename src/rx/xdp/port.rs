//! The queues of one interface that are served, and who keeps the filter for them.
#![allow(unsafe_code)]

use super::device::{self, Attached, Device};
use super::filter::{Filter, Lock, RIGHTS, Wish, words};
use super::helper::Connection;
use super::program::{MAX_QUEUES, Queues, Wanted};
use super::socket::{self, Queue, Statistics};
use super::stamps;
use super::steer::{self, Card, Flow, Rule, Which};
use super::umem::Frames;
use super::{Mode, Options};
use crate::error::{Error, Kind, Result};
use crate::rx::card::Stamps;
use crate::rx::socket::{MAX_LEGS, tai_offset};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Entries of a ring at most: one of a few queues, one of many.
const LARGE_RING: u32 = 131_072;
const SMALL_RING: u32 = 16_384;
/// How long queues of a receiver that has just ended take to be free.
const PATIENCE: Duration = Duration::from_millis(500);
/// Frames that a queue has at least.
const LEAST_DEPTH: u32 = 64;

/// An interface.
pub struct Port {
    index: u32,
    device: Device,
    /// Queues that it has, and that may be served.
    count: u32,
    attached: Attached,
    queues: Vec<Queue>,
    /// Frames that are kept for queues which are not served yet.
    reserved: u32,
    keeper: Keeper,
    /// Of the card, where its stamps are taken.
    stamps: Option<Stamps>,
    /// The interface is there no more.
    pub gone: bool,
}

/// Who changes the filter.
enum Keeper {
    /// This process.
    Own(Filter),
    /// A helper, which has the rights for it.
    Helper(Connection),
}

impl Port {
    /// Finds or attaches the filter of an interface; [`Port::serve`] takes queues.
    ///
    /// # Errors
    /// No permission, no support.
    pub fn open(index: u32, options: &Options, notes: &mut Vec<String>) -> Result<Self> {
        let device = device::query(index).map_err(|e| {
            Error::new(Kind::Unavailable, format!("interface number {index} does not answer")).because(e)
        })?;
        let count = device.queues().min(MAX_QUEUES);
        if let Some(queue) = options.queue.filter(|queue| *queue >= count) {
            return Err(Error::new(Kind::Usage, format!("{} has no queue {queue}", device.name))
                .cure(format!("choose one from 0 to {}", count - 1)));
        }
        let (keeper, attached, chosen) = match &options.helper {
            Some(path) => {
                let (connection, attached, chosen) = Connection::open(path, &device.name, options, notes)?;
                (Keeper::Helper(connection), attached, chosen)
            }
            None => {
                let wish = wish_for(options);
                let lock = Lock::take()?;
                let filter = Filter::open(index, &wish, &lock, notes)?;
                let (attached, chosen) = (filter.attached, stamps::choose(&filter.stamps, &device.name, &wish)?);
                (Keeper::Own(filter), attached, chosen)
            }
        };
        notes.push(chosen.note());
        let stamps = chosen.takes().map(|each| Stamps::new(tai_offset(options.utc_offset_s), each));
        Ok(Port { index, device, count, attached, queues: Vec::new(), reserved: 0, keeper, stamps, gone: false })
    }

    /// Takes the queues by which a flow may come, as far as they are not served yet: the one that a rule of the card leads
    /// it to, else all. Returns the rule when it was made for this.
    ///
    /// # Errors
    /// No permission, no memory, queues that others have.
    pub fn serve(
        &mut self,
        wanted: &Wanted,
        options: &Options,
        frames: &mut Frames,
        notes: &mut Vec<String>,
    ) -> Result<Option<Rule>> {
        let name = self.device.name.clone();
        let count = self.count;
        let mut take = |which, notes: &mut Vec<String>| match which {
            Which::One(queue) => self.take(&[queue], 1, options, frames, notes),
            Which::Any => match self.queues.first() {
                Some(served) => Ok(served.number),
                // What no rule leads comes by the first ones most.
                None => self.take(&(0..count).rev().collect::<Vec<_>>(), 1, options, frames, notes),
            },
            Which::All => self.take(&(0..count).collect::<Vec<_>>(), count as usize, options, frames, notes),
        };
        let card = match Card::open(&name) {
            Ok(card) if count > 1 => card,
            _ => return take(options.queue.map_or(Which::All, Which::One), notes).map(|_| None),
        };
        let wish = steer::Wish { name: &name, count, queue: options.queue, steer: options.steer };
        steer::serve(card, Flow::new(wanted), &wish, notes, &mut take)
    }

    /// Takes `enough` of the queues in `wanted`, or as many as are free; those that are served count. Returns one of them.
    fn take(
        &mut self,
        wanted: &[u32],
        enough: usize,
        options: &Options,
        frames: &mut Frames,
        notes: &mut Vec<String>,
    ) -> Result<u32> {
        let is_served = |queue: &&u32| self.queues.iter().any(|have| have.number == **queue);
        let known = wanted.iter().find(is_served).copied();
        let missing: Vec<u32> = wanted.iter().filter(|queue| !is_served(queue)).copied().collect();
        let enough = enough.saturating_sub(wanted.len() - missing.len());
        let mut new = Vec::new();
        let bound = self.bind(&missing, enough, options, frames, notes, &mut new);
        // Also after an error: frames are in them. A helper forgets what it has handed over in vain.
        let claimed = self.claim(&new);
        let (first, count) = (new.first().map(|queue| queue.number), new.len());
        self.queues.extend(new);
        let taken = bound?;
        claimed?;
        let Some(one) = known.or(first) else {
            return Err(Error::new(
                Kind::Unavailable,
                format!("queue {} of {} belongs to another AF_XDP socket", taken.join(", "), self.device.name),
            )
            .cure("a queue serves one program: choose another with --xdp queue=N (and steer the flow to it with ethtool -N), or receive with sockets"));
        };
        if count < enough {
            notes.push(format!(
                "warning: queue {} belongs to another AF_XDP socket; what comes there is lost",
                taken.join(", ")
            ));
        }
        Ok(one)
    }

    /// Binds sockets to `enough` of the queues in `wanted`, or to as many as are free: `queues`. Returns those that are not
    /// free.
    fn bind(
        &mut self,
        wanted: &[u32],
        enough: usize,
        options: &Options,
        frames: &mut Frames,
        notes: &mut Vec<String>,
        queues: &mut Vec<Queue>,
    ) -> Result<Vec<String>> {
        let name = &self.device.name;
        let zero_copy = match options.mode {
            Some(mode) => Some(mode == Mode::ZeroCopy),
            None if self.attached == Attached::Native => None,
            None => Some(false),
        };
        let largest = if enough > MAX_LEGS { SMALL_RING } else { LARGE_RING };
        let entries = frames.count().next_power_of_two().min(largest);
        let share = (frames.count() / (MAX_LEGS * enough.max(1)) as u32).max(LEAST_DEPTH);
        let may = if options.queue.is_some() { 1 } else { self.count };
        if self.queues.is_empty() && self.reserved == 0 {
            self.reserved = frames.promise((may * LEAST_DEPTH).min(frames.count() / 4));
        }
        let least = self.reserved / may.saturating_sub(self.queues.len() as u32).max(1);
        let until = Instant::now() + PATIENCE;
        let (mut taken, mut refusal, mut busy_refusal) = (Vec::new(), None, None);
        for number in wanted {
            if queues.len() == enough {
                break;
            }
            let fd = match &self.keeper {
                Keeper::Helper(connection) => connection.socket(*number)?,
                Keeper::Own(_) => socket::new().map_err(|e| no_socket(name, e))?,
            };
            // SAFETY: the frames' memory is the receiver's ring, which ends after its ports; frames are given to the kernel
            // by `Rings::refill` alone, and written to by nobody else.
            let opened =
                unsafe { Queue::open(fd, self.index, *number, frames, entries, zero_copy, until, &mut refusal) };
            match opened {
                Ok(mut queue) => {
                    self.reserved -= least;
                    queue.rings().set_depth(least + frames.promise(share.saturating_sub(least)));
                    queue.rings().refill(frames);
                    if let Some(how) = options.busy_poll {
                        busy_refusal = queue.poll_busily(how).err().or(busy_refusal);
                    }
                    queue.wake();
                    queues.push(queue);
                }
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => taken.push(number.to_string()),
                Err(e) => return Err(not_bound(name, *number, options.mode, frames, e)),
            }
        }
        let Some(first) = queues.first() else { return Ok(taken) };
        let copies = match (first.zero_copy, &refusal) {
            (true, _) => "zero copy".to_owned(),
            (false, Some(e)) => format!("packets are copied once (zero copy: {e})"),
            (false, None) => "packets are copied once".to_owned(),
        };
        let numbers: Vec<String> = queues.iter().map(|queue| queue.number.to_string()).collect();
        notes.push(format!("AF_XDP on {name}: {} mode, {copies}; queue {}", words(self.attached), numbers.join(", ")));
        if self.attached == Attached::Generic && self.queues.is_empty() {
            notes.push(
                "generic mode: packets that come unsegmented (GSO of virtual interfaces) are too large and dropped"
                    .into(),
            );
        }
        if let Some(e) = busy_refusal {
            notes.push(format!("warning: no busy polling: {e}"));
        }
        Ok(taken)
    }

    /// Puts the sockets of new queues into the filter.
    fn claim(&self, new: &[Queue]) -> Result<()> {
        match &self.keeper {
            Keeper::Helper(connection) => {
                connection.claim(&self.queues.iter().chain(new).map(|queue| queue.number).collect::<Vec<_>>())
            }
            Keeper::Own(filter) => {
                let lock = Lock::take()?;
                new.iter().try_for_each(|queue| {
                    filter.claim(queue.number, queue.as_fd(), &lock).map_err(|e| not_changed(&self.device.name, e))
                })
            }
        }
    }

    /// The interface's number.
    pub const fn index(&self) -> u32 {
        self.index
    }
    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.device.name
    }
    /// The queues that are served.
    pub fn queues(&mut self) -> &mut [Queue] {
        &mut self.queues
    }
    /// The same from one of them on, which `turn` says; then those before. And the card's stamps, where they are taken.
    pub fn queues_from(&mut self, turn: usize) -> ([&mut [Queue]; 2], Option<&mut Stamps>) {
        let first = turn.checked_rem(self.queues.len()).unwrap_or(0);
        let (last, first) = self.queues.split_at_mut(first);
        ([first, last], self.stamps.as_mut())
    }
    /// The card's stamps, where they are taken.
    pub const fn stamps(&self) -> Option<&Stamps> {
        self.stamps.as_ref()
    }
    /// The interface's name, each queue and what it has counted.
    pub fn statistics(&self) -> impl Iterator<Item = (&str, &Queue, Statistics)> {
        self.queues.iter().map(|queue| (self.device.name.as_str(), queue, queue.statistics()))
    }

    /// Takes a flow. `beside` is a socket that is bound to it.
    ///
    /// # Errors
    /// Another receiver has it.
    pub fn add(&mut self, wanted: &Wanted, beside: &impl AsFd) -> Result<()> {
        let bits = bits(self.queues.iter().map(|queue| queue.number));
        match &mut self.keeper {
            Keeper::Helper(connection) => connection.add(wanted, beside.as_fd()),
            Keeper::Own(filter) => match self.queues.first() {
                Some(probe) => add(filter, &self.device.name, wanted, bits, probe.as_fd()),
                None => Ok(()),
            },
        }
    }

    /// Gives a flow back.
    pub fn remove(&mut self, wanted: &Wanted) {
        match &mut self.keeper {
            Keeper::Own(filter) => wanted.keys().iter().for_each(|key| filter.remove(key)),
            Keeper::Helper(connection) => connection.remove(wanted),
        }
    }

    /// What may keep packets from coming.
    pub fn warnings(&self, vlan: u16, longest: u32) -> Vec<String> {
        let mut all = Vec::new();
        let name = &self.device.name;
        if self.device.mtu + 18 > longest {
            all.push(format!(
                "packets of more than {longest} octets (the MTU of {name} is {}) are dropped",
                self.device.mtu
            ));
        }
        if vlan != 0 && self.device.strips_vlans() {
            all.push(format!(
                "warning: {name} may take VLAN tags off before the filter sees them; ethtool -K {name} rxvlan off"
            ));
        }
        all
    }
}

/// The queues as bits.
pub fn bits(queues: impl Iterator<Item = u32>) -> Queues {
    queues.filter(|queue| *queue < MAX_QUEUES).fold(0, |bits, queue| bits | 1 << queue)
}

/// What options want of a filter.
const fn wish_for(options: &Options) -> Wish {
    Wish {
        attached: attached_for(options.mode),
        stamps: options.stamps,
        #[cfg(test)]
        stand_in: options.stand_in,
    }
}

/// Where the filter has to run for a mode.
pub const fn attached_for(mode: Option<Mode>) -> Option<Attached> {
    match mode {
        None => None,
        Some(Mode::Generic) => Some(Attached::Generic),
        Some(Mode::Native | Mode::ZeroCopy) => Some(Attached::Native),
    }
}

/// Adds a flow to a filter, all of it or nothing. `probe` is a socket of the caller's.
///
/// # Errors
/// Another receiver has it.
pub fn add(filter: &Filter, name: &str, wanted: &Wanted, bits: Queues, probe: BorrowedFd<'_>) -> Result<()> {
    let lock = Lock::take()?;
    let keys = wanted.keys();
    for (n, key) in keys.iter().enumerate() {
        let error = match filter.add(key, bits, probe, &lock) {
            Ok(true) => continue,
            Ok(false) => Error::new(
                Kind::Unavailable,
                format!("{}:{} is received by AF_XDP on {name} already", wanted.destination, wanted.port),
            )
            .cure("stop the other receiver, or receive with sockets: they get a copy each"),
            Err(e) => not_changed(name, e),
        };
        keys.iter().take(n).for_each(|key| filter.remove(key));
        return Err(error);
    }
    Ok(())
}

fn no_socket(name: &str, e: io::Error) -> Error {
    let kind = match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Kind::Permission,
        _ => Kind::Unavailable,
    };
    let error = Error::new(kind, format!("no AF_XDP socket for {name}"));
    match e.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => error.because(e).cure("this kernel has no AF_XDP: receive with sockets"),
        _ => error.because(e).cure(RIGHTS),
    }
}

fn not_bound(name: &str, queue: u32, mode: Option<Mode>, frames: &Frames, e: io::Error) -> Error {
    let error = Error::new(Kind::Unavailable, format!("AF_XDP cannot take queue {queue} of {name}"));
    match e.raw_os_error() {
        Some(libc::ENOBUFS | libc::ENOMEM) => error.because(e).cure(format!(
            "raise the limit of locked memory to {} MiB for each queue (ulimit -l, LimitMEMLOCK=), or run with CAP_IPC_LOCK",
            frames.octets().div_ceil(1 << 20)
        )),
        Some(libc::EOPNOTSUPP | libc::EINVAL) if mode == Some(Mode::ZeroCopy) => {
            error.because(e).cure("this driver has no zero copy: leave --xdp mode=… out")
        }
        _ => error.because(e).cure("receive with sockets"),
    }
}

fn not_changed(name: &str, e: io::Error) -> Error {
    let error = Error::new(Kind::Unavailable, format!("the filter of {name} cannot be changed"));
    match e.raw_os_error() {
        Some(libc::E2BIG) => error.because(e).cure("fewer flows or sources: a filter has room for 1024"),
        _ => error.because(e),
    }
}

#[cfg(test)]
mod tests {
    use super::super::helper::Helper;
    use super::super::veth::{self, Net, inside};
    use super::*;
    use std::net::{IpAddr, SocketAddr, UdpSocket};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// One queue for a flow that a rule leads, the others for one that none does.
    fn grows(net: &Net, helper: Option<PathBuf>) {
        let options = Options { helper, ..Options::default() };
        let (mut frames, region) = Frames::new(4096, 2048).unwrap();
        let own: IpAddr = "10.77.0.10".parse().unwrap();
        let beside = |port| inside(&net.rx, || UdpSocket::bind((own, port)).unwrap());
        let wanted = |port| Wanted { destination: own, port, sources: Vec::new(), vlan: 0 };
        let (mut port, mut notes) = inside(&net.rx, || {
            let mut notes = Vec::new();
            (Port::open(veth::index("rx0"), &options, &mut notes).unwrap(), notes)
        });
        inside(&net.rx, || {
            let mut take = |queues: &[u32], enough| port.take(queues, enough, &options, &mut frames, &mut notes);
            assert_eq!(take(&[3, 2, 1, 0], 1).unwrap(), 3);
            assert_eq!(take(&[3], 1).unwrap(), 3, "it is served already");
        });
        let numbers = |port: &mut Port| port.queues().iter().map(|queue| queue.number).collect::<Vec<_>>();
        let depths = |port: &mut Port| port.queues().iter_mut().map(|queue| queue.rings().depth()).collect::<Vec<_>>();
        assert_eq!((numbers(&mut port), depths(&mut port)), (vec![3], vec![2048]));
        let (first, second) = (beside(5004), beside(5006));
        inside(&net.rx, || port.add(&wanted(5004), &first)).unwrap();
        inside(&net.rx, || port.take(&[0, 1, 2, 3], 4, &options, &mut frames, &mut notes)).unwrap();
        assert_eq!(numbers(&mut port), [3, 0, 1, 2]);
        assert!(depths(&mut port).iter().all(|depth| *depth >= 512), "{:?}", depths(&mut port));
        inside(&net.rx, || port.add(&wanted(5006), &second)).unwrap();

        // The first flow is taken at queue 3 still, the second at all.
        let senders: Vec<UdpSocket> = (0..64).map(|_| net.sender("10.77.0.1".parse().unwrap())).collect();
        let sent = |to: u16| {
            for sender in &senders {
                sender.send_to(b"x", SocketAddr::new(own, to)).unwrap();
            }
        };
        // Packets of each queue, and those that went on to the kernel.
        let mut received = |port: &mut Port, beside: &UdpSocket| {
            beside.set_nonblocking(true).unwrap();
            let (mut count, begun) = ([0; 5], Instant::now());
            while count.iter().sum::<usize>() < 64 {
                assert!(begun.elapsed() < Duration::from_secs(5), "{count:?}");
                for (n, queue) in port.queues().iter_mut().enumerate() {
                    count[n] += queue.rings().receive(64, |packet| frames.give(packet.addr));
                }
                count[4] += usize::from(beside.recv(&mut [0]).is_ok());
            }
            count
        };
        sent(5006);
        let by = received(&mut port, &second);
        assert!(by[0] > 0 && by[0] < 64 && by[4] == 0, "{by:?}");
        sent(5004);
        let by = received(&mut port, &first);
        assert!(by[0] > 0 && by[1..4] == [0, 0, 0] && by[4] > 0, "{by:?}");
        drop(port);
        drop(region);
    }

    #[test]
    fn queues_are_added_to_those_that_are_served() {
        let Some(net) = Net::new(4, 1500) else { return };
        grows(&net, None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helper");
        let helper = Helper::open(&path, &[]).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                veth::enter(&net.rx);
                helper.serve(&stop);
            });
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| grows(&net, Some(path.clone()))));
            stop.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|e| std::panic::resume_unwind(e));
        });
    }
}

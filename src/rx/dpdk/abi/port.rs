//! The shim's calls for a port: attached, started, polled, stopped.
#![allow(unsafe_code)]

use super::{
    Change, Counts, NAME, Packet, Pool, RawInfo, RawRule, RawSetup, Refused, gd_clock, gd_counts, gd_groups, gd_link,
    gd_port_close, gd_port_gone, gd_port_open, gd_port_start, gd_port_stop, gd_reach, gd_receive, gd_rule, gd_send,
    gd_unreach, gd_unrule,
};
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::net::Ipv4Addr;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a port is and offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    pub driver: String,
    /// Of the kernel's interface beneath; 0 where there is none.
    pub if_index: u32,
    /// On PCI, else a virtual device.
    pub pci: bool,
    pub max_queues: u32,
    pub max_mtu: u32,
    /// Packets can be spread over queues.
    pub spreads: bool,
    /// Packets have time stamps of the card.
    pub stamps: bool,
    /// Packets can be cut into two pools, at an octet that we choose.
    pub splits: bool,
    pub mac: [u8; 6],
}

/// How a port is to receive.
pub struct Setup<'a> {
    pub queues: u16,
    pub descriptors: u16,
    pub mtu: u16,
    /// Octets of a frame that go to `pool`, and where the rest goes.
    pub split: Option<(u16, &'a Pool)>,
    pub stamps: bool,
    /// Nothing is taken but what rules name.
    pub isolated: bool,
    pub pool: &'a Pool,
}

/// Memory of a pool that a port was let reach.
struct Reached {
    start: usize,
    octets: usize,
    /// Of the pool: it is, for all ports that share.
    is_mapped: Arc<AtomicBool>,
}

/// A port of DPDK, attached until it is dropped.
pub struct Port {
    number: u16,
    /// On `vfio-pci`, whose ports have their mappings together.
    shares: bool,
    /// Pools whose memory it was let reach, itself or for all that share.
    reached: Vec<Reached>,
    /// Frames of ours that it did not take.
    unsent: u64,
}

/// Whether a device is bound to `vfio-pci`: then DPDK maps memory for the one container that all of them are in, and the kernel takes
/// a range once. Other drivers (mlx5) map for each device.
fn is_on_vfio(devices: &Path, name: &str) -> bool {
    let driver = std::fs::read_link(devices.join(name).join("driver"));
    driver.is_ok_and(|driver| driver.file_name().is_some_and(|name| name == "vfio-pci"))
}

/// Whether a driver that cuts packets does so at any octet: those that name `headers` cut behind them alone (ice), and refuse a queue
/// that names none.
const fn cuts_anywhere(cuts: bool, headers: u16) -> bool {
    cuts && headers == 0
}

impl Port {
    /// Attaches what `spec` says, which is then called `name`.
    pub fn open(spec: &CStr, name: &CStr) -> Result<(Self, Info), Refused> {
        let mut number = 0;
        let mut info = RawInfo {
            driver: [0; NAME],
            if_index: 0,
            pci: 0,
            max_queues: 0,
            max_mtu: 0,
            spreads: 0,
            stamps: 0,
            splits: 0,
            mac: [0; 6],
            headers: 0,
        };
        let change = Change::begin();
        // SAFETY: texts and writable places; DPDK runs.
        change.result(unsafe { gd_port_open(spec.as_ptr(), name.as_ptr(), &mut number, &mut info) })?;
        let driver = info.driver.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect::<Vec<_>>();
        let info = Info {
            driver: String::from_utf8_lossy(&driver).into_owned(),
            if_index: info.if_index,
            pci: info.pci != 0,
            max_queues: info.max_queues,
            max_mtu: info.max_mtu,
            spreads: info.spreads != 0,
            stamps: info.stamps != 0,
            splits: cuts_anywhere(info.splits != 0, info.headers),
            mac: info.mac,
        };
        let shares = name.to_str().is_ok_and(|name| is_on_vfio(Path::new("/sys/bus/pci/devices"), name));
        Ok((Port { number, shares, reached: Vec::new(), unsent: 0 }, info))
    }

    /// Lets the device write to the pools. They outlive the port: whoever calls drops it first.
    ///
    /// # Safety
    /// As said.
    pub unsafe fn reach(&mut self, setup: &Setup<'_>) -> Result<(), Refused> {
        let change = Change::begin();
        for pool in [Some(setup.pool), setup.split.map(|(_, bodies)| bodies)].into_iter().flatten() {
            if self.reached.iter().any(|reached| reached.start == pool.start)
                || self.shares && pool.is_mapped.load(Ordering::Relaxed)
            {
                continue;
            }
            // SAFETY: memory of a pool, which outlives the port.
            change.result(unsafe {
                gd_reach(self.number, self.shares.into(), pool.start as *mut c_void, pool.octets as u64)
            })?;
            let (start, octets, is_mapped) = (pool.start, pool.octets, pool.is_mapped.clone());
            is_mapped.fetch_or(self.shares, Ordering::Relaxed);
            self.reached.push(Reached { start, octets, is_mapped });
        }
        Ok(())
    }

    /// Begins to receive, into pools that it reaches.
    ///
    /// # Safety
    /// As of [`Port::reach`].
    pub unsafe fn start(&mut self, setup: &Setup<'_>) -> Result<(), Refused> {
        let change = Change::begin();
        let raw = RawSetup {
            queues: setup.queues,
            descriptors: setup.descriptors,
            mtu: setup.mtu,
            split: setup.split.map_or(0, |(octets, _)| octets),
            stamps: setup.stamps.into(),
            isolated: setup.isolated.into(),
            pool: setup.pool.raw.as_ptr(),
            bodies: setup.split.map_or(std::ptr::null_mut(), |(_, bodies)| bodies.raw.as_ptr()),
        };
        // SAFETY: the pools live; the port is attached.
        change.result(unsafe { gd_port_start(self.number, &raw) })
    }

    /// Ends receiving, so that the device writes nothing any more. Nobody polls it from then on.
    pub fn stop(&mut self) {
        let _change = Change::begin();
        // SAFETY: the port is attached, and `&mut` lets nobody else poll it.
        unsafe { gd_port_stop(self.number) };
    }

    /// Takes away what it was let reach, which other ports may reach by the same mapping: all of them have stopped, and none is
    /// closed, for a mapping goes with a device only that is attached still.
    pub fn unreach(&mut self) {
        let _change = Change::begin();
        for Reached { start, octets, is_mapped } in self.reached.drain(..) {
            // SAFETY: mapped by `start`, as long as this port is attached.
            unsafe { gd_unreach(self.number, start as *mut c_void, octets as u64) };
            if self.shares {
                is_mapped.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Has the mappings of one that goes, where they are those of both.
    pub fn inherit(&mut self, from: &mut Port) {
        if self.shares && from.shares {
            self.reached.append(&mut from.reached);
        }
    }

    /// It has been pulled out.
    pub fn gone(&self) -> bool {
        // SAFETY: the port is attached.
        unsafe { gd_port_gone(self.number) != 0 }
    }

    /// Its link is up; none: it does not say.
    pub fn link(&self) -> Option<bool> {
        // SAFETY: the port is attached.
        match unsafe { gd_link(self.number) } {
            1 => Some(true),
            0 => Some(false),
            _ => None,
        }
    }

    /// Takes what has come by a queue.
    #[inline]
    pub fn receive(&mut self, queue: u16, packets: &mut [Packet]) -> usize {
        // SAFETY: writable for so many; the port runs, and `&mut` lets nobody else poll it.
        unsafe { gd_receive(self.number, queue, packets.as_mut_ptr(), packets.len() as u32) as usize }
    }

    /// Sends a frame. One that finds no room is lost, as on any network, and counted: what we say is said again.
    pub fn send(&mut self, frame: &[u8]) {
        // SAFETY: readable for this length; the port runs.
        let rc = unsafe { gd_send(self.number, frame.as_ptr(), frame.len() as u32) };
        self.unsent += u64::from(rc != 0);
    }

    /// Frames of ours that were lost so.
    pub const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// None: it does not say, as one that was pulled out.
    pub fn counts(&self) -> Option<Counts> {
        let mut counts = Counts::default();
        // SAFETY: writable; the port is attached.
        (unsafe { gd_counts(self.number, &mut counts) } == 0).then_some(counts)
    }

    /// The card's clock, in ticks of its own.
    pub fn clock(&self) -> Option<u64> {
        let mut ticks = 0;
        // SAFETY: writable; the port is attached.
        (unsafe { gd_clock(self.number, &mut ticks) } == 0).then_some(ticks)
    }

    /// Frames to these groups come; what else comes with them: 0 nothing, 1 all groups, 2 everything.
    pub fn groups(&mut self, addresses: &[[u8; 6]]) -> Result<i32, Refused> {
        let change = Change::begin();
        // SAFETY: readable for so many addresses; the port runs.
        let rc = unsafe { gd_groups(self.number, addresses.as_ptr().cast(), addresses.len() as u32) };
        change.result(rc).map(|()| rc)
    }

    /// Has the card lead a flow to the first queue.
    pub fn rule(
        &mut self,
        destination: Ipv4Addr,
        source: Option<Ipv4Addr>,
        port: u16,
        vlan: u16,
    ) -> Result<Rule, String> {
        let number = |address: Ipv4Addr| u32::from_ne_bytes(address.octets());
        let raw = RawRule { destination: number(destination), source: source.map_or(0, number), port, vlan };
        let (mut handle, mut why) = (std::ptr::null_mut(), [0u8; 160]);
        let change = Change::begin();
        // SAFETY: readable and writable; the port runs.
        let rc = unsafe { gd_rule(self.number, &raw, &mut handle, why.as_mut_ptr().cast(), why.len()) };
        drop(change);
        match NonNull::new(handle).filter(|_| rc == 0) {
            Some(handle) => Ok(Rule { port: self.number, handle, _port: PhantomData }),
            None => Err(CStr::from_bytes_until_nul(&why).map(|w| w.to_string_lossy().into_owned()).unwrap_or_default()),
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stop();
        self.unreach();
        let _change = Change::begin();
        // SAFETY: attached by `open`, and polled by nobody any more.
        unsafe { gd_port_close(self.number) };
    }
}

/// A rule of a card, until it is dropped; or until its port is.
pub struct Rule {
    port: u16,
    handle: NonNull<c_void>,
    _port: PhantomData<*mut ()>,
}

// SAFETY: rules may be taken away by any thread, one at a time.
unsafe impl Send for Rule {}

impl Rule {
    /// Takes it away while its port is there.
    pub fn remove(self) {
        let _change = Change::begin();
        // SAFETY: made by `gd_rule`; the caller has the port.
        unsafe { gd_unrule(self.port, self.handle.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_cuts_behind_headers_only_does_not_cut_where_we_want() {
        assert!(cuts_anywhere(true, 0));
        assert!(!cuts_anywhere(true, 12) && !cuts_anywhere(false, 0));
    }

    #[test]
    fn devices_on_vfio_share_their_mappings() {
        let devices = tempfile::tempdir().unwrap();
        for (name, driver) in [("0000:3b:00.0", "vfio-pci"), ("0000:3b:00.1", "mlx5_core")] {
            std::fs::create_dir(devices.path().join(name)).unwrap();
            let to = format!("../../../bus/pci/drivers/{driver}");
            std::os::unix::fs::symlink(to, devices.path().join(name).join("driver")).unwrap();
        }
        let of = |name| is_on_vfio(devices.path(), name);
        assert_eq!([of("0000:3b:00.0"), of("0000:3b:00.1"), of("net_pcap0")], [true, false, false]);
    }
}

//! Memory that a run takes: refused before it is taken where the machine has not so much, and told at the start.

use super::Args;
use gdmedia::error::{Error, Kind, Result};
use gdmedia::format::Layout;
use gdmedia::pipeline::Memory;
use std::sync::{Arc, Mutex, PoisonError};

/// So many frames of this layout must fit.
///
/// # Errors
/// They do not.
pub fn check(layout: &Layout, frames: usize) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    fits(layout.size, frames, available(&text))
}

/// Octets for the frames of all receivers of a daemon, which are opened, switched and closed beside each other.
pub struct Budget {
    all: u64,
    taken: Mutex<u64>,
}

/// What one flow has of it, until this is dropped.
pub struct Share {
    budget: Arc<Budget>,
    octets: u64,
}

impl Budget {
    #[cfg_attr(not(feature = "daemon"), allow(dead_code, reason = "one run takes what the machine has"))]
    pub fn new(all: u64) -> Arc<Self> {
        Arc::new(Budget { all, taken: Mutex::new(0) })
    }
    /// Takes what so many frames of this layout need. Two that ask at once do not get the same octets.
    ///
    /// # Errors
    /// There are not so many left.
    pub fn take(self: &Arc<Self>, layout: &Layout, frames: usize) -> Result<Share> {
        let wanted = layout.size as u128 * frames as u128;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.all.saturating_sub(*taken);
        match u64::try_from(wanted).ok().filter(|octets| *octets <= left) {
            Some(octets) => {
                *taken += octets;
                Ok(Share { budget: self.clone(), octets })
            }
            None => {
                let [wanted, left, all] = [wanted, left.into(), self.all.into()].map(size);
                let what = format!("its frames need {wanted}, and limits.memory leaves {left} of {all}");
                Err(Error::new(Kind::Unavailable, what)
                    .cure("raise limits.memory, or stop another receiver; a switch needs room for both flows"))
            }
        }
    }
    /// Octets that are taken now.
    #[cfg(all(test, feature = "daemon"))]
    pub fn taken(&self) -> u64 {
        *self.taken.lock().unwrap()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.budget.taken.lock().unwrap_or_else(PoisonError::into_inner) -= self.octets;
    }
}

fn fits(frame_octets: usize, frames: usize, available: Option<u64>) -> Result<()> {
    let wanted = frame_octets as u128 * frames as u128;
    let Some(available) = available.filter(|available| wanted > u128::from(*available)) else { return Ok(()) };
    let what = format!(
        "this stream needs {} for {frames} frames of {}, and the machine has {} free",
        size(wanted),
        size(frame_octets as u128),
        size(available.into())
    );
    Err(Error::new(Kind::Unavailable, what)
        .cure("check width and height in the SDP; fewer sinks, or a smaller --output, need less"))
}

/// Octets that the machine can give without swapping.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// For the start block.
pub fn text(memory: &Memory, args: &Args, legs: usize, backend: &str) -> String {
    let Memory { rings, frames, frame_octets, sequence } = *memory;
    let [each, all] = [frame_octets as u128, frames as u128 * frame_octets as u128].map(size);
    let [rings, sequence] = [rings, sequence].map(|octets| size(octets as u128));
    let mut text = format!("ring {rings}, {frames} frames of {each}: {all}, sequence numbers and placement {sequence}");
    if args.pcap.is_none() && backend.contains("socket") {
        // The kernel takes twice what is asked for.
        let each = size((args.buffer as u128) << 21);
        text += &format!("; the kernel's socket buffers at most {legs} times {each}");
    }
    text
}

fn size(octets: u128) -> String {
    let mib = octets as f64 / f64::from(1 << 20);
    match mib {
        mib if mib >= 1024.0 => format!("{:.1} GiB", mib / 1024.0),
        mib if mib >= 10.0 => format!("{mib:.0} MiB"),
        mib => format!("{mib:.1} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "daemon")]
    fn frames_may_be_limited() {
        use gdmedia::format::{Output, WireFormat};
        use gdmedia::sdp::{Depth, Sampling, Scan};
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 64, 36, Scan::Progressive).unwrap();
        let layout = Layout::new(wire, Output::Wire).unwrap();
        let budget = Budget::new(layout.size as u64 * 10);
        let share = budget.take(&layout, 7).unwrap();
        let error = budget.take(&layout, 4).map(drop).unwrap_err().to_string();
        assert!(error.starts_with("its frames need 0.0 MiB, and limits.memory leaves 0.0 MiB of 0.1 MiB"), "{error}");
        let rest = budget.take(&layout, 3).unwrap();
        assert_eq!(budget.taken(), layout.size as u64 * 10);
        drop(share);
        assert_eq!(budget.taken(), layout.size as u64 * 3);
        assert!(budget.take(&layout, 8).is_err() && budget.take(&layout, usize::MAX).is_err());
        drop((budget.take(&layout, 7).unwrap(), rest));
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn frames_that_do_not_fit_are_refused_with_figures() {
        let meminfo = "MemTotal:       16384 kB\nMemFree:        1000 kB\nMemAvailable:   4096 kB\n";
        assert_eq!(available(meminfo), Some(4 << 20));
        assert_eq!((available(""), available("MemAvailable: much")), (None, None));
        assert!(fits(1 << 20, 4, Some(4 << 20)).is_ok() && fits(usize::MAX, usize::MAX, None).is_ok());
        let error = fits(1 << 31, 13, Some(3 << 30)).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        let text = error.to_string();
        assert!(
            text.starts_with("this stream needs 26.0 GiB for 13 frames of 2.0 GiB, and the machine has 3.0 GiB free")
        );
    }
}

//! Memory that a run takes: refused before it is taken where the machine has not so much, and told at the start.

use super::Args;
use gdmedia::error::{Error, Kind, Result};
use gdmedia::format::Layout;
use gdmedia::pipeline::Memory;

/// So many frames of this layout must fit.
///
/// # Errors
/// They do not.
pub fn check(layout: &Layout, frames: usize) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    fits(layout.size, frames, available(&text))
}

/// So many frames of this layout may be taken, where that is limited.
///
/// # Errors
/// They may not.
pub fn allowed(layout: &Layout, frames: usize, limit: Option<u64>) -> Result<()> {
    let wanted = layout.size as u128 * frames as u128;
    let Some(limit) = limit.filter(|limit| wanted > u128::from(*limit)) else { return Ok(()) };
    let what = format!("its frames need {}, and limits.memory leaves {}", size(wanted), size(limit.into()));
    Err(Error::new(Kind::Unavailable, what).cure("raise limits.memory, or stop another receiver"))
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
    fn frames_may_be_limited() {
        use gdmedia::format::{Output, WireFormat};
        use gdmedia::sdp::{Depth, Sampling, Scan};
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 64, 36, Scan::Progressive).unwrap();
        let layout = Layout::new(wire, Output::Wire).unwrap();
        let all = layout.size as u64 * 10;
        assert!(allowed(&layout, 10, None).is_ok() && allowed(&layout, 10, Some(all)).is_ok());
        let error = allowed(&layout, 10, Some(all - 1)).unwrap_err();
        assert!(error.to_string().contains("limits.memory leaves"), "{error}");
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

//! What fails, in words: each cause has its own, with what to do about it.

use crate::error::{Error, Kind};
use rivermax_sys as sys;

const MANUAL: &str = "docs/rivermax.md";

/// The library is not there, or is not the one that this program was built for.
pub fn library(error: sys::LoadError) -> Error {
    let cure = match &error {
        sys::LoadError::Open { .. } => {
            "install the Rivermax SDK, or name its library in RIVERMAX_LIBRARY; or receive with --backend socket"
        }
        sys::LoadError::Calls { .. } => {
            "install an SDK of the version that this program was built with, or build it again"
        }
        sys::LoadError::Foreign { .. } => "unset RIVERMAX_LIBRARY, or build this program for that library",
        _ => "start again with one library",
    };
    Error::new(Kind::Unavailable, "Rivermax cannot be used").because(error).cure(format!("{cure} ({MANUAL})"))
}

/// A call failed while `what` was tried.
pub fn call(what: impl std::fmt::Display, error: sys::Error) -> Error {
    let (kind, cause, cure) = judge(error.status.name().unwrap_or_default(), may_do_raw());
    let what = if cause.is_empty() { format!("Rivermax: {what} failed") } else { format!("Rivermax: {what}: {cause}") };
    Error::new(kind, what).because(error).cure(format!("{cure} ({MANUAL})"))
}

const MAY_NOT: &str = "this process may not use the card (CAP_NET_RAW)";
const AS_ROOT: &str = "run as root, or: setcap cap_net_raw,cap_sys_nice+ep on the program";

/// Kind, cause and cure by the words of a status' name, which are the header's own.
fn judge(status: &str, privileged: bool) -> (Kind, &'static str, &'static str) {
    let has = |word: &str| status.contains(word);
    if has("LICENSE") {
        let cure = "check the licence file: its place, its date, and that it is for this card's serial number";
        (Kind::Unavailable, "no valid licence", cure)
    } else if has("PERMISSION") || has("PERMITTED") || has("PRIVILEGE") {
        (Kind::Permission, MAY_NOT, AS_ROOT)
    } else if has("ALREADY") {
        (Kind::Unavailable, "it is attached already", "end the other receiver of this flow in this process")
    } else if has("ALIGN") {
        (Kind::Internal, "memory of the wrong alignment", "please report this")
    } else if has("REGIST") || has("MKEY") {
        let cure = "load nvidia-peermem for memory of a GPU, raise ulimit -l, or use a shorter ring";
        (Kind::Unavailable, "the card cannot be given this memory", cure)
    } else if has("RESOURCE") {
        let cure = "end other programs that use the card, or use fewer flows and a shorter ring";
        (Kind::Unavailable, "the card has no resources left", cure)
    } else if has("MEMORY") {
        (Kind::Unavailable, "no memory", "free memory or use a shorter ring; huge pages help")
    } else if has("NOT_IMPLEMENTED") || has("UNSUPPORTED") {
        let cure = "use a later card, firmware or SDK, or leave that option out";
        (Kind::Unavailable, "this card, its firmware or this SDK cannot do it", cure)
    } else if has("DEVICE") || has("IFACE") || has("INTERFACE") {
        (Kind::Unavailable, "no card that it can use", "check the card, its driver and its address")
    } else if !privileged {
        (Kind::Permission, MAY_NOT, AS_ROOT)
    } else {
        (Kind::Unavailable, "", "check the card, its driver, its firmware settings and the licence")
    }
}

/// May this process open raw queues of a card? Where that cannot be found out, it may.
fn may_do_raw() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    effective(&status).is_none_or(|set| set & (1 << 13) != 0)
}

/// The effective capabilities.
fn effective(status: &str) -> Option<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_words() {
        for (status, cause) in [
            ("RMX_X_LICENSE_Y", "licence"),
            ("RMX_MEMORY_REGISTRATION", "given this memory"),
            ("RMX_HW_RESOURCES", "no resources"),
            ("RMX_NO_MEMORY", "no memory"),
            ("RMX_NOT_IMPLEMENTED", "cannot do it"),
            ("RMX_NO_DEVICE", "no card"),
            ("RMX_SOMETHING", ""),
        ] {
            let (kind, said, cure) = judge(status, true);
            assert!(kind == Kind::Unavailable && said.contains(cause) && !cure.is_empty(), "{status}: {said}");
        }
        assert_eq!(judge("RMX_SOMETHING", false).0, Kind::Permission);
        assert!(judge("RMX_LICENSE", false).1.contains("licence"), "the library's own word counts more");
    }

    #[test]
    fn capabilities_are_read_by_their_line() {
        assert_eq!(effective("Name:\tx\nCapPrm:\t0\nCapEff:\t0000000000003000\n"), Some(0x3000));
        assert_eq!(effective("Name:\tx\n"), None);
    }
}

//! Whether a port's link is up. Pure.
//!
//! A card that DPDK takes from the kernel negotiates its link anew, for seconds, and nothing that is sent meanwhile goes anywhere: no
//! report of a group, no announcement of an address. What is behind a cable that was plugged in again knows nothing of either.

/// A link, as it was seen last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// None: the driver does not say.
    up: Option<bool>,
    /// How often it went down.
    downs: u64,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Up,
    Down,
}

impl Link {
    /// It is seen again; none: the driver does not say now, which changes nothing.
    pub fn see(&mut self, now: Option<bool>) -> Option<Change> {
        let now = now?;
        match (self.up.replace(now), now) {
            (Some(false), true) => Some(Change::Up),
            (Some(true), false) => {
                self.downs += 1;
                Some(Change::Down)
            }
            _ => None,
        }
    }
    /// It is known to be down.
    pub fn is_down(self) -> bool {
        self.up == Some(false)
    }
    /// How often it went down, after it had been up.
    pub const fn downs(self) -> u64 {
        self.downs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_change_when_they_are_seen_to() {
        let mut link = Link::default();
        assert!(!link.is_down());
        for (seen, change, downs) in [
            // Of a port that was just started.
            (Some(false), None, 0),
            (None, None, 0),
            (Some(false), None, 0),
            (Some(true), Some(Change::Up), 0),
            (Some(true), None, 0),
            (None, None, 0),
            (Some(false), Some(Change::Down), 1),
            (Some(true), Some(Change::Up), 1),
            (Some(false), Some(Change::Down), 2),
        ] {
            assert_eq!((link.see(seen), link.downs()), (change, downs), "{seen:?}");
        }
        assert!(link.is_down());
        let mut up = Link::default();
        assert_eq!(up.see(Some(true)), None, "all was sent");
    }
}

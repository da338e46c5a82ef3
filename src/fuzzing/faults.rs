//! Plans of faults: what is taken is written and read again, and runs; what is refused is refused with a cure.

use crate::fault::{FaultCounters, FaultPlan, Faults};
use crate::time::Tai;

/// Packets that a plan is tried on.
const PACKETS: u64 = 64;

/// A plan in one line, and as a TOML file.
///
/// # Panics
/// A plan was misread, or did not do what it counted.
pub fn faults(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    match text.parse::<FaultPlan>() {
        Ok(plan) => {
            assert_eq!(plan.to_string().parse::<FaultPlan>().ok(), Some(plan.clone()), "{plan}");
            run(&plan);
        }
        Err(error) => assert!(!error.cure_text().is_empty(), "{error}"),
    }
    match FaultPlan::from_toml("plan.toml", text) {
        Ok(plan) => {
            assert!(!plan.to_string().is_empty() || plan.rules.is_empty());
            run(&plan);
        }
        Err(error) => assert!(!error.cure_text().is_empty(), "{error}"),
    }
}

/// Every packet goes on, is removed, or is doubled, and all of that is counted; another run of it is the same.
fn run(plan: &FaultPlan) {
    let (mut faults, mut again) = (Faults::new(plan), Faults::new(plan));
    let (mut counters, mut delivered) = (FaultCounters::default(), 0);
    for n in 0..PACKETS {
        let (leg, octets) = ((n % 2) as u8, 20 + n as u16 * 20);
        let fate = faults.decide(leg, Tai(n << 22), octets, n as u16);
        assert_eq!(fate, again.decide(leg, Tai(n << 22), octets, n as u16));
        counters.add(&fate);
        delivered += fate.copies().count() as u64;
        let mut packet = vec![0x80; usize::from(octets)];
        faults.alter(&fate, leg, &mut packet);
        assert_eq!(packet.len(), usize::from(octets));
    }
    assert_eq!(counters.seen + counters.duplicated, delivered + counters.removed, "{plan}");
    assert_eq!(counters.removed, counters.lost + counters.killed + counters.limited + counters.torn, "{plan}");
}

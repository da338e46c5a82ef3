use super::*;
use crate::mem::{Host, Region};
use proptest::prelude::*;

const CELL: usize = 64;

/// Delivers numbered packets in leases of given sizes; a lease that is given back has its memory painted over.
struct Numbered {
    ring: SplitRing<Host>,
    sizes: Vec<usize>,
    next_lease: usize,
    next: u32,
    returned: Vec<u32>,
    caps: Caps,
    /// More than this many leases out: nothing, and `starved`.
    limit: usize,
    counters: RxCounters,
    /// Empty for ever at the end, instead of [`RxError::End`].
    endless: bool,
}

impl Numbered {
    fn new(sizes: Vec<usize>) -> Self {
        let packets: usize = sizes.iter().sum();
        let ring = SplitRing::whole(Region::host((packets + 1) * CELL).unwrap());
        let (returned, caps) = (Vec::new(), Caps { backend: "numbered", ..Caps::default() });
        Numbered {
            ring,
            sizes,
            next_lease: 0,
            next: 0,
            returned,
            caps,
            limit: usize::MAX,
            counters: RxCounters::default(),
            endless: false,
        }
    }
}

impl Receiver for Numbered {
    type Mem = Host;
    fn ring(&self) -> &SplitRing<Host> {
        &self.ring
    }
    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        if self.next_lease - self.returned.len() >= self.limit {
            self.counters.starved += 1;
            // Not counted as a lease here, so that the test of order stays simple.
            return Ok(Lease::new(Vec::new(), NONE));
        }
        let Some(&size) = self.sizes.get(self.next_lease) else {
            return if self.endless { Ok(Lease::new(Vec::new(), NONE)) } else { Err(RxError::End) };
        };
        let slots = (0..size)
            .map(|_| {
                let (number, at) = (self.next, self.next as usize * CELL);
                self.next += 1;
                self.ring.head_plane_mut().as_mut_slice()[at..at + 4].copy_from_slice(&number.to_be_bytes());
                Slot {
                    head_at: at as u32,
                    body_at: 0,
                    head: 40,
                    octets: 40,
                    wire_octets: 40,
                    leg: 0,
                    arrival: Tai(1000 * u64::from(number)),
                }
            })
            .collect();
        self.next_lease += 1;
        Ok(Lease::new(slots, self.next_lease as u32 - 1))
    }
    fn release(&mut self, lease: Lease) {
        if lease.token == NONE {
            return;
        }
        self.returned.push(lease.token);
        for slot in lease.slots() {
            let at = slot.head_at as usize;
            self.ring.head_plane_mut().as_mut_slice()[at..at + 4].fill(0xdd);
        }
    }
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn join(&mut self, _: u8, _: &Leg) -> Result<()> {
        self.caps.notes.push("joined".into());
        Ok(())
    }
    fn counters(&self) -> RxCounters {
        self.counters
    }
}

fn number(fault: &Fault<Numbered>, slot: &Slot) -> u32 {
    u32::from_be_bytes(fault.ring().head(slot)[..4].try_into().unwrap())
}

/// All that comes until the end, with up to `keep` leases out at once: (number, arrival).
fn run(fault: &mut Fault<Numbered>, keep: usize) -> Vec<(u32, u64)> {
    let (mut got, mut out) = (Vec::new(), VecDeque::new());
    let mut polls = 0;
    loop {
        polls += 1;
        assert!(polls < 100_000, "does not end");
        match fault.poll() {
            Ok(lease) => out.push_back(lease),
            Err(RxError::End) => break,
            Err(RxError::Failed(e) | RxError::Gone(e)) => panic!("{e}"),
        }
        while out.len() > keep {
            take(fault, &mut out, &mut got);
        }
    }
    while !out.is_empty() {
        take(fault, &mut out, &mut got);
    }
    got
}

/// Reads a lease only when it goes back, so that memory reused too early would show.
fn take(fault: &mut Fault<Numbered>, out: &mut VecDeque<Lease>, got: &mut Vec<(u32, u64)>) {
    let lease = out.pop_front().unwrap();
    got.extend(lease.slots().iter().map(|s| (number(fault, s), s.arrival.0)));
    fault.release(lease);
}

fn numbers(got: &[(u32, u64)]) -> Vec<u32> {
    got.iter().map(|g| g.0).collect()
}

#[test]
fn without_faults_all_passes_as_it_is() {
    let mut fault = Fault::new(Numbered::new(vec![3, 1, 5]), FaultPlan::NONE).unwrap();
    let want: Vec<_> = (0..9).map(|n| (n, 1000 * u64::from(n))).collect();
    assert_eq!(run(&mut fault, 0), want);
    assert_eq!(fault.inner.returned, [0, 1, 2]);
    assert_eq!(fault.fault_counters(), FaultCounters { seen: 9, delivered: 9, ..FaultCounters::default() });
}

#[test]
fn a_removed_packet_is_in_the_log_with_its_header() {
    let mut fault = Fault::new(Numbered::new(vec![4, 4]), "loss=every/3".parse().unwrap()).unwrap();
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = told.clone();
    fault.observe(move |e| sink.lock().unwrap().push(*e));
    assert_eq!(numbers(&run(&mut fault, 0)), [0, 1, 3, 4, 6, 7]);
    let log = fault.log();
    assert_eq!(
        log.iter().map(|e| (e.done, e.index, e.header[3])).collect::<Vec<_>>(),
        [(Done::Removed, 2, 2), (Done::Removed, 5, 5)]
    );
    assert_eq!(*told.lock().unwrap(), log);
}

#[test]
fn a_lease_whose_packets_are_all_removed_goes_back_and_the_next_is_taken() {
    let mut fault = Fault::new(Numbered::new(vec![1, 1, 1, 1]), "loss=every/2".parse().unwrap()).unwrap();
    assert_eq!(numbers(&run(&mut fault, 0)), [0, 2]);
    assert_eq!(fault.inner.returned, [0, 1, 2, 3]);
}

#[test]
fn a_delay_in_packets_shifts_all_and_the_end_hurries_the_rest() {
    let mut fault = Fault::new(Numbered::new(vec![2, 2, 2]), "delay=2".parse().unwrap()).unwrap();
    // Packet n leaves behind packet n + 2 and arrives with it.
    assert_eq!(run(&mut fault, 0), [(0, 2000), (1, 3000), (2, 4000), (3, 5000), (4, 4000), (5, 5000)]);
    assert_eq!(fault.fault_counters().hurried, 2);
    assert_eq!(fault.inner.returned, [0, 1, 2]);
}

#[test]
fn a_delay_in_time_waits_for_a_packet_that_comes_later() {
    let mut fault = Fault::new(Numbered::new(vec![5, 5]), "delay=2500ns@every/4".parse().unwrap()).unwrap();
    // Packet 3 (3000) is due at 5500: before packet 6 (6000). Packet 7 is due at 9500: after the last.
    assert_eq!(numbers(&run(&mut fault, 0)), [0, 1, 2, 4, 5, 3, 6, 8, 9, 7]);
    assert_eq!(fault.log().iter().map(|e| e.done).collect::<Vec<_>>(), [Done::Held, Done::Held]);
}

#[test]
fn a_pause_lets_held_packets_go() {
    let mut inner = Numbered::new(vec![1]);
    inner.endless = true;
    let mut fault = Fault::new(inner, "delay=10".parse().unwrap()).unwrap();
    let polls = (1..).find(|_| {
        let lease = fault.poll().unwrap();
        let some = !lease.is_empty();
        fault.release(lease);
        some
    });
    assert_eq!(polls, Some(IDLE as usize), "the first poll took the packet and found nothing behind it");
    assert_eq!(fault.inner.returned, [0]);
}

#[test]
fn a_receiver_without_memory_gets_it_back() {
    let mut inner = Numbered::new(vec![1; 50]);
    inner.limit = 4;
    let mut fault = Fault::new(inner, "delay=10".parse().unwrap()).unwrap();
    let got = run(&mut fault, 0);
    assert_eq!(numbers(&got), (0..50).collect::<Vec<_>>());
    assert_eq!(fault.inner.returned.len(), 50);
    assert!(fault.fault_counters().hurried > 0);
}

#[test]
fn the_start_block_says_that_faults_are_injected() {
    let mut fault = Fault::new(Numbered::new(vec![]), "loss=1/1000,seed=7".parse().unwrap()).unwrap();
    let leg = Leg {
        destination: std::net::Ipv4Addr::LOCALHOST.into(),
        port: 5004,
        sources: crate::sdp::SourceFilter::Any,
        ttl: None,
        mid: None,
    };
    fault.join(0, &leg).unwrap();
    assert_eq!(fault.caps().backend, "numbered");
    assert_eq!(fault.caps().notes, ["joined", "warning: faults are injected on purpose: loss=1/1000,seed=7"]);
}

#[test]
fn octets_are_changed_in_copies_and_not_where_they_were_received() {
    let plan = FaultPlan::from_toml("p", "[[corrupt]]\npackets = [1]\nat = 5\n[[duplicate]]\npackets = [1]").unwrap();
    let mut fault = Fault::new(Numbered::new(vec![3]), plan).unwrap();
    let lease = fault.poll().unwrap();
    assert_eq!(fault.inner.returned, [0], "what was copied goes back at once");
    let octets = |slot: &Slot| fault.ring().head(slot)[..8].to_vec();
    let [a, b, again, c] = [0, 1, 2, 3].map(|n| octets(&lease.slots()[n]));
    assert_eq!((a, &c[..4]), (vec![0; 8], &[0, 0, 0, 2][..]));
    assert_eq!(b, again);
    assert!(b[..5] == [0, 0, 0, 1, 0] && b[5] != 0 && b[6..] == [0, 0], "{b:?}");
    assert!(fault.inner.ring.head_plane().as_slice().iter().skip(5).step_by(CELL).all(|o| *o == 0));
    fault.release(lease);
    let c = fault.fault_counters();
    assert_eq!((c.seen, c.delivered, c.corrupted, c.duplicated), (3, 4, 1, 1));
    assert_eq!(fault.log().iter().map(|e| e.done).collect::<Vec<_>>(), [Done::Duplicated, Done::Corrupted]);
    assert!(fault.caps().notes.iter().any(|note| note.contains("copied")));
}

#[test]
fn where_octets_cannot_be_changed_it_is_said() {
    for text in ["[[corrupt]]", "[[restart]]\nfrom = 1"] {
        let plan = FaultPlan::from_toml("p", text).unwrap();
        let error = Fault::unaltered(Numbered::new(vec![1]), plan).err().unwrap();
        assert!(error.kind() == Kind::Usage && error.to_string().contains("memory of the GPU"), "{error}");
    }
    assert!(Fault::unaltered(Numbered::new(vec![1]), "loss=1/2,delay=1ms".parse().unwrap()).is_ok());
}

#[test]
fn copies_wait_for_room_and_lose_nothing() {
    // A lease takes 64 000 octets and there is room for 100 000: not for a second one while the first is out.
    let sizes = vec![1000; 40];
    let plan = FaultPlan::from_toml("p", "[[corrupt]]\npart = 'any'\nat = 40").unwrap();
    let mut fault = Fault::new(Numbered::new(sizes), plan).unwrap();
    let copies = fault.copies.as_mut().unwrap();
    *copies = Copies::of(100_000).unwrap();
    let got = run(&mut fault, 3);
    assert_eq!(numbers(&got), (0..40_000).collect::<Vec<_>>());
    assert_eq!(fault.inner.returned.len(), 40);
    // One that never fits is an error, and no endless wait.
    let plan = FaultPlan::from_toml("p", "[[corrupt]]").unwrap();
    let mut fault = Fault::new(Numbered::new(vec![2000]), plan).unwrap();
    *fault.copies.as_mut().unwrap() = Copies::of(100_000).unwrap();
    assert!(matches!(fault.poll(), Err(RxError::Failed(_))));
}

proptest! {
    #[test]
    fn every_packet_is_delivered_as_planned_and_every_lease_goes_back(
        sizes in proptest::collection::vec(0_usize..20, 1..60),
        keep in 0_usize..5,
        seed: u64,
        depth in 1_u32..40,
        shift in proptest::option::of(1_u32..30),
        altered: bool,
    ) {
        // An empty lease ends a drain, so the receiver makes none here.
        let sizes: Vec<usize> = sizes.into_iter().map(|s| s.max(1)).collect();
        let packets: u32 = sizes.iter().sum::<usize>() as u32;
        let leases = sizes.len() as u32;
        let mut plan: FaultPlan = format!("loss=1/9,dup=1/7,reorder={depth}@1/4,seed={seed}").parse().unwrap();
        if let Some(n) = shift {
            let what = What::Delay { by: Hold::Packets(n), jitter: 0, keep_order: false };
            plan.rules.push(Rule { what, leg: None, when: When::always(Chance::Ratio(1, 6)) });
        }
        if altered {
            // Nothing is changed, but everything is copied.
            let what = What::Corrupt { part: Part::Any, octets: 1, at: Some(40) };
            plan.rules.push(Rule { what, leg: None, when: When::always(Chance::Every(1)) });
        }
        let mut fault = Fault::new(Numbered::new(sizes), plan.clone()).unwrap();
        let got = run(&mut fault, keep);

        let mut want = vec![0_usize; packets as usize];
        let mut faults = Faults::new(&plan);
        let mut planned = Vec::new();
        for n in 0..packets {
            want[n as usize] = faults.decide(0, Tai(1000 * u64::from(n)), 40, n as u16).copies().count();
            planned.extend((want[n as usize] == 0).then_some(u64::from(n)));
        }
        let mut seen = vec![0_usize; packets as usize];
        for n in numbers(&got) {
            prop_assert!(n < packets, "memory was reused while its lease was out");
            seen[n as usize] += 1;
        }
        prop_assert_eq!(&seen, &want);
        prop_assert_eq!(&fault.inner.returned, &(0..leases).collect::<Vec<_>>(), "all leases, once, in order");

        // A packet is overtaken by no more than the plan says.
        let most = depth.max(shift.unwrap_or(0));
        let mut newest = 0;
        for n in numbers(&got) {
            newest = newest.max(n);
            prop_assert!(newest - n <= most, "{} comes behind {}", n, newest);
        }

        let c = fault.fault_counters();
        let removed: Vec<u64> = fault.log().iter().filter(|e| e.done == Done::Removed).map(|e| e.index).collect();
        prop_assert_eq!(removed, planned);
        prop_assert_eq!(c.seen, u64::from(packets));
        prop_assert_eq!(c.seen + c.duplicated - c.removed, got.len() as u64, "sent and doubled = received and lost");
        prop_assert_eq!((c.delivered, c.torn, c.corrupted), (got.len() as u64, 0, 0));
    }
}

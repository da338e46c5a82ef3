//! Machines that are written down, and threads that are real.

use super::*;
use crate::error::Error;
use crate::pipeline::Progress;
use crate::rx::RxError;
use crate::topology::root::tests::Tree;
use crate::worker::{Report, Stepper, Worker};

const NODE: &str = "sys/devices/system/node";
const CPU: &str = "sys/devices/system/cpu";

/// Two nodes of four cores; eth0 and a GPU at node 0, eth1 at node 1, eth2 says nothing, media is a VLAN over a bond of eth1.
fn two_nodes() -> Tree {
    let tree = Tree::new();
    tree.file(&format!("{NODE}/node0/cpulist"), "0-3\n").file(&format!("{NODE}/node1/cpulist"), "4-7\n");
    for (name, node) in [("eth0", "0"), ("eth1", "1"), ("eth2", "-1")] {
        tree.file(&format!("sys/class/net/{name}/device/numa_node"), node);
    }
    tree.link("sys/class/net/bond0/lower_eth1", "sys/class/net/eth1");
    tree.link("sys/class/net/media/lower_bond0", "sys/class/net/bond0");
    tree.file("sys/bus/pci/devices/0000:1b:00.0/numa_node", "0");
    tree
}

fn rules(tree: &Tree) -> Rules {
    Rules {
        cores: Vec::new(),
        workers: 0,
        sleep: Duration::from_millis(1),
        policy: Policy::Auto,
        expected: Vec::new(),
        root: tree.root(),
    }
}

fn eight() -> BTreeSet<usize> {
    (0..8).collect()
}

fn seats(rules: Rules, allowed: fn() -> BTreeSet<usize>) -> Arc<Seats> {
    Seats::with(rules, allowed).unwrap()
}

fn take(seats: &Arc<Seats>, id: &str, interface: &str) -> Seat {
    seats.take(&Wanted { id, core: None, interfaces: &[interface.to_owned()], gpu: None, weight: 1 })
}

fn said(seat: &Seat) -> String {
    seat.placement.as_ref().unwrap().to_string()
}

#[test]
fn each_is_put_near_its_card() {
    let tree = two_nodes();
    let seats = seats(rules(&tree), eight);
    let a = take(&seats, "a", "eth1");
    assert_eq!((a.core, a.node(), said(&a).as_str()), (Some(4), Some(1), "core 4 of node 1, where eth1 lies"));
    let b = take(&seats, "b", "media");
    assert_eq!(said(&b), "core 5 of node 1, where eth1 (beneath media) lies");
    let c = take(&seats, "c", "eth0");
    assert_eq!(said(&c), "core 1 of node 0, where eth0 lies");
    // Two of one receiver, while it is switched: not on one core where there are others; and a core that is free again is used.
    let next = take(&seats, "a", "eth1");
    assert_eq!(next.core, Some(6));
    drop(a);
    let d = take(&seats, "d", "eth1");
    assert_eq!(d.core, Some(4));
    // After a failure the same one.
    drop(b);
    assert_eq!(take(&seats, "b", "eth1").core, Some(5));
    let text = seats.describe();
    assert_eq!(text, "2 NUMA nodes: 0 (cores 0-3), 1 (cores 4-7); receiving threads are placed near their cards");
}

#[test]
fn the_load_is_what_there_is_to_do() {
    let tree = two_nodes();
    let seats = seats(rules(&tree), || [5, 6].into());
    let take = |id, weight| seats.take(&Wanted { id, core: None, interfaces: &["eth1".into()], gpu: None, weight });
    // The process has cores of one node alone: nothing is to be chosen.
    let text = said(&take("a", 1));
    assert_eq!(text, "any core: this process may use cores of node 1 alone");
    tree.file(&format!("{CPU}/isolated"), "5-6\n");
    let held = [take("uhd", 400_000), take("hd", 90_000), take("sd", 20_000), take("sd2", 20_000)];
    assert_eq!(held.each_ref().map(|seat| seat.core), [Some(5), Some(6), Some(6), Some(6)]);
}

#[test]
fn what_is_configured_goes_first() {
    let tree = two_nodes();
    let all = seats(Rules { cores: vec![2, 3], ..rules(&tree) }, eight);
    let held = ["a", "b", "c", "a"].map(|id| take(&all, id, "eth1"));
    assert_eq!(held.each_ref().map(|seat| seat.core), [Some(2), Some(3), Some(2), Some(2)]);
    assert_eq!(said(&held[0]), "core 2 of node 0, of limits.cores");
    let own = all.take(&Wanted { id: "d", core: Some(7), interfaces: &["eth0".into()], gpu: None, weight: 1 });
    assert_eq!((own.core, said(&own).as_str()), (Some(7), "core 7 of node 1, as it is configured"));
    let off = seats(Rules { policy: Policy::Off, ..rules(&tree) }, eight);
    let seat = take(&off, "a", "eth1");
    assert_eq!((seat.core, said(&seat).as_str()), (None, "any core: limits.placement is off"));
    assert!(off.describe().ends_with("; receiving threads are the scheduler's"), "{}", off.describe());
}

#[test]
fn the_gpu_counts_where_the_card_says_nothing() {
    let tree = two_nodes();
    let seats = seats(rules(&tree), eight);
    let take = |interface: &str, gpu| {
        said(&seats.take(&Wanted { id: "a", core: None, interfaces: &[interface.to_owned()], gpu, weight: 1 }))
    };
    let gpu = Some("0000:1B:00.0");
    assert_eq!(take("eth2", gpu), "core 1 of node 0, where the GPU 0000:1b:00.0 lies, as eth2 names no node");
    assert_eq!(take("eth1", gpu), "core 4 of node 1, where eth1 lies; the GPU 0000:1b:00.0 lies on node 0");
    assert_eq!(take("eth2", None), "any core: eth2 names no node");
    assert_eq!(take("lo", None), "any core: lo has no card");
}

#[test]
fn a_machine_with_one_node_is_the_schedulers_unless_told_otherwise() {
    let tree = Tree::new();
    tree.file(&format!("{NODE}/node0/cpulist"), "0-3\n").file("sys/class/net/eth0/device/numa_node", "-1");
    let four = || (0..4).collect();
    let auto = seats(rules(&tree), four);
    let seat = take(&auto, "a", "eth0");
    assert_eq!((seat.core, said(&seat).as_str()), (None, "any core: this machine has one NUMA node"));
    assert_eq!(auto.describe(), "one NUMA node; receiving threads are the scheduler's");
    let near = seats(Rules { policy: Policy::Near, ..rules(&tree) }, four);
    let held = ["a", "b", "c", "d"].map(|id| take(&near, id, "eth0"));
    assert_eq!(held.each_ref().map(|seat| seat.core), [Some(1), Some(2), Some(3), Some(1)]);
    assert_eq!(said(&held[0]), "core 1 of node 0, the only one");
    // Cores that the scheduler uses for nothing are there to be used.
    tree.file(&format!("{CPU}/isolated"), "2-3\n");
    assert_eq!(take(&auto, "a", "eth0").core, Some(2));
}

#[test]
fn a_cpuset_that_leaves_the_card_out_is_said() {
    let tree = two_nodes();
    let one = seats(rules(&tree), || [1, 2].into());
    let wanted =
        "any core: this process may use cores of node 0 alone, and its packets come in at node 1, where eth1 lies";
    assert_eq!(said(&take(&one, "a", "eth1")), wanted);
    let near = seats(Rules { policy: Policy::Near, ..rules(&tree) }, || [1, 2].into());
    let wanted = "core 1 of node 0, as this process may use no core of node 1, where eth1 lies";
    assert_eq!(said(&take(&near, "a", "eth1")), wanted);
    tree.file(&format!("{NODE}/node3/cpulist"), "8\n");
    let without = seats(rules(&tree), || [1, 8].into());
    let wanted = "any core: this process may use no core of node 1, where eth1 lies";
    assert_eq!(said(&take(&without, "a", "eth1")), wanted);
    let unknown = seats(rules(&tree), BTreeSet::new);
    assert_eq!(
        said(&take(&unknown, "a", "eth1")),
        "any core: the kernel does not say which cores this process may use"
    );
}

#[test]
fn threads_are_shared_out_by_what_is_expected() {
    let of = |threads, nodes: &[u32]| share(threads, nodes.iter().copied()).into_iter().collect::<Vec<_>>();
    assert_eq!(of(2, &[0, 0, 0, 1]), [(0, 1), (1, 1)]);
    assert_eq!(of(4, &[0, 0, 0, 1]), [(0, 3), (1, 1)]);
    assert_eq!(of(3, &[1, 0]), [(0, 2), (1, 1)]);
    assert_eq!(of(1, &[0, 1, 1]), [(1, 1)]);
    assert_eq!(of(3, &[]), []);
}

/// Tells the cores that its thread may run on, again and again.
struct Where(std::sync::mpsc::Sender<BTreeSet<usize>>);

impl Stepper for Where {
    fn step(&mut self) -> std::result::Result<Progress, RxError> {
        let _ = self.0.send(unix::cores::of(0));
        Ok(Progress::Idle)
    }
    fn finish(&mut self, _: &mut Vec<String>) -> std::result::Result<(), Error> {
        Ok(())
    }
    fn report(&mut self, _: &mut Report) {}
}

/// Where a pipeline with this seat is stepped.
fn stepped(seat: &Seat) -> BTreeSet<usize> {
    let (to, from) = std::sync::mpsc::channel();
    let worker = match &seat.crew {
        Some(crew) => crew.add(Box::new(Where(to)), Arc::default()).unwrap(),
        None => Worker::spawn(Box::new(Where(to)), Duration::from_millis(1), seat.core, Arc::default()).unwrap(),
    };
    let cores = from.recv().unwrap();
    worker.join();
    cores
}

/// A machine of two nodes with the cores that this process has: the lower half and the upper half.
fn halves() -> Option<(Tree, BTreeSet<usize>, BTreeSet<usize>)> {
    let all: Vec<usize> = unix::cores::allowed().into_iter().collect();
    if all.len() < 2 {
        println!("skipped: this process may use one core");
        return None;
    }
    let (low, high) = all.split_at(all.len() / 2);
    let (low, high): (BTreeSet<usize>, BTreeSet<usize>) =
        (low.iter().copied().collect(), high.iter().copied().collect());
    let tree = Tree::new();
    for (node, cores) in [(0, &low), (1, &high)] {
        tree.file(&format!("{NODE}/node{node}/cpulist"), &crate::topology::cores::written(cores));
        tree.file(&format!("sys/class/net/eth{node}/device/numa_node"), &node.to_string());
    }
    Some((tree, low, high))
}

#[test]
fn threads_end_up_where_the_plan_says() {
    let Some((tree, low, high)) = halves() else { return };
    let seats = Seats::new(rules(&tree)).unwrap();
    for (interface, half) in [("eth0", &low), ("eth1", &high), ("eth0", &low)] {
        let seat = take(&seats, "a", interface);
        let core = seat.core.unwrap();
        assert!(half.contains(&core), "{core} {half:?}");
        assert_eq!(stepped(&seat), BTreeSet::from([core]));
    }
    let anywhere = take(&seats, "b", "lo");
    assert_eq!(stepped(&anywhere), unix::cores::allowed());
}

#[test]
fn shared_threads_go_to_nodes() {
    let Some((tree, low, high)) = halves() else { return };
    let expected = vec![vec!["eth0".into()], vec!["eth0".into()], vec!["eth1".into()]];
    let seats = Seats::new(Rules { workers: 2, expected, ..rules(&tree) }).unwrap();
    let [a, b, c] = [("a", "eth0"), ("b", "eth0"), ("c", "eth1")].map(|(id, name)| take(&seats, id, name));
    let same = |a: &Seat, b: &Seat| Arc::ptr_eq(a.crew.as_ref().unwrap(), b.crew.as_ref().unwrap());
    assert!(same(&a, &b) && !same(&a, &c) && a.core.is_none());
    for (seat, half) in [(&a, &low), (&b, &low), (&c, &high)] {
        let core = seat.placement.as_ref().unwrap().core.unwrap();
        assert!(half.contains(&core), "{seat:?}");
        assert_eq!(stepped(seat), BTreeSet::from([core]));
    }
    assert!(said(&b).ends_with(" of node 0, where eth0 lies, shared with others"), "{}", said(&b));
    // One that comes by nothing that is known.
    let d = take(&seats, "d", "lo");
    let why = &d.placement.as_ref().unwrap().why;
    assert_eq!(why, "the thread that has the least to do, as lo has no card, shared with others");
    assert!(d.crew.is_some());
    // A thread that has nothing to step any more moves; one that has stays.
    drop((a, b, d));
    let e = take(&seats, "e", "eth1");
    assert!(same(&e, &c), "the node has as many threads as it is to have");
    let none = Seats::new(Rules { workers: 1, ..rules(&tree) }).unwrap();
    let first = take(&none, "a", "eth0");
    let far = take(&none, "b", "eth1");
    assert!(said(&far).contains("no thread of limits.workers is at node 1, where eth1 lies"), "{}", said(&far));
    drop((first, far));
    let moved = take(&none, "b", "eth1");
    let core = moved.placement.as_ref().unwrap().core.unwrap();
    assert!(high.contains(&core) && stepped(&moved) == BTreeSet::from([core]));
}

#[test]
fn shared_threads_with_configured_cores_and_without_any() {
    let Some((tree, low, high)) = halves() else { return };
    let (first, last) = (*low.first().unwrap(), *high.last().unwrap());
    let all = Seats::new(Rules { workers: 2, cores: vec![first, last], ..rules(&tree) }).unwrap();
    let held = ["a", "b", "c", "a"].map(|id| take(&all, id, "eth1"));
    let cores = held.each_ref().map(|seat| seat.placement.as_ref().unwrap().core.unwrap());
    assert_eq!(cores, [first, last, first, first]);
    assert_eq!(stepped(&held[1]), BTreeSet::from([last]));
    let off = Seats::new(Rules { workers: 2, policy: Policy::Off, ..rules(&tree) }).unwrap();
    let seat = take(&off, "a", "eth1");
    assert_eq!((seat.crew.is_some(), stepped(&seat)), (true, unix::cores::allowed()));
    assert!(Seats::new(Rules { workers: 1, cores: vec![100_000], ..rules(&tree) }).is_err());
}

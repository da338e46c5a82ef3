//! NUMA nodes and their cores, as far as this process may use them.

use super::Root;
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of cores are below this (CONFIG_NR_CPUS of the largest kernels).
const MOST: usize = 8192;

/// Cores of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores {
    /// Cores of each NUMA node that are on; a node that has memory alone is none.
    nodes: BTreeMap<u32, BTreeSet<usize>>,
    /// Those that this process may use.
    allowed: BTreeSet<usize>,
    /// Those that are kept from the scheduler (`isolcpus=`).
    isolated: BTreeSet<usize>,
    /// The threads of a core (SMT), itself among them.
    siblings: BTreeMap<usize, BTreeSet<usize>>,
}

impl Cores {
    /// Reads them; `allowed`: those that this process may use. What is not there, or is no list, is as if the machine had
    /// none of it: one node, no isolated core, one thread a core.
    pub fn read(root: &Root, allowed: BTreeSet<usize>) -> Self {
        let of_node = |name: &String| {
            let number = name.strip_prefix("node")?.parse().ok()?;
            let cores = list(&root.text(&format!("sys/devices/system/node/{name}/cpulist"))?)?;
            (!cores.is_empty()).then_some((number, cores))
        };
        let mut nodes: BTreeMap<u32, BTreeSet<usize>> =
            root.names("sys/devices/system/node").iter().filter_map(of_node).collect();
        let cpu = "sys/devices/system/cpu";
        let read = |path: String| root.text(&path).and_then(|text| list(&text));
        if nodes.is_empty() {
            let online = read(format!("{cpu}/online")).unwrap_or_else(|| allowed.clone());
            nodes.insert(0, online);
        }
        let isolated = read(format!("{cpu}/isolated")).unwrap_or_default();
        let of_core = |core: &usize| {
            let mut threads = read(format!("{cpu}/cpu{core}/topology/thread_siblings_list"))?;
            threads.insert(*core);
            Some((*core, threads))
        };
        let siblings = allowed.iter().filter_map(of_core).collect();
        Cores { nodes, allowed, isolated, siblings }
    }

    /// NUMA nodes with cores, whether this process may use these or not.
    pub fn nodes(&self) -> impl Iterator<Item = u32> {
        self.nodes.keys().copied()
    }
    /// The node of a core.
    pub fn node_of(&self, core: usize) -> Option<u32> {
        self.nodes.iter().find(|(_, cores)| cores.contains(&core)).map(|(node, _)| *node)
    }
    /// Cores of a node that this process may use.
    pub fn of(&self, node: u32) -> BTreeSet<usize> {
        self.nodes.get(&node).map(|cores| cores & &self.allowed).unwrap_or_default()
    }
    /// Nodes of which this process may use cores.
    pub fn usable(&self) -> Vec<u32> {
        self.nodes().filter(|node| !self.of(*node).is_empty()).collect()
    }
    /// Cores of this process that the scheduler keeps away from.
    pub fn isolated(&self) -> BTreeSet<usize> {
        &self.isolated & &self.allowed
    }

    /// The core of a node for one more thread that is busy, where `load` tells what each core has already. None where this
    /// process may use no core of it.
    ///
    /// The least loaded one; of those that have the same, one that is kept from the scheduler, then one whose sibling has
    /// the least, then the lowest. Core 0, which has the rest of the machine's work, only where there is no other.
    pub fn choose(&self, node: u32, load: impl Fn(usize) -> u64) -> Option<usize> {
        let cores = self.of(node);
        let beside = |core: usize| {
            let threads = self.siblings.get(&core).into_iter().flatten();
            threads.filter(|thread| **thread != core).map(|thread| load(*thread)).fold(0, u64::saturating_add)
        };
        let rank = |core: &usize| (load(*core), !self.isolated.contains(core), beside(*core), *core);
        let others = cores.iter().filter(|core| **core != 0 || cores.len() == 1);
        others.copied().min_by_key(rank)
    }

    /// For people: `2 NUMA nodes: 0 (cores 0-7), 1 (cores 8-15)`.
    pub fn describe(&self) -> String {
        let mut text = match self.nodes.len() {
            1 => "one NUMA node".to_owned(),
            n => {
                let each = self.nodes.iter().map(|(node, cores)| format!("{node} (cores {})", written(cores)));
                format!("{n} NUMA nodes: {}", each.collect::<Vec<_>>().join(", "))
            }
        };
        let all: BTreeSet<usize> = self.nodes.values().flatten().copied().collect();
        if !all.is_subset(&self.allowed) {
            text += &format!("; this process may use cores {}", written(&self.allowed));
        }
        let isolated = self.isolated();
        if !isolated.is_empty() {
            text += &format!("; cores {} are kept from the scheduler", written(&isolated));
        }
        text
    }
}

/// A list as the kernel writes it: `0-3,8`; an empty one is a list. None for what is none.
pub fn list(text: &str) -> Option<BTreeSet<usize>> {
    let mut all = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// The same, written.
pub fn written(cores: &BTreeSet<usize>) -> String {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => spans.push((*core, *core)),
        }
    }
    let each = spans.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    each.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Tree;
    use super::*;
    use proptest::prelude::*;

    fn set(cores: impl IntoIterator<Item = usize>) -> BTreeSet<usize> {
        cores.into_iter().collect()
    }

    /// Two nodes of four cores with two threads each: core 1 and 9 are one, and so on.
    fn two_nodes() -> Tree {
        let tree = Tree::new();
        let node = "sys/devices/system/node";
        tree.file(&format!("{node}/node0/cpulist"), "0-3,8-11\n").file(&format!("{node}/node1/cpulist"), "4-7,12-15\n");
        // Memory without cores (HBM, CXL), and files that are no node.
        tree.file(&format!("{node}/node2/cpulist"), "\n").file(&format!("{node}/online"), "0-2\n");
        for core in 0..16 {
            let path = format!("sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
            tree.file(&path, &format!("{},{}\n", core % 8, core % 8 + 8));
        }
        tree
    }

    /// Cores that `n` threads get, one after the other.
    fn in_turn(cores: &Cores, node: u32, n: usize) -> Vec<usize> {
        let mut taken: Vec<usize> = Vec::new();
        for _ in 0..n {
            let load = |core| taken.iter().filter(|t| **t == core).count() as u64;
            taken.push(cores.choose(node, load).unwrap());
        }
        taken
    }

    #[test]
    fn one_thread_of_each_core_first_and_core_0_never() {
        let tree = two_nodes();
        let cores = Cores::read(&tree.root(), set(0..16));
        assert_eq!(cores.usable(), [0, 1]);
        // 8 is the sibling of 0, which has nothing of ours.
        assert_eq!(in_turn(&cores, 0, 8), [1, 2, 3, 8, 9, 10, 11, 8]);
        assert_eq!(in_turn(&cores, 1, 9), [4, 5, 6, 7, 12, 13, 14, 15, 4]);
        assert_eq!((cores.node_of(9), cores.node_of(12), cores.node_of(99)), (Some(0), Some(1), None));
        assert_eq!(cores.describe(), "2 NUMA nodes: 0 (cores 0-3,8-11), 1 (cores 4-7,12-15)");
    }

    #[test]
    fn isolated_cores_come_first() {
        let tree = two_nodes();
        tree.file("sys/devices/system/cpu/isolated", "6-7,14-15\n");
        let cores = Cores::read(&tree.root(), set(0..16));
        assert_eq!(in_turn(&cores, 1, 6), [6, 7, 14, 15, 4, 5]);
        assert!(cores.describe().ends_with("; cores 6-7,14-15 are kept from the scheduler"), "{}", cores.describe());
        // Those that this process may not use are nothing to it.
        let cores = Cores::read(&tree.root(), set(0..6));
        assert_eq!((in_turn(&cores, 1, 2), cores.isolated()), (vec![4, 5], set([])));
    }

    #[test]
    fn a_cpuset_of_one_node() {
        let cores = Cores::read(&two_nodes().root(), set([4, 5]));
        assert_eq!((cores.usable(), cores.nodes().count()), (vec![1], 2));
        assert_eq!((cores.choose(0, |_| 0), cores.choose(1, |_| 0), cores.choose(7, |_| 0)), (None, Some(4), None));
        assert!(cores.describe().ends_with("; this process may use cores 4-5"), "{}", cores.describe());
        // Where there is no other, core 0 does.
        let cores = Cores::read(&two_nodes().root(), set([0, 4]));
        assert_eq!((cores.choose(0, |_| 9), cores.choose(1, |_| 0)), (Some(0), Some(4)));
    }

    #[test]
    fn a_machine_that_tells_nothing_has_one_node() {
        let tree = Tree::new();
        let cores = Cores::read(&tree.root(), set([0, 1, 2]));
        assert_eq!((cores.usable(), cores.choose(0, |_| 0)), (vec![0], Some(1)));
        assert_eq!(cores.describe(), "one NUMA node");
    }

    #[test]
    fn files_that_are_none_count_for_nothing() {
        let tree = two_nodes();
        tree.file("sys/devices/system/node/node0/cpulist", "0-x\n");
        tree.file("sys/devices/system/node/nodeX/cpulist", "0-3\n");
        tree.file("sys/devices/system/cpu/isolated", "7-3\n");
        tree.file("sys/devices/system/cpu/cpu4/topology/thread_siblings_list", "4,99999999999\n");
        let cores = Cores::read(&tree.root(), set(0..16));
        assert_eq!((cores.usable(), cores.isolated()), (vec![1], set([])));
        // Nobody knows any more that 12 is beside 4; 12 itself does.
        assert_eq!(in_turn(&cores, 1, 5), [4, 5, 6, 7, 12]);
    }

    #[test]
    fn lists_of_the_kernel() {
        assert_eq!(list("0-3,8\n"), Some(set([0, 1, 2, 3, 8])));
        assert_eq!((list(""), list("5")), (Some(set([])), Some(set([5]))));
        for wrong in ["3-1", "a", "1-", "-1", "0-8192", "1 2", "0-18446744073709551615"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
        assert_eq!(written(&set([0, 1, 2, 5, 7, 8])), "0-2,5,7-8");
    }

    proptest! {
        #[test]
        fn lists_are_read_as_they_are_written(cores in prop::collection::btree_set(0..MOST, 0..40)) {
            prop_assert_eq!(list(&written(&cores)), Some(cores));
        }
        /// Whatever the files hold: a core that this process may use, or none.
        #[test]
        fn the_core_is_one_of_those(text in "[0-9,\\- \n]{0,20}", allowed in prop::collection::btree_set(0..20usize, 0..6)) {
            let tree = two_nodes();
            tree.file("sys/devices/system/node/node0/cpulist", &text).file("sys/devices/system/cpu/isolated", &text);
            let cores = Cores::read(&tree.root(), allowed.clone());
            for node in 0..3 {
                let chosen = cores.choose(node, |core| core as u64 % 3);
                prop_assert_eq!(chosen.is_some(), !cores.of(node).is_empty());
                prop_assert!(chosen.is_none_or(|core| allowed.contains(&core)));
            }
        }
    }
}

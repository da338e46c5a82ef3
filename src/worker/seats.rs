//! Which thread steps a pipeline, and on which core: as it is configured, else near the card by which its packets come.
//!
//! ```text
//! configured core | threads that are shared | configured cores in turn | near the card, else the GPU | the scheduler
//! ```

use super::Crew;
use crate::error::Result;
use crate::rx::wait;
use crate::topology::{Cores, Near, Root, near};
use crate::unix;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Are threads that have no configured core put near their card?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Where cores differ: the process has those of several NUMA nodes, or some that are kept from the scheduler, which puts
    /// nothing there by itself.
    #[default]
    Auto,
    /// On a machine with one node as well: each thread gets a core.
    Near,
    /// The scheduler does.
    Off,
}

/// What threads are shared out by.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Cores for threads, in turn.
    pub cores: Vec<usize>,
    /// Threads that step several pipelines each; 0: one for each pipeline.
    pub workers: usize,
    /// Sleep of these between two drains.
    pub sleep: Duration,
    /// What is done without `cores`.
    pub policy: Policy,
    /// Interfaces of the pipelines that are to come, as far as they are known: how shared threads are spread over nodes.
    pub expected: Vec<Vec<String>>,
    /// Where the machine is looked at.
    pub root: Root,
}

/// A pipeline that wants a thread.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Whose it is.
    pub id: &'a str,
    /// Its own core, as it is configured.
    pub core: Option<usize>,
    /// Interfaces of its legs.
    pub interfaces: &'a [String],
    /// PCI address of the GPU that it uses.
    pub gpu: Option<&'a str>,
    /// What it has to do, for example packets a second.
    pub weight: u64,
}

/// Where a thread is, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Its core; none: the scheduler chooses.
    pub core: Option<usize>,
    /// NUMA node of that core.
    pub node: Option<u32>,
    /// The thread steps other pipelines as well.
    pub shared: bool,
    /// For people.
    pub why: String,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.core, self.node) {
            (Some(core), Some(node)) => write!(f, "core {core} of node {node}, {}", self.why),
            (Some(core), None) => write!(f, "core {core}, {}", self.why),
            (None, _) => write!(f, "any core: {}", self.why),
        }
    }
}

/// A thread for one pipeline, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    /// Core of a thread of its own.
    pub core: Option<usize>,
    /// The thread that it shares with others.
    pub crew: Option<Arc<Crew>>,
    /// None where nobody shares threads out.
    pub placement: Option<Placement>,
    _held: Option<Held>,
}

impl Seat {
    /// A thread of its own on this core.
    pub const fn own(core: Option<usize>) -> Self {
        Seat { core, crew: None, placement: None, _held: None }
    }
    /// NUMA node that its memory is best taken from.
    pub fn node(&self) -> Option<u32> {
        self.placement.as_ref()?.node
    }
}

/// Whose seat it was; the next one may have it.
#[derive(Debug)]
struct Held {
    seats: Arc<Seats>,
    number: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.seats.lock().taken.remove(&self.number);
    }
}

/// Shares out threads and cores.
#[derive(Debug)]
pub struct Seats {
    rules: Rules,
    /// The kernel lets this process choose no cores.
    refused: bool,
    crews: Vec<Arc<Crew>>,
    /// Shared threads that each node gets, as far as that is known before.
    quotas: BTreeMap<u32, usize>,
    allowed: fn() -> BTreeSet<usize>,
    table: Mutex<Table>,
}

/// Who has what.
#[derive(Debug, Default)]
struct Table {
    next: u64,
    taken: BTreeMap<u64, Taken>,
    /// Where each shared thread is.
    crews: Vec<Option<usize>>,
    /// The core or shared thread that somebody had last.
    before: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Taken {
    id: String,
    core: Option<usize>,
    crew: Option<usize>,
    weight: u64,
}

/// A thread that was found.
struct Found {
    core: Option<usize>,
    crew: Option<usize>,
    node: Option<u32>,
    why: String,
}

impl Seats {
    /// By these rules; shared threads begin here.
    ///
    /// # Errors
    /// There are no such threads, or a core that they are to have cannot be used.
    pub fn new(rules: Rules) -> Result<Arc<Self>> {
        Seats::with(rules, unix::cores::allowed)
    }

    fn with(rules: Rules, allowed: fn() -> BTreeSet<usize>) -> Result<Arc<Self>> {
        let core = |n: usize| rules.cores.get(n.checked_rem(rules.cores.len())?).copied();
        let begin = |n| Crew::start(rules.sleep, core(n)).map(Arc::new);
        let crews: Vec<Arc<Crew>> = (0..rules.workers).map(begin).collect::<Result<_>>()?;
        let table = Table { crews: (0..rules.workers).map(core).collect(), ..Table::default() };
        let refused = rules.policy == Policy::Auto && !may_pin();
        let nodes = rules.expected.iter().filter_map(|i| near(&rules.root, i, None).ok()).map(|near| near.node);
        let quotas = share(rules.workers, nodes);
        Ok(Arc::new(Seats { rules, refused, crews, quotas, allowed, table: Mutex::new(table) }))
    }

    /// What there is, and what is done with it, for people.
    pub fn describe(&self) -> String {
        let cores = self.cores();
        let what = match (self.rules.cores.as_slice(), self.rules.policy) {
            ([], Policy::Near) => "receiving threads are placed near their cards".to_owned(),
            ([], Policy::Auto) if differ(&cores) && !self.refused => {
                "receiving threads are placed near their cards".to_owned()
            }
            ([], _) => "receiving threads are the scheduler's".to_owned(),
            (some, _) => format!("receiving threads are on cores {some:?} in turn (limits.cores)"),
        };
        format!("{}; {what}", cores.describe())
    }

    /// A thread for a pipeline.
    pub fn take(self: &Arc<Self>, wanted: &Wanted<'_>) -> Seat {
        let cores = self.cores();
        let mut table = self.lock();
        let found = match wanted.core {
            Some(core) => own(&cores, core, "as it is configured"),
            None if !self.crews.is_empty() => self.shared(&mut table, &cores, wanted),
            None if !self.rules.cores.is_empty() => {
                let core = table.in_turn(wanted.id, self.rules.cores.iter().copied(), |taken| taken.core);
                core.map_or_else(nothing, |core| own(&cores, core, "of limits.cores"))
            }
            None => match self.spot(&cores, wanted) {
                Err(why) => Found { core: None, crew: None, node: None, why },
                Ok(Near { node, why }) => {
                    let core = table.choose(&cores, node, wanted.id);
                    Found { core, crew: None, node: core.map(|_| node), why }
                }
            },
        };
        let Found { core, crew, node, why } = found;
        let number = table.next;
        table.next += 1;
        if let Some(last) = crew.or(core) {
            table.before.insert(wanted.id.to_owned(), last);
        }
        let weight = wanted.weight.max(1);
        table.taken.insert(number, Taken { id: wanted.id.to_owned(), core, crew, weight });
        Seat {
            core: core.filter(|_| crew.is_none()),
            crew: crew.and_then(|n| self.crews.get(n).cloned()),
            placement: Some(Placement { core, node, shared: crew.is_some(), why }),
            _held: Some(Held { seats: self.clone(), number }),
        }
    }

    fn cores(&self) -> Cores {
        Cores::read(&self.rules.root, (self.allowed)())
    }

    /// The node that it is best at; else why the scheduler is left alone.
    fn spot(&self, cores: &Cores, wanted: &Wanted<'_>) -> std::result::Result<Near, String> {
        let near = || near(&self.rules.root, wanted.interfaces, wanted.gpu);
        let usable = cores.usable();
        match (self.rules.policy, usable.as_slice()) {
            (_, []) => return Err("the kernel does not say which cores this process may use".into()),
            (Policy::Off, _) => return Err("limits.placement is off".into()),
            _ if self.refused => return Err("the kernel lets this process choose no cores".into()),
            (Policy::Auto, [only]) if !differ(cores) => {
                return Err(match near() {
                    _ if cores.nodes().nth(1).is_none() => "this machine has one NUMA node".into(),
                    Ok(near) if near.node != *only => format!(
                        "this process may use cores of node {only} alone, and its packets come in at node {}, {}",
                        near.node, near.why
                    ),
                    _ => format!("this process may use cores of node {only} alone"),
                });
            }
            _ => {}
        }
        match (near(), usable.as_slice()) {
            (Ok(near), _) if usable.contains(&near.node) => Ok(near),
            (Ok(near), [only]) => {
                let why = format!("as this process may use no core of node {}, {}", near.node, near.why);
                Ok(Near { node: *only, why })
            }
            (Ok(near), _) => Err(format!("this process may use no core of node {}, {}", near.node, near.why)),
            (Err(why), [only]) => {
                let one = cores.nodes().nth(1).is_none();
                let why = if one { "the only one".into() } else { format!("the only one for this process; {why}") };
                Ok(Near { node: *only, why })
            }
            (Err(why), _) => Err(why),
        }
    }

    /// One of the threads that are shared.
    fn shared(&self, table: &mut Table, cores: &Cores, wanted: &Wanted<'_>) -> Found {
        let all = 0..self.crews.len();
        let anyone = |table: &Table, why: String| {
            let crew = table.in_turn(wanted.id, all.clone(), |taken| taken.crew);
            let core = crew.and_then(|n| table.crews.get(n).copied().flatten());
            Found {
                core,
                crew,
                node: core.and_then(|core| cores.node_of(core)),
                why: format!("{why}, shared with others"),
            }
        };
        if !self.rules.cores.is_empty() {
            return anyone(table, "of limits.cores".into());
        }
        let Near { node, why } = match self.spot(cores, wanted) {
            Ok(near) => near,
            Err(why) => {
                let found = anyone(table, why);
                let why = match found.core {
                    Some(_) => format!("the thread that has the least to do, as {}", found.why),
                    None => found.why,
                };
                return Found { why, ..found };
            }
        };
        let there = |table: &Table, n: usize| {
            table.crews.get(n).copied().flatten().and_then(|core| cores.node_of(core)) == Some(node)
        };
        let load = |table: &Table, n: usize| table.load(|taken| taken.crew == Some(n));
        let near: Vec<usize> = all.clone().filter(|n| there(table, *n)).collect();
        let idle = all.clone().find(|n| !there(table, *n) && load(table, *n) == 0);
        let least = near.iter().copied().min_by_key(|n| load(table, *n));
        let enough = self.quotas.get(&node).map_or(self.quotas.is_empty(), |quota| near.len() < *quota);
        let crew = match (least, idle) {
            (Some(least), idle) if idle.is_none() || !enough || load(table, least) == 0 => Some(least),
            (_, Some(idle)) => {
                // A thread that has nothing to step goes where there is something.
                let core = table.choose(cores, node, wanted.id);
                let pinned = core.filter(|core| self.crews.get(idle).is_some_and(|crew| crew.pin(*core).is_ok()));
                if let (Some(core), Some(place)) = (pinned, table.crews.get_mut(idle)) {
                    *place = Some(core);
                }
                pinned.map(|_| idle)
            }
            _ => None,
        };
        match crew {
            Some(crew) => {
                let core = table.crews.get(crew).copied().flatten();
                Found { core, crew: Some(crew), node: Some(node), why: format!("{why}, shared with others") }
            }
            None => anyone(table, format!("no thread of limits.workers is at node {node}, {why}")),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // It is whole at every instant.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn load(&self, counts: impl Fn(&Taken) -> bool) -> u64 {
        self.taken.values().filter(|taken| counts(taken)).map(|taken| taken.weight).fold(0, u64::saturating_add)
    }
    /// The core of a node: the one that it had before where no other has less to do.
    fn choose(&self, cores: &Cores, node: u32, id: &str) -> Option<usize> {
        let load = |core: usize| self.load(|taken| taken.core == Some(core));
        let best = cores.choose(node, load)?;
        let before = self.before.get(id).copied().filter(|core| *core != 0 && cores.of(node).contains(core));
        Some(before.filter(|core| load(*core) <= load(best)).unwrap_or(best))
    }
    /// The one that it had before, else the one that has the least to do.
    fn in_turn(&self, id: &str, all: impl Iterator<Item = usize>, of: fn(&Taken) -> Option<usize>) -> Option<usize> {
        let all: Vec<usize> = all.collect();
        let before = self.before.get(id).copied().filter(|one| all.contains(one));
        let load = |one: &usize| self.taken.values().filter(|taken| of(taken) == Some(*one) && taken.id != id).count();
        before.or_else(|| all.iter().copied().min_by_key(load))
    }
}

fn own(cores: &Cores, core: usize, why: &str) -> Found {
    Found { core: Some(core), crew: None, node: cores.node_of(core), why: why.into() }
}

fn nothing() -> Found {
    Found { core: None, crew: None, node: None, why: "there are no cores".into() }
}

/// It matters which core a thread is on.
fn differ(cores: &Cores) -> bool {
    cores.usable().len() > 1 || !cores.isolated().is_empty()
}

/// This process may choose cores (seccomp may forbid it). Tried on a thread that ends at once.
fn may_pin() -> bool {
    let core = unix::cores::allowed().into_iter().next();
    let tried = core.map(|core| std::thread::spawn(move || wait::pin(core).is_ok()));
    tried.is_some_and(|thread| thread.join().unwrap_or(false))
}

/// Threads for nodes, by what is expected there: at least one each, as far as they go round, then to whom has most for each.
fn share(threads: usize, expected: impl Iterator<Item = u32>) -> BTreeMap<u32, usize> {
    let mut wanted: BTreeMap<u32, usize> = BTreeMap::new();
    expected.for_each(|node| *wanted.entry(node).or_default() += 1);
    let mut quotas = BTreeMap::new();
    for _ in 0..threads {
        let each = |(node, n): (&u32, &usize)| {
            let has = quotas.get(node).copied().unwrap_or(0);
            // Fixed point; the lower node of two that are equal.
            (usize::from(has == 0), n * 1000 / (has + 1), std::cmp::Reverse(*node))
        };
        let Some((_, _, std::cmp::Reverse(node))) = wanted.iter().map(each).max() else { break };
        *quotas.entry(node).or_insert(0) += 1;
    }
    quotas
}

#[cfg(test)]
mod tests;

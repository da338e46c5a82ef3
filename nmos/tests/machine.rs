//! The registration's state machine in virtual time: what IS-04, "Behaviour: Registration" says for each answer, and what
//! must hold whatever a registry does.

use gdmedia_nmos::registration::machine::{Ask, Item, Machine, Next, Outcome, Timing, What};
use gdmedia_nmos::registration::select::Registry;
use gdmedia_nmos::{Kind, Tai};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;
use uuid::Uuid;

const NODE: Uuid = Uuid::from_u128(1);

const LONG: Duration = Duration::from_secs(3600);

fn item(kind: Kind, id: u128, version: u64) -> Item {
    Item { kind, id: Uuid::from_u128(id), version: Tai(version) }
}

fn items() -> Vec<Item> {
    vec![item(Kind::Node, 1, 1), item(Kind::Device, 2, 1), item(Kind::Receiver, 3, 1), item(Kind::Receiver, 4, 1)]
}

fn registries(names: &[&str]) -> Vec<Registry> {
    let one = |(at, name): (usize, &&str)| Registry { url: (*name).to_owned(), priority: at as u32, tie: 0 };
    names.iter().enumerate().map(one).collect()
}

/// A machine and the time that it lives in.
struct World {
    machine: Machine,
    now: Duration,
    items: Vec<Item>,
}

impl World {
    fn new(names: &[&str]) -> World {
        let mut machine = Machine::new(NODE, Timing::default(), true);
        machine.discovered(Duration::ZERO, registries(names));
        World { machine, now: Duration::ZERO, items: items() }
    }
    /// What is asked next, as a line: `a POST node 1`.
    fn asked(&mut self) -> String {
        match self.machine.poll(self.now, &self.items) {
            Next::Ask(ask) => line(&ask),
            Next::Wait(until) => format!("wait {:?}", until.map(|until| until.as_millis())),
            Next::Done => "done".into(),
        }
    }
    fn says(&mut self, code: u16) {
        self.machine.answer(self.now, &Outcome::Status(code, None));
    }
    fn fails(&mut self) {
        self.machine.answer(self.now, &Outcome::Failed("no connection".into()));
    }
    #[track_caller]
    fn expect(&mut self, asked: &str, code: u16) {
        assert_eq!(self.asked(), asked);
        self.says(code);
    }
    fn after(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }
    #[track_caller]
    fn register(&mut self, at: &str) {
        for what in ["node 1", "device 2", "receiver 3", "receiver 4"] {
            self.expect(&format!("{at} POST {what}"), 201);
        }
        assert!(self.machine.registered(&self.items));
    }
}

fn line(ask: &Ask) -> String {
    let url = &ask.url;
    match &ask.what {
        What::Post(item) => format!("{url} POST {} {}", item.kind.singular(), item.id.as_u128()),
        What::Delete { kind, id, version } => {
            let version = version.as_ref().map(|v| format!(" {v}")).unwrap_or_default();
            format!("{url} DELETE {} {}{version}", kind.singular(), id.as_u128())
        }
        What::Heartbeat(id) => format!("{url} HEARTBEAT {}", id.as_u128()),
    }
}

#[test]
fn in_order_and_then_a_heartbeat_every_five_seconds() {
    let mut world = World::new(&["a"]);
    world.register("a");
    assert_eq!(world.asked(), "wait Some(5000)");
    for _ in 0..3 {
        world.after(4999);
        assert!(world.asked().starts_with("wait"));
        world.after(1);
        world.expect("a HEARTBEAT 1", 200);
    }
}

#[test]
fn a_heartbeat_is_not_late_for_many_resources() {
    let mut world = World::new(&["a"]);
    world.expect("a POST node 1", 201);
    world.after(5000);
    world.expect("a HEARTBEAT 1", 200);
    world.expect("a POST device 2", 201);
}

#[test]
fn a_change_is_posted_and_what_is_gone_deleted() {
    let mut world = World::new(&["a"]);
    world.register("a");
    world.items[2].version = Tai(2);
    assert!(!world.machine.registered(&world.items));
    world.expect("a POST receiver 3", 200);
    world.items.remove(3);
    world.items[1].version = Tai(3);
    world.expect("a DELETE receiver 4", 204);
    world.expect("a POST device 2", 200);
    assert!(world.asked().starts_with("wait"));
}

#[test]
fn a_200_at_first_clears_what_an_earlier_run_left() {
    let mut world = World::new(&["a"]);
    world.expect("a POST node 1", 200);
    world.expect("a DELETE node 1", 204);
    world.register("a");
}

#[test]
fn a_registry_that_always_says_200_is_cleared_once() {
    let mut world = World::new(&["a"]);
    world.expect("a POST node 1", 200);
    world.expect("a DELETE node 1", 204);
    for what in ["node 1", "device 2", "receiver 3", "receiver 4"] {
        world.expect(&format!("a POST {what}"), 200);
    }
    assert!(world.machine.registered(&world.items));
}

#[test]
fn a_registry_that_forgot_the_node_gets_everything_again() {
    let mut world = World::new(&["a"]);
    world.register("a");
    world.after(5000);
    world.expect("a HEARTBEAT 1", 404);
    world.register("a");
}

#[test]
fn the_next_registry_gets_a_heartbeat_first() {
    for failure in [500, 503, 0] {
        let mut world = World::new(&["a", "b", "c"]);
        world.register("a");
        world.after(5000);
        assert_eq!(world.asked(), "a HEARTBEAT 1");
        if failure == 0 {
            world.fails()
        } else {
            world.says(failure)
        }
        // The same cluster: nothing is posted again.
        world.expect("b HEARTBEAT 1", 200);
        assert_eq!(world.asked(), "wait Some(10000)");
        world.after(5000);
        assert_eq!(world.asked(), "b HEARTBEAT 1");
        world.fails();
        // It is left alone, and the first one's pause is over by now.
        world.expect("a HEARTBEAT 1", 404);
        world.register("a");
    }
}

#[test]
fn a_failure_while_it_registers_moves_on_too() {
    let mut world = World::new(&["a", "b"]);
    world.expect("a POST node 1", 201);
    world.expect("a POST device 2", 500);
    world.expect("b HEARTBEAT 1", 404);
    world.register("b");
    // Never reached at all: there is nothing to ask for.
    let mut world = World::new(&["a", "b"]);
    assert_eq!(world.asked(), "a POST node 1");
    world.fails();
    world.register("b");
}

#[test]
fn pauses_double_up_to_a_minute() {
    let mut world = World::new(&["a"]);
    for pause in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
        assert_eq!(world.asked(), "a POST node 1");
        world.says(500);
        let until = world.now + Duration::from_secs(pause);
        assert_eq!(world.asked(), format!("wait {:?}", Some(until.as_millis())));
        world.after(pause * 1000 - 1);
        assert!(world.asked().starts_with("wait"));
        world.after(1);
    }
    world.register("a");
    assert!(world.asked().starts_with("wait"));
    world.after(5000);
    world.expect("a HEARTBEAT 1", 500);
    assert_eq!(world.asked(), format!("wait {:?}", Some(world.now.as_millis() + 1000)), "it had been well");
}

#[test]
fn heartbeats_alone_do_not_end_the_doubling() {
    let mut world = World::new(&["a"]);
    world.expect("a POST node 1", 201);
    for pause in [1, 2, 4, 8] {
        let asked = world.asked();
        if asked == "a HEARTBEAT 1" {
            world.says(200);
            assert_eq!(world.asked(), "a POST device 2");
        }
        world.says(500);
        assert_eq!(world.asked(), format!("wait {:?}", Some(world.now.as_millis() + pause * 1000)));
        world.after(pause as u64 * 1000);
    }
}

#[test]
fn what_is_refused_is_not_sent_again_before_it_changes() {
    let mut world = World::new(&["a"]);
    world.expect("a POST node 1", 201);
    world.expect("a POST device 2", 201);
    world.expect("a POST receiver 3", 400);
    world.expect("a POST receiver 4", 201);
    assert!(world.asked().starts_with("wait"));
    assert!(!world.machine.registered(&world.items), "it has not everything");
    world.after(5000);
    world.expect("a HEARTBEAT 1", 200);
    assert!(world.asked().starts_with("wait"));
    assert!(!world.machine.registered(&world.items));
    world.items[2].version = Tai(2);
    world.expect("a POST receiver 3", 201);
    assert!(world.machine.registered(&world.items));
}

#[test]
fn a_parent_that_is_refused_keeps_its_children_back() {
    let mut world = World::new(&["a"]);
    world.expect("a POST node 1", 201);
    world.expect("a POST device 2", 400);
    assert!(world.asked().starts_with("wait"));
    world.items[1].version = Tai(2);
    world.expect("a POST device 2", 201);
    world.expect("a POST receiver 3", 201);
}

#[test]
fn a_node_that_is_refused_tries_the_next_and_waits_for_a_change() {
    let mut world = World::new(&["a", "b"]);
    world.expect("a POST node 1", 400);
    world.expect("b POST node 1", 403);
    assert_eq!(world.asked(), "wait Some(60000)");
    assert!(!world.machine.refused_for_long(world.now, Tai(1)));
    world.after(60_000);
    assert!(world.machine.refused_for_long(world.now, Tai(1)), "a new version is worth a try");
    assert_eq!(world.asked(), "wait None", "the same one is not");
    world.items[0].version = Tai(2);
    world.expect("a POST node 1", 400);
    world.register("b");
    assert!(!world.machine.refused_for_long(world.now + LONG, Tai(2)), "one has it");
}

#[test]
fn too_many_requests_is_a_pause_and_no_refusal() {
    let mut world = World::new(&["a"]);
    world.expect("a POST node 1", 429);
    assert_eq!(world.asked(), "wait Some(1000)");
    world.after(1000);
    world.register("a");
}

#[test]
fn a_conflict_is_unregistered_under_its_own_version_first() {
    // Named by the registry.
    let mut world = World::new(&["a"]);
    assert_eq!(world.asked(), "a POST node 1");
    let location = "http://evil.example/x-nmos/registration/v1.1/resource/nodes/1".to_owned();
    world.machine.answer(world.now, &Outcome::Status(409, Some(location)));
    world.expect("a DELETE node 1 v1.1", 204);
    world.register("a");
    // Not named: tried from the newest on.
    let mut world = World::new(&["a"]);
    world.expect("a POST node 1", 409);
    world.expect("a DELETE node 1 v1.2", 404);
    world.expect("a DELETE node 1 v1.1", 204);
    world.register("a");
    // On a heartbeat.
    let mut world = World::new(&["a"]);
    world.register("a");
    world.after(5000);
    world.expect("a HEARTBEAT 1", 409);
    world.expect("a DELETE node 1 v1.2", 204);
    world.register("a");
}

#[test]
fn a_conflict_that_stays_is_a_failure() {
    for location in [None, Some("/x-nmos/registration/v1.3/resource/nodes/1"), Some("/x-nmos/registration/../v9/")] {
        let mut world = World::new(&["a", "b"]);
        assert_eq!(world.asked(), "a POST node 1");
        world.machine.answer(world.now, &Outcome::Status(409, location.map(String::from)));
        for version in ["v1.2", "v1.1", "v1.0"] {
            world.expect(&format!("a DELETE node 1 {version}"), 404);
        }
        world.expect("a POST node 1", 409);
        world.register("b");
    }
}

#[test]
fn it_leaves_children_first() {
    let mut world = World::new(&["a"]);
    world.register("a");
    world.machine.stop();
    world.expect("a DELETE receiver 4", 204);
    world.expect("a DELETE receiver 3", 404);
    world.expect("a DELETE device 2", 204);
    world.expect("a DELETE node 1", 204);
    assert_eq!(world.asked(), "done");
    // What does not answer is left at that.
    let mut world = World::new(&["a", "b"]);
    world.register("a");
    world.machine.stop();
    assert_eq!(world.asked(), "a DELETE receiver 4");
    world.fails();
    assert_eq!(world.asked(), "done");
    // Never registered.
    let mut world = World::new(&[]);
    world.machine.stop();
    assert_eq!(world.asked(), "done");
}

#[test]
fn a_registry_of_another_cluster_that_has_an_old_state_is_cleared() {
    let mut world = World::new(&["a", "b"]);
    world.register("a");
    world.after(5000);
    world.expect("a HEARTBEAT 1", 500);
    // Another cluster, as it turns out.
    world.expect("b HEARTBEAT 1", 404);
    world.register("b");
    world.items.pop();
    world.expect("b DELETE receiver 4", 204);
    world.after(5000);
    world.expect("b HEARTBEAT 1", 500);
    // It still has the receiver that is gone.
    world.expect("a HEARTBEAT 1", 200);
    world.expect("a DELETE node 1", 204);
    for what in ["node 1", "device 2", "receiver 3"] {
        world.expect(&format!("a POST {what}"), 201);
    }
    assert!(world.machine.registered(&world.items));
}

#[test]
fn the_one_in_use_stays_in_use() {
    let mut world = World::new(&["b"]);
    world.register("b");
    world.machine.discovered(world.now, registries(&["a", "b"]));
    world.after(5000);
    world.expect("b HEARTBEAT 1", 200);
    // Its advert has gone; it answers all the same.
    world.machine.discovered(world.now, vec![]);
    assert!(!world.machine.peer_to_peer(world.now));
    world.after(5000);
    world.expect("b HEARTBEAT 1", 200);
    world.after(5000);
    world.expect("b HEARTBEAT 1", 500);
    assert_eq!(world.asked(), "wait None");
}

#[test]
fn alone_it_announces_itself() {
    let mut world = World::new(&[]);
    let second = Duration::from_secs(1);
    assert!(!world.machine.peer_to_peer(2 * second), "a registry may be about to be found");
    world.machine.discovered(3 * second, vec![]);
    assert!(world.machine.peer_to_peer(3 * second));
    world.machine.discovered(4 * second, registries(&["a"]));
    assert!(!world.machine.peer_to_peer(4 * second));
    world.now = 4 * second;
    world.expect("a POST node 1", 500);
    assert!(!world.machine.peer_to_peer(100 * second), "there is one, though it does not work");
    world.machine.discovered(100 * second, vec![]);
    assert!(!world.machine.peer_to_peer(102 * second));
    assert!(world.machine.peer_to_peer(103 * second));
    world.machine.stop();
    assert!(!world.machine.peer_to_peer(103 * second));
    // A registry that a user has named is not looked for.
    let mut named = Machine::new(NODE, Timing::default(), false);
    named.discovered(Duration::ZERO, vec![]);
    assert!(!named.peer_to_peer(100 * second));
}

/// A registry as the specification has it, that may fail at any time.
#[derive(Default)]
struct Model {
    has: HashMap<Uuid, Item>,
    alive: Duration,
}

const COLLECT: Duration = Duration::from_secs(12);

impl Model {
    fn hear(&mut self, now: Duration, what: &What) -> u16 {
        if now.saturating_sub(self.alive) > COLLECT {
            self.has.clear();
        }
        match what {
            What::Heartbeat(id) if self.has.contains_key(id) => {
                self.alive = now;
                200
            }
            What::Heartbeat(_) => 404,
            What::Post(item) => {
                let parent = match item.kind {
                    Kind::Node => None,
                    Kind::Device => Some(Kind::Node),
                    Kind::Receiver => Some(Kind::Device),
                };
                let there = |kind| self.has.values().any(|known: &Item| known.kind == kind);
                if !parent.is_none_or(there) {
                    // It has forgotten the node, or a fault has swallowed it.
                    return 400;
                }
                if item.kind == Kind::Node {
                    self.alive = now;
                }
                if self.has.insert(item.id, *item).is_some() { 200 } else { 201 }
            }
            What::Delete { kind, id, .. } => {
                if *kind == Kind::Node {
                    self.has.clear();
                    return 204;
                }
                if self.has.remove(id).is_some() { 204 } else { 404 }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// The next requests to registry `which` get `code` (0: no answer).
    Fault {
        which: usize,
        code: u16,
        count: u8,
    },
    /// It forgets everything.
    Forget {
        which: usize,
    },
    /// A receiver changes, comes or goes.
    Change {
        id: u128,
    },
    Add {
        id: u128,
    },
    Remove {
        id: u128,
    },
    /// Adverts come and go.
    Advertise {
        mask: u8,
    },
    /// Time passes.
    Wait {
        ms: u64,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let code = prop_oneof![Just(0), Just(500), Just(503), Just(404), Just(409), Just(429), Just(418), Just(302)];
    let event = prop_oneof![
        (0..3_usize, code, 1..6_u8).prop_map(|(which, code, count)| Event::Fault { which, code, count }),
        (0..3_usize).prop_map(|which| Event::Forget { which }),
        (1..9_u128).prop_map(|id| Event::Change { id }),
        (3..9_u128).prop_map(|id| Event::Add { id }),
        (3..9_u128).prop_map(|id| Event::Remove { id }),
        (0..8_u8).prop_map(|mask| Event::Advertise { mask }),
        (1..30_000_u64).prop_map(|ms| Event::Wait { ms }),
    ];
    prop::collection::vec(event, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever registries have done: once they work, one of them has exactly what the node has, in bounded time and with a
    /// bounded number of requests; pauses are kept.
    #[test]
    fn in_the_end_it_is_registered(events in events()) {
        let names = ["a", "b", "c"];
        let mut world = World::new(&names);
        let mut models: Vec<Model> = names.iter().map(|_| Model::default()).collect();
        let mut faults: Vec<Vec<u16>> = vec![vec![]; names.len()];
        let mut version = 10;
        let run = |world: &mut World, models: &mut [Model], faults: &mut [Vec<u16>], until: Duration| {
            let mut requests = 0;
            while world.now < until {
                match world.machine.poll(world.now, &world.items) {
                    Next::Ask(ask) => {
                        requests += 1;
                        assert!(requests < 2000, "it asks without end: {ask:?}");
                        let which = names.iter().position(|name| *name == ask.url).unwrap();
                        let outcome = match faults[which].pop() {
                            // What may not be deleted, or is denied, stays there, whatever is done.
                            Some(404 | 409 | 418) if matches!(ask.what, What::Delete { .. }) => {
                                Outcome::Status(models[which].hear(world.now, &ask.what), None)
                            }
                            Some(0) => Outcome::Failed("fault".into()),
                            Some(code) => Outcome::Status(code, None),
                            None => Outcome::Status(models[which].hear(world.now, &ask.what), None),
                        };
                        world.now += Duration::from_millis(1);
                        world.machine.answer(world.now, &outcome);
                    }
                    Next::Wait(at) => {
                        let at = at.unwrap_or(until);
                        assert!(at > world.now, "it waits for what is past");
                        world.now = at.min(until);
                    }
                    Next::Done => unreachable!(),
                }
            }
        };
        for event in events {
            version += 1;
            match event {
                Event::Fault { which, code, count } => faults[which].extend(std::iter::repeat_n(code, count.into())),
                Event::Forget { which } => models[which].has.clear(),
                Event::Change { id } => {
                    world.items.iter_mut().filter(|i| i.id == Uuid::from_u128(id)).for_each(|i| i.version = Tai(version));
                }
                Event::Add { id } => {
                    if !world.items.iter().any(|i| i.id == Uuid::from_u128(id)) {
                        world.items.push(item(Kind::Receiver, id, version));
                    }
                }
                Event::Remove { id } => world.items.retain(|i| i.kind != Kind::Receiver || i.id != Uuid::from_u128(id)),
                Event::Advertise { mask } => {
                    let list: Vec<&str> = names.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1).map(|(_, n)| *n).collect();
                    world.machine.discovered(world.now, registries(&list));
                }
                Event::Wait { ms } => {
                    let until = world.now + Duration::from_millis(ms);
                    run(&mut world, &mut models, &mut faults, until);
                }
            }
        }
        // All is well again, and everything is new, so that no refusal stands.
        faults.iter_mut().for_each(Vec::clear);
        world.machine.discovered(world.now, registries(&names));
        world.items.iter_mut().for_each(|item| item.version = Tai(1_000_000));
        let until = world.now + Duration::from_secs(75);
        run(&mut world, &mut models, &mut faults, until);
        prop_assert!(world.machine.registered(&world.items));
        let at = world.machine.registry().unwrap();
        let used = names.iter().position(|name| *name == at).unwrap();
        let model = &models[used];
        let mut has: Vec<Item> = model.has.values().copied().collect();
        let mut wanted = world.items.clone();
        has.sort_by_key(|item| item.id);
        wanted.sort_by_key(|item| item.id);
        prop_assert_eq!(has, wanted);
        prop_assert!(world.now.saturating_sub(model.alive) <= Duration::from_millis(5100), "heartbeats come");

        // And it leaves without a trace.
        world.machine.stop();
        let mut left = 0;
        while let Next::Ask(ask) = world.machine.poll(world.now, &world.items) {
            let which = names.iter().position(|name| *name == ask.url).unwrap();
            let code = models[which].hear(world.now, &ask.what);
            world.machine.answer(world.now, &Outcome::Status(code, None));
            left += 1;
            prop_assert!(left <= world.items.len());
        }
        prop_assert!(models[used].has.is_empty());
    }
}

use super::*;
use crate::error::Kind;
use crate::time::Tai;
use proptest::prelude::*;

fn plan(text: &str) -> FaultPlan {
    FaultPlan::from_toml("plan.toml", text).unwrap()
}

fn line(text: &str) -> FaultPlan {
    text.parse().unwrap()
}

/// What happens to `count` packets of leg 0: one each millisecond, of 100 octets, numbered from 0.
fn fates(plan: &FaultPlan, count: u64) -> Vec<Fate> {
    let mut faults = Faults::new(plan);
    (0..count).map(|n| faults.decide(0, Tai(5_000_000_000 + n * 1_000_000), 100, n as u16)).collect()
}

/// The packets that do not go on.
fn gone(plan: &FaultPlan, count: u64) -> Vec<u64> {
    fates(plan, count).iter().filter(|f| f.copies().next().is_none()).map(|f| f.index).collect()
}

fn holds(plan: &FaultPlan, count: u64) -> Vec<Vec<Hold>> {
    fates(plan, count).iter().map(|f| f.copies().collect()).collect()
}

fn rule(what: What, chance: Chance) -> Rule {
    Rule { what, leg: None, when: When::always(chance) }
}

#[test]
fn the_form_of_one_line_is_understood() {
    let want = FaultPlan {
        seed: 7,
        rules: vec![
            rule(What::Loss, Chance::Ratio(1, 1000)),
            rule(What::Duplicate { within: 32 }, Chance::Every(500)),
            rule(What::Delay { by: Hold::Time(200_000), jitter: 0, keep_order: false }, Chance::Ratio(1, 100)),
            rule(What::Reorder { depth: 32 }, Chance::Ratio(1, 10)),
        ]
        .into_iter()
        .map(|rule| Rule { leg: Some(1), ..rule })
        .collect(),
    };
    assert_eq!(line("loss=1/1000, dup=every/500,reorder=32,delay=200us@1/100,leg=1,seed=7"), want);
    assert_eq!(line("duplicate=1/5"), line("dup=1/5"));
    for none in ["", "loss=0,dup=0/5", "loss=1/2,loss=0"] {
        assert_eq!(line(none), FaultPlan::NONE);
    }
    for (text, hold) in [
        ("5", Hold::Packets(5)),
        ("1.5ms", Hold::Time(1_500_000)),
        ("80ns", Hold::Time(80)),
        ("2s", Hold::Time(2_000_000_000)),
    ] {
        let what = What::Delay { by: hold, jitter: 0, keep_order: false };
        assert_eq!(line(&format!("delay={text}")).rules, [rule(what, Chance::Every(1))]);
    }
    for (text, parts) in [("0.001", 100_000), ("0.1%", 100_000), ("1", 100_000_000)] {
        assert_eq!(line(&format!("loss={text}")).rules, [rule(What::Loss, Chance::Ratio(parts, 100_000_000))]);
    }
}

#[test]
fn other_text_is_refused_with_the_grammar() {
    for text in [
        "loss",
        "loss=",
        "loss=2/1",
        "loss=1/0",
        "loss=-1",
        "loss=101%",
        "loss=NaN",
        "loss=1/10@1/2",
        "every=3",
        "reorder=0",
        "reorder=10001",
        "delay=0",
        "delay=-1ms",
        "delay=1h",
        "delay=2hs",
        "delay=infs",
        "leg=2",
        "leg=-1",
        "leg=257",
        "seed=x",
        "dup=every/0",
    ] {
        let error = text.parse::<FaultPlan>().expect_err(text);
        assert_eq!(error.kind(), Kind::Usage, "{text}");
        assert!(error.to_string().contains(text) && error.cure_text().contains("reorder=PACKETS"), "{error}");
    }
}

#[test]
fn the_form_of_a_file_is_understood() {
    let text = r#"
seed = 9
[[loss]]
chance = "0.1%"
burst = 4
leg = 1
from = "1.5s"
until = "2s"
repeat = "10s"
[[loss]]
packets = [30, 7, 7]
[[duplicate]]
every = 500
within = 3
[[delay]]
by = "5ms"
jitter = "200us"
keep-order = true
[[reorder]]
depth = 32
[[rate]]
bits = "1.5Gb/s"
bucket = "64kB"
queue = 100000
[[corrupt]]
part = "srd"
octets = 2
at = 3
chance = 0.5
[[kill]]
leg = 0
from = 1000
[[restart]]
every = 100000
extended = false
"#;
    let when = |chance| When::always(chance);
    let want = vec![
        Rule { what: What::Restart { extended: false }, leg: None, when: when(Chance::Every(100_000)) },
        Rule { what: What::Kill, leg: Some(0), when: When { from: Some(At::Packet(1000)), ..when(Chance::Every(1)) } },
        Rule {
            what: What::Loss,
            leg: Some(1),
            when: When {
                from: Some(At::Time(1_500_000_000)),
                until: Some(At::Time(2_000_000_000)),
                repeat: Some(At::Time(10_000_000_000)),
                chance: Chance::Ratio(100_000, 100_000_000),
                burst: 4,
            },
        },
        rule(What::Loss, Chance::Packets(vec![7, 30])),
        rule(What::Corrupt { part: Part::Srd, octets: 2, at: Some(3) }, Chance::Ratio(50_000_000, 100_000_000)),
        rule(What::Duplicate { within: 3 }, Chance::Every(500)),
        rule(What::Rate { bits: 1_500_000_000, bucket: 64_000, queue: 100_000 }, Chance::Every(1)),
        rule(What::Delay { by: Hold::Time(5_000_000), jitter: 200_000, keep_order: true }, Chance::Every(1)),
        rule(What::Reorder { depth: 32 }, Chance::Ratio(1, 10)),
    ];
    assert_eq!(plan(text), FaultPlan { seed: 9, rules: want });
    assert_eq!(plan(""), FaultPlan::NONE);
    assert_eq!(plan("[[loss]]\nchance = 0"), FaultPlan::NONE);
    // The same type, whichever form it was written in.
    assert_eq!(plan("seed = 7\n[[loss]]\nchance = '1/9'\n[[delay]]\nby = 5"), line("loss=1/9,delay=5,seed=7"));
}

#[test]
fn what_is_wrong_in_a_file_is_said_by_its_line() {
    for (text, number, words, cure) in [
        ("sed = 1", 1, "unknown field `sed`", "did you mean 'seed'?"),
        ("\n[[los]]\nchance = 1", 2, "unknown field `los`", "did you mean 'loss'?"),
        ("[[loss]]\nchanse = '1/2'", 2, "unknown field `chanse`", "did you mean 'chance'?"),
        ("[[delay]]\nby = '1ms'\nkeep_order = true", 3, "keep_order", "did you mean 'keep-order'?"),
        ("[[loss]]\nchance = '2/1'", 2, "a chance such as", ""),
        ("[[loss]]\nchance = 1.5", 2, "a chance such as", ""),
        ("[[loss]]\nchance = true", 2, "a chance such as", ""),
        ("[[kill]]\n\nfrom = '2 hours'", 3, "a packet number, or a time", ""),
        ("[[kill]]\nfrom = -1", 2, "a packet number, or a time", ""),
        ("[[kill]]\nleg = 2", 2, "1 at most", ""),
        ("[[delay]]\nby = 0", 2, "a number of packets up to 10000", ""),
        ("[[rate]]\nbits = 5", 2, "a rate such as", ""),
        ("seed = 1\n[[rate]]\n", 2, "missing field `bits`", ""),
        ("[[corrupt]]\npart = 'header'", 2, "unknown variant `header`", ""),
        ("seed = 1\n[[loss]]\nevery = 2\nchance = 1", 2, "of chance, every and packets only one", "docs/faults.md"),
        ("[[loss]]\nfrom = 5\nuntil = 5", 1, "until comes after from", ""),
        ("[[loss]]\nrepeat = 5", 1, "has from and until", ""),
        ("[[loss]]\nfrom = 1\nuntil = 9\nrepeat = '1s'", 1, "are all times or all packet numbers", ""),
        ("[[loss]]\nfrom = 1\nuntil = 9\nrepeat = 7", 1, "repeat is at least as long", ""),
        ("[[loss]]\n[[loss]]\nevery = 0", 2, "every is at least 1", ""),
        ("[[loss]]\nburst = 0", 1, "burst is at least 1", ""),
        ("[[restart]]\nleg = 0\nfrom = 1", 1, "on all legs", ""),
        ("[[restart]]", 1, "when does the sender restart?", ""),
        ("[[rate]]\nbits = '1Mb/s'\nbucket = 0", 1, "lets nothing pass", ""),
        ("[[rate]]\nbits = '1Mb/s'\nevery = 2", 1, "holds for all packets", ""),
        ("[[delay]]\nby = 4\njitter = '1ms'", 1, "go with a delay in time", ""),
        ("[[reorder]]\ndepth = 0", 1, "depth is at least 1", ""),
        ("[[corrupt]]\noctets = 0", 1, "octets is at least 1", ""),
        ("[[loss]\n", 1, "", ""),
    ] {
        let error = FaultPlan::from_toml("plan.toml", text).expect_err(text);
        assert_eq!(error.kind(), Kind::Usage, "{text}");
        let what = error.to_string();
        assert!(what.starts_with(&format!("plan.toml line {number}: ")), "{text}: {what}");
        assert!(what.contains(words) && !error.cure_text().is_empty(), "{text}: {what}");
        assert!(error.cure_text().contains(cure), "{text}: {}", error.cure_text());
    }
    let many = "[[loss]]\n".repeat(RULES + 1);
    assert!(FaultPlan::from_toml("p", &many).unwrap_err().to_string().contains("33 rules"));
    assert_eq!(plan(&"[[loss]]\n".repeat(RULES)).rules.len(), RULES);
}

#[test]
fn an_option_names_a_file_or_says_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, "[[loss]]\nevery = 3").unwrap();
    let path = path.to_str().unwrap();
    assert_eq!(FaultPlan::named(path).unwrap(), line("loss=every/3"));
    assert_eq!(FaultPlan::named(&format!("@{path}")).unwrap(), line("loss=every/3"));
    assert_eq!(FaultPlan::named("loss=1/3").unwrap(), line("loss=1/3"));
    let error = FaultPlan::named("no/such/plan.toml").unwrap_err();
    assert!(error.to_string().contains("no/such/plan.toml"), "{error}");
}

#[test]
fn the_example_is_a_plan_of_every_kind() {
    let example = plan(include_str!("../../examples/faults.toml"));
    let mut kinds: Vec<u64> = example.rules.iter().map(|rule| rule.what.rank()).collect();
    kinds.dedup();
    assert_eq!(kinds, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_rule_holds_from_and_until_a_packet_or_a_time_and_again() {
    assert_eq!(gone(&plan("[[kill]]\nfrom = 3\nuntil = 6"), 20), [3, 4, 5]);
    assert_eq!(gone(&plan("[[kill]]\nfrom = '3ms'\nuntil = '6ms'"), 20), [3, 4, 5]);
    assert_eq!(gone(&plan("[[kill]]\nfrom = '2500us'\nuntil = 5"), 20), [3, 4]);
    assert_eq!(gone(&plan("[[kill]]\nuntil = 2"), 20), [0, 1]);
    assert_eq!(gone(&plan("[[kill]]\nfrom = 17"), 20), [17, 18, 19]);
    assert_eq!(gone(&plan("[[kill]]\nfrom = 3\nuntil = 5\nrepeat = 7"), 20), [3, 4, 10, 11, 17, 18]);
    assert_eq!(gone(&plan("[[kill]]\nfrom = '3ms'\nuntil = '5ms'\nrepeat = '7ms'"), 20), [3, 4, 10, 11, 17, 18]);
    assert!(gone(&plan("[[kill]]\nleg = 1"), 5).is_empty());
}

#[test]
fn lists_and_every_nth_and_bursts() {
    assert_eq!(gone(&plan("[[loss]]\npackets = [10, 2]"), 20), [2, 10]);
    assert_eq!(gone(&plan("[[loss]]\npackets = [10, 2]\nburst = 3"), 20), [2, 3, 4, 10, 11, 12]);
    assert_eq!(gone(&plan("[[loss]]\nevery = 5"), 20), [4, 9, 14, 19]);
    assert_eq!(gone(&plan("[[loss]]\nevery = 5\nfrom = 8\nuntil = 18"), 20), [9, 14]);
    assert_eq!(gone(&plan("[[loss]]\npackets = [2]\nburst = 9\nuntil = 4"), 20), [2, 3]);
    // In bursts of random beginning every run has the length, or a multiple where one follows another.
    let lost = gone(&plan("[[loss]]\nchance = '1/50'\nburst = 4"), 20_000);
    let mut runs: Vec<u64> = Vec::new();
    for (n, index) in lost.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if n > 0 && lost[n - 1] + 1 == *index => *run += 1,
            _ => runs.push(1),
        }
    }
    assert!(runs.len() > 200 && runs.iter().rev().skip(1).all(|run| run % 4 == 0), "{runs:?}");
}

#[test]
fn chances_come_true_as_often_as_they_say() {
    let (mut removed, mut twice) = (0, 0);
    for fate in fates(&line("loss=1/100,dup=1/50,seed=3"), 100_000) {
        match fate.copies().count() {
            0 => removed += 1,
            2 => twice += 1,
            _ => {}
        }
    }
    // Binomial: 1000 +- 5 * 31, 1980 +- 5 * 44.
    assert!((840..=1160).contains(&removed), "{removed}");
    assert!((1760..=2200).contains(&twice), "{twice}");
}

#[test]
fn one_rule_more_changes_nothing_about_the_others() {
    let one = gone(&line("loss=1/5,seed=4"), 1000);
    let mut more = plan("seed = 4\n[[duplicate]]\nchance = 0.5\n[[loss]]\nchance = '1/5'\n[[loss]]\npackets = [3]");
    let mut want = one.clone();
    want.push(3);
    want.sort_unstable();
    want.dedup();
    assert_eq!(gone(&more, 1000), want);
    more.seed = 5;
    assert_ne!(gone(&more, 1000), want);
}

#[test]
fn a_rate_limit_removes_or_delays_what_is_over() {
    // 100 octets a millisecond, and 200 at once.
    let at = |ms: u64| Tai(7_000_000_000 + ms * 1_000_000);
    let times = [0, 0, 0, 0, 1, 1, 9];
    let passed = |text: &str| {
        let mut faults = Faults::new(&plan(text));
        times.map(|ms| faults.decide(0, at(ms), 100, 0).copies().next())
    };
    let (now, none) = (Some(Hold::No), None);
    let limit = "[[rate]]\nbits = '800kb/s'\nbucket = 200\n";
    assert_eq!(passed(limit), [now, now, none, none, now, none, now]);
    let ms = |n: u64| Some(Hold::Time(n * 1_000_000));
    // The third waits for its 100 octets; the fourth finds the queue full; a millisecond later there is room for one.
    let queued = format!("{limit}queue = '0.1kB'\n");
    assert_eq!(passed(&queued), [now, now, ms(1), none, ms(1), none, now]);
    // What is lost before takes no room.
    let lossy = format!("{limit}[[loss]]\npackets = [0]\n");
    assert_eq!(passed(&lossy), [none, now, now, none, now, none, now]);
    // A copy does.
    let doubled = format!("{limit}[[duplicate]]\npackets = [0]\n");
    assert_eq!(passed(&doubled), [now, none, none, none, now, none, now]);
    let mut faults = Faults::new(&plan(&format!("{limit}[[duplicate]]\n")));
    let mut counters = FaultCounters::default();
    times.iter().for_each(|ms| counters.add(&faults.decide(0, at(*ms), 100, 0)));
    // 7 packets twice: 2 pass at once, 1 after a millisecond, 2 at the end.
    let want = FaultCounters { seen: 7, duplicated: 7, removed: 9, limited: 9, ..FaultCounters::default() };
    assert_eq!(counters, want);
}

#[test]
fn delays_add_up_and_keep_the_order_where_they_shall() {
    let ms = |n: u64| Hold::Time(n * 1_000_000);
    assert_eq!(
        holds(&plan("[[delay]]\nby = '2ms'\n[[delay]]\nby = '3ms'\npackets = [1]"), 3),
        [[ms(2)], [ms(5)], [ms(2)]]
    );
    // The second packet waits for 5 ms; those behind it come a millisecond later each, and are not before it.
    let late = plan("[[delay]]\nby = '5ms'\npackets = [1]");
    assert_eq!(holds(&late, 3), [[Hold::No], [ms(5)], [Hold::No]]);
    let order = plan("[[delay]]\nby = '5ms'\npackets = [1]\n[[delay]]\nby = '0ms'\nkeep-order = true\n");
    assert_eq!(holds(&order, 4), [[Hold::No], [ms(5)], [ms(4)], [ms(3)]]);
    // Held by time: not also overtaken; by packets: the longest counts.
    assert_eq!(holds(&plan("[[delay]]\nby = '2ms'\n[[reorder]]\ndepth = 9\nchance = 1"), 1), [[ms(2)]]);
    assert_eq!(holds(&plan("[[delay]]\nby = 3\n[[delay]]\nby = 2"), 1), [[Hold::Packets(3)]]);
}

#[test]
fn a_dead_leg_is_dead_whatever_else_happens() {
    let fate = fates(&plan("[[loss]]\n[[kill]]\n[[corrupt]]\n[[duplicate]]\n[[delay]]\nby = 5"), 1)[0];
    assert_eq!((fate.gone, fate.duplicated, fate.limited), (Some(Gone::Killed), false, 0));
    assert_eq!(fate.copies().count(), 0);
}

/// An RTP header, an extended sequence number, two SRD headers and eight octets of samples.
const PACKET: [u8; 34] = [
    0x80, 96, 0, 5, 0, 0, 0x10, 0, 1, 2, 3, 4, // RTP
    0, 0, 0, 4, 0, 1, 0x80, 0, 0, 4, 0, 2, 0, 0, // extended, two headers: the first one says that another follows
    1, 2, 3, 4, 5, 6, 7, 8,
];

fn altered(text: &str, leg: u8) -> (Vec<usize>, Altered) {
    let mut faults = Faults::new(&plan(text));
    let fate = faults.decide(leg, Tai(0), 34, 5);
    let mut octets = PACKET;
    let done = faults.alter(&fate, leg, &mut octets);
    ((0..34).filter(|n| octets[*n] != PACKET[*n]).collect(), done)
}

#[test]
fn octets_are_corrupted_where_it_says() {
    let corrupted = Altered { corrupted: true, renewed: false };
    assert_eq!(altered("[[corrupt]]\npart = 'rtp'\nat = 3", 0), (vec![3], corrupted));
    assert_eq!(altered("[[corrupt]]\npart = 'srd'\nat = 2\noctets = 2", 1), (vec![14, 15], corrupted));
    assert_eq!(altered("[[corrupt]]\npart = 'samples'\nat = 0\noctets = 8", 0), ((26..34).collect(), corrupted));
    assert_eq!(altered("[[corrupt]]\npart = 'any'\noctets = 34", 0), ((0..34).collect(), corrupted));
    // More than the part has: all of it, but no more.
    assert_eq!(altered("[[corrupt]]\npart = 'srd'\noctets = 9000", 0), ((12..26).collect(), corrupted));
    // Behind its end: nothing, and that is not counted.
    assert_eq!(altered("[[corrupt]]\npart = 'rtp'\nat = 12", 0), (vec![], Altered::default()));
    assert_eq!(altered("[[corrupt]]\npackets = [1]", 0), (vec![], Altered::default()));
}

#[test]
fn a_restart_renews_what_a_sender_chooses() {
    let mut faults = Faults::new(&plan("seed = 5\n[[restart]]\nfrom = 2\nuntil = 4\nrepeat = 4"));
    let mut sent = Vec::new();
    for number in 0_u16..10 {
        let mut octets = PACKET;
        octets[2..4].copy_from_slice(&number.to_be_bytes());
        let fate = faults.decide(0, Tai(0), 34, number);
        assert_eq!(fate.restarted, [2, 6].contains(&number), "{number}");
        let renewed = faults.alter(&fate, 0, &mut octets).renewed;
        assert_eq!((renewed, fate.alters()), (number >= 2, number >= 2));
        assert_eq!(octets[14..], PACKET[14..]);
        let word = |at: usize| u32::from_be_bytes(octets[at..at + 4].try_into().unwrap());
        sent.push((u32::from_be_bytes([octets[12], octets[13], octets[2], octets[3]]), word(4), word(8)));
    }
    for range in [0..2, 2..6, 6..10] {
        let first = sent[range.start];
        for (n, packet) in sent[range].iter().enumerate() {
            assert_eq!(*packet, (first.0.wrapping_add(n as u32), first.1, first.2));
        }
    }
    let ssrcs: std::collections::BTreeSet<u32> = sent.iter().map(|s| s.2).collect();
    assert_eq!(ssrcs.len(), 3);
    // Where octets 12 and 13 are something else they stay.
    let (changed, _) = altered("[[restart]]\nevery = 1\nextended = false", 0);
    assert!(changed.iter().all(|n| *n < 12), "{changed:?}");
}

#[test]
fn a_leg_that_is_behind_restarts_with_the_same_packet() {
    let mut faults = Faults::new(&plan("[[restart]]\nfrom = '100ms'\n[[restart]]\nfrom = '300ms'"));
    let generation =
        |faults: &mut Faults, leg, ms: u64, number| faults.decide(leg, Tai(ms * 1_000_000), 34, number).generation;
    // Leg 1 comes 10 ms later; numbers go over the end of 16 bits.
    for ms in 0..500_u64 {
        let number = 65_400_u16.wrapping_add(ms as u16);
        let want = u64::from(ms >= 100) + u64::from(ms >= 300);
        assert_eq!(generation(&mut faults, 0, ms, number), want, "{ms}");
        if ms >= 10 {
            let want = u64::from(ms - 10 >= 100) + u64::from(ms - 10 >= 300);
            assert_eq!(generation(&mut faults, 1, ms, number.wrapping_sub(10)), want, "{ms}");
        }
    }
    // And stays when numbers have gone round.
    for n in 0..70_000_u32 {
        assert_eq!(generation(&mut faults, 0, 500, 65_900_u32.wrapping_add(n) as u16), 2);
    }
}

#[test]
fn no_more_is_held_than_there_is_room_for() {
    let mut held = Held::default();
    let most = HELD_AT_MOST as u64;
    for n in 0..most {
        assert_eq!(held.push(0, Due::Time(Tai(2 * most - n)), n), None);
    }
    assert_eq!(held.len(), HELD_AT_MOST);
    assert_eq!(held.push(1, Due::Time(Tai(0)), most), Some((1, most)), "what is due first leaves early");
    assert_eq!(held.push(1, Due::Packet(3), most), Some((1, most)));
    assert_eq!(held.next_time(), Some(Tai(most + 1)));
    assert_eq!(held.due_at(Tai(most)), None);
    assert_eq!(held.due_at(Tai(most + 1)), Some((0, Tai(most + 1), most - 1)));
    assert_eq!(std::iter::from_fn(|| held.pop()).count(), HELD_AT_MOST - 1);
    assert!(held.is_empty());
}

fn chances() -> impl Strategy<Value = Option<Chance>> {
    prop_oneof![
        Just(None),
        (1_u32..=50, 50_u32..1000).prop_map(|(a, b)| Some(Chance::Ratio(a, b))),
        (1_u64..1000).prop_map(|n| Some(Chance::Every(n))),
    ]
}

/// Text that looks like a plan, right or wrong.
fn tables() -> impl Strategy<Value = String> {
    let kind = prop_oneof![
        "restart|kill|loss|corrupt|duplicate|rate|delay|reorder".prop_map(|kind| format!("[[{kind}]]")),
        "[a-z\\[\\]]{0,9}",
    ];
    let key = "leg|from|until|repeat|chance|every|packets|burst|part|octets|at|within|bits|bucket|queue|by|jitter|keep-order|depth|seed";
    let value = prop_oneof![
        "[0-9]{1,20}",
        "-?[0-9]{1,3}\\.[0-9]{1,3}",
        "'[0-9]{1,4}(\\.5)?(ns|us|ms|s|Gb/s|kb/s|kB|B|%|/7)'",
        "\\[[0-9]{0,3}(, [0-9]{1,3})?\\]",
        "true|inf|nan|'rtp'|'any'",
    ];
    let table = (kind, proptest::collection::vec((key, value), 0..5)).prop_map(|(kind, keys)| {
        keys.iter().fold(format!("{kind}\n"), |text, (key, value)| text + &format!("{key} = {value}\n"))
    });
    proptest::collection::vec(table, 0..4).prop_map(|tables| tables.concat())
}

proptest! {
    #[test]
    fn text_and_plan_are_the_same(
        loss in chances(), dup in chances(), reorder in chances(), depth in 1_u32..100, delay in chances(), ns in 1_u64..10_000_000,
        leg in proptest::option::of(0_u8..LEGS), seed: u64,
    ) {
        let within = if reorder.is_some() { depth } else { 0 };
        let rules = [
            (What::Loss, loss),
            (What::Duplicate { within }, dup),
            (What::Delay { by: Hold::Time(ns), jitter: 0, keep_order: false }, delay),
            (What::Reorder { depth }, reorder),
        ];
        let rules = rules.into_iter().filter_map(|(what, chance)| Some(Rule { leg, ..rule(what, chance?) })).collect();
        let plan = FaultPlan { seed, rules };
        prop_assert_eq!(plan.to_string().parse::<FaultPlan>().unwrap(), plan);
    }

    #[test]
    fn any_text_is_taken_or_refused(text in "[a-z]{0,7}=?[0-9a-z./%@,=-]{0,20}", any in "\\PC{0,60}") {
        let _ = (text.parse::<FaultPlan>(), any.parse::<FaultPlan>());
        let _ = (FaultPlan::from_toml("p", &text), FaultPlan::from_toml("p", &any));
    }

    #[test]
    fn any_tables_are_taken_or_refused_and_what_is_taken_runs(
        text in tables(),
        packets in proptest::collection::vec((0_u8..3, any::<u64>(), any::<u16>(), any::<u16>()), 0..50),
    ) {
        let Ok(plan) = FaultPlan::from_toml("plan.toml", &text) else { return Ok(()) };
        let _ = plan.to_string();
        let (mut faults, mut again) = (Faults::new(&plan), Faults::new(&plan));
        let (mut counters, mut delivered) = (FaultCounters::default(), 0);
        for (leg, at, octets, sequence) in packets {
            let fate = faults.decide(leg, Tai(at), octets, sequence);
            prop_assert_eq!(fate, again.decide(leg, Tai(at), octets, sequence), "same plan, same packets, same fates");
            counters.add(&fate);
            delivered += fate.copies().count() as u64;
            let mut octets = PACKET[..usize::from(octets) % 35].to_vec();
            faults.alter(&fate, leg, &mut octets);
        }
        prop_assert_eq!(counters.seen + counters.duplicated, delivered + counters.removed, "{}", plan);
        prop_assert_eq!(counters.removed, counters.lost + counters.killed + counters.limited);
    }

    #[test]
    fn holds_keep_their_bounds(seed: u64, depth in 1_u32..100, jitter in 0_u64..1000) {
        let reordered = format!("reorder={depth}@1/2,dup=1/5,loss=1/10");
        let plan = FaultPlan { seed, ..reordered.parse().unwrap() };
        for hold in holds(&plan, 200).into_iter().flatten() {
            prop_assert!(matches!(hold, Hold::No) || matches!(hold, Hold::Packets(n) if (1..=depth).contains(&n)));
        }
        let mut delayed = FaultPlan::from_toml("p", &format!("[[delay]]\nby = '1us'\njitter = '{jitter}ns'")).unwrap();
        delayed.seed = seed;
        for hold in holds(&delayed, 200).into_iter().flatten() {
            prop_assert!(matches!(hold, Hold::Time(ns) if (1000..=1000 + jitter).contains(&ns)));
        }
    }
}

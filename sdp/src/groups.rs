//! `a=group:DUP` (RFC 7104, ST 2022-7): media that are legs of one flow.

use crate::diagnostic::{At, Findings, clip};
use crate::medium::Candidate;
use crate::session::Attribute;
use crate::tokens::Token;
use crate::{Essence, Video};
use std::collections::HashMap;

const CLAUSE: &str = "RFC 7104 4.1";

/// A `group` line and whether it stands where it belongs.
pub(crate) struct Group<'a, 'b> {
    pub attribute: &'b Attribute<'a>,
    pub in_medium: bool,
}

/// Joins the legs; what is not in a group stays a flow of its own.
pub(crate) fn join(candidates: Vec<Candidate>, groups: &[Group<'_, '_>], f: &mut Findings) -> Vec<Candidate> {
    let mut slots: Vec<Option<Candidate>> = candidates.into_iter().map(Some).collect();
    name_by_order(&mut slots, groups, f);
    let mids = mids(&mut slots, f);
    let folded: HashMap<String, usize> = mids.iter().map(|(mid, at)| (mid.to_ascii_lowercase(), *at)).collect();
    let mut taken: Vec<bool> = vec![false; slots.len()];
    let anc = slots.iter().flatten().any(|c| matches!(c.flow.essence, Essence::Ancillary(_)));
    for group in groups {
        let a = group.attribute;
        let words = a.words();
        let Some((semantics, names)) = words.split_first() else { continue };
        if group.in_medium {
            let what = "a=group belongs to the session, not to a medium".to_owned();
            f.deviates(
                "group-level",
                "RFC 5888 5",
                a.start(),
                "group",
                what,
                "read as if it stood before the first m=",
            );
        }
        if !is_dup(semantics, anc, a, f) {
            continue;
        }
        if names.len() < 2 {
            let what = format!("group:DUP names {} medium; redundancy takes two", names.len());
            f.deviates("group", CLAUSE, a.start(), "group", what, "received without redundancy");
        }
        let mut members: Vec<usize> = Vec::new();
        for name in names {
            let here = a.at(name.at);
            let bare = name.text.trim_end_matches([';', ',']);
            let found = mids.get(bare).copied().or_else(|| {
                let index = folded.get(&bare.to_ascii_lowercase()).copied()?;
                let what = format!("group names `{}`, a=mid is written in another case", clip(bare));
                f.deviates("group-mid", "RFC 5888 4", here, "group", what, "taken as the same; write them alike");
                Some(index)
            });
            match found {
                None => {
                    let what = format!("group names `{}`, and no medium has that a=mid", clip(bare));
                    f.deviates(
                        "group-mid",
                        "RFC 5888 9.2",
                        here,
                        "group",
                        what,
                        "the legs that exist are received; correct a=mid or the group",
                    );
                }
                Some(index) if taken.get(index) == Some(&true) => {
                    let what = format!("`{}` is already in a group", clip(bare));
                    f.deviates("group-mid", CLAUSE, here, "group", what, "the first group holds; delete it here");
                }
                Some(index) => {
                    if let Some(taken) = taken.get_mut(index) {
                        *taken = true;
                    }
                    members.push(index);
                }
            }
        }
        merge(&mut slots, &members, a, f);
    }
    slots.into_iter().flatten().collect()
}

fn is_dup(semantics: &Token<'_>, anc: bool, a: &Attribute<'_>, f: &mut Findings) -> bool {
    if semantics.text == "DUP" {
        return true;
    }
    if semantics.text.eq_ignore_ascii_case("DUP") || semantics.text.eq_ignore_ascii_case("DUPLICATE") {
        f.deviates(
            "group",
            CLAUSE,
            a.at(semantics.at),
            "group",
            format!("`{}` in place of DUP", clip(semantics.text)),
            "read as the latter",
        );
        return true;
    }
    if semantics.text == "FID" && anc {
        let what = "group:FID with ancillary data".to_owned();
        f.deviates("group", "ST 2110-40:2018 7", a.start(), "group", what, "ignored; each medium is a flow of its own");
    } else {
        let what = format!("group:{} is no redundancy", clip(semantics.text));
        f.note("group", "RFC 5888 7", a.start(), "group", what, "ignored; each medium is a flow of its own");
    }
    false
}

/// A group and as many media as it has names, but no `a=mid` at all: they are meant in their order.
fn name_by_order(slots: &mut [Option<Candidate>], groups: &[Group<'_, '_>], f: &mut Findings) {
    let [group] = groups else { return };
    let words = group.attribute.words();
    let names = words.get(1..).unwrap_or(&[]);
    let dup = words.first().is_some_and(|w| w.text.eq_ignore_ascii_case("DUP"));
    if !dup || names.len() != slots.len() || slots.iter().flatten().any(|c| c.mid.is_some()) {
        return;
    }
    let what = "group:DUP, but no medium has an a=mid".to_owned();
    f.deviates(
        "group-mid",
        "RFC 5888 4",
        group.attribute.start(),
        "group",
        what,
        "taken in their order; write a=mid in each medium",
    );
    for (slot, name) in slots.iter_mut().flatten().zip(names) {
        let mid: String = name.text.chars().take(256).collect();
        for leg in &mut slot.flow.legs {
            leg.mid = Some(mid.clone());
        }
        slot.mid = Some((mid, slot.at));
    }
}

/// Media by their mid; a second medium of the same mid is a repetition or loses its name.
fn mids(slots: &mut [Option<Candidate>], f: &mut Findings) -> HashMap<String, usize> {
    let mut mids: HashMap<String, usize> = HashMap::new();
    for index in 0..slots.len() {
        let (before, rest) = slots.split_at_mut(index);
        let Some(slot) = rest.first_mut() else { break };
        let Some((mid, at)) = slot.as_ref().and_then(|c| c.mid.clone()) else { continue };
        let Some(&first) = mids.get(&mid) else {
            mids.insert(mid, index);
            continue;
        };
        let earlier = before.get(first).and_then(Option::as_ref);
        let repeats = match (earlier, slot.as_ref()) {
            (Some(a), Some(b)) => {
                a.flow.legs == b.flow.legs
                    && a.flow.essence == b.flow.essence
                    && a.flow.payload_type == b.flow.payload_type
            }
            _ => false,
        };
        let line = earlier.map_or(0, |c| c.at.line);
        let what = format!("mid `{}` is already that of the medium in line {line}", clip(&mid));
        if repeats {
            f.deviates(
                "repeated-mid",
                "RFC 5888 4",
                at,
                "mid",
                what,
                "the medium repeats it word for word and is ignored; delete it",
            );
            *slot = None;
        } else {
            f.deviates(
                "repeated-mid",
                "RFC 5888 4",
                at,
                "mid",
                what,
                "taken as a flow of its own; give it another mid",
            );
            if let Some(candidate) = slot {
                candidate.mid = None;
                candidate.flow.legs.iter_mut().for_each(|leg| leg.mid = None);
            }
        }
    }
    mids
}

/// The first member that can be received takes the legs of the others that carry the same.
fn merge(slots: &mut [Option<Candidate>], members: &[usize], a: &Attribute<'_>, f: &mut Findings) {
    let usable = |slots: &[Option<Candidate>], index: usize| {
        slots.get(index).and_then(Option::as_ref).is_some_and(|c| c.refusal.is_none())
    };
    let Some(&head) = members.iter().find(|m| usable(slots, **m)).or(members.first()) else { return };
    let mut rest: Vec<usize> = members.to_vec();
    rest.retain(|m| *m != head);
    let Some(mut first) = slots.get_mut(head).and_then(Option::take) else { return };
    let mut index = first.flow.index;
    for member in rest {
        let Some(other) = slots.get_mut(member).and_then(Option::take) else { continue };
        let here = At { column: 0, ..a.start() };
        if other.refusal.is_some() && first.refusal.is_none() {
            let what = format!("a leg of the group cannot be received (line {})", other.at.line);
            f.warn("group-leg", CLAUSE, here, "group", what, "received without redundancy");
        } else if let Some(difference) = difference(&first, &other) {
            if !(first.foreign && other.foreign) {
                let what = format!("group:DUP joins media that are not copies: {difference}");
                let cure = "each is received as a flow of its own; group copies only";
                f.deviates("group-differs", "ST 2110-10:2022 8.5", here, "group", what, cure);
            }
        } else {
            remarks(&first, &other, here, f);
            index = index.min(other.flow.index);
            let mut kept = other.kept.into_iter();
            for leg in other.flow.legs {
                let own = kept.next().unwrap_or_default();
                let same =
                    |l: &crate::Leg| l.destination == leg.destination && l.port == leg.port && l.sources == leg.sources;
                if first.flow.legs.iter().take(64).any(same) {
                    let what = format!(
                        "both legs have the same destination, port and source ({}:{})",
                        leg.destination, leg.port
                    );
                    f.deviates(
                        "group-same-leg",
                        "ST 2110-10:2022 8.5",
                        here,
                        "group",
                        what,
                        "received as one leg; the legs differ in address or source",
                    );
                } else {
                    first.flow.legs.push(leg);
                    first.kept.push(own);
                }
            }
            continue;
        }
        if let Some(slot) = slots.get_mut(member) {
            *slot = Some(other);
        }
    }
    first.flow.index = index;
    if let Some(slot) = slots.get_mut(head) {
        *slot = Some(first);
    }
}

/// Why two media cannot be copies of the same packets.
fn difference(a: &Candidate, b: &Candidate) -> Option<String> {
    use Essence::*;
    let (x, y) = (&a.flow, &b.flow);
    if std::mem::discriminant(&x.essence) != std::mem::discriminant(&y.essence) {
        return Some(format!("{} and {}", x.essence.kind(), y.essence.kind()));
    }
    let same = match (&x.essence, &y.essence) {
        (Video(v), Video(w)) => placement(v) == placement(w),
        (Audio(v) | Aes3(v), Audio(w) | Aes3(w)) => v.encoding == w.encoding && v.channels == w.channels,
        (CompressedVideo(v), CompressedVideo(w)) => {
            v.encoding == w.encoding && (v.width, v.height, v.scan) == (w.width, w.height, w.scan)
        }
        _ => true,
    };
    if !same {
        return Some("their formats differ".to_owned());
    }
    if x.clock_rate != y.clock_rate {
        return Some(format!("their clocks are {} and {} Hz", x.clock_rate, y.clock_rate));
    }
    (x.payload_type != y.payload_type).then(|| {
        format!("their payload types are {} and {} (copies have the same RTP header)", x.payload_type, y.payload_type)
    })
}

/// What decides where samples go.
fn placement(v: &Video) -> (crate::Sampling, crate::Depth, u32, u32, crate::Scan, crate::Packing) {
    (v.sampling, v.depth, v.width, v.height, v.scan, v.packing)
}

fn remarks(a: &Candidate, b: &Candidate, at: At, f: &mut Findings) {
    if a.flow.essence != b.flow.essence {
        let what = "the legs differ in parameters that do not matter to placement".to_owned();
        f.warn(
            "group-parameters",
            "ST 2110-10:2022 8.5",
            at,
            "group",
            what,
            "those of the first leg are used; write them alike",
        );
    }
    if a.flow.media_clock != b.flow.media_clock {
        let what = "the legs have different media clocks".to_owned();
        f.warn("group-parameters", "ST 2110-10:2022 8.5", at, "group", what, "that of the first leg is used");
    }
}

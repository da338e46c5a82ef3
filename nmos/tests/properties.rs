//! Whatever controllers send, in whatever order: documents meet AMWA's schemas, what the schema of a PATCH refuses is refused,
//! and the lock, the legs and what is active follow their rules.

mod support;

use gdmedia_nmos::connection::{Connection, Side};
use gdmedia_nmos::params::Auto;
use gdmedia_nmos::patch::{Patch, When};
use gdmedia_nmos::{Format, Saved, Tai};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use support::schema::{check, errors};
use support::{AUDIO, VIDEO};

fn side() -> Side {
    Side {
        format: Format::Video,
        media_types: vec!["video/raw".into()],
        addresses: vec![
            vec!["10.46.16.34".parse().unwrap(), "fd46::34".parse().unwrap()],
            vec!["10.47.16.34".parse().unwrap()],
        ],
    }
}

/// One of these, or seldom one of those, which are wrong.
fn of(right: Vec<Value>, wrong: Vec<Value>) -> BoxedStrategy<Value> {
    prop_oneof![40 => prop::sample::select(right), 1 => prop::sample::select(wrong)].boxed()
}

/// An object that has each of these properties, or has not.
fn object(properties: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Value> {
    let one = |(key, value): (&'static str, BoxedStrategy<Value>)| {
        prop::option::of(value).prop_map(move |value| value.map(|value| (key.to_owned(), value)))
    };
    let all: Vec<_> = properties.into_iter().map(one).collect();
    all.prop_map(|list| Value::Object(list.into_iter().flatten().collect::<Map<_, _>>()))
}

fn leg(own: &[&str], other: &str) -> impl Strategy<Value = Value> {
    let interfaces = own.iter().map(|ip| json!(ip)).chain([json!("auto")]).collect();
    object(vec![
        (
            "source_ip",
            of(vec![json!("192.0.2.1"), Value::Null], vec![json!("239.1.1.1"), json!("fd00::1"), json!("x")]),
        ),
        (
            "multicast_ip",
            of(
                vec![json!("239.1.1.1"), json!("232.1.1.1"), Value::Null],
                vec![json!("10.0.0.1"), json!("ff3e::1"), json!(1)],
            ),
        ),
        ("interface_ip", of(interfaces, vec![json!(other), Value::Null])),
        ("destination_port", of(vec![json!("auto"), json!(1), json!(65535)], vec![json!(0), json!(65536), json!(1.5)])),
        ("rtp_enabled", of(vec![json!(true), json!(false)], vec![json!(1)])),
    ])
}

fn body() -> impl Strategy<Value = Value> {
    let mode = |mode: &str, time: &str| json!({ "mode": mode, "requested_time": time });
    let activation = of(
        vec![
            json!({ "mode": null }),
            json!({ "mode": null, "requested_time": null }),
            json!({ "mode": "activate_immediate" }),
            json!({ "mode": "activate_immediate" }),
            mode("activate_scheduled_relative", "1:5"),
            mode("activate_scheduled_absolute", "1439299836:10"),
        ],
        vec![
            json!({}),
            json!({ "mode": "now" }),
            json!({ "mode": "activate_scheduled_relative" }),
            mode("activate_scheduled_relative", "5"),
            json!({ "mode": "activate_scheduled_absolute", "requested_time": 5 }),
        ],
    );
    let file = |data: &str, kind: &str| json!({ "data": data, "type": kind });
    let sdp = of(
        vec![file(VIDEO, "application/sdp"), json!({ "data": null, "type": null })],
        vec![
            file(AUDIO, "application/sdp"),
            file("", "application/sdp"),
            file(VIDEO, "text/plain"),
            json!({ "data": VIDEO, "type": null }),
            json!({ "data": VIDEO }),
            json!({ "type": "application/sdp" }),
            json!({ "data": 1, "type": "application/sdp" }),
        ],
    );
    let legs = (leg(&["10.46.16.34"], "10.47.16.34"), leg(&["10.47.16.34"], "10.46.16.34"));
    let legs = legs.prop_map(|(first, second)| json!([first, second]));
    let legs = prop_oneof![20 => legs, 1 => Just(json!([{}])), 1 => Just(json!([{}, { "fec_enabled": true }]))];
    object(vec![
        ("sender_id", of(vec![Value::Null, json!("1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f")], vec![json!("x")])),
        ("master_enable", of(vec![json!(true), json!(false)], vec![Value::Null])),
        ("activation", activation),
        ("transport_file", sdp),
        ("transport_params", legs.boxed()),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_patches(bodies in prop::collection::vec(body(), 1..12)) {
        let mut connection = Connection::new(side());
        for (at, body) in bodies.iter().enumerate() {
            let before = connection.clone();
            let patch = match Patch::read(body) {
                Ok(patch) => patch,
                Err(refusal) => {
                    prop_assert_eq!(refusal.code, 400);
                    continue;
                }
            };
            let wrong = errors("is-05/v1.1/receiver-stage-schema.json", body);
            prop_assert!(wrong.is_empty(), "{body}: accepted, though {wrong:?}");
            let locked = connection.scheduled().is_some();
            let cancels = patch.activation == Some(None);
            let staged = match connection.merge(&patch) {
                Ok(staged) => staged,
                Err(refusal) => {
                    prop_assert_eq!(refusal.code == 423, locked && !cancels, "{}", refusal);
                    prop_assert_eq!(&connection, &before);
                    continue;
                }
            };
            prop_assert!(!locked || cancels);
            connection.stage(staged);
            prop_assert!(connection.scheduled().is_none());
            prop_assert_eq!(connection.active(), before.active(), "staging changes nothing");
            let now = Tai(1_700_000_000_000_000_000 + at as u64);
            match patch.activation.flatten() {
                None => {}
                Some(When::Immediate) => {
                    let Ok(activation) = connection.resolve(connection.staged()) else {
                        prop_assert!(connection.staged().master_enable, "what is off needs no address");
                        connection.unlock();
                        prop_assert_eq!(connection.active(), before.active());
                        continue;
                    };
                    connection.activated(activation, Some(When::Immediate), now);
                }
                Some(when) => {
                    connection.schedule(when, now);
                    check("is-05/v1.1/receiver-response-schema.json", &connection.staged_document());
                    // Its time comes, for every other one.
                    if at % 2 == 0
                        && let Ok(activation) = connection.resolve(connection.staged())
                    {
                        connection.activated(activation, Some(when), now);
                        prop_assert!(connection.scheduled().is_none());
                    }
                }
            }
            for document in [connection.staged_document(), connection.active_document()] {
                check("is-05/v1.1/receiver-response-schema.json", &document);
            }
            prop_assert!(!connection.active_document()["transport_params"].to_string().contains("auto"));
            for (leg, addresses) in connection.active().legs.iter().zip(&side().addresses) {
                // Unspecified is what has no address of the family and needs none.
                let needed = connection.active().master_enable && leg.rtp_enabled;
                prop_assert!(addresses.contains(&leg.interface_ip) || (!needed && leg.interface_ip.is_unspecified()));
                prop_assert!(leg.destination_port > 0);
            }
            // What is asked and what is done differ in choices alone.
            if patch.activation.flatten() == Some(When::Immediate) {
                for (asked, done) in connection.staged().legs.iter().zip(&connection.active().legs) {
                    prop_assert_eq!((asked.source_ip, asked.multicast_ip, asked.rtp_enabled), (done.source_ip, done.multicast_ip, done.rtp_enabled));
                    prop_assert!(asked.interface_ip == Auto::Auto || asked.interface_ip == Auto::Value(done.interface_ip));
                }
            }
            let text = serde_json::to_string(&connection.saved()).unwrap();
            let mut again = Connection::new(side());
            prop_assert!(again.restore(&serde_json::from_str::<Saved>(&text).unwrap()));
            prop_assert_eq!(again.staged(), connection.staged());
            // Whoever stops or starts it besides takes nothing away that was staged or accepted.
            let active = connection.active().saved();
            let (mut turned, other) = (connection.clone(), Saved { master_enable: !active.master_enable, ..active.clone() });
            if active.legs.len() == 2 && turned.configured(&other, now).is_ok() {
                prop_assert_eq!(turned.active().saved(), other);
                prop_assert_eq!(turned.scheduled(), connection.scheduled());
                let same = |a: &Connection, b: &Connection| a.staged().legs == b.staged().legs && a.staged().sdp == b.staged().sdp;
                prop_assert!(same(&turned, &connection));
                for document in [turned.staged_document(), turned.active_document()] {
                    check("is-05/v1.1/receiver-response-schema.json", &document);
                }
                let Saved { sdp, .. } = active;
                let moved = Saved { sdp: Some(sdp.unwrap_or_default() + "a=x\r\n"), ..turned.active().saved() };
                if turned.configured(&moved, now).is_ok() {
                    prop_assert_eq!((turned.scheduled(), turned.saved()), (None, moved), "another connection takes their place");
                }
            }
        }
    }

    #[test]
    fn times_are_read_as_they_are_written(ns in any::<u64>()) {
        prop_assert_eq!(Tai(ns).to_string().parse(), Ok(Tai(ns)));
    }

    #[test]
    fn texts_that_are_no_times_are_refused(text in "[0-9:+ .-]{0,12}") {
        if let Ok(time) = text.parse::<Tai>() {
            let (seconds, nanoseconds) = text.split_once(':').unwrap();
            prop_assert_eq!(time.0, seconds.parse::<u64>().unwrap() * 1_000_000_000 + nanoseconds.parse::<u64>().unwrap());
        }
    }
}

//! Staging and activation over HTTP (IS-05 v1.1).

mod support;

use gdmedia_nmos::{Receivers, Saved, Store, Tai};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use support::schema::check;
use support::{AUDIO, Fake, Served, VIDEO, settings, three, until};

fn now() -> Value {
    json!({ "mode": "activate_immediate" })
}

fn tai(value: &Value) -> Tai {
    value.as_str().unwrap().parse().unwrap()
}

const NO_TIMES: [(&str, Value); 3] =
    [("mode", Value::Null), ("requested_time", Value::Null), ("activation_time", Value::Null)];

fn idle(document: &Value) -> bool {
    NO_TIMES.iter().all(|(key, value)| document["activation"][key] == *value)
}

#[test]
fn immediately() {
    let served = Served::new();
    let sender = "1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f";
    let before = tai(&served.receiver("video")["version"]);
    let body = json!({
        "master_enable": true, "sender_id": sender, "activation": now(),
        "transport_file": { "data": VIDEO, "type": "application/sdp" }
    });
    let answer = served.patch("video", &body);
    assert_eq!(answer.code, 200);
    let answer = answer.json();
    assert_eq!(answer["activation"]["mode"], "activate_immediate");
    assert_eq!(answer["activation"]["requested_time"], Value::Null);
    let at = tai(&answer["activation"]["activation_time"]);
    assert!(at.0 > 1_700_000_000_000_000_000);
    assert!(idle(&served.get(&served.single("video", "staged"))), "staged is over");

    let active = served.get(&served.single("video", "active"));
    assert_eq!(active["activation"], answer["activation"]);
    assert_eq!(active["master_enable"], true);
    assert_eq!(active["sender_id"], sender);
    assert_eq!(active["transport_file"]["data"], VIDEO);
    let legs = &active["transport_params"];
    assert_eq!(legs[0]["interface_ip"], "10.46.16.34", "auto is the leg's own address");
    assert_eq!(legs[1]["interface_ip"], "10.47.16.34");
    assert_eq!(legs[1]["destination_port"], 5002);
    assert_eq!(answer["transport_params"][0]["interface_ip"], "auto", "and stays so in staged");

    let receiver = served.receiver("video");
    assert!(tai(&receiver["version"]) > before);
    assert_eq!(receiver["subscription"], json!({ "sender_id": sender, "active": true }));

    let done = served.fake.done();
    let [(name, activation)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(name, "video");
    assert!(activation.master_enable);
    assert_eq!(activation.legs[0].interface_ip, "10.46.16.34".parse::<std::net::IpAddr>().unwrap());
    assert_eq!(activation.legs[0].multicast_ip, "232.21.21.133".parse().ok());
    assert_eq!(activation.sdp.as_deref(), Some(VIDEO));
}

#[test]
fn again_with_the_same_is_applied_again() {
    let served = Served::new();
    let body = json!({ "master_enable": true, "activation": now(),
        "transport_file": { "data": AUDIO, "type": "application/sdp" } });
    let mut last = tai(&served.receiver("audio")["version"]);
    for times in 1..=3 {
        let answer = if times == 1 {
            served.patch("audio", &body)
        } else {
            served.patch("audio", &json!({ "activation": now() }))
        };
        assert_eq!(answer.code, 200);
        assert_eq!(served.fake.done().len(), times);
        let version = tai(&served.receiver("audio")["version"]);
        assert!(version > last);
        last = version;
    }
}

#[test]
fn staging_alone_does_nothing() {
    let served = Served::new();
    let before = served.receiver("audio");
    let answer =
        served.patch("audio", &json!({ "master_enable": true, "transport_params": [{ "destination_port": 7000 }] }));
    assert_eq!(answer.code, 200);
    assert!(idle(&answer.json()));
    assert_eq!(served.get(&served.single("audio", "staged")), answer.json());
    assert_eq!(served.get(&served.single("audio", "active"))["transport_params"][0]["destination_port"], 5004);
    assert_eq!(served.receiver("audio"), before);
    assert!(served.fake.done().is_empty());
}

#[test]
fn without_any_configuration_it_can_be_enabled() {
    let served = Served::new();
    let answer = served.patch("video", &json!({ "master_enable": true, "activation": now() }));
    assert_eq!(answer.code, 200, "{}", answer.text);
    assert_eq!(served.receiver("video")["subscription"], json!({ "sender_id": null, "active": true }));
    assert_eq!(served.fake.done()[0].1.sdp, None);
}

#[test]
fn off_is_off_and_keeps_its_parameters() {
    let served = Served::new();
    let sender = "1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f";
    let body = json!({ "master_enable": true, "sender_id": sender, "activation": now(),
        "transport_file": { "data": VIDEO, "type": "application/sdp" } });
    assert_eq!(served.patch("video", &body).code, 200);
    assert_eq!(served.patch("video", &json!({ "master_enable": false, "activation": now() })).code, 200);
    let active = served.get(&served.single("video", "active"));
    assert_eq!(active["master_enable"], false);
    assert_eq!(active["transport_params"][0]["multicast_ip"], "232.21.21.133");
    // IS-04: no sender where nothing is received.
    assert_eq!(served.receiver("video")["subscription"], json!({ "sender_id": null, "active": false }));
    assert!(!served.fake.done()[1].1.master_enable);
}

#[test]
fn auto_never_shows_in_active() {
    let served = Served::new();
    let auto = json!({ "interface_ip": "auto", "destination_port": "auto" });
    let answer = served.patch("video", &json!({ "transport_params": [auto, auto], "activation": now() }));
    assert_eq!(answer.code, 200);
    let active = served.get(&served.single("video", "active"));
    assert!(!active["transport_params"].to_string().contains("auto"), "{active}");
    let v6 = json!({ "multicast_ip": "ff3e::1" });
    assert_eq!(served.patch("video", &json!({ "transport_params": [v6, v6], "activation": now() })).code, 200);
    assert_eq!(served.get(&served.single("video", "active"))["transport_params"][1]["interface_ip"], "fd47::34");
}

#[test]
fn interfaces_are_an_enumeration() {
    let served = Served::new();
    let constraints = served.get(&served.single("video", "constraints"));
    assert_eq!(constraints[0]["interface_ip"]["enum"], json!(["10.46.16.34", "fd46::34"]));
    assert_eq!(constraints[1]["interface_ip"]["enum"], json!(["10.47.16.34", "fd47::34"]));
    // A leg's own only: the other leg's is on another network.
    let answer = served.patch("video", &json!({ "transport_params": [{ "interface_ip": "10.47.16.34" }, {}] }));
    assert_eq!(answer.code, 400);
    assert!(answer.error().contains("leg 1"), "{}", answer.error());
    let answer = served.patch("video", &json!({ "transport_params": [{ "interface_ip": "10.46.16.34" }, {}] }));
    assert_eq!(answer.code, 200);
    served.node.update(|s| s.interfaces[0].addresses = vec!["10.50.0.1".parse().unwrap()]).unwrap();
    assert_eq!(served.get(&served.single("video", "constraints"))[0]["interface_ip"]["enum"], json!(["10.50.0.1"]));
    // What was staged is no address of the machine any more: nothing is received there, but it can be left.
    let answer = served.patch("video", &json!({ "master_enable": true, "activation": now() }));
    assert_eq!(answer.code, 400);
    let answer = served.patch("video", &json!({ "master_enable": false, "activation": now() }));
    assert_eq!(answer.code, 200, "{}", answer.text);
    assert_eq!(served.patch("video", &json!({ "sender_id": null })).code, 200, "what has nothing to do with it");
}

#[test]
fn an_address_that_is_missing_leaves_everything_as_it_was() {
    let served = Served::new();
    assert_eq!(served.patch("audio", &json!({ "master_enable": true, "activation": now() })).code, 200);
    let before = (served.get(&served.single("audio", "active")), served.receiver("audio"));
    served.node.update(|s| s.interfaces[0].addresses.clear()).unwrap();
    let answer =
        served.patch("audio", &json!({ "activation": now(), "transport_params": [{ "destination_port": 6000 }] }));
    assert_eq!(answer.code, 500);
    assert!(answer.error().contains("address"), "{}", answer.error());
    assert_eq!((served.get(&served.single("audio", "active")), served.receiver("audio")), before);
    assert_eq!(served.fake.done().len(), 1);
}

#[test]
fn what_the_program_refuses_beforehand_is_400() {
    let served = Served::new();
    *served.fake.invalid.lock().unwrap() = Some("1080i is not received".into());
    let before = served.get(&served.single("video", "staged"));
    let answer = served.patch("video", &json!({ "transport_file": { "data": VIDEO, "type": "application/sdp" } }));
    assert_eq!((answer.code, answer.error().as_str()), (400, "1080i is not received"));
    assert_eq!(served.get(&served.single("video", "staged")), before);
    // What changes nothing asks nothing.
    assert_eq!(served.patch("video", &json!({})).code, 200);
}

#[test]
fn what_fails_is_500_and_the_receiver_goes_on() {
    let served = Served::new();
    let body = json!({ "master_enable": true, "activation": now(),
        "transport_file": { "data": AUDIO, "type": "application/sdp" } });
    assert_eq!(served.patch("audio", &body).code, 200);
    let before = (served.get(&served.single("audio", "active")), served.receiver("audio"));
    served.fake.failures.lock().unwrap().insert("audio".into(), "no memory for another stream".into());
    let answer =
        served.patch("audio", &json!({ "activation": now(), "transport_params": [{ "destination_port": 6000 }] }));
    assert_eq!((answer.code, answer.error().as_str()), (500, "no memory for another stream"));
    assert_eq!((served.get(&served.single("audio", "active")), served.receiver("audio")), before);
    assert!(idle(&served.get(&served.single("audio", "staged"))));
    assert_eq!(served.patch("audio", &json!({ "activation": now() })).code, 200, "and can be asked again");
}

#[test]
fn after_a_time() {
    let served = Served::new();
    let requested = "0:30000000";
    let body = json!({ "master_enable": true, "transport_params": [{ "destination_port": 6000 }],
        "activation": { "mode": "activate_scheduled_relative", "requested_time": requested } });
    let answer = served.patch("audio", &body);
    assert_eq!(answer.code, 202, "{}", answer.text);
    let answer = answer.json();
    assert_eq!(answer["activation"]["mode"], "activate_scheduled_relative");
    assert_eq!(answer["activation"]["requested_time"], requested);
    let planned = tai(&answer["activation"]["activation_time"]);
    until("it is active", || served.get(&served.single("audio", "active"))["master_enable"] == true);
    let active = served.get(&served.single("audio", "active"));
    assert_eq!(active["activation"]["mode"], "activate_scheduled_relative");
    assert_eq!(active["activation"]["requested_time"], requested);
    assert!(tai(&active["activation"]["activation_time"]) >= planned, "not before its time");
    assert_eq!(active["transport_params"][0]["destination_port"], 6000);
    until("staged is over", || idle(&served.get(&served.single("audio", "staged"))));
    assert_eq!(served.receiver("audio")["subscription"]["active"], true);
}

#[test]
fn at_a_time() {
    let served = Served::new();
    let clock = gdmedia_nmos::system_clock(37);
    let at = Tai(clock().0 + 50_000_000);
    let body = json!({ "master_enable": true,
        "activation": { "mode": "activate_scheduled_absolute", "requested_time": at.to_string() } });
    let answer = served.patch("audio", &body);
    assert_eq!(answer.code, 202);
    assert!(tai(&answer.json()["activation"]["activation_time"]) >= at);
    until("it is active", || served.get(&served.single("audio", "active"))["master_enable"] == true);
    let active = served.get(&served.single("audio", "active"));
    assert_eq!(active["activation"]["requested_time"], at.to_string());
    assert!(tai(&active["activation"]["activation_time"]) >= at);
    // A time that is past is now.
    let body = json!({ "master_enable": false,
        "activation": { "mode": "activate_scheduled_absolute", "requested_time": "1:0" } });
    assert_eq!(served.patch("audio", &body).code, 202);
    until("it is off", || served.get(&served.single("audio", "active"))["master_enable"] == false);
}

#[test]
fn locked_until_cancelled() {
    let served = Served::new();
    let body = json!({ "master_enable": true,
        "activation": { "mode": "activate_scheduled_relative", "requested_time": "86400:0" } });
    assert_eq!(served.patch("audio", &body).code, 202);
    let staged = served.get(&served.single("audio", "staged"));
    assert_eq!(staged["activation"]["mode"], "activate_scheduled_relative");
    check("is-05/v1.1/receiver-response-schema.json", &staged);
    for body in [json!({}), json!({ "master_enable": false }), json!({ "activation": now() }), body] {
        let answer = served.patch("audio", &body);
        assert_eq!(answer.code, 423, "{body}");
        check("is-05/v1.1/error.json", &answer.json());
    }
    assert_eq!(served.patch("video", &json!({})).code, 200, "another one is not locked");
    let answer = served
        .patch("audio", &json!({ "activation": { "mode": null }, "transport_params": [{ "destination_port": 6000 }] }));
    assert_eq!(answer.code, 200);
    assert!(idle(&answer.json()));
    assert_eq!(answer.json()["transport_params"][0]["destination_port"], 6000);
    assert_eq!(served.patch("audio", &json!({ "master_enable": false })).code, 200);
    assert!(served.fake.done().is_empty());
}

#[test]
fn a_cancelled_time_does_not_come_and_the_next_one_does() {
    let served = Served::new();
    let later = |port: u16, time: &str| {
        json!({ "transport_params": [{ "destination_port": port }],
            "activation": { "mode": "activate_scheduled_relative", "requested_time": time } })
    };
    for port in 6000..6020 {
        assert_eq!(served.patch("audio", &later(port, "3600:0")).code, 202);
        assert_eq!(served.patch("audio", &json!({ "activation": { "mode": null } })).code, 200);
    }
    assert_eq!(served.patch("audio", &later(7000, "0:1")).code, 202);
    until("the last one comes", || !served.fake.done().is_empty());
    until("staged is over", || idle(&served.get(&served.single("audio", "staged"))));
    let done = served.fake.done();
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].1.legs[0].destination_port, 7000);
}

#[test]
fn a_scheduled_one_that_fails_unlocks_and_changes_nothing() {
    let served = Served::new();
    served.fake.failures.lock().unwrap().insert("audio".into(), "no".into());
    let before = served.receiver("audio");
    let body = json!({ "master_enable": true,
        "activation": { "mode": "activate_scheduled_relative", "requested_time": "0:0" } });
    assert_eq!(served.patch("audio", &body).code, 202);
    until("it is unlocked", || idle(&served.get(&served.single("audio", "staged"))));
    assert_eq!(served.receiver("audio"), before);
    assert_eq!(served.get(&served.single("audio", "active"))["master_enable"], false);
}

#[test]
fn patches_of_one_receiver_come_one_after_another_and_reads_do_not_wait() {
    let served = Arc::new(Served::new());
    served.fake.close();
    let ask = |name: &'static str, port: u16| {
        let served = served.clone();
        std::thread::spawn(move || {
            let body = json!({ "master_enable": true, "activation": now(), "transport_params": [{ "destination_port": port }] });
            served.patch(name, &body).code
        })
    };
    let first = ask("audio", 6000);
    until("the first is under way", || served.fake.waiting() == 1);
    let second = ask("audio", 6002);
    let other = ask("data", 6004);
    until("another receiver is not held up", || served.fake.waiting() == 2);
    assert_eq!(served.get(&served.single("audio", "active"))["master_enable"], false, "as it is now");
    assert_eq!(served.get(&served.single("audio", "staged"))["transport_params"][0]["destination_port"], 6000);
    assert_eq!(served.get("/x-nmos/node/v1.3/receivers").as_array().unwrap().len(), 3);
    served.fake.open();
    for thread in [first, second, other] {
        assert_eq!(thread.join().unwrap(), 200);
    }
    assert_eq!(served.fake.most(), 2, "never two of one receiver");
    assert_eq!(served.get(&served.single("audio", "active"))["transport_params"][0]["destination_port"], 6002);
}

#[test]
fn a_receiver_that_hangs_does_not_gather_patches_without_end() {
    let served = Arc::new(Served::new());
    served.fake.close();
    let threads: Vec<_> = (0..40)
        .map(|_| {
            let served = served.clone();
            std::thread::spawn(move || served.patch("audio", &json!({ "activation": now() })).code)
        })
        .collect();
    // The first one hangs, 31 wait, and the others are sent away, which is when their threads end.
    until("what is too much is refused", || threads.iter().filter(|thread| thread.is_finished()).count() == 8);
    assert_eq!(served.ask("GET", &served.single("audio", "active"), None).code, 200);
    served.fake.open();
    let mut codes: Vec<u16> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [[200; 32].as_slice(), &[503; 8]].concat());
    assert_eq!(served.patch("audio", &json!({})).code, 200, "there is room again");
}

#[test]
fn who_hangs_up_leaves_no_half_activation() {
    let served = Served::new();
    served.fake.close();
    let body = json!({ "master_enable": true, "activation": now() }).to_string();
    let mut stream = TcpStream::connect(served.address).unwrap();
    let path = served.single("audio", "staged");
    write!(stream, "PATCH {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    until("it is under way", || served.fake.waiting() == 1);
    drop(stream);
    served.fake.open();
    until("it is active all the same", || served.get(&served.single("audio", "active"))["master_enable"] == true);
    until("and kept", || served.fake.kept.lock().unwrap().len() == 1);
    assert_eq!(served.receiver("audio")["subscription"]["active"], true);
}

#[test]
fn bulk() {
    let served = Served::new();
    let unknown = "1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f";
    let post = |path: &str, body: &Value| {
        served.ask("POST", &format!("/x-nmos/connection/v1.1/bulk/{path}"), Some(body.to_string().into_bytes()))
    };
    let body = json!([
        { "id": served.id("audio"), "params": { "master_enable": true, "activation": now() } },
        { "id": unknown, "params": {} },
        { "id": served.id("video"), "params": { "bad": "data" } },
        { "id": served.id("data"), "params":
            { "activation": { "mode": "activate_scheduled_relative", "requested_time": "3600:0" } } },
        { "id": served.id("data"), "params": {} },
    ]);
    check("is-05/v1.1/bulk-receiver-post-schema.json", &json!([body[0], body[1], body[3], body[4]]));
    let answer = post("receivers", &body);
    assert_eq!(answer.code, 200, "{}", answer.text);
    let results = answer.json();
    check("is-05/v1.1/bulk-response-schema.json", &results);
    let codes: Vec<u64> = results.as_array().unwrap().iter().map(|r| r["code"].as_u64().unwrap()).collect();
    assert_eq!(codes, [200, 404, 400, 202, 423]);
    assert_eq!(results[2]["id"], served.id("video"));
    assert!(results[2]["error"].as_str().unwrap().contains("bad"));
    assert_eq!(served.get(&served.single("audio", "active"))["master_enable"], true);

    let senders = post("senders", &json!([{ "id": unknown, "params": {} }]));
    assert_eq!(senders.code, 200);
    check("is-05/v1.1/bulk-response-schema.json", &senders.json());
    assert_eq!(senders.json()[0]["code"], 404);
    assert_eq!(post("receivers", &json!([])).json(), json!([]));
    for bad in [json!({}), json!([1]), json!([{ "id": "x", "params": {} }])] {
        let answer = post("receivers", &bad);
        assert_eq!(answer.code, 400, "{bad}");
        check("is-05/v1.1/error.json", &answer.json());
    }
}

#[test]
fn bulk_activates_side_by_side() {
    let served = Arc::new(Served::new());
    served.fake.close();
    let list =
        ["video", "audio", "data"].map(|name| json!({ "id": served.id(name), "params": { "activation": now() } }));
    let thread = {
        let served = served.clone();
        std::thread::spawn(move || {
            let body = json!(list).to_string().into_bytes();
            served.ask("POST", "/x-nmos/connection/v1.1/bulk/receivers", Some(body)).code
        })
    };
    until("all three are under way at once", || served.fake.waiting() == 3);
    served.fake.open();
    assert_eq!(thread.join().unwrap(), 200);
}

#[test]
fn hostile_bodies() {
    let served = Served::new();
    let path = served.single("video", "staged");
    let before = served.get(&path);
    let deep = format!("{{\"transport_params\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let long = format!("{{\"transport_file\":{{\"type\":\"application/sdp\",\"data\":\"{}\"}}}}", "a".repeat(70_000));
    let bodies: Vec<Vec<u8>> = vec![
        vec![],
        b"{".to_vec(),
        b"null".to_vec(),
        b"\"text\"".to_vec(),
        vec![0xff, 0xfe, 0x00],
        b"{\"master_enable\":tru".to_vec(),
        b"{\"master_enable\":true}{}".to_vec(),
        b"{\"sender_id\":\"\xc3\x28\"}".to_vec(),
        b"{\"transport_params\":[{\"destination_port\":1e400},{}]}".to_vec(),
        b"{\"transport_params\":[{\"destination_port\":-1},{}]}".to_vec(),
        deep.into_bytes(),
        long.into_bytes(),
        format!("{{\"transport_params\":[{}{{}}]}}", "{},".repeat(10_000)).into_bytes(),
    ];
    for body in bodies {
        let start = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        let answer = served.ask("PATCH", &path, Some(body));
        assert_eq!(answer.code, 400, "{start}");
        assert!(!answer.error().is_empty());
    }
    // One octet too many: said beforehand, and found on the way. Nothing is sent that is not read, as it could cost the
    // answer.
    let answer = |rest: &[&[u8]]| {
        let mut stream = TcpStream::connect(served.address).unwrap();
        write!(stream, "PATCH {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n").unwrap();
        rest.iter().for_each(|part| stream.write_all(part).unwrap());
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
        text
    };
    let declared = answer(&[b"Content-Length: 524289\r\n\r\n"]);
    assert!(declared.starts_with("HTTP/1.1 413") && declared.contains("524288"), "{declared}");
    let head = b"Transfer-Encoding: chunked\r\n\r\n80000\r\n";
    let chunked = answer(&[head, &vec![b' '; 512 << 10], b"\r\n1\r\n "]);
    assert!(chunked.starts_with("HTTP/1.1 413"), "{chunked}");
    assert_eq!(served.get(&path), before);
}

#[test]
fn what_was_active_is_active_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    {
        let served = Served::new();
        let store = Store::open(&path).unwrap();
        let body = json!({ "master_enable": true, "activation": now(),
            "transport_file": { "data": VIDEO, "type": "application/sdp" } });
        assert_eq!(served.patch("video", &body).code, 200);
        assert_eq!(
            served
                .patch("audio", &json!({ "activation": now(), "transport_params": [{ "destination_port": 6000 }] }))
                .code,
            200
        );
        for (name, saved) in served.fake.kept.lock().unwrap().iter() {
            store.save(name, saved).unwrap();
        }
    }
    let mut saved = Store::open(&path).unwrap().receivers();
    saved.insert("data".into(), Saved { legs: vec![], ..saved["audio"].clone() });
    let fake = Fake::new(three());
    let mut machine = settings(80);
    // Another address by DHCP: auto takes the new one.
    machine.interfaces[0].addresses = vec!["10.46.16.99".parse().unwrap()];
    let node = gdmedia_nmos::Node::new(machine, fake.clone(), gdmedia_nmos::system_clock(37)).unwrap();
    let failed = node.resume(&saved);
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].0, "data");
    let done = fake.done();
    assert_eq!(done.len(), 1, "what was off is left alone");
    assert_eq!(done[0].0, "video");
    assert_eq!(done[0].1.legs[0].interface_ip, "10.46.16.99".parse::<std::net::IpAddr>().unwrap());
    assert_eq!(done[0].1.sdp.as_deref(), Some(VIDEO));
    let resources = node.resources();
    let video = resources.iter().find(|r| r.body["label"] == "Ingest 1 video").unwrap();
    assert_eq!(video.body["subscription"]["active"], true);

    // A receiver that cannot is off, and says why.
    fake.failures.lock().unwrap().insert("video".into(), "the interface is down".into());
    let node = gdmedia_nmos::Node::new(settings(80), fake.clone(), gdmedia_nmos::system_clock(37)).unwrap();
    saved.remove("data");
    assert_eq!(node.resume(&saved), [("video".to_owned(), "the interface is down".to_owned())]);
    let resources = node.resources();
    let video = resources.iter().find(|r| r.body["label"] == "Ingest 1 video").unwrap();
    assert_eq!(video.body["subscription"]["active"], false);
}

#[test]
fn what_was_set_another_way_shows() {
    let served = Served::new();
    let body = json!({ "master_enable": true, "activation": now(),
        "transport_file": { "data": AUDIO, "type": "application/sdp" } });
    assert_eq!(served.patch("audio", &body).code, 200);
    let before = tai(&served.receiver("audio")["version"]);
    let kept = served.fake.kept.lock().unwrap().last().unwrap().1.clone();
    let off = Saved { master_enable: false, ..kept };
    served.node.configured("audio", &off).unwrap();
    assert_eq!(served.receiver("audio")["subscription"]["active"], false);
    assert!(tai(&served.receiver("audio")["version"]) > before);
    let active = served.get(&served.single("audio", "active"));
    check("is-05/v1.1/receiver-response-schema.json", &active);
    assert_eq!(active["master_enable"], false);
    assert!(served.node.configured("none", &off).is_err());
    assert!(served.node.configured("video", &off).unwrap_err().contains("legs"));
}

/// Whoever reloads a configuration or stops a receiver for a moment means no other connection.
#[test]
fn on_and_off_leave_what_was_accepted() {
    let served = Served::new();
    let file = |text: &str| json!({ "data": text, "type": "application/sdp" });
    let body = json!({ "master_enable": true, "activation": now(), "transport_file": file(AUDIO) });
    assert_eq!(served.patch("audio", &body).code, 200);
    let on = served.fake.kept.lock().unwrap().last().unwrap().1.clone();
    let off = Saved { master_enable: false, ..on.clone() };
    let get = |what: &str| served.get(&served.single("audio", what));
    // Nothing is staged besides: both follow.
    served.node.configured("audio", &off).unwrap();
    assert_eq!(
        (get("staged")["master_enable"].clone(), get("active")["master_enable"].clone()),
        (json!(false), json!(false))
    );
    served.node.configured("audio", &on).unwrap();
    // Nothing is new: no version.
    let version = served.receiver("audio")["version"].clone();
    served.node.configured("audio", &on).unwrap();
    assert_eq!(served.receiver("audio")["version"], version);

    let at = tai(&version).0 + 3_600_000_000_000;
    let later = json!({ "mode": "activate_scheduled_absolute", "requested_time": Tai(at).to_string() });
    let body = json!({ "transport_params": [{ "destination_port": 6000 }], "activation": later });
    assert_eq!(served.patch("audio", &body).code, 202);
    let staged = get("staged");
    for saved in [&off, &on] {
        served.node.configured("audio", saved).unwrap();
        assert_eq!(get("active")["master_enable"], saved.master_enable);
        assert_eq!(served.receiver("audio")["subscription"]["active"], saved.master_enable);
        assert_eq!(get("staged"), staged, "it was accepted");
    }
    assert_eq!(served.patch("audio", &json!({})).code, 423);
    // Another connection takes its place.
    let other = Saved { sdp: Some(AUDIO.replace("239.1.1.1", "239.1.1.2")), ..on };
    served.node.configured("audio", &other).unwrap();
    assert!(idle(&get("staged")));
    assert_eq!(served.patch("audio", &json!({})).code, 200);
}

#[test]
fn what_was_set_meanwhile_is_not_overwritten() {
    let served = Served::new();
    let body = json!({ "transport_params": [{ "destination_port": 6000 }] });
    assert_eq!(served.patch("audio", &body).code, 200);
    let leg = gdmedia_nmos::params::LegParams { multicast_ip: "239.2.2.2".parse().ok(), ..Default::default() };
    let other = Saved { master_enable: true, sender_id: None, sdp: Some(AUDIO.into()), legs: vec![leg] };
    let (node, told) = (served.node.clone(), other.clone());
    *served.fake.meanwhile.lock().unwrap() = Some(Box::new(move || node.configured("audio", &told).unwrap()));
    let answer = served.patch("audio", &json!({ "transport_params": [{ "destination_port": 7000 }] }));
    assert_eq!(answer.code, 200, "{}", answer.text);
    let staged = served.get(&served.single("audio", "staged"));
    assert_eq!(staged, answer.json());
    assert_eq!(staged["transport_file"]["data"], AUDIO);
    let leg = &staged["transport_params"][0];
    assert_eq!((&leg["multicast_ip"], &leg["destination_port"]), (&json!("239.2.2.2"), &json!(7000)));
    assert_eq!(staged["master_enable"], true);

    // What is activated is what was asked for, upon what it is now.
    let (node, told) = (served.node.clone(), Saved { master_enable: false, ..other });
    *served.fake.meanwhile.lock().unwrap() = Some(Box::new(move || node.configured("audio", &told).unwrap()));
    let body = json!({ "transport_params": [{ "destination_port": 8000 }], "activation": now() });
    assert_eq!(served.patch("audio", &body).code, 200);
    let done = served.fake.done().pop().unwrap().1;
    assert_eq!((done.master_enable, done.legs[0].destination_port), (true, 8000), "staged before, and kept");

    // Somebody who never stops is not waited for.
    fn again(node: gdmedia_nmos::Node, fake: Arc<Fake>, port: u16, other: Saved) {
        let mut told = other.clone();
        told.legs[0].destination_port = gdmedia_nmos::params::Auto::Value(port);
        node.configured("audio", &told).unwrap();
        let next = fake.clone();
        *fake.meanwhile.lock().unwrap() = Some(Box::new(move || again(node, next, port + 1, other)));
    }
    let other = Saved { master_enable: true, sender_id: None, sdp: None, legs: vec![Default::default()] };
    let (node, fake) = (served.node.clone(), served.fake.clone());
    *served.fake.meanwhile.lock().unwrap() = Some(Box::new(move || again(node, fake, 10_000, other)));
    let answer = served.patch("audio", &json!({ "master_enable": false }));
    assert_eq!(answer.code, 503, "{}", answer.text);
    served.fake.meanwhile.lock().unwrap().take();
    assert_eq!(served.patch("audio", &json!({ "master_enable": false })).code, 200);
}

#[test]
fn another_number_of_legs_is_another_receiver() {
    let served = Served::new();
    let body = json!({ "master_enable": true, "activation": now(),
        "transport_file": { "data": VIDEO, "type": "application/sdp" } });
    assert_eq!(served.patch("video", &body).code, 200);
    served.fake.list.lock().unwrap()[1].label = "renamed".into();
    served.node.refresh().unwrap();
    assert_eq!(served.get(&served.single("video", "active"))["master_enable"], true, "it is not touched");
    served.fake.list.lock().unwrap()[0].legs.pop();
    served.node.refresh().unwrap();
    let active = served.get(&served.single("video", "active"));
    assert_eq!(active["master_enable"], false);
    assert_eq!(active["transport_params"].as_array().unwrap().len(), 1);
    assert_eq!(served.fake.list().len(), 3);
}

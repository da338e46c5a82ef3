//! Every path of both APIs, with and without a slash at the end: status, headers, and the schemas of AMWA.

mod support;

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use support::schema::check;
use support::{Answer, Served, VIDEO, until};

/// All that is read: path and schema.
fn documents(served: &Served) -> Vec<(String, &'static str)> {
    let mut all = vec![
        ("/x-nmos/node/v1.3".to_owned(), "is-04/v1.3/nodeapi-base.json"),
        ("/x-nmos/node/v1.3/self".into(), "is-04/v1.3/node.json"),
        ("/x-nmos/node/v1.3/devices".into(), "is-04/v1.3/devices.json"),
        ("/x-nmos/node/v1.3/sources".into(), "is-04/v1.3/sources.json"),
        ("/x-nmos/node/v1.3/flows".into(), "is-04/v1.3/flows.json"),
        ("/x-nmos/node/v1.3/senders".into(), "is-04/v1.3/senders.json"),
        ("/x-nmos/node/v1.3/receivers".into(), "is-04/v1.3/receivers.json"),
        (format!("/x-nmos/node/v1.3/devices/{}", served.node.settings().device_id()), "is-04/v1.3/device.json"),
        ("/x-nmos/connection/v1.1".into(), "is-05/v1.1/connectionapi-base.json"),
        ("/x-nmos/connection/v1.1/bulk".into(), "is-05/v1.1/connectionapi-bulk.json"),
        ("/x-nmos/connection/v1.1/single".into(), "is-05/v1.1/connectionapi-single.json"),
        ("/x-nmos/connection/v1.1/single/senders".into(), "is-05/v1.1/sender-receiver-base.json"),
        ("/x-nmos/connection/v1.1/single/receivers".into(), "is-05/v1.1/sender-receiver-base.json"),
    ];
    for (name, kind) in [("video", "video"), ("audio", "audio"), ("data", "data")] {
        let schema = match kind {
            "video" => "is-04/v1.3/receiver_video.json",
            "audio" => "is-04/v1.3/receiver_audio.json",
            _ => "is-04/v1.3/receiver_data.json",
        };
        let id = served.id(name);
        all.push((format!("/x-nmos/node/v1.3/receivers/{id}"), "is-04/v1.3/receiver.json"));
        all.push((format!("/x-nmos/node/v1.3/receivers/{id}"), schema));
        let single = format!("/x-nmos/connection/v1.1/single/receivers/{id}");
        all.push((single.clone(), "is-05/v1.1/connectionapi-receiver.json"));
        all.push((format!("{single}/constraints"), "is-05/v1.1/constraints-schema.json"));
        all.push((format!("{single}/staged"), "is-05/v1.1/receiver-response-schema.json"));
        all.push((format!("{single}/active"), "is-05/v1.1/receiver-response-schema.json"));
        all.push((format!("{single}/transporttype"), "is-05/v1.1/transporttype-response-schema.json"));
    }
    all
}

fn check_headers(answer: &Answer, what: &str) {
    assert_eq!(answer.header("content-type"), "application/json", "{what}");
    assert_eq!(answer.header("access-control-allow-origin"), "*", "{what}");
    let methods: Vec<&str> = answer.header("access-control-allow-methods").split(',').map(str::trim).collect();
    for method in ["GET", "PUT", "POST", "PATCH", "HEAD", "OPTIONS", "DELETE"] {
        assert!(methods.contains(&method), "{what}: {method} is not among {methods:?}");
    }
    for header in ["access-control-allow-headers", "access-control-max-age", "allow"] {
        assert!(!answer.header(header).is_empty(), "{what}: {header}");
    }
}

#[test]
fn every_document_meets_its_schema_by_both_spellings() {
    let served = Served::new();
    for (path, schema) in documents(&served) {
        let plain = served.ask("GET", &path, None);
        assert_eq!(plain.code, 200, "{path}");
        check_headers(&plain, &path);
        check(schema, &plain.json());
        let slash = served.ask("GET", &format!("{path}/"), None);
        assert_eq!((slash.code, slash.json()), (200, plain.json()), "{path}/");
        check_headers(&slash, &path);
        let head = served.ask("HEAD", &path, None);
        assert_eq!((head.code, head.text.as_str()), (200, ""), "HEAD {path}");
        check_headers(&head, &path);
    }
}

#[test]
fn the_schemas_do_refuse() {
    let served = Served::new();
    for (path, schema) in documents(&served) {
        let mut document = served.get(&path);
        match &mut document {
            Value::Array(list) => list.push(json!("nonsense")),
            Value::Object(map) => {
                // Behind a reference to another file, where there is one.
                let key = ["version", "activation", "source_ip"].into_iter().find(|key| map.contains_key(*key));
                map.insert(key.unwrap().to_owned(), json!({ "mode": "sometimes" }));
            }
            other => *other = json!("nonsense"),
        }
        assert!(!support::schema::errors(schema, &document).is_empty(), "{schema}: {document}");
    }
}

#[test]
fn every_level_lists_the_next_one() {
    let served = Served::new();
    let id = served.id("video");
    for (path, expected) in [
        ("/", json!(["x-nmos/"])),
        ("/x-nmos", json!(["connection/", "node/"])),
        ("/x-nmos/node", json!(["v1.3/"])),
        ("/x-nmos/node/v1.3", json!(["self/", "sources/", "flows/", "devices/", "senders/", "receivers/"])),
        ("/x-nmos/connection", json!(["v1.1/"])),
        ("/x-nmos/connection/v1.1", json!(["bulk/", "single/"])),
        ("/x-nmos/connection/v1.1/single", json!(["senders/", "receivers/"])),
        ("/x-nmos/connection/v1.1/single/senders", json!([])),
        (
            &format!("/x-nmos/connection/v1.1/single/receivers/{id}"),
            json!(["constraints/", "staged/", "active/", "transporttype/"]),
        ),
        ("/x-nmos/node/v1.3/senders", json!([])),
    ] {
        assert_eq!(served.get(path), expected, "{path}");
    }
    let receivers = served.get("/x-nmos/connection/v1.1/single/receivers");
    assert_eq!(receivers[0], format!("{id}/"));
    assert_eq!(receivers.as_array().unwrap().len(), 3);
}

#[test]
fn what_is_not_there_is_404_in_json() {
    let served = Served::new();
    let device = served.node.settings().device_id();
    let video = served.id("video");
    for path in [
        "/x-nmos/nothing".to_owned(),
        "/y-nmos".into(),
        "//x-nmos".into(),
        "/x-nmos//node".into(),
        "/x-nmos/node/v1.2".into(),
        "/x-nmos/node/v1.3/no".into(),
        "/x-nmos/node/v1.3/self/x".into(),
        "/x-nmos/node/v1.3/senders/1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f".into(),
        // An id of another kind.
        format!("/x-nmos/node/v1.3/receivers/{device}"),
        format!("/x-nmos/node/v1.3/receivers/{}", video.to_uppercase()),
        format!("/x-nmos/node/v1.3/receivers/{video}/other"),
        "/x-nmos/node/v1.3/receivers/1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f/target".into(),
        "/x-nmos/connection/v1.0".into(),
        "/x-nmos/connection/v1.1/double".into(),
        "/x-nmos/connection/v1.1/single/senders/1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f".into(),
        format!("/x-nmos/connection/v1.1/single/receivers/{device}"),
        format!("/x-nmos/connection/v1.1/single/receivers/{device}/staged"),
        format!("/x-nmos/connection/v1.1/single/receivers/{video}/transportfile"),
        format!("/x-nmos/connection/v1.1/single/receivers/{video}/staged/x"),
        "/x-nmos/%00/%ff".into(),
        format!("/x-nmos/{}", "a/".repeat(2000)),
        format!("/x-nmos/{}", "a".repeat(8000)),
    ] {
        for method in ["GET", "OPTIONS", "DELETE"] {
            let answer = served.ask(method, &path, None);
            let short = path.chars().take(60).collect::<String>();
            assert_eq!(answer.code, 404, "{method} {short}");
            check_headers(&answer, &short);
            check("is-04/v1.3/error.json", &answer.json());
            assert!(!answer.error().is_empty());
        }
    }
}

#[test]
fn what_is_not_allowed_is_405_in_json() {
    let served = Served::new();
    let mut cases: Vec<(String, &str, &str)> = documents(&served)
        .into_iter()
        .flat_map(|(path, _)| {
            let patch = path.ends_with("/staged");
            let allow = if patch { "GET, HEAD, PATCH, OPTIONS" } else { "GET, HEAD, OPTIONS" };
            let mut methods = vec!["PUT", "POST", "DELETE", "BREW"];
            if !patch {
                methods.push("PATCH");
            }
            methods.into_iter().map(move |method| (path.clone(), method, allow)).collect::<Vec<_>>()
        })
        .collect();
    for which in ["senders", "receivers"] {
        for method in ["GET", "PATCH", "PUT", "DELETE"] {
            cases.push((format!("/x-nmos/connection/v1.1/bulk/{which}"), method, "POST, OPTIONS"));
        }
    }
    let target = format!("/x-nmos/node/v1.3/receivers/{}/target", served.id("video"));
    cases.push((target, "GET", "PUT, OPTIONS"));
    for (path, method, allow) in cases {
        let answer = served.ask(method, &path, None);
        assert_eq!(answer.code, 405, "{method} {path}");
        assert_eq!(answer.header("allow"), allow, "{method} {path}");
        check_headers(&answer, &path);
        check("is-05/v1.1/error.json", &answer.json());
        assert!(answer.error().contains(method));
    }
}

#[test]
fn preflights_are_answered_everywhere() {
    let served = Served::new();
    let mut paths: Vec<String> = documents(&served).into_iter().map(|(path, _)| path).collect();
    paths.push("/x-nmos/connection/v1.1/bulk/receivers".into());
    paths.push("/x-nmos/connection/v1.1/bulk/senders".into());
    paths.push(format!("/x-nmos/node/v1.3/receivers/{}/target", served.id("video")));
    for path in paths {
        let answer = served.ask("OPTIONS", &path, None);
        assert_eq!(answer.code, 200, "{path}");
        check_headers(&answer, &path);
    }
    // Headers that a controller asks for are those that it may send.
    let mut stream = TcpStream::connect(served.address).unwrap();
    let path = served.single("video", "staged");
    let request = format!(
        "OPTIONS {path} HTTP/1.1\r\nHost: x\r\nOrigin: http://controller\r\nAccess-Control-Request-Method: PATCH\r\n\
         Access-Control-Request-Headers: X-Special, Content-Type\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let text = text.to_lowercase();
    assert!(text.contains("access-control-allow-headers: x-special, content-type"), "{text}");
    let methods = text.lines().find_map(|line| line.strip_prefix("access-control-allow-methods:")).unwrap();
    assert!(methods.split(',').any(|method| method.trim() == "patch"), "{text}");
}

#[test]
fn target_is_501() {
    let served = Served::new();
    let path = format!("/x-nmos/node/v1.3/receivers/{}/target", served.id("audio"));
    let answer = served.ask("PUT", &path, Some(b"{}".to_vec()));
    assert_eq!(answer.code, 501);
    check("is-04/v1.3/error.json", &answer.json());
    assert!(answer.error().contains("IS-05"));
}

#[test]
fn documents_meet_their_schemas_in_every_state() {
    let served = Served::new();
    let check_all = |served: &Served| {
        for (path, schema) in documents(served) {
            check(schema, &served.get(&path));
        }
    };
    let scheduled = json!({
        "master_enable": true, "sender_id": "1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f",
        "transport_file": { "data": VIDEO, "type": "application/sdp" },
        "activation": { "mode": "activate_scheduled_relative", "requested_time": "3600:0" }
    });
    let answer = served.patch("video", &scheduled);
    assert_eq!(answer.code, 202, "{}", answer.text);
    check("is-05/v1.1/receiver-response-schema.json", &answer.json());
    check_all(&served);
    assert_eq!(served.patch("video", &json!({ "activation": { "mode": null } })).code, 200);
    let now = json!({ "activation": { "mode": "activate_immediate" } });
    let answer = served.patch("video", &now);
    assert_eq!(answer.code, 200, "{}", answer.text);
    check("is-05/v1.1/receiver-response-schema.json", &answer.json());
    check_all(&served);
    // What a controller sends is itself as the schema wants it.
    check("is-05/v1.1/receiver-stage-schema.json", &scheduled);
    served.node.update(|settings| settings.interfaces.iter_mut().for_each(|i| i.addresses.clear())).unwrap();
    check_all(&served);
}

#[test]
fn references_are_those_of_the_suite() {
    let served = Served::new();
    let node = served.get("/x-nmos/node/v1.3/self");
    let device = &served.get("/x-nmos/node/v1.3/devices")[0];
    let receivers = served.get("/x-nmos/node/v1.3/receivers");
    let receivers = receivers.as_array().unwrap();
    let base = format!("http://{}", served.address);
    assert_eq!(node["href"], format!("{base}/"));
    assert_eq!(node["api"]["endpoints"][0]["host"], "127.0.0.1");
    assert_eq!(node["api"]["versions"], json!(["v1.3"]));
    assert_eq!(node["clocks"][1]["gmid"], "00-1b-19-ff-fe-00-0a-bc");
    assert_eq!(node["interfaces"][0]["port_id"], "02-00-00-00-00-01");
    assert_eq!(node["interfaces"][0]["attached_network_device"]["port_id"], "Ethernet1/7");
    assert_eq!(device["node_id"], node["id"]);
    let control = &device["controls"][0];
    assert_eq!(control["type"], "urn:x-nmos:control:sr-ctrl/v1.1");
    assert_eq!(control["href"], format!("{base}/x-nmos/connection/v1.1/"));
    // All ids differ, and everything belongs to the device.
    let mut ids: Vec<&Value> = receivers.iter().map(|r| &r["id"]).chain([&node["id"], &device["id"]]).collect();
    ids.sort_by_key(|id| id.to_string());
    ids.dedup();
    assert_eq!(ids.len(), 5);
    assert_eq!(device["receivers"], receivers.iter().map(|r| r["id"].clone()).collect::<Value>());
    let names: Vec<&Value> = node["interfaces"].as_array().unwrap().iter().map(|i| &i["name"]).collect();
    for receiver in receivers {
        assert_eq!(receiver["device_id"], device["id"]);
        let bound = receiver["interface_bindings"].as_array().unwrap();
        let legs = served
            .get(&format!("/x-nmos/connection/v1.1/single/receivers/{}/constraints", receiver["id"].as_str().unwrap()));
        assert_eq!(bound.len(), legs.as_array().unwrap().len());
        assert!(bound.iter().all(|name| names.contains(&name)));
    }
    // BCP-002-01: groups and roles.
    let hints: Vec<&Value> = receivers.iter().map(|r| &r["tags"]["urn:x-nmos:tag:grouphint/v1.0"][0]).collect();
    assert_eq!(hints, ["ingest 1:video", "ingest 1:audio", "ingest 1:data"]);
    assert_eq!(receivers[0]["tags"]["location"], json!(["rack 4"]));
    // BCP-002-02: one value each, and the two assets differ.
    let tag = |of: &Value, name: &str| of["tags"][format!("urn:x-nmos:tag:asset:{name}/v1.0")].clone();
    for asset in [&node, device] {
        for name in ["manufacturer", "product", "instance-id"] {
            assert_eq!(tag(asset, name).as_array().unwrap().len(), 1, "{name}");
        }
    }
    assert_eq!(tag(&node, "instance-id"), json!(["4711"]));
    assert_ne!(tag(&node, "instance-id"), tag(device, "instance-id"));
    assert_eq!(tag(device, "function"), json!(["receiver"]));
    assert_eq!(node["tags"]["room"], json!(["MCR"]));
    // BCP-004-01: sets where they are given, with a version that is not later than the receiver's.
    let caps = &receivers[0]["caps"];
    assert_eq!(caps["constraint_sets"][0]["urn:x-nmos:cap:format:frame_width"]["maximum"], 4096);
    assert_eq!(caps["version"], receivers[0]["version"]);
    assert_eq!(receivers[1]["caps"], json!({ "media_types": ["audio/L24", "audio/L16"] }));
}

#[test]
fn a_secure_node_says_so_everywhere() {
    let served = Served::with(support::three(), |settings| {
        settings.endpoints[0].secure = true;
        settings.endpoints[0].authorization = true;
        settings.endpoints[0].host = "rx1.example.org".into();
    });
    let node = served.get("/x-nmos/node/v1.3/self");
    assert!(node["href"].as_str().unwrap().starts_with("https://rx1.example.org:"));
    assert_eq!(node["api"]["endpoints"][0]["protocol"], "https");
    assert_eq!(node["api"]["endpoints"][0]["authorization"], true);
    let control = &served.get("/x-nmos/node/v1.3/devices")[0]["controls"][0];
    assert!(control["href"].as_str().unwrap().starts_with("https://rx1.example.org:"));
    assert_eq!(control["authorization"], true);
}

#[test]
fn a_change_is_a_new_version_and_nothing_else_is() {
    let served = Served::new();
    let version = |path: &str| served.get(path)["version"].as_str().unwrap().parse::<gdmedia_nmos::Tai>().unwrap();
    let (own, id) = ("/x-nmos/node/v1.3/self", served.id("video"));
    let device = format!("/x-nmos/node/v1.3/devices/{}", served.node.settings().device_id());
    let receiver = format!("/x-nmos/node/v1.3/receivers/{id}");
    let before = [version(own), version(&device), version(&receiver)];
    served.node.refresh().unwrap();
    assert_eq!([version(own), version(&device), version(&receiver)], before);
    served.node.update(|settings| settings.clocks.truncate(1)).unwrap();
    assert!(version(own) > before[0]);
    assert_eq!([version(&device), version(&receiver)], before[1..]);
    served.fake.list.lock().unwrap()[0].label = "another".into();
    served.node.refresh().unwrap();
    assert!(version(&receiver) > before[2]);
    assert_eq!(version(&device), before[1]);
    served.fake.list.lock().unwrap().remove(2);
    served.node.refresh().unwrap();
    assert!(version(&device) > before[1]);
    assert_eq!(served.get("/x-nmos/node/v1.3/receivers").as_array().unwrap().len(), 2);
    assert_eq!(served.ask("GET", &served.single("data", "staged"), None).code, 404);
    // The seed is what the ids are made of; no change takes it along.
    served.node.update(|settings| settings.seed = "other".into()).unwrap();
    assert_eq!(served.id("video"), id);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let served = Served::new();
    let before = served.get("/x-nmos/node/v1.3/receivers");
    type Change = fn(&mut Vec<gdmedia_nmos::Receiver>);
    let cases: [(Change, &str); 5] = [
        (|list| list[1].caps.media_types.push("video/raw".into()), "video/raw"),
        (|list| list[1].name = "video".into(), "two receivers"),
        (|list| list[1].legs = vec!["eth9".into()], "eth9"),
        (|list| list[1].legs.clear(), "0 legs"),
        (|list| list[1].group = list[0].group.clone(), "ingest 1"),
    ];
    for (change, part) in cases {
        let kept = served.fake.list.lock().unwrap().clone();
        change(&mut served.fake.list.lock().unwrap());
        let error = served.node.refresh().unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.cure().is_empty());
        *served.fake.list.lock().unwrap() = kept;
    }
    assert!(served.node.update(|settings| settings.interfaces.clear()).unwrap_err().to_string().contains("rx0"));
    assert!(served.node.update(|settings| settings.endpoints.clear()).is_err());
    assert_eq!(served.get("/x-nmos/node/v1.3/receivers"), before);
}

#[test]
fn a_router_beside_others_has_only_its_own_paths() {
    let served = Served::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let own = axum::Router::new().route("/", axum::routing::get(|| async { "mine" }));
    let router = own.merge(gdmedia_nmos::http::router(served.node.clone()));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), router).await.unwrap();
    });
    until("it is served", || TcpStream::connect(address).is_ok());
    let get = |path: &str| support::ask("GET", &format!("http://{address}{path}"), None);
    assert_eq!(get("/").text, "mine");
    for path in ["/x-nmos", "/x-nmos/", "/x-nmos/node/v1.3/self/"] {
        assert_eq!(get(path).code, 200, "{path}");
    }
    assert_eq!(get("/x-nmos/no").error(), "there is nothing at /x-nmos/no");
}

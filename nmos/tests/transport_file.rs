//! From SDPs to transport parameters, by hand from IS-05, "Behaviour: RTP Transport Type". Where the document's example
//! is of an encoding that is not ST 2110 (MP2T), its addresses are kept and the encoding is raw.

mod support;

use gdmedia_nmos::Format;
use gdmedia_nmos::transport_file::{media_type, read};
use serde_json::{Value, json};
use support::{AUDIO, Served, VIDEO};

const FMTP: &str = "a=fmtp:100 sampling=YCbCr-4:2:2; width=1920; height=1080; exactframerate=25; depth=10; TCS=SDR; \
    colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPW\n\
    a=ts-refclk:ptp=IEEE1588-2008:traceable\na=mediaclk:direct=0\n";

fn legs(text: &str, legs: usize) -> Value {
    serde_json::to_value(read(text, Format::Video, legs).unwrap().legs).unwrap()
}

fn leg(source: Option<&str>, multicast: Option<&str>, interface: &str, port: u16) -> Value {
    json!({ "source_ip": source, "multicast_ip": multicast, "interface_ip": interface, "destination_port": port,
            "rtp_enabled": true })
}

fn off() -> Value {
    json!({ "source_ip": null, "multicast_ip": null, "interface_ip": "auto", "destination_port": "auto",
            "rtp_enabled": false })
}

#[test]
fn unicast() {
    let text = "v=0\no=- 2890844526 2890842807 IN IP4 10.47.16.5\ns=SDP Example\nc=IN IP4 10.46.16.34/127\n\
        t=2873397496 2873404696\na=recvonly\nm=video 51372 RTP/AVP 99\na=rtpmap:99 h263-1998/90000\n";
    assert_eq!(legs(text, 1), json!([leg(None, None, "10.46.16.34", 51372)]));
}

#[test]
fn source_specific_multicast() {
    let text = "v=0\no=- 1497010742 1497010742 IN IP4 172.29.26.24\ns=SDP Example\nt=2873397496 2873404696\n\
        m=video 5000 RTP/AVP 103\nc=IN IP4 232.21.21.133/32\n\
        a=source-filter:incl IN IP4 232.21.21.133 172.29.226.24\na=rtpmap:103 raw/90000\n";
    let expected = leg(Some("172.29.226.24"), Some("232.21.21.133"), "auto", 5000);
    assert_eq!(legs(text, 1), json!([expected]));
    // Not of ST 2022-7, on a receiver that could: the second leg is off.
    assert_eq!(legs(text, 2), json!([expected, off()]));
}

#[test]
fn any_source_multicast() {
    let text = "v=0\no=- 1497010742 1497010742 IN IP4 172.29.26.24\ns=SDP Example\nt=2873397496 2873404696\n\
        m=video 5000 RTP/AVP 103\nc=IN IP4 239.21.21.133/32\na=rtpmap:103 raw/90000\n";
    assert_eq!(legs(text, 1), json!([leg(None, Some("239.21.21.133"), "auto", 5000)]));
}

#[test]
fn separate_source_addresses() {
    let text = format!(
        "v=0\no=ali 1122334455 1122334466 IN IP4 dup.example.com\ns=DUP Grouping Semantics\nt=0 0\n\
         m=video 30000 RTP/AVP 100\nc=IN IP4 233.252.0.1/127\n\
         a=source-filter:incl IN IP4 233.252.0.1 198.51.100.1 198.51.100.2\na=rtpmap:100 raw/90000\n{FMTP}\
         a=ssrc:1000 cname:ch1@example.com\na=ssrc:1010 cname:ch1@example.com\na=ssrc-group:DUP 1000 1010\na=mid:Ch1\n"
    );
    let first = leg(Some("198.51.100.1"), Some("233.252.0.1"), "auto", 30000);
    let second = leg(Some("198.51.100.2"), Some("233.252.0.1"), "auto", 30000);
    assert_eq!(legs(&text, 2), json!([first, second]));
    // Of ST 2022-7, on a receiver that cannot: the first one.
    assert_eq!(legs(&text, 1), json!([first]));
}

#[test]
fn separate_destination_addresses() {
    let medium = |group: &str, mid: &str| {
        format!(
            "m=video 30000 RTP/AVP 100\nc=IN IP4 {group}/127\na=source-filter:incl IN IP4 {group} 198.51.100.1\n\
             a=rtpmap:100 raw/90000\n{FMTP}a=mid:{mid}\n"
        )
    };
    let text = |order: &str| {
        format!(
            "v=0\no=ali 1122334455 1122334466 IN IP4 dup.example.com\ns=DUP Grouping Semantics\nt=0 0\n\
             a=group:DUP {order}\n{}{}",
            medium("233.252.0.1", "S1a"),
            medium("233.252.0.2", "S1b")
        )
    };
    let first = leg(Some("198.51.100.1"), Some("233.252.0.1"), "auto", 30000);
    let second = leg(Some("198.51.100.1"), Some("233.252.0.2"), "auto", 30000);
    assert_eq!(legs(&text("S1a S1b"), 2), json!([first, second]));
    assert_eq!(legs(&text("S1a S1b"), 1), json!([first]));
}

#[test]
fn a_receiver_takes_what_is_of_its_format() {
    let (_, video) = VIDEO.split_once("t=0 0\r\n").unwrap();
    let both = format!("{AUDIO}{}", video.replace("a=group:DUP one two\r\n", ""));
    let audio = read(&both, Format::Audio, 1).unwrap();
    assert_eq!(media_type(&audio.flow.essence).as_deref(), Some("audio/L24"));
    assert_eq!(audio.legs[0].multicast_ip, "239.1.1.1".parse().ok());
    let video = read(&both, Format::Video, 1).unwrap();
    assert_eq!(media_type(&video.flow.essence).as_deref(), Some("video/raw"));
    let none = read(AUDIO, Format::Data, 1).unwrap_err();
    assert!(none.contains("no data") && none.contains("audio (ST 2110-30)"), "{none}");
}

#[test]
fn an_excluded_source_is_none() {
    let text = AUDIO.replace("a=rtpmap:97", "a=source-filter: excl IN IP4 239.1.1.1 192.0.2.66\r\na=rtpmap:97");
    assert_eq!(read(&text, Format::Audio, 1).unwrap().legs[0].source_ip, None);
}

#[test]
fn ipv6() {
    let text = AUDIO.replace("c=IN IP4 239.1.1.1/64", "c=IN IP6 ff3e::8000:1");
    let reading = read(&text, Format::Audio, 1).unwrap();
    assert_eq!(reading.legs[0].multicast_ip, "ff3e::8000:1".parse().ok());
}

#[test]
fn what_is_no_sdp_says_so() {
    for text in ["", "\0\0\0", "<html>", "v=0\r\n", "{}"] {
        let error = read(text, Format::Video, 2).unwrap_err();
        assert!(error.starts_with("the transport file"), "{text:?}: {error}");
    }
    let broken = VIDEO.replace("width=1920; ", "");
    let reading = read(&broken, Format::Video, 2).unwrap();
    assert!(reading.refusal.unwrap().contains("width"));
}

#[test]
fn over_http_the_parameters_are_those_of_the_file_and_then_of_the_patch() {
    let served = Served::new();
    let file = json!({ "data": VIDEO, "type": "application/sdp" });
    let answer = served.patch("video", &json!({ "transport_file": file })).json();
    let first = leg(Some("172.29.226.24"), Some("232.21.21.133"), "auto", 5000);
    let second = leg(Some("172.30.226.24"), Some("232.21.22.133"), "auto", 5002);
    assert_eq!(answer["transport_params"], json!([first, second]));
    assert_eq!(answer["transport_file"], file);

    // In one PATCH the parameters win ("Staged Requests Precedence").
    let both = json!({ "transport_file": file, "transport_params": [{ "multicast_ip": "232.20.44.7" }, {}] });
    let answer = served.patch("video", &both).json();
    assert_eq!(answer["transport_params"][0]["multicast_ip"], "232.20.44.7");
    assert_eq!(answer["transport_params"][0]["destination_port"], 5000);
    assert_eq!(answer["transport_params"][1], second);

    // The same file again fills them in again.
    let answer = served.patch("video", &json!({ "transport_file": file })).json();
    assert_eq!(answer["transport_params"], json!([first, second]));

    // Taking it away changes nothing else.
    let answer = served.patch("video", &json!({ "transport_file": { "data": null, "type": null } })).json();
    assert_eq!(answer["transport_params"], json!([first, second]));
    assert_eq!(answer["transport_file"], json!({ "data": null, "type": null }));

    // One leg on a receiver of two.
    let single = VIDEO.split("m=video 5002").next().unwrap().replace("a=group:DUP one two\r\n", "");
    let answer = served.patch("video", &json!({ "transport_file": { "data": single, "type": "application/sdp" } }));
    assert_eq!(answer.json()["transport_params"], json!([first, off()]));
}

#[test]
fn over_http_a_file_that_does_not_fit_is_400_and_stages_nothing() {
    let served = Served::new();
    let before = served.get(&served.single("video", "staged"));
    let elsewhere = AUDIO.replace("m=audio", "m=video").replace("L24/48000/2", "raw/90000");
    for (data, part) in [
        ("not an SDP", "not usable"),
        (AUDIO, "no video"),
        (&VIDEO.replace("width=1920; ", ""), "width"),
        (&VIDEO.replace("m=video 5000", "m=video 0"), "leg"),
        (&elsewhere, "cannot be received"),
    ] {
        let body = json!({ "transport_file": { "data": data, "type": "application/sdp" } });
        let answer = served.patch("video", &body);
        // A leg that is off is left out; the other one is received.
        if part == "leg" {
            assert_eq!(answer.code, 200);
            served.patch(
                "video",
                &json!({ "transport_file": { "data": null, "type": null },
                "transport_params": [before["transport_params"][0], before["transport_params"][1]] }),
            );
            continue;
        }
        assert_eq!(answer.code, 400, "{part}");
        assert!(answer.error().contains(part), "{part}: {}", answer.error());
        assert_eq!(served.get(&served.single("video", "staged")), before, "{part}");
    }
    // Unicast to another machine.
    let unicast = VIDEO.split("m=video 5002").next().unwrap().replace("a=group:DUP one two\r\n", "");
    let unicast = unicast.replace("232.21.21.133/32", "10.99.0.1").replace("232.21.21.133", "10.99.0.1");
    let body = json!({ "transport_file": { "data": unicast, "type": "application/sdp" } });
    let error = served.patch("video", &body).error();
    assert!(error.contains("10.99.0.1") && error.contains("10.46.16.34"), "{error}");
    // To this one.
    let unicast = unicast.replace("10.99.0.1", "10.46.16.34");
    let body = json!({ "transport_file": { "data": unicast, "type": "application/sdp" } });
    let answer = served.patch("video", &body).json();
    assert_eq!(answer["transport_params"][0]["interface_ip"], "10.46.16.34");
    // A media type that the receiver does not list.
    let l20 = AUDIO.replace("L24/", "L20/");
    let body = json!({ "transport_file": { "data": l20, "type": "application/sdp" } });
    assert_eq!(served.patch("audio", &body).code, 400);
}

//! Descriptions that ask for more than there is.

use crate::bounded;
use crate::common::{Output, sdp, temp};

/// It refused, in words, with a cure.
fn refused(what: &str, output: &Output) {
    assert!(output.code != 0, "{what}: {}", output.stderr);
    assert!(output.stderr.contains("cure:"), "{what}: no cure: {}", output.stderr);
    assert!(output.stderr.len() < 20_000, "{what}: {} octets of message", output.stderr.len());
}

#[test]
fn pictures_and_rates_that_nothing_can_hold_are_refused_in_little_memory() {
    let folder = temp();
    let good = sdp(5004);
    for (name, from, to) in [
        ("terabytes", "width=320; height=180", "width=32767; height=32767"),
        ("beyond 32 bits", "width=320; height=180", "width=4294967295; height=4294967295"),
        ("beyond 64 bits", "width=320", "width=99999999999999999999999"),
        ("the largest that is counted", "width=320; height=180", "width=16384; height=16384"),
        ("no rows", "height=180", "height=0"),
        ("a rate beyond all", "exactframerate=25", "exactframerate=4294967295/1"),
        ("a rate of nothing", "exactframerate=25", "exactframerate=0"),
        ("a rate of which nothing is left", "exactframerate=25", "exactframerate=1/4294967295"),
        ("no depth", "depth=10", "depth=4294967295"),
    ] {
        let path = folder.write("hostile.sdp", &good.replace(from, to));
        let play = format!("gdmedia --sdp {path} --headless --duration 200ms --wait 200ms --buffer 1");
        let Some(output) = bounded(1024, &play) else { return };
        refused(name, &output);
    }
}

#[test]
fn limits_of_the_sender_that_mean_nothing_do_no_harm() {
    let folder = temp();
    let good = sdp(5004);
    for (name, more) in [
        ("CMAX", "; CMAX=4294967295"),
        ("a long CMAX", "; CMAX=999999999999999999999999"),
        ("TROFF", "; TROFF=18446744073709551615"),
        ("MAXUDP", "; MAXUDP=65535"),
        ("MAXUDP of nothing", "; MAXUDP=0"),
    ] {
        let path = folder.write("hostile.sdp", &good.replace("TP=2110TPN", &format!("TP=2110TPN{more}")));
        for command in ["gdmedia sdp", "gdmedia --headless --duration 100ms --wait 100ms --buffer 1 --sdp"] {
            println!("{name}");
            let _ = bounded(1024, &format!("{command} {path}"));
        }
    }
}

#[test]
fn legs_by_the_thousand_are_refused() {
    let folder = temp();
    let medium = sdp(5004).split_once("t=0 0\r\n").unwrap().1.to_owned();
    let legs = 700;
    let names: Vec<String> = (0..legs).map(|leg| leg.to_string()).collect();
    let mut text = format!("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=test\r\nt=0 0\r\na=group:DUP {}\r\n", names.join(" "));
    for leg in 0..legs {
        let medium = medium.replace("127.0.0.1", &format!("239.1.{}.{}", leg / 250, leg % 250 + 1));
        text += &format!("{medium}a=mid:{leg}\r\n");
    }
    let path = folder.write("legs.sdp", &text);
    let play = format!("gdmedia --headless --duration 100ms --wait 100ms --buffer 1 --sdp {path}");
    let Some(output) = bounded(1024, &play) else { return };
    refused("legs", &output);
}

#[test]
fn a_gigabyte_in_one_line_is_refused_unread() {
    for command in ["gdmedia sdp -", "gdmedia --headless --sdp -"] {
        let line = "(printf 'v=0\\r\\ns='; head -c 1000000000 /dev/zero | tr '\\0' x)";
        let Some(output) = bounded(512, &format!("{line} | {command}")) else { return };
        refused(command, &output);
        assert!(output.stderr.contains("no SDP") || output.stdout.contains("no SDP"), "{}", output.stderr);
    }
}

//! Against the crate `nmos`, which has its own idea of every document: it reads all that is served, and what it writes
//! connects a receiver. Its HTTP client is not used, as it brings TLS with it; requests go by another.

mod support;

use nmos::is05::{
    ActivationMode, ActivationPatch, LegConstraints, Param, ReceiverRtpParams, ReceiverStaged, ReceiverStagedPatch,
    TransportFile,
};
use nmos::{Clock, Device, Node, Receiver, Reception, ResourceId};
use serde::de::DeserializeOwned;
use serde_json::Value;
use support::{Served, VIDEO};

fn read<T: DeserializeOwned>(served: &Served, path: &str) -> T {
    let value = served.get(path);
    serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{path}: {e}: {value:#}"))
}

fn immediate() -> Option<ActivationPatch> {
    Some(ActivationPatch { mode: Some(ActivationMode::ActivateImmediate), ..ActivationPatch::default() })
}

fn patch(served: &Served, name: &str, patch: &ReceiverStagedPatch) -> ReceiverStaged {
    let answer = served.patch(name, &serde_json::to_value(patch).unwrap());
    assert_eq!(answer.code, 200, "{}", answer.text);
    serde_json::from_str(&answer.text).unwrap()
}

#[test]
fn it_reads_every_document() {
    let served = Served::new();
    let node: Node = read(&served, "/x-nmos/node/v1.3/self");
    assert!(node.clocks.iter().any(|clock| matches!(clock, Clock::Ptp { .. })));
    assert_eq!(node.interfaces.len(), 2);
    let devices: Vec<Device> = read(&served, "/x-nmos/node/v1.3/devices");
    let control = devices[0].control_href("urn:x-nmos:control:sr-ctrl/").unwrap();
    let receivers: Vec<Receiver> = read(&served, "/x-nmos/node/v1.3/receivers");
    assert_eq!(receivers.len(), 3);
    assert_eq!(receivers[0].caps.media_types()[0].to_string(), "video/raw");
    assert_eq!(receivers[0].reception(), Reception::Unsubscribed);
    assert!(read::<Vec<nmos::Sender>>(&served, "/x-nmos/node/v1.3/senders").is_empty());
    // From the device's control alone to the legs of each receiver.
    for receiver in &receivers {
        let url = format!("{control}single/receivers/{}/constraints", receiver.core.id.as_str());
        let legs: Vec<LegConstraints> = serde_json::from_str(&support::ask("GET", &url, None).text).unwrap();
        assert_eq!(legs.len(), receiver.interface_bindings.len());
        assert!(legs.iter().all(|leg| leg.len() == 5 && leg["interface_ip"].allowed.is_some()));
    }
}

#[test]
fn it_connects_by_a_transport_file() {
    let served = Served::new();
    let sender: ResourceId = serde_json::from_value("1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f".into()).unwrap();
    let take = ReceiverStagedPatch {
        sender_id: Param::Set(sender.clone()),
        master_enable: Some(true),
        activation: immediate(),
        transport_file: Some(TransportFile::sdp(Some(VIDEO.to_owned()))),
        transport_params: None,
    };
    let staged = patch(&served, "video", &take);
    assert_eq!(staged.activation.mode, Some(ActivationMode::ActivateImmediate));
    assert!(staged.activation.activation_time.is_some());

    let active: ReceiverStaged = read(&served, &served.single("video", "active"));
    assert_eq!(active.sender_id.as_ref(), Some(&sender));
    assert!(active.master_enable);
    assert_eq!(active.transport_params[0].multicast_ip.set(), "232.21.21.133".parse().ok());
    assert_eq!(active.transport_params[1].interface_ip.set(), "10.47.16.34".parse().ok());
    assert_eq!(active.transport_params[1].destination_port.set(), Some(5002));
    let receiver: Receiver = read(&served, &format!("/x-nmos/node/v1.3/receivers/{}", served.id("video")));
    assert_eq!(receiver.reception(), Reception::Subscribed);
    assert_eq!(receiver.subscription.sender_id, Some(sender));

    let release = ReceiverStagedPatch {
        sender_id: Param::Null,
        master_enable: Some(false),
        activation: immediate(),
        ..ReceiverStagedPatch::default()
    };
    let staged = patch(&served, "video", &release);
    assert_eq!(staged.sender_id, None);
    let receiver: Receiver = read(&served, &format!("/x-nmos/node/v1.3/receivers/{}", served.id("video")));
    assert_eq!(receiver.reception(), Reception::Unsubscribed);
    assert_eq!(served.fake.done().len(), 2);
}

#[test]
fn it_connects_by_parameters() {
    let served = Served::new();
    let first = ReceiverRtpParams {
        source_ip: Param::Null,
        multicast_ip: Param::Set("239.9.9.9".parse().unwrap()),
        interface_ip: Param::Auto,
        destination_port: Param::Set(7000),
        rtp_enabled: Param::Set(true),
        ..ReceiverRtpParams::default()
    };
    let second = ReceiverRtpParams { rtp_enabled: Param::Set(false), ..ReceiverRtpParams::default() };
    let take = ReceiverStagedPatch {
        master_enable: Some(true),
        activation: immediate(),
        transport_params: Some(vec![first, second]),
        ..ReceiverStagedPatch::default()
    };
    let staged = patch(&served, "video", &take);
    assert_eq!(staged.transport_params[0].interface_ip, Param::Auto);
    let done = served.fake.done();
    assert_eq!(done[0].1.legs[0].destination_port, 7000);
    assert!(!done[0].1.legs[1].rtp_enabled);
}

#[test]
fn what_it_hands_back_whole_is_taken() {
    let served = Served::new();
    let staged: Value = served.get(&served.single("audio", "staged"));
    let answer = served.patch("audio", &staged);
    assert_eq!((answer.code, answer.json()), (200, staged));
}

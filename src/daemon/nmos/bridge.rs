//! Receivers of the daemon as the node asks for them.

use super::takes::{self, Takes};
use super::{machine, transport};
use crate::daemon::{Action, Connection, Control, Receiver, Refusal, State};
use crate::rx::socket::interfaces;
use crate::sdp::Essence;
use gdmedia_nmos::caps::Caps;
use gdmedia_nmos::params::LegParams;
use gdmedia_nmos::{Activation, Format, Receivers, Saved, Tags, Transport, transport_file};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot::error::TryRecvError;

/// A receiver has so long for an activation: longer than the longest `switch_timeout` of a configuration and what it takes to
/// open the other flow. The API waits for no answer of the node itself.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(2);

/// Between the node and the daemon.
pub struct Bridge {
    control: Arc<dyn Control>,
    wide: bool,
    listed: Mutex<Vec<Arc<Receiver>>>,
    known: Mutex<BTreeMap<String, Known>>,
}

/// What the node knows of a receiver.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// An activation goes on: what the receiver is meanwhile is not looked at.
    pub busy: bool,
    /// What it does; none: nobody ever said.
    pub saved: Option<Saved>,
}

impl Bridge {
    pub fn new(control: Arc<dyn Control>, wide: bool) -> Self {
        Bridge { control, wide, listed: Mutex::default(), known: Mutex::default() }
    }
    pub fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        // It is whole at every instant.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The node lists these when it is asked to look again: the same that it was told the interfaces of.
    pub fn list_these(&self, receivers: &[Arc<Receiver>]) {
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = receivers.to_vec();
    }
    fn receiver(&self, name: &str) -> Result<Arc<Receiver>, String> {
        self.control.receiver(name).ok_or_else(|| format!("there is no receiver {name} any more"))
    }

    fn told(&self, name: &str, activation: &Activation) -> Result<(), String> {
        let receiver = self.receiver(name)?;
        let saved = activation.saved();
        let note = serde_json::to_string(&saved).map_err(|error| error.to_string())?;
        let own = transport::own(&receiver);
        let wanted = match transport::wanted(activation.sdp.as_deref().or(own.as_deref()), &activation.legs) {
            // Whoever leaves needs no address.
            Err(_) if !activation.master_enable => None,
            other => other?,
        };
        let connection = match wanted {
            Some(wanted) => Connection {
                enabled: activation.master_enable && !wanted.legs.is_empty(),
                sdp: wanted.sdp,
                legs: wanted.legs,
                note,
            },
            // It waits for somebody to say what there is to receive, or is off.
            None => Connection {
                enabled: activation.master_enable,
                sdp: own.map(Cow::into_owned).unwrap_or_default(),
                legs: vec![],
                note,
            },
        };
        let mut reply = self.control.act(name, Action::Connect(Box::new(connection)));
        let begun = Instant::now();
        loop {
            match reply.try_recv() {
                Ok(answer) => return answer.map_err(|refusal| said(refusal, name)),
                Err(TryRecvError::Closed) => return Err("the daemon ends".into()),
                Err(TryRecvError::Empty) if begun.elapsed() > PATIENCE => {
                    return Err(format!("not done within {} s; it may still be", PATIENCE.as_secs()));
                }
                Err(TryRecvError::Empty) => std::thread::sleep(STEP),
            }
        }
    }
}

fn said(refusal: Refusal, name: &str) -> String {
    match refusal {
        Refusal::Unknown => format!("there is no receiver {name} any more"),
        Refusal::Invalid(why) | Refusal::Unavailable(why) => why,
    }
}

impl Receivers for Bridge {
    fn list(&self) -> Vec<gdmedia_nmos::Receiver> {
        let all = interfaces();
        let receivers = self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shown = receivers.iter().filter(|receiver| receiver.side.legs > 0);
        shown
            .map(|receiver| gdmedia_nmos::Receiver {
                name: receiver.id.clone(),
                label: receiver.label.clone(),
                description: String::new(),
                tags: Tags::new(),
                group: Some((receiver.id.clone(), "video".into())),
                format: Format::Video,
                transport: Transport::Rtp,
                legs: (0..receiver.side.legs).map(|leg| machine::interface_of(&receiver.side, leg, &all)).collect(),
                caps: Caps {
                    media_types: vec!["video/raw".into()],
                    sets: if self.wide { vec![] } else { takes::sets(Takes::of(&receiver.side)) },
                },
            })
            .collect()
    }

    fn validate(&self, name: &str, activation: &Activation) -> Result<(), String> {
        let receiver = self.receiver(name)?;
        let own = transport::own(&receiver).filter(|_| activation.master_enable);
        let sdp = activation.sdp.as_deref().or(own.as_deref());
        let known = self.known().get(name).and_then(|known| known.saved.clone());
        let same = known.is_some_and(|saved| saved.sdp == activation.sdp && saved.legs == activation.asked);
        // What is off may be said piece by piece, and what is to leave is asked nothing.
        if !activation.master_enable && (sdp.is_none() || same) {
            return Ok(());
        }
        let Some(wanted) = transport::wanted(sdp, &activation.legs)? else { return Ok(()) };
        match &wanted.flow.essence {
            Essence::Video(video) => takes::check(video, Takes::of(&receiver.side)).map_err(|error| {
                let cure = error.cure_text().lines().next().unwrap_or_default();
                format!("{}: {cure}", error.in_one_line())
            }),
            _ => Err("this receiver takes uncompressed video (ST 2110-20)".into()),
        }
    }

    fn activate(&self, name: &str, activation: &Activation) -> Result<(), String> {
        let before = {
            let mut known = self.known();
            let known = known.entry(name.to_owned()).or_default();
            known.busy = true;
            known.saved.replace(activation.saved())
        };
        let done = self.told(name, activation);
        if done.is_err() {
            self.known().insert(name.to_owned(), Known { busy: false, saved: before });
        }
        done
    }

    fn activated(&self, name: &str, _: &Saved) {
        // The receiver keeps it itself. From here on what becomes of it is looked at again.
        if let Some(known) = self.known().get_mut(name) {
            known.busy = false;
        }
    }
}

/// What a receiver does, as a controller would have said it; none: nobody ever said.
pub fn doing(receiver: &Receiver) -> Option<Saved> {
    let on = matches!(receiver.state, State::Starting | State::Waiting | State::Receiving | State::Retrying);
    let legs = receiver.side.legs;
    let noted = receiver.side.note.as_ref().and_then(|note| serde_json::from_str::<Saved>(note).ok());
    if let Some(saved) = noted.filter(|saved| saved.legs.len() == legs) {
        // With no leg on, or nothing to receive, it receives nothing by its controller's will.
        let receives = receiver.sdp.is_some() && saved.legs.iter().any(|leg| leg.rtp_enabled);
        let master_enable = if receives { on } else { saved.master_enable };
        return Some(Saved { master_enable, ..saved });
    }
    let sdp = transport::own(receiver)?.into_owned();
    let read = transport_file::read(&sdp, Format::Video, legs).ok().map(|reading| reading.legs);
    let legs = read.unwrap_or_else(|| vec![LegParams::default(); legs]);
    Some(Saved { master_enable: on, sender_id: None, sdp: Some(sdp), legs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::Side;
    use gdmedia_nmos::params::Auto;
    use std::time::SystemTime;

    const SDP: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\nm=video 5010 RTP/AVP 96\r\nc=IN IP4 239.1.1.1/8\r\n\
        a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=64; height=32; exactframerate=25; depth=10; \
        TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
        a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\n";

    fn receiver(state: State, sdp: Option<&str>, note: Option<&Saved>) -> Receiver {
        let note = note.map(|saved| serde_json::to_string(saved).unwrap().into());
        Receiver {
            id: "cam".into(),
            label: "Camera".into(),
            state,
            reason: None,
            since: SystemTime::UNIX_EPOCH,
            sdp: sdp.map(Into::into),
            flow: None,
            backend: None,
            processor: None,
            placement: None,
            restarts: 0,
            switches: 0,
            status: None,
            health: None,
            report: None,
            latency: vec![],
            timing: vec![],
            ptp: None,
            cards: vec![],
            gpu_memory: None,
            sinks: vec![],
            preview: None,
            side: Side { legs: 2, note, ..Side::default() },
        }
    }

    /// Controllers read the first flow of an SDP: what they are told has no other one.
    #[test]
    fn of_several_flows_it_shows_the_one_that_it_receives() {
        let second = &SDP[SDP.find("m=video").unwrap()..];
        let second = second.replace("5010", "5020").replace("239.1.1.1", "239.1.1.2").replace("width=64", "width=96");
        let both = format!("{SDP}{second}");
        let of = |flow, sdp: &str| {
            let mut receiver = receiver(State::Receiving, Some(sdp), None);
            receiver.side.flow = flow;
            doing(&receiver).unwrap()
        };
        for (flow, port, width) in [(0, 5010, "width=64"), (1, 5020, "width=96")] {
            let said = of(Some(flow), &both);
            assert_eq!(said.legs[0].destination_port, Auto::Value(port));
            let text = said.sdp.unwrap();
            assert_eq!((text.matches("m=video").count(), text.contains(width)), (1, true), "{text}");
            // What it is told again is what it receives, with nothing new in it.
            assert_eq!(of(None, &text).sdp, Some(text));
        }
        // The only one is as it came, and a number that there is not changes nothing.
        assert_eq!(of(Some(0), SDP).sdp.as_deref(), Some(SDP));
        assert_eq!(of(Some(7), &both).sdp, Some(both.clone()));
    }

    #[test]
    fn what_a_receiver_does_is_said_as_a_controller_would() {
        assert_eq!(doing(&receiver(State::Stopped, None, None)), None);
        // Of the configuration: its SDP says the rest.
        for (state, on) in [
            (State::Stopped, false),
            (State::Failed, false),
            (State::Starting, true),
            (State::Waiting, true),
            (State::Receiving, true),
            (State::Retrying, true),
        ] {
            let said = doing(&receiver(state, Some(SDP), None)).unwrap();
            assert_eq!((said.master_enable, said.sdp.as_deref()), (on, Some(SDP)), "{state:?}");
            assert_eq!(said.legs[0].destination_port, Auto::Value(5010));
            assert_eq!([said.legs[0].rtp_enabled, said.legs[1].rtp_enabled], [true, false]);
        }
        // Of a controller: as he said it, but for what has become of it.
        let mut saved = Saved { master_enable: true, sender_id: None, sdp: None, legs: vec![LegParams::default(); 2] };
        assert_eq!(doing(&receiver(State::Receiving, Some(SDP), Some(&saved))), Some(saved.clone()));
        let failed = doing(&receiver(State::Failed, Some(SDP), Some(&saved))).unwrap();
        assert_eq!(failed, Saved { master_enable: false, ..saved.clone() });
        saved.legs.iter_mut().for_each(|leg| leg.rtp_enabled = false);
        assert_eq!(doing(&receiver(State::Stopped, Some(SDP), Some(&saved))), Some(saved.clone()));
        // On, and nobody has said yet what there is to receive.
        saved.legs.iter_mut().for_each(|leg| leg.rtp_enabled = true);
        assert_eq!(doing(&receiver(State::Stopped, None, Some(&saved))), Some(saved.clone()));
        // Another number of legs is another receiver.
        saved.legs.pop();
        let other = doing(&receiver(State::Receiving, Some(SDP), Some(&saved))).unwrap();
        assert_eq!((other.legs.len(), other.sdp.as_deref()), (2, Some(SDP)));
    }
}

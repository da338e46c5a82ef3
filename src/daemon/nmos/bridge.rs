//! Receivers of the daemon as the node asks for them.

use super::{machine, takes, transport};
use crate::daemon::{Action, Connection, Control, Receiver, Refusal, State};
use crate::rx::socket::interfaces;
use crate::sdp::Essence;
use gdmedia_nmos::caps::Caps;
use gdmedia_nmos::params::LegParams;
use gdmedia_nmos::{Activation, Format, Receivers, Saved, Tags, Transport, transport_file};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot::error::TryRecvError;

/// A receiver has so long for an activation.
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
        let action = match transport::wanted(activation.sdp.as_deref().or(receiver.sdp.as_deref()), &activation.legs)? {
            Some(wanted) => Action::Connect(Box::new(Connection {
                enabled: activation.master_enable && !wanted.legs.is_empty(),
                sdp: wanted.sdp,
                legs: wanted.legs,
                note,
            })),
            // It waits for somebody to say what there is to receive.
            None if activation.master_enable => return Ok(()),
            None => Action::Stop,
        };
        let mut reply = self.control.act(name, action);
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
                    sets: if self.wide { vec![] } else { takes::sets(receiver.side.output) },
                },
            })
            .collect()
    }

    fn validate(&self, name: &str, activation: &Activation) -> Result<(), String> {
        let receiver = self.receiver(name)?;
        let sdp = activation.sdp.as_deref().or(receiver.sdp.as_deref().filter(|_| activation.master_enable));
        let Some(wanted) = transport::wanted(sdp, &activation.legs)? else { return Ok(()) };
        match &wanted.flow.essence {
            Essence::Video(video) => takes::check(video, receiver.side.output).map_err(|error| {
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
        // With no leg on it receives nothing by its controller's will.
        let master_enable = if saved.legs.iter().any(|leg| leg.rtp_enabled) { on } else { saved.master_enable };
        return Some(Saved { master_enable, ..saved });
    }
    let sdp = receiver.sdp.as_deref()?;
    let read = transport_file::read(sdp, Format::Video, legs).ok().map(|reading| reading.legs);
    let legs = read.unwrap_or_else(|| vec![LegParams::default(); legs]);
    Some(Saved { master_enable: on, sender_id: None, sdp: Some(sdp.to_owned()), legs })
}

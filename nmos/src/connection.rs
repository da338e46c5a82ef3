//! What is staged, scheduled and active at a receiver (IS-05), without a clock, a thread or a socket.

use crate::error::Refusal;
use crate::params::{ActiveLeg, LegParams};
use crate::patch::{Patch, When};
use crate::receivers::{Activation, Format, Saved};
use crate::time::Tai;
use crate::transport_file;
use serde_json::{Value, json};
use std::net::IpAddr;
use uuid::Uuid;

/// What a receiver is, as far as connections go.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// What it takes.
    pub format: Format,
    /// Media types that it takes; any where there are none.
    pub media_types: Vec<String>,
    /// The addresses of each leg's interface.
    pub addresses: Vec<Vec<IpAddr>>,
}

/// What is staged.
#[derive(Clone, Debug, PartialEq)]
pub struct Staged {
    /// The sender's IS-04 id.
    pub sender_id: Option<Uuid>,
    /// Whether the receiver is to receive.
    pub master_enable: bool,
    /// The SDP.
    pub sdp: Option<String>,
    /// One a leg.
    pub legs: Vec<LegParams>,
}

impl Staged {
    fn of(saved: Saved) -> Staged {
        let Saved { sender_id, master_enable, sdp, legs } = saved;
        Staged { sender_id, master_enable, sdp, legs }
    }
}

/// The `activation` of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Nothing is scheduled or was activated, where there is none.
    pub when: Option<When>,
    /// When it came, or will.
    pub at: Option<Tai>,
}

/// One receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    side: Side,
    staged: Staged,
    scheduled: Times,
    active: Activation,
    activated: Times,
    /// Nobody has ever said what it is to do.
    fresh: bool,
    /// Goes up with each schedule and each cancellation, so that a timer knows whether it is still meant.
    serial: u64,
}

impl Connection {
    /// A receiver that has not been configured yet.
    pub fn new(side: Side) -> Connection {
        let legs = vec![LegParams::default(); side.addresses.len()];
        let staged = Staged { sender_id: None, master_enable: false, sdp: None, legs };
        let active = Activation { master_enable: false, sender_id: None, legs: vec![], sdp: None, asked: vec![] };
        let (scheduled, activated) = (Times::default(), Times::default());
        let mut new = Connection { side, staged, scheduled, active, activated, fresh: true, serial: 0 };
        new.active.legs = new.off(&new.staged);
        new
    }

    /// The addresses of its interfaces may change; the number of legs does not.
    pub fn set_side(&mut self, side: Side) {
        debug_assert_eq!(side.addresses.len(), self.side.addresses.len());
        self.side = side;
        if self.fresh {
            self.active.legs = self.off(&self.staged_default());
        }
    }

    /// What the receiver is.
    pub const fn side(&self) -> &Side {
        &self.side
    }
    /// What it does.
    pub const fn active(&self) -> &Activation {
        &self.active
    }
    /// What is staged.
    pub const fn staged(&self) -> &Staged {
        &self.staged
    }
    /// What is scheduled, and its serial number.
    pub fn scheduled(&self) -> Option<(u64, Times)> {
        self.scheduled.when.map(|_| (self.serial, self.scheduled))
    }

    /// What would be staged after `patch`. Changes nothing yet.
    ///
    /// # Errors
    /// An activation is scheduled and the patch does not cancel it (423); a value is wrong (400).
    pub fn merge(&self, patch: &Patch) -> Result<Staged, Refusal> {
        if let (Some(when), Some(at)) = (self.scheduled.when, self.scheduled.at)
            && patch.activation != Some(None)
        {
            let what = format!("locked: {} comes at {at}; an activation of mode null cancels it", when.mode());
            return Err(Refusal::new(423, what));
        }
        let mut staged = self.staged.clone();
        staged.sender_id = patch.sender_id.unwrap_or(staged.sender_id);
        staged.master_enable = patch.master_enable.unwrap_or(staged.master_enable);
        if let Some(file) = &patch.transport_file {
            if let Some(text) = file {
                staged.legs = self.read(text)?;
            }
            staged.sdp.clone_from(file);
        }
        if let Some(legs) = &patch.legs {
            if legs.len() != staged.legs.len() {
                let (has, given) = (staged.legs.len(), legs.len());
                let what =
                    format!("transport_params has {given} legs and this receiver {has}; {{}} leaves one as it is");
                return Err(Refusal::bad(what));
            }
            staged.legs.iter_mut().zip(legs).for_each(|(leg, patch)| patch.apply(leg));
        }
        let touched = patch.legs.is_some() || matches!(patch.transport_file, Some(Some(_)));
        // Whoever leaves needs no address, also where the one that it had is gone.
        if touched || (patch.activation.flatten().is_some() && staged.master_enable) {
            for (at, (leg, addresses)) in staged.legs.iter().zip(&self.side.addresses).enumerate() {
                leg.check(addresses).map_err(|why| Refusal::bad(format!("leg {}: {why}", at + 1)))?;
            }
        }
        Ok(staged)
    }

    fn read(&self, text: &str) -> Result<Vec<LegParams>, Refusal> {
        let reading = transport_file::read(text, self.side.format, self.side.addresses.len()).map_err(Refusal::bad)?;
        if let Some(why) = reading.refusal {
            return Err(Refusal::bad(why));
        }
        let kind = transport_file::media_type(&reading.flow.essence).unwrap_or_default();
        let types = &self.side.media_types;
        if !types.is_empty() && !types.iter().any(|t| t.eq_ignore_ascii_case(&kind)) {
            let what = format!("the transport file describes {kind}; this receiver takes {}", types.join(", "));
            return Err(Refusal::bad(what));
        }
        Ok(reading.legs)
    }

    /// Stages it; what was scheduled is cancelled.
    pub fn stage(&mut self, staged: Staged) {
        self.staged = staged;
        if self.scheduled.when.is_some() {
            self.serial += 1;
        }
        self.scheduled = Times::default();
    }

    /// Schedules what is staged. Returns its serial number.
    pub fn schedule(&mut self, when: When, at: Tai) -> u64 {
        self.serial += 1;
        self.scheduled = Times { when: Some(when), at: Some(at) };
        self.serial
    }

    /// What `staged` means now, with every choice made.
    ///
    /// # Errors
    /// A leg that receives has no address.
    pub fn resolve(&self, staged: &Staged) -> Result<Activation, String> {
        let resolve = |(at, (leg, addresses)): (usize, (&LegParams, &Vec<IpAddr>))| {
            let needed = staged.master_enable && leg.rtp_enabled;
            leg.resolve(addresses, needed).map_err(|why| format!("leg {}: {why}", at + 1))
        };
        let legs: Result<Vec<ActiveLeg>, String> =
            staged.legs.iter().zip(&self.side.addresses).enumerate().map(resolve).collect();
        let Staged { sender_id, master_enable, .. } = *staged;
        Ok(Activation { master_enable, sender_id, legs: legs?, sdp: staged.sdp.clone(), asked: staged.legs.clone() })
    }

    /// The same for a look beforehand: what has no address yet is unspecified.
    pub fn preview(&self, staged: &Staged) -> Activation {
        let Staged { sender_id, master_enable, .. } = *staged;
        Activation {
            master_enable,
            sender_id,
            legs: self.off(staged),
            sdp: staged.sdp.clone(),
            asked: staged.legs.clone(),
        }
    }

    /// `activation` is what the receiver does since `at`; it is staged, too.
    pub fn activated(&mut self, activation: Activation, when: Option<When>, at: Tai) {
        // Whoever staged something else while it was done was late.
        self.staged = Staged::of(activation.saved());
        self.active = activation;
        self.fresh = false;
        self.activated = Times { when, at: when.map(|_| at) };
        self.unlock();
    }

    /// The receiver does this since `at`, and no controller asked for it. What is staged or scheduled is given up, unless the
    /// receiver is connected as before and merely on or off: whoever stops it for a moment means no other connection.
    ///
    /// # Errors
    /// It has another number of legs, or a leg that receives has no address.
    pub fn configured(&mut self, saved: &Saved, at: Tai) -> Result<(), String> {
        if saved.legs.len() != self.side.addresses.len() {
            return Err("it has another number of legs".into());
        }
        let before = self.active.saved();
        if !self.fresh && before == *saved {
            return Ok(());
        }
        let activation = self.resolve(&Staged::of(saved.clone()))?;
        let same = !self.fresh && Saved { master_enable: saved.master_enable, ..before.clone() } == *saved;
        let untouched = self.scheduled.when.is_none() && self.staged == Staged::of(before);
        if same && !untouched {
            self.active = activation;
            self.activated = Times::default();
        } else {
            self.activated(activation, None, at);
        }
        Ok(())
    }

    /// What was scheduled is over, whatever came of it.
    pub fn unlock(&mut self) {
        if self.scheduled.when.is_some() {
            self.serial += 1;
        }
        self.scheduled = Times::default();
    }

    /// For the next start.
    pub fn saved(&self) -> Saved {
        let Staged { sender_id, master_enable, sdp, legs } = self.staged.clone();
        Saved { master_enable, sender_id, sdp, legs }
    }

    /// From the last run. Parameters of another number of legs are of another receiver and are left out.
    pub fn restore(&mut self, saved: &Saved) -> bool {
        let fits = saved.legs.len() == self.side.addresses.len();
        if fits {
            self.staged = Staged::of(saved.clone());
        }
        fits
    }

    /// `/constraints`: one object a leg.
    pub fn constraints(&self) -> Value {
        let leg = |addresses: &Vec<IpAddr>| {
            let interface = if addresses.is_empty() { json!({}) } else { json!({ "enum": addresses }) };
            json!({ "source_ip": {}, "multicast_ip": {}, "interface_ip": interface, "destination_port": {},
                    "rtp_enabled": {} })
        };
        self.side.addresses.iter().map(leg).collect()
    }

    /// `/staged`.
    pub fn staged_document(&self) -> Value {
        let Staged { sender_id, master_enable, sdp, legs } = &self.staged;
        document(*sender_id, *master_enable, self.scheduled, sdp.as_deref(), &json!(legs))
    }

    /// The answer to a PATCH that activated at once: `/staged` with the times of that.
    pub fn answer(&self, times: Times) -> Value {
        let Staged { sender_id, master_enable, sdp, legs } = &self.staged;
        document(*sender_id, *master_enable, times, sdp.as_deref(), &json!(legs))
    }

    /// `/active`; has no `"auto"`.
    pub fn active_document(&self) -> Value {
        let Activation { sender_id, master_enable, sdp, legs, .. } = &self.active;
        document(*sender_id, *master_enable, self.activated, sdp.as_deref(), &json!(legs))
    }

    fn staged_default(&self) -> Staged {
        let legs = vec![LegParams::default(); self.side.addresses.len()];
        Staged { sender_id: None, master_enable: false, sdp: None, legs }
    }

    fn off(&self, staged: &Staged) -> Vec<ActiveLeg> {
        let off = |(leg, addresses): (&LegParams, &Vec<IpAddr>)| leg.resolve(addresses, false).ok();
        staged.legs.iter().zip(&self.side.addresses).filter_map(off).collect()
    }
}

fn document(sender: Option<Uuid>, master_enable: bool, times: Times, sdp: Option<&str>, legs: &Value) -> Value {
    json!({
        "sender_id": sender.map(|id| id.to_string()),
        "master_enable": master_enable,
        "activation": {
            "mode": times.when.map(When::mode),
            "requested_time": times.when.and_then(When::requested).map(|t| t.to_string()),
            "activation_time": times.at.map(|t| t.to_string()),
        },
        "transport_file": { "data": sdp, "type": sdp.map(|_| "application/sdp") },
        "transport_params": legs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Auto;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn two_legs() -> Connection {
        Connection::new(Side {
            format: Format::Video,
            media_types: vec!["video/raw".into()],
            addresses: vec![vec![ip("10.0.0.2")], vec![ip("10.1.0.2")]],
        })
    }

    fn patch(value: Value) -> Patch {
        Patch::read(&value).unwrap()
    }

    #[test]
    fn before_anything_there_is_no_auto_in_active() {
        let connection = two_legs();
        let active = connection.active_document();
        assert!(!active.to_string().contains("auto"), "{active}");
        assert_eq!(active["transport_params"][1]["interface_ip"], "10.1.0.2");
        assert_eq!(active["transport_params"][1]["destination_port"], 5004);
        assert_eq!(active["master_enable"], false);
        assert_eq!(active["activation"], json!({ "mode": null, "requested_time": null, "activation_time": null }));
        assert_eq!(connection.staged_document()["transport_params"][0]["interface_ip"], "auto");
    }

    #[test]
    fn interfaces_that_change_leave_what_was_said() {
        let mut connection = two_legs();
        let body = json!({ "transport_params": [{ "destination_port": 6000 }, {}] });
        let staged = connection.merge(&patch(body)).unwrap();
        let off = connection.resolve(&staged).unwrap();
        connection.activated(off, None, Tai(1));
        let side = Side { addresses: vec![vec![ip("10.0.0.3")], vec![ip("10.1.0.3")]], ..connection.side().clone() };
        connection.set_side(side.clone());
        let active = connection.active_document();
        assert_eq!(active["transport_params"][0]["destination_port"], 6000, "it is off, but was configured");
        let mut fresh = two_legs();
        fresh.set_side(side);
        assert_eq!(fresh.active_document()["transport_params"][0]["interface_ip"], "10.0.0.3");
    }

    #[test]
    fn a_leg_left_out_stays() {
        let mut connection = two_legs();
        let body = json!({ "transport_params": [{ "destination_port": 6000 }, { "multicast_ip": "239.1.1.1" }] });
        let first = connection.merge(&patch(body)).unwrap();
        connection.stage(first);
        let body = json!({ "transport_params": [{}, { "destination_port": 6002 }] });
        let second = connection.merge(&patch(body)).unwrap();
        assert_eq!(second.legs[0].destination_port, Auto::Value(6000));
        assert_eq!(second.legs[1].destination_port, Auto::Value(6002));
        assert_eq!(second.legs[1].multicast_ip, Some(ip("239.1.1.1")));
        let short = connection.merge(&patch(json!({ "transport_params": [{}] }))).unwrap_err();
        assert_eq!(short.code, 400);
        assert!(short.error.contains("1 legs and this receiver 2"), "{}", short.error);
    }

    #[test]
    fn what_is_scheduled_locks_until_it_is_cancelled() {
        let mut connection = two_legs();
        let serial = connection.schedule(When::Relative(Tai(5)), Tai(100));
        assert_eq!(connection.merge(&Patch::default()).unwrap_err().code, 423);
        let now = patch(json!({ "activation": { "mode": "activate_immediate" } }));
        assert_eq!(connection.merge(&now).unwrap_err().code, 423);
        let cancel = patch(json!({ "activation": { "mode": null }, "master_enable": true }));
        let staged = connection.merge(&cancel).unwrap();
        connection.stage(staged);
        assert!(connection.scheduled().is_none());
        assert!(connection.staged().master_enable, "the same request may change more");
        assert!(connection.schedule(When::Relative(Tai(5)), Tai(100)) > serial + 1, "the first timer is not meant");
    }

    #[test]
    fn no_address_is_an_error_only_where_one_is_needed() {
        let mut side = two_legs().side().clone();
        side.addresses[1].clear();
        let connection = Connection::new(side);
        let enable = patch(json!({ "master_enable": true }));
        let staged = connection.merge(&enable).unwrap();
        assert!(connection.resolve(&staged).unwrap_err().contains("leg 2"));
        let one = patch(json!({ "master_enable": true, "transport_params": [{}, { "rtp_enabled": false }] }));
        let staged = connection.merge(&one).unwrap();
        assert_eq!(connection.resolve(&staged).unwrap().legs[1].interface_ip, ip("0.0.0.0"));
        assert_eq!(connection.constraints()[1]["interface_ip"], json!({}));
    }

    #[test]
    fn a_saved_one_comes_back() {
        let mut connection = two_legs();
        let body = json!({ "master_enable": true, "transport_params": [{ "multicast_ip": "239.1.1.1" }, {}] });
        let staged = connection.merge(&patch(body)).unwrap();
        connection.stage(staged);
        let text = serde_json::to_string(&connection.saved()).unwrap();
        let mut again = two_legs();
        assert!(again.restore(&serde_json::from_str(&text).unwrap()));
        assert_eq!(again.staged(), connection.staged());
        let mut single = Connection::new(Side { addresses: vec![vec![]], ..two_legs().side().clone() });
        assert!(!single.restore(&connection.saved()));
    }
}

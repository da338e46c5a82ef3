//! To another SDP, and to another configuration.

use super::{Changed, From, Reply, STOPPING, Settings, Switching, Unit, is_last, is_url, refusal, said};
use crate::daemon::life::Life;
use crate::daemon::resume::Given;
use crate::daemon::{Begun, EventKind, Refusal, State, Switched, config, source};
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;

impl Unit {
    /// To another SDP. One that cannot be received changes nothing: a switch that goes on does so.
    pub(super) fn switch(&mut self, sdp: Arc<str>, from: From, reply: Option<Reply>) {
        if let Err(error) = self.check(&sdp, &from) {
            self.tell(EventKind::Switch, format!("it is not switched: {}", said(&error)));
            if let Some(reply) = reply {
                let _ = reply.send(Err(refusal(&error)));
            }
            return;
        }
        self.settle("another switch came before it was done");
        let alike = self.is_alike(&from);
        // A controller that connects again wants groups to be joined anew.
        let connects = matches!(from, From::Given(Given { connected: Some(_), .. }));
        self.switching = Some(Switching { sdp: sdp.clone(), from: from.clone(), reply });
        if self.session.is_none() {
            return self.switch_closed();
        }
        if self.sdp.as_ref() == Some(&sdp) && alike && !connects {
            self.from = from;
            self.is_started_by_hand();
            self.tell(EventKind::Switch, "it receives this SDP already");
            self.remember();
            self.publish();
            return self.answer(Ok(()));
        }
        if !alike {
            return self.switch_apart("other legs receive it");
        }
        let Some(session) = &mut self.session else { return };
        match session.switch(&sdp) {
            // The looks tell of the rest.
            Ok(Begun::Beside) => self.tell(EventKind::Switch, "another flow is received beside the one before"),
            Ok(Begun::Done(text)) => self.switched(Switched::Done(text)),
            Ok(Begun::Apart(why)) => self.switch_apart(&why),
            Err(error) => self.switched(Switched::Refused(error)),
        }
    }

    /// Somebody has switched it: it receives, even where the configuration does not enable it.
    fn is_started_by_hand(&mut self) {
        self.overruled = (self.connected().is_none() && !self.spec.enabled).then_some(false);
    }

    /// As far as the text says.
    fn check(&self, sdp: &str, from: &From) -> Result<(), Error> {
        source::check(sdp)?;
        match &self.session {
            Some(session) if self.is_alike(from) => session.check(sdp),
            _ => Ok(()),
        }
    }
    /// It is received in the same way as what is received now.
    fn is_alike(&self, from: &From) -> bool {
        self.spec_of(from).is_like(&self.spec_of(&self.from))
    }

    /// A switch that goes on ends here: it is given up for this reason, or is done where its frames have come already.
    pub(super) fn settle(&mut self, why: &str) {
        if self.switching.is_none() {
            return;
        }
        if self.session.as_mut().is_some_and(|session| session.give_up()) {
            self.switched(Switched::Done("switched".into()));
        } else {
            self.answer(Err(Refusal::Unavailable(why.to_owned())));
        }
    }

    /// The two cannot be open at once.
    fn switch_apart(&mut self, why: &str) {
        self.tell(EventKind::Switch, format!("the flow before is left before the new one is received: {why}"));
        let Some(Switching { sdp, from, .. }) = &self.switching else { return };
        let (sdp, before, spec) = (sdp.clone(), self.sdp.clone(), self.spec_of(from));
        self.leave("the flow before is left before the new one is received");
        match self.shared.opener.open(&spec, &sdp) {
            Ok(session) => {
                self.installed(session, sdp);
                self.switched(Switched::Done("switched; its sinks began anew".into()));
            }
            Err(error) => {
                match before.map(|before| self.open_with(before)) {
                    Some(Ok((session, before))) => self.installed(session, before),
                    Some(Err(error)) => self.lost(&error),
                    None => {}
                }
                self.switched(Switched::Refused(error));
            }
        }
    }

    /// Nothing is open: it is to be opened with the new SDP, or all stays as it was.
    fn switch_closed(&mut self) {
        let Some(Switching { sdp, from, .. }) = &self.switching else { return };
        let (sdp, spec) = (sdp.clone(), self.spec_of(from));
        let now = self.shared.now();
        match self.shared.opener.open(&spec, &sdp) {
            Ok(session) => {
                let started = self.life.start(now);
                self.changed(started);
                self.installed(session, sdp);
                let opened = self.life.opened(now);
                self.changed(opened);
                self.switched(Switched::Done("received from now on".into()));
            }
            Err(error) => self.switched(Switched::Refused(error)),
        }
    }

    fn lost(&mut self, error: &Error) {
        self.leave(STOPPING);
        let change = self.life.failed(self.shared.now(), is_last(error), said(error));
        self.changed(change);
    }

    /// A switch has ended.
    pub(super) fn switched(&mut self, how: Switched) {
        let answer = match how {
            Switched::Done(text) => {
                self.switches += 1;
                let change = self.life.switched(self.shared.now());
                self.changed(change);
                if let Some(Switching { sdp, from, .. }) = &self.switching {
                    self.sdp = Some(sdp.clone());
                    self.from = from.clone();
                }
                // It was started by that, where it did not receive.
                self.is_started_by_hand();
                self.tell(EventKind::Switch, text);
                self.remember();
                Ok(())
            }
            Switched::Refused(error) => {
                self.tell(EventKind::Switch, format!("it is not switched: {}", said(&error)));
                Err(refusal(&error))
            }
            Switched::Broken(error) => {
                self.tell(EventKind::Switch, format!("it is not switched: {}", said(&error)));
                self.leave("what is left of the flows is closed before the one before is opened again");
                let before = self.sdp.clone();
                match before.map(|before| self.open_with(before)) {
                    Some(Ok((session, before))) => self.installed(session, before),
                    Some(Err(again)) => self.lost(&again),
                    None => self.lost(&error),
                }
                Err(refusal(&error))
            }
        };
        self.show_at = Duration::ZERO;
        // Whoever is answered may look at once.
        self.publish();
        self.answer(answer);
    }

    pub(super) fn answer(&mut self, answer: Result<(), Refusal>) {
        if let Some(reply) = self.switching.take().and_then(|switching| switching.reply) {
            // Whoever asked may have gone.
            let _ = reply.send(answer);
        }
    }

    /// Another configuration.
    pub(super) fn change(&mut self, spec: config::Receiver, settings: Arc<Settings>) -> Changed {
        let before = std::mem::replace(&mut self.spec, spec);
        self.settings = settings;
        if self.spec.enabled != before.enabled {
            self.overruled = None;
            self.remember();
        }
        if self.spec.is_like(&before) {
            let changed = self.changed_sdp(&before);
            self.publish();
            return changed;
        }
        self.settle("its configuration changed");
        let newer = self.spec.sdp != before.sdp || matches!(self.other_text(), Ok(Some(_)));
        if newer {
            self.follow_from_now_on();
        }
        self.life = Life::new(&self.spec.id, "it has not begun");
        self.legs = super::side::Legs::default();
        self.tell(EventKind::Config, "its configuration changed: it is begun anew");
        self.begin_anew();
        Changed::Yes
    }

    /// What the configuration says is newer than what it was told to receive.
    fn follow_from_now_on(&mut self) {
        if self.from != From::Config {
            self.from = From::Config;
            self.remember();
        }
    }

    /// What is open is closed, and it begins again, if it is to. Nobody sees it stopped between the two.
    pub(super) fn begin_anew(&mut self) {
        if self.has_sdp() && self.is_wanted() {
            let change = self.life.anew(self.shared.now());
            self.changed(change);
            self.leave("it is begun anew: what it had is closed before");
            self.step();
        } else {
            self.leave(STOPPING);
            self.stop(self.why_not());
        }
        self.publish();
    }

    /// The text that the configuration leads to, where that is another one than it was. What a server gives is not asked for: that
    /// is done when it is opened.
    fn other_text(&mut self) -> Result<Option<Arc<str>>, Error> {
        let Some(source) = self.spec.sdp.as_ref().filter(|source| !is_url(source)) else { return Ok(None) };
        let text = self.fetch(source)?;
        // A receiver that was not opened yet has not looked at it.
        let known = self.configured.as_ref().or(self.sdp.as_ref());
        if known.is_none_or(|known| *known == text) {
            return Ok(None);
        }
        self.configured = Some(text.clone());
        Ok(Some(text))
    }

    /// Only its SDP may be another: by its name, or what the file holds.
    fn changed_sdp(&mut self, before: &config::Receiver) -> Changed {
        let Some(source) = self.spec.sdp.clone() else {
            if before.sdp.is_some() {
                self.from = From::Config;
                self.remember();
                self.close("its SDP is not in the configuration any more");
                return Changed::Yes;
            }
            return Changed::No;
        };
        let renamed = self.spec.sdp != before.sdp;
        if self.life.state() == State::Failed {
            // Whatever it was, it may have been cured.
            if renamed || matches!(self.other_text(), Ok(Some(_))) {
                self.follow_from_now_on();
            }
            self.begin_anew();
            return Changed::Yes;
        }
        let text = if renamed { self.fetch(&source).map(Some) } else { self.other_text() };
        let text = match text {
            Ok(Some(text)) => text,
            Ok(None) => return Changed::No,
            Err(error) => {
                self.tell(EventKind::Config, format!("its SDP stays as it was: {}", said(&error)));
                return Changed::No;
            }
        };
        let same = self.configured.replace(text.clone()).as_ref() == Some(&text);
        if same && renamed && self.from == From::Config && self.session.is_some() {
            return Changed::No;
        }
        if self.session.is_some() {
            self.switch(text, From::Config, None);
        } else {
            (self.from, self.sdp) = (From::Config, None);
            self.remember();
            if self.life.state() != State::Stopped || before.sdp.is_none() {
                self.life = Life::new(&self.spec.id, "it has not begun");
                self.begin_anew();
            }
        }
        Changed::Yes
    }
}

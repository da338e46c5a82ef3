//! To another SDP, and to another configuration.

use super::{Changed, From, Settings, Switching, Unit, is_last, is_url, refusal, said};
use crate::daemon::life::Life;
use crate::daemon::resume::Given;
use crate::daemon::{Begun, EventKind, Refusal, State, Switched, config, source};
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

impl Unit {
    /// To another SDP.
    pub(super) fn switch(&mut self, sdp: Arc<str>, from: From, reply: Option<oneshot::Sender<Result<(), Refusal>>>) {
        let goes_on = self.switching.is_some();
        self.answer(Err(Refusal::Unavailable("another switch came before it was done".into())));
        self.switching = Some(Switching { sdp: sdp.clone(), from, reply });
        if let Err(error) = source::check(&sdp) {
            return self.switched(Switched::Refused(error));
        }
        if self.session.is_none() {
            return self.switch_closed();
        }
        let (connects, alike) = match &self.switching {
            Some(Switching { from, .. }) => (
                matches!(from, From::Given(Given { connected: Some(_), .. })),
                self.spec_of(from).is_like(&self.spec_of(&self.from)),
            ),
            None => (false, true),
        };
        // A controller that connects again wants groups to be joined anew.
        if self.sdp.as_ref() == Some(&sdp) && !goes_on && !connects {
            if let Some(Switching { from, .. }) = &self.switching {
                self.from = from.clone();
            }
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

    /// The two cannot be open at once.
    pub(super) fn switch_apart(&mut self, why: &str) {
        self.tell(EventKind::Switch, format!("the flow before is left before the new one is received: {why}"));
        let Some(Switching { sdp, from, .. }) = &self.switching else { return };
        let (sdp, before, spec) = (sdp.clone(), self.sdp.clone(), self.spec_of(from));
        self.leave();
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
    pub(super) fn switch_closed(&mut self) {
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

    pub(super) fn lost(&mut self, error: &Error) {
        self.leave();
        let change = self.life.failed(self.shared.now(), is_last(error), said(error));
        self.changed(change);
    }

    /// A switch has ended.
    pub(super) fn switched(&mut self, how: Switched) {
        let answer = match how {
            Switched::Done(text) => {
                self.switches += 1;
                self.life.begun(self.shared.now());
                if let Some(Switching { sdp, from, .. }) = &self.switching {
                    self.sdp = Some(sdp.clone());
                    self.from = from.clone();
                }
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
                self.leave();
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

    /// The last switch is kept for the next start; what the configuration says is not.
    pub(super) fn remember(&mut self) {
        let Some(state) = self.shared.state.clone() else { return };
        let kept = match self.from.clone() {
            From::Given(given) => {
                let url = self.spec.sdp.clone().filter(|source| is_url(source));
                let text = self.configured.as_deref().map(str::to_owned);
                let key = url.or(text).or_else(|| self.key());
                state.write(&self.spec.id, key.as_deref(), &given)
            }
            From::Config => state.remove(&self.spec.id),
        };
        if let Err(error) = kept {
            self.tell(EventKind::Daemon, said(&error));
        }
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
        if !self.spec.is_like(&before) {
            self.close("its configuration changed");
            if self.spec.sdp != before.sdp {
                self.from = From::Config;
            }
            self.life = Life::new(&self.spec.id, "it has not begun");
            self.legs = super::side::Legs::default();
            self.tell(EventKind::Config, "its configuration changed: it is begun anew");
            self.restart();
            return Changed::Yes;
        }
        let changed = self.changed_sdp(&before);
        self.publish();
        changed
    }

    pub(super) fn restart(&mut self) {
        match (self.has_sdp(), self.is_wanted()) {
            (false, _) => self.stop("it has no SDP"),
            (true, false) => self.stop(self.why_unwanted()),
            (true, true) => {
                let change = self.life.start(self.shared.now());
                self.changed(change);
                self.step();
            }
        }
        self.publish();
    }

    /// Only its SDP may be another: by its name, or what the file holds.
    pub(super) fn changed_sdp(&mut self, before: &config::Receiver) -> Changed {
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
            if renamed {
                self.from = From::Config;
            }
            self.restart();
            return Changed::Yes;
        }
        // What a server gives is asked for when it is opened.
        if !renamed && is_url(&source) {
            return Changed::No;
        }
        let text = match source::text(&source, &self.settings.folder, &self.settings.daemon.sdp_hosts) {
            Ok(text) => text,
            Err(error) => {
                self.tell(EventKind::Config, format!("its SDP stays as it was: {}", said(&error)));
                return Changed::No;
            }
        };
        // A receiver that was not opened yet has not looked at it.
        let known = self.configured.as_ref().or(self.sdp.as_ref());
        if !renamed && known.is_none_or(|known| *known == text) {
            return Changed::No;
        }
        let same = self.configured.replace(text.clone()).as_ref() == Some(&text);
        if same && renamed && self.from == From::Config && self.session.is_some() {
            return Changed::No;
        }
        if self.session.is_some() {
            self.switch(text, From::Config, None);
        } else {
            self.from = From::Config;
            self.remember();
            if self.life.state() != State::Stopped || before.sdp.is_none() {
                self.life = Life::new(&self.spec.id, "it has not begun");
                self.restart();
            }
        }
        Changed::Yes
    }
}

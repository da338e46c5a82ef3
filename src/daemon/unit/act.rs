//! What a receiver is told by somebody, and what is kept of it.

use super::{From, Reply, STOPPING, Unit, is_url, refusal, said};
use crate::daemon::resume::{Connected, Given, Told};
use crate::daemon::{Action, Connection, EventKind, Refusal, State, source};
use std::sync::Arc;

impl Unit {
    pub(super) fn act(&mut self, action: Action, reply: Reply) {
        let done = match action {
            Action::Stop => {
                self.settle("the receiver was stopped");
                // What does not end has been told so all the same. Who receives nothing waits for an SDP, and not for a start.
                if self.has_sdp() {
                    self.is_to_run(false);
                }
                self.close("it was told to stop");
                Ok(())
            }
            Action::Start => self.start(),
            Action::Switch { sdp } => {
                let sdp: Arc<str> = sdp.into();
                return self.switch(sdp.clone(), From::Given(Given::sdp(sdp)), Some(reply));
            }
            Action::Follow => return self.follow(reply),
            Action::Connect(connection) => {
                let Connection { enabled, sdp, legs, note } = *connection;
                let sdp: Arc<str> = sdp.into();
                let connected = Some(Connected { enabled, legs, of: self.legs.shown(), note: note.into() });
                let from = From::Given(Given { sdp: sdp.clone(), connected });
                if enabled && !sdp.is_empty() {
                    return self.switch(sdp, from, Some(reply));
                }
                self.settle("its controller released it");
                (self.from, self.overruled) = (from, None);
                self.remember();
                self.sdp = Some(sdp).filter(|sdp| !sdp.is_empty());
                if enabled {
                    // What the configuration names may come yet.
                    self.begin_anew();
                } else {
                    self.leave(STOPPING);
                    self.stop("its controller released it");
                    self.publish();
                }
                Ok(())
            }
        };
        // Whoever asked may have gone.
        let _ = reply.send(done);
    }

    fn start(&mut self) -> Result<(), Refusal> {
        if !self.has_sdp() {
            return Err(Refusal::Unavailable("it has no SDP: switch it to one, or configure one".into()));
        }
        self.is_to_run(true);
        let change = self.life.start(self.shared.now());
        self.changed(change);
        self.step();
        self.how_it_began()
    }
    fn how_it_began(&self) -> Result<(), Refusal> {
        match self.life.state() {
            State::Failed => Err(Refusal::Invalid(self.life.reason().unwrap_or_default().to_owned())),
            _ => Ok(()),
        }
    }

    /// Back to what the configuration says.
    fn follow(&mut self, reply: Reply) {
        if self.from == From::Config {
            self.settle("the configuration is followed");
        }
        if self.from == From::Config {
            self.tell(EventKind::Switch, "it receives what the configuration says already");
            let _ = reply.send(Ok(()));
            return;
        }
        let Some(source) = self.spec.sdp.clone() else {
            self.settle("the configuration is followed");
            (self.from, self.sdp) = (From::Config, None);
            self.remember();
            self.close("it has no SDP");
            let _ = reply.send(Ok(()));
            return;
        };
        let text = match self.fetch(&source).and_then(|text| source::check(&text).map(|()| text)) {
            Ok(text) => text,
            Err(error) => {
                let _ = reply.send(Err(refusal(&error)));
                return;
            }
        };
        self.configured = Some(text.clone());
        if self.session.is_some() {
            return self.switch(text, From::Config, Some(reply));
        }
        (self.from, self.sdp) = (From::Config, None);
        self.remember();
        self.tell(EventKind::Switch, "what the configuration says counts again");
        self.begin_anew();
        let _ = reply.send(self.how_it_began());
    }

    /// Somebody starts or stops it, whatever the configuration says.
    fn is_to_run(&mut self, run: bool) {
        let overruled = (run != self.spec.enabled).then_some(self.spec.enabled);
        let mut news = std::mem::replace(&mut self.overruled, overruled) != overruled;
        // A controller sees it as well; when what that said counts no more, this does still.
        if let From::Given(Given { connected: Some(connected), .. }) = &mut self.from {
            news |= std::mem::replace(&mut connected.enabled, run) != run;
        }
        if news {
            self.remember();
        }
    }

    /// What it was told before the daemon started.
    pub(super) fn resume(&mut self) {
        let key = self.key();
        let Some(state) = &self.shared.state else { return };
        match state.read(&self.spec.id, key.as_deref(), self.spec.enabled) {
            Ok(Told { given, overruled }) => {
                self.overruled = overruled;
                if let Some(given) = given {
                    if !given.sdp.is_empty() {
                        self.tell(EventKind::Switch, "the SDP of its last switch is received again");
                    }
                    self.from = From::Given(given);
                }
            }
            Err(error) => self.tell(EventKind::Daemon, said(&error)),
        }
    }

    /// What it was told is kept for the next start; what the configuration says is not.
    pub(super) fn remember(&mut self) {
        // One that was given up and removed, whose driver has come back, has nothing to say of whoever has its name now.
        let Some(state) =
            self.shared.state.clone().filter(|_| self.shared.board.is_speaker(self.place.number, &self.spec.id))
        else {
            return;
        };
        let given = match self.from.clone() {
            From::Given(given) => Some(given),
            From::Config => None,
        };
        let told = Told { given, overruled: self.overruled };
        let kept = if told == Told::default() {
            state.remove(&self.spec.id)
        } else {
            let url = self.spec.sdp.clone().filter(|source| is_url(source));
            let text = self.configured.as_deref().map(str::to_owned);
            let key = url.or(text).or_else(|| self.key());
            state.write(&self.spec.id, key.as_deref(), &told)
        };
        if let Err(error) = kept {
            self.tell(EventKind::Daemon, said(&error));
        }
    }
}

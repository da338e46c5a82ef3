//! Another configuration, step by step, so that nobody else waits for those who take long: what is removed ends first, for
//! others may be waiting for what it has; then the others are told.

use super::super::unit::{Changed, Order, Settings};
use super::{ReloadReply, Supervisor, Unit, settings};
use crate::daemon::{EventKind, Refusal, Reloaded, config};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// One that is being taken.
pub(super) struct Reload {
    replies: Vec<ReloadReply>,
    settings: Arc<Settings>,
    /// Removed ones that have not ended.
    leaving: BTreeMap<String, Unit>,
    /// What the others are told when those have ended.
    receivers: Option<Vec<config::Receiver>>,
    to: mpsc::Sender<(String, Changed)>,
    answers: mpsc::Receiver<(String, Changed)>,
    /// Those that are to answer.
    asked: BTreeSet<String>,
    deadline: Instant,
    done: Reloaded,
    /// The service manager knows.
    told: bool,
}

impl Reload {
    /// Removed ones that have not ended.
    pub(super) fn leaving(self) -> BTreeMap<String, Unit> {
        self.leaving
    }
}

impl Supervisor {
    /// Goes on with a configuration, as far as that is possible now, and begins with the next one.
    pub(super) fn go_on(&mut self) {
        if self.reload.is_none() && !self.asked.is_empty() {
            self.reload = self.begin_reload();
        }
        let Some(mut reload) = self.reload.take() else { return };
        if self.take(&mut reload) {
            self.end_reload(reload);
        } else {
            self.reload = Some(reload);
        }
    }

    /// Reads the files; none where they are wrong. Whoever asked before that is answered by this one.
    fn begin_reload(&mut self) -> Option<Reload> {
        let replies = std::mem::take(&mut self.asked);
        // Of one that has not said yet that it is ready the service manager wants to hear nothing else.
        let told = self.shared.board.is_ready();
        if told {
            self.options.notifier.reloading();
        }
        let loaded = match (self.options.load)() {
            Ok(loaded) => loaded,
            Err(error) => {
                let text = error.to_string().replace("\n  cure: ", " (").trim().to_owned();
                let text = if text.contains(" (") { text + ")" } else { text };
                let board = &self.shared.board;
                board.refused(&text);
                board.tell(None, EventKind::Config, format!("the configuration stays as it was: {text}"));
                if told {
                    self.options.notifier.ready();
                }
                for reply in replies {
                    // Whoever asked may have gone.
                    let _ = reply.send(Err(Refusal::Invalid(text.clone())));
                }
                return None;
            }
        };
        let settings = settings(&loaded);
        self.stop_timeout = loaded.config.daemon.stop_timeout.0;
        let has = |id: &String| loaded.config.receivers.iter().any(|receiver| receiver.id == *id);
        let removed: Vec<String> = self.units.keys().filter(|id| !has(id)).cloned().collect();
        let leaving: BTreeMap<_, _> = removed.iter().filter_map(|id| self.units.remove_entry(id)).collect();
        for unit in leaving.values() {
            let _ = unit.orders.send(Order::End("it is not in the configuration any more"));
        }
        let (to, answers) = mpsc::channel();
        Some(Reload {
            replies,
            settings,
            leaving,
            receivers: Some(loaded.config.receivers),
            to,
            answers,
            asked: BTreeSet::new(),
            deadline: Instant::now() + self.stop_timeout,
            done: Reloaded { removed, ..Reloaded::default() },
            told,
        })
    }

    /// True when there is nothing left to wait for.
    fn take(&mut self, reload: &mut Reload) -> bool {
        let late = Instant::now() >= reload.deadline;
        let over: Vec<String> = {
            let over = reload.leaving.iter().filter(|(_, unit)| late || unit.thread.is_finished());
            over.map(|(id, _)| id.clone()).collect()
        };
        for id in over {
            if let Some(unit) = reload.leaving.remove(&id) {
                self.forget(&id, unit);
            }
        }
        if !reload.leaving.is_empty() {
            return false;
        }
        if let Some(receivers) = reload.receivers.take() {
            self.hand_out(receivers, reload);
        }
        while let Ok((id, changed)) = reload.answers.try_recv() {
            reload.asked.remove(&id);
            match changed {
                Changed::No => reload.done.unchanged.push(id),
                Changed::Yes => reload.done.changed.push(id),
            }
        }
        reload.asked.is_empty() || Instant::now() >= reload.deadline
    }

    /// A receiver that is not in the configuration any more has ended, or does not.
    fn forget(&self, id: &str, unit: Unit) {
        let board = &self.shared.board;
        if unit.thread.is_finished() {
            let _ = unit.thread.join();
        } else {
            board.tell(Some(id), EventKind::Daemon, "it does not end");
        }
        // Whatever it still says.
        board.remove(id);
        if let Some(Err(error)) = self.shared.state.as_ref().map(|state| state.remove(id)) {
            board.tell(Some(id), EventKind::Daemon, error.in_one_line());
        }
    }

    /// Tells those that were there, and begins new ones.
    fn hand_out(&mut self, receivers: Vec<config::Receiver>, reload: &mut Reload) {
        let mut new = Vec::new();
        for receiver in receivers {
            match self.units.get(&receiver.id) {
                Some(unit) => {
                    let id = receiver.id.clone();
                    let order = Order::Change(Box::new(receiver), reload.settings.clone(), reload.to.clone());
                    match unit.orders.send(order) {
                        Ok(()) => drop(reload.asked.insert(id)),
                        // Its thread is gone.
                        Err(_) => reload.done.unanswered.push(id),
                    }
                }
                None => new.push(receiver),
            }
        }
        for receiver in new {
            reload.done.added.push(receiver.id.clone());
            self.begin(receiver, &reload.settings);
        }
        reload.deadline = Instant::now() + self.patience.answer;
    }

    fn end_reload(&mut self, reload: Reload) {
        let Reload { replies, asked, mut done, told, .. } = reload;
        done.unanswered.extend(asked);
        for list in [&mut done.added, &mut done.changed, &mut done.unchanged, &mut done.unanswered] {
            list.sort();
        }
        let board = &self.shared.board;
        board.taken();
        let mut text = format!(
            "the configuration was read again: {} added, {} removed, {} changed, {} as they were",
            done.added.len(),
            done.removed.len(),
            done.changed.len(),
            done.unchanged.len()
        );
        if !done.unanswered.is_empty() {
            text += &format!("; no answer yet of {}", done.unanswered.join(", "));
        }
        board.tell(None, EventKind::Config, text);
        if told {
            self.options.notifier.ready();
        }
        for reply in replies {
            // Whoever asked may have gone.
            let _ = reply.send(Ok(done.clone()));
        }
    }
}

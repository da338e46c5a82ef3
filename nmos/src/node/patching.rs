//! The requests that change receivers: PATCH, bulk, and what was scheduled.

use super::{Entry, Held, Node, lock};
use crate::connection::Times;
use crate::error::Refusal;
use crate::patch::{self, Patch, When};
use crate::receivers::Activation;
use crate::time::Tai;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use uuid::Uuid;

impl Node {
    /// A PATCH of `/staged`. Returns the status and the document. Runs to its end also where nobody waits for it.
    ///
    /// # Errors
    /// As IS-05 has them: 400, 404, 423, 500; and 503 where many wait for the receiver already.
    pub async fn patch(&self, id: Uuid, body: Value) -> Result<(u16, Value), Refusal> {
        // A task of its own: a controller that hangs up must not leave half an activation.
        let node = self.clone();
        let task = tokio::spawn(async move { node.patch_in_turn(id, &body).await });
        task.await.unwrap_or_else(|_| Err(Refusal::new(500, "the node has a fault; its log says more")))
    }

    async fn patch_in_turn(&self, id: Uuid, body: &Value) -> Result<(u16, Value), Refusal> {
        let missing = || Refusal::new(404, format!("there is no receiver {id}"));
        let entry = self.entry(id).ok_or_else(missing)?;
        let patch = Patch::read(body)?;
        let _place = Place::of(&entry.queue)?;
        let _turn = entry.turn.lock().await;
        if entry.gone.load(Ordering::Acquire) {
            return Err(missing());
        }
        match self.stage(&entry, &patch).await? {
            Step::Done(code, document) => Ok((code, document)),
            Step::Activate(resolved) => {
                let at = self.activate(&entry, When::Immediate, resolved).await?;
                let times = Times { when: Some(When::Immediate), at: Some(at) };
                Ok((200, lock(&entry.held).connection.answer(times)))
            }
        }
    }

    /// Stages what a PATCH wants, and schedules it where it is to be later; the caller has the turn.
    async fn stage(&self, entry: &Arc<Entry>, patch: &Patch) -> Result<Step, Refusal> {
        let when = patch.activation.flatten();
        for _ in 0..MOST_TRIES {
            let (staged, news, told) = {
                let held = lock(&entry.held);
                let staged = held.connection.merge(patch)?;
                let other = staged != *held.connection.staged() || when.is_some();
                let news = other.then(|| held.connection.preview(&staged));
                (staged, news, held.told)
            };
            if let Some(activation) = news {
                let (receivers, name) = (self.0.receivers.clone(), entry.name.clone());
                let valid = tokio::task::spawn_blocking(move || receivers.validate(&name, &activation)).await;
                valid.map_err(|_| fault())?.map_err(Refusal::bad)?;
            }
            let mut held = lock(&entry.held);
            // What it was told another way meanwhile is not to be overwritten by what it was before.
            if held.told != told {
                continue;
            }
            if let Some(timer) = held.timer.take() {
                timer.abort();
            }
            held.connection.stage(staged);
            return Ok(match when {
                None => Step::Done(200, held.connection.staged_document()),
                Some(When::Immediate) => Step::Activate(held.connection.resolve(held.connection.staged())),
                Some(when) => Step::Done(202, self.schedule(entry, &mut held, when)),
            });
        }
        Err(Refusal::new(503, "this receiver is told something else all the time; try again later"))
    }

    /// A bulk request: each entry as if it had come alone, those of different receivers side by side. Returns the list of
    /// results.
    ///
    /// # Errors
    /// The request as a whole is wrong (400).
    pub async fn bulk(&self, body: Value, senders: bool) -> Result<Value, Refusal> {
        let entries = patch::bulk(&body)?;
        let mut order: Vec<(String, Vec<(usize, Value)>)> = vec![];
        let mut places: HashMap<String, usize> = HashMap::new();
        for (at, (id, params)) in entries.iter().cloned().enumerate() {
            let place = *places.entry(id.clone()).or_insert_with(|| {
                order.push((id, vec![]));
                order.len() - 1
            });
            if let Some((_, list)) = order.get_mut(place) {
                list.push((at, params));
            }
        }
        let tasks: Vec<_> = order
            .into_iter()
            .map(|(id, list)| {
                let node = self.clone();
                tokio::spawn(async move {
                    let mut results = vec![];
                    for (at, params) in list {
                        results.push((at, node.one_of_bulk(&id, params, senders).await));
                    }
                    results
                })
            })
            .collect();
        let mut results = vec![Value::Null; entries.len()];
        for task in tasks {
            for (at, result) in task.await.map_err(|_| fault())? {
                if let Some(slot) = results.get_mut(at) {
                    *slot = result;
                }
            }
        }
        Ok(results.into())
    }

    async fn one_of_bulk(&self, id: &str, params: Value, senders: bool) -> Value {
        let result = match Uuid::parse_str(id) {
            Ok(uuid) if !senders => self.patch(uuid, params).await,
            _ => Err(Refusal::new(404, format!("there is no {} {id}", if senders { "sender" } else { "receiver" }))),
        };
        match result {
            Ok((code, _)) => json!({ "id": id, "code": code }),
            Err(refusal) => json!({ "id": id, "code": refusal.code, "error": refusal.error, "debug": null }),
        }
    }

    /// Activates what was staged; the caller has the turn.
    async fn activate(
        &self,
        entry: &Arc<Entry>,
        when: When,
        resolved: Result<Activation, String>,
    ) -> Result<Tai, Refusal> {
        let done = match resolved {
            Err(why) => Err(why),
            Ok(activation) => {
                let (receivers, name) = (self.0.receivers.clone(), entry.name.clone());
                let task =
                    tokio::task::spawn_blocking(move || receivers.activate(&name, &activation).map(|()| activation));
                task.await.unwrap_or_else(|_| Err("the receiver has a fault; its log says more".into()))
            }
        };
        let now = (self.0.clock)();
        let saved = {
            let mut held = lock(&entry.held);
            held.timer = None;
            match done {
                Ok(activation) => held.connection.activated(activation, Some(when), now),
                Err(why) => {
                    held.connection.unlock();
                    return Err(Refusal::new(500, why));
                }
            }
            held.connection.saved()
        };
        self.publish(entry, true);
        let (receivers, name) = (self.0.receivers.clone(), entry.name.clone());
        let _ = tokio::task::spawn_blocking(move || receivers.activated(&name, &saved)).await;
        Ok(now)
    }

    /// Schedules what is staged; the caller has the turn. Returns the document.
    fn schedule(&self, entry: &Arc<Entry>, held: &mut Held, when: When) -> Value {
        let now = (self.0.clock)();
        let at = match when {
            When::Absolute(at) => at.max(now),
            When::Relative(after) => Tai(now.0.saturating_add(after.0)),
            When::Immediate => now,
        };
        let serial = held.connection.schedule(when, at);
        let (node, entry) = (self.clone(), entry.clone());
        let timer = tokio::spawn(async move {
            node.sleep(&entry, when, at).await;
            let _turn = entry.turn.lock().await;
            let resolved = {
                let held = lock(&entry.held);
                let meant = held.connection.scheduled().is_some_and(|(s, _)| s == serial);
                meant.then(|| held.connection.resolve(held.connection.staged()))
            };
            let Some(resolved) = resolved.filter(|_| !entry.gone.load(Ordering::Acquire)) else { return };
            if let Err(refusal) = node.activate(&entry, when, resolved).await {
                tracing::warn!(receiver = entry.name, "the scheduled activation failed: {}", refusal.error);
            }
        });
        held.timer = Some(timer.abort_handle());
        held.connection.staged_document()
    }

    /// Until it is time, or the receiver is gone. A length of time is not touched by a clock that is set.
    async fn sleep(&self, entry: &Entry, when: When, at: Tai) {
        const SLICE: Duration = Duration::from_secs(1);
        let start = tokio::time::Instant::now();
        while !entry.gone.load(Ordering::Acquire) {
            let left = match when {
                When::Relative(after) => Duration::from_nanos(after.0).saturating_sub(start.elapsed()),
                _ => Duration::from_nanos(at.0.saturating_sub((self.0.clock)().0)),
            };
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(SLICE)).await;
        }
    }
}

/// What is left to do of a PATCH that is staged.
enum Step {
    /// Nothing: its answer.
    Done(u16, Value),
    /// This, or why it cannot be.
    Activate(Result<Activation, String>),
}

/// Times that a PATCH is merged into what a receiver was told meanwhile.
const MOST_TRIES: usize = 8;

/// PATCHes of one receiver that are under way or wait, at most: one that hangs must not gather all that controllers send.
const MOST_WAITING: usize = 32;

/// A place among those that wait for their turn.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn of(queue: &'a AtomicUsize) -> Result<Place<'a>, Refusal> {
        let place = Place(queue);
        if queue.fetch_add(1, Ordering::AcqRel) >= MOST_WAITING {
            let what = format!("{MOST_WAITING} PATCHes wait for this receiver already; try again later");
            return Err(Refusal::new(503, what));
        }
        Ok(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn fault() -> Refusal {
    Refusal::new(500, "the receiver has a fault; its log says more")
}

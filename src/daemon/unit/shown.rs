//! A receiver as everybody sees it.

use super::{From, Unit};
use crate::daemon::Receiver;
use std::sync::Arc;

impl Unit {
    /// Shows it as it is.
    pub(super) fn publish(&mut self) {
        let side = self.side();
        let shown = self.shown.as_ref().filter(|_| self.session.is_some());
        let receiver = Receiver {
            id: self.spec.id.clone(),
            label: self.spec.name().to_owned(),
            state: self.life.state(),
            reason: self.closing.or(self.life.reason()).map(str::to_owned),
            since: self.since,
            sdp: self.sdp.clone().or_else(|| self.given()).or_else(|| self.configured.clone()),
            flow: shown.map(|shown| shown.flow.clone()),
            backend: shown.map(|shown| shown.backend.clone()),
            processor: shown.map(|shown| shown.processor.clone()),
            placement: shown.and_then(|shown| shown.placement.clone()),
            restarts: self.life.restarts(),
            switches: self.switches,
            status: shown.and_then(|shown| shown.status.clone()),
            health: shown.and_then(|shown| shown.health.clone()),
            report: shown.map(|shown| shown.report.clone()),
            latency: shown.map(|shown| shown.latency.clone()).unwrap_or_default(),
            timing: shown.map(|shown| shown.timing.clone()).unwrap_or_default(),
            ptp: shown.and_then(|shown| shown.ptp),
            cards: shown.map(|shown| shown.cards.clone()).unwrap_or_default(),
            gpu_memory: shown.and_then(|shown| shown.gpu_memory.clone()),
            sinks: shown.map(|shown| shown.sinks.clone()).unwrap_or_default(),
            preview: shown.and_then(|shown| shown.preview.clone()),
            side,
        };
        self.shared.board.show(self.place.number, receiver);
    }
    /// What it was given to receive.
    pub(super) fn given(&self) -> Option<Arc<str>> {
        match &self.from {
            From::Given(given) => Some(given.sdp.clone()).filter(|sdp| !sdp.is_empty()),
            From::Config => None,
        }
    }
}

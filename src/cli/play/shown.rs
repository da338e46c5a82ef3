//! What a session shows of itself to a daemon.

use super::choose;
use super::preview::described;
use super::report::{Since, status};
use super::session::{End, Plan, Session, address, memory_of};
use gdmedia::daemon::{self, GpuMemory, Shown, SinkState};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::latency::Hop;
use gdmedia::worker::{Beats, Ended, Placement, Report};
use std::sync::Arc;

/// Of the frames so far, those of which the time is told.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

impl Session {
    /// As it is. `since`: the interval that ends now.
    pub fn shown(&mut self, report: &Report, since: &mut Since) -> Shown {
        let rates = since.rates(report, &self.latency);
        let timing = self.line.metering.as_ref().map(gdmedia::pipeline::meter::Metering::read).unwrap_or_default();
        let status = status(report, &self.latency, &self.sinks, &self.health, &timing, rates);
        self.latency.next_interval();
        let Plan { flow, video, .. } = &self.line.plan;
        Shown {
            flow: described(flow, video),
            backend: self.line.backend.clone(),
            processor: self.line.processor.clone(),
            placement: self.placement().cloned(),
            status: Some(status),
            health: self.health.status(),
            report: Arc::new(Report { events: Vec::new(), ..report.clone() }),
            latency: Hop::ALL.iter().filter_map(|hop| self.hop(*hop)).collect(),
            timing,
            ptp: self.time.watched(),
            cards: self.health.cards().to_vec(),
            gpu_memory: self.gpu_memory(),
            sinks: self.sink_states(),
            preview: self.sinks.page().map(super::preview::Page::source),
        }
    }

    /// Where its thread is, and why.
    pub fn placement(&self) -> Option<&Placement> {
        self.line.seat.placement.as_ref()
    }

    fn gpu_memory(&self) -> Option<GpuMemory> {
        let gpu = self.gpu.as_ref()?;
        let address = address(gpu);
        let gpu = if address.is_empty() { self.line.processor.clone() } else { address };
        Some(GpuMemory { gpu, octets: self.gpu.as_ref().map(memory_of)? })
    }

    fn hop(&self, hop: Hop) -> Option<daemon::Hop> {
        let total = self.latency.total(hop);
        if total.is_empty() {
            return None;
        }
        let seconds = |ns: u64| ns as f64 / 1e9;
        Some(daemon::Hop {
            name: hop.name(),
            count: total.len(),
            sum: total.mean() * total.len() as f64 / 1e9,
            quantiles: QUANTILES.map(|q| (q, seconds(total.value_at_quantile(q)))).to_vec(),
        })
    }

    fn sink_states(&self) -> Vec<SinkState> {
        let one = |state: super::sinks::State| SinkState {
            name: state.kind.name().to_owned(),
            kind: state.kind.name(),
            target: state.target,
            running: state.running,
            reason: state.reason,
            frames: state.frames,
            dropped: state.dropped,
            queued: state.queued,
            restarts: state.restarts,
        };
        self.sinks.states().into_iter().map(one).collect()
    }

    /// How it is received, and why so, in one line.
    pub fn how(&self) -> String {
        let backend = self.start().texts().find(|text| text.starts_with("backend: "));
        let others = ["gpu: ", "sink: ", "SDP: "];
        let others = self.start().texts().filter(|text| others.iter().any(|name| text.starts_with(name)));
        let texts: Vec<String> = backend.into_iter().chain(others).collect();
        format!("opened: {}", texts.join("; "))
    }
    /// Packets and frames that came so far.
    pub fn counts(report: &Report) -> (u64, u64) {
        (report.rx.datagrams, report.frames.complete + report.frames.incomplete)
    }
    /// Why no frame comes, and what to do about it.
    pub fn why_nothing(&self, report: &Report) -> Error {
        choose::no_media(self.args(), &self.line.plan.flow, report)
    }
    /// Ends it, and lets its sinks finish.
    ///
    /// # Errors
    /// One of them could not.
    pub fn close(&mut self) -> Result<()> {
        self.finish(End::Signal).1
    }
    /// Of the loop that receives.
    pub fn beats(&self) -> Option<Beats> {
        self.line.worker.as_ref().map(gdmedia::worker::Worker::beats)
    }
    /// Why reception ended by itself.
    pub fn why_ended(&mut self) -> Error {
        match self.line.close().0 {
            Ended::Failed(error) => error,
            Ended::EndOfInput | Ended::Stopped => Error::new(Kind::Unavailable, "reception ended"),
        }
    }
}

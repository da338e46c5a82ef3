//! How sinks end: all of them within one time.

#[cfg(feature = "cuda")]
use super::SinkKind;
use super::{Placed, Sinks};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::mem::Space;
use gdmedia::sink::{End, Report};
use std::time::{Duration, Instant};

/// A file or a stream that is being finished may take so long.
const FINISH: Duration = Duration::from_secs(10);
/// An encoder looks ahead, and has frames to encode when no more come.
#[cfg(feature = "gst")]
const FINISH_CODED: Duration = Duration::from_secs(25);

impl Sinks {
    /// How long they have for that.
    fn finish_time(&self) -> Duration {
        #[cfg(feature = "gst")]
        if self.encoded.is_some() {
            return FINISH_CODED;
        }
        FINISH
    }

    /// Lets them finish, all at once; the worker must be gone.
    ///
    /// # Errors
    /// The first failure of a sink.
    pub fn finish(&mut self) -> Result<()> {
        let (begun, time) = (Instant::now(), self.finish_time());
        #[cfg(feature = "cuda")]
        {
            self.device.iter().for_each(|placed| placed.queue.close());
            // First those that hand on to others: they have half of the time, so that what they hand on is taken.
            let (copies, others): (Vec<_>, _) =
                self.device.drain(..).partition(|placed| placed.kind == SinkKind::Copies);
            self.device = others;
            finish(copies, begun, time / 2, &mut self.finished);
        }
        self.queues.iter().for_each(|placed| placed.queue.close());
        #[cfg(all(feature = "cuda", feature = "gst"))]
        self.spare.iter().for_each(|queue| queue.close());
        #[cfg(feature = "cuda")]
        finish(std::mem::take(&mut self.device), begun, time, &mut self.finished);
        finish(std::mem::take(&mut self.queues), begun, time, &mut self.finished);
        #[cfg(all(feature = "cuda", feature = "gst"))]
        if let Some(queue) = self.spare.take() {
            let report = queue.finish_by(begun, time);
            if report.taken + report.dropped > 0 {
                self.finished.push((queue.describe().to_owned(), report));
            }
        }
        for (_, report) in &mut self.finished {
            if let End::Failed(error) = &mut report.end {
                return Err(std::mem::replace(error, Error::new(Kind::Output, "failed")));
            }
        }
        Ok(())
    }

    /// Ends what takes frames of the GPU.
    #[cfg(feature = "cuda")]
    pub(super) fn close_device(&mut self) {
        finish(std::mem::take(&mut self.device), Instant::now(), FINISH, &mut Vec::new());
    }
}

/// Tells all of them that no more frames come, and then waits for each: one that stands still takes nothing from the others.
fn finish<F: Space>(all: Vec<Placed<F>>, begun: Instant, time: Duration, finished: &mut Vec<(String, Report)>) {
    all.iter().for_each(|placed| placed.queue.close());
    let one = |Placed { queue, .. }: Placed<F>| (queue.describe().to_owned(), queue.finish_by(begun, time));
    finished.extend(all.into_iter().map(one));
}

#[cfg(test)]
mod tests {
    use super::super::{EndsRun, SinkKind};
    use super::*;
    use gdmedia::frame::Frame;
    use gdmedia::sink::{Next, Sink};
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// The bound of a test that hangs.
    const LONG: Duration = Duration::from_secs(60);

    /// Finishes when another one has.
    struct Patient(Receiver<()>);
    /// Says that it has finished.
    struct Quick(Sender<()>);

    impl Sink for Patient {
        fn take(&mut self, _: &Frame) -> Result<Next> {
            Ok(Next::More)
        }
        fn finish(&mut self) -> Result<()> {
            self.0.recv_timeout(LONG).map_err(|_| Error::new(Kind::Output, "the other one has not finished"))
        }
        fn describe(&self) -> String {
            "patient".into()
        }
    }
    impl Sink for Quick {
        fn take(&mut self, _: &Frame) -> Result<Next> {
            Ok(Next::More)
        }
        fn finish(&mut self) -> Result<()> {
            let _ = self.0.send(());
            Ok(())
        }
        fn describe(&self) -> String {
            "quick".into()
        }
    }

    #[test]
    fn one_that_stands_still_holds_up_no_other() {
        let placed = |sink: Box<dyn Sink>| Placed::new(SinkKind::File, String::new(), EndsRun::No, sink).unwrap();
        let (to, from) = channel();
        let all = vec![placed(Box::new(Patient(from))), placed(Box::new(Quick(to)))];
        let mut finished = Vec::new();
        finish(all, Instant::now(), LONG / 2, &mut finished);
        let ends: Vec<_> =
            finished.iter().map(|(name, report)| (name.as_str(), matches!(report.end, End::Finished))).collect();
        assert_eq!(ends, [("patient", true), ("quick", true)]);
        // When the time is over, what has finished has finished all the same.
        let (to, from) = channel();
        let (stays, hold) = channel();
        let all = vec![placed(Box::new(Patient(hold))), placed(Box::new(Quick(to)))];
        all[1].queue.close();
        from.recv_timeout(LONG).unwrap();
        while !all[1].queue.ended() {
            std::thread::yield_now();
        }
        let mut finished = Vec::new();
        finish(all, Instant::now(), Duration::ZERO, &mut finished);
        assert!(matches!(&finished[0].1.end, End::Failed(error) if error.to_string().contains("did not finish")));
        assert!(matches!(finished[1].1.end, End::Finished), "{finished:?}");
        drop(stays);
    }
}

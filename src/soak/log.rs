//! Logs of HdrHistogram, version 2: text with a line for each interval, which viewers of others open
//! (<https://hdrhistogram.github.io/HdrHistogramJSDemo/logparser.html>, HistogramLogAnalyzer, `hdrhistogram` of PyPI).
//! Values are nanoseconds; the column of the largest one is in milliseconds, as such logs have it.

use crate::error::{Error, Kind, Result};
use crate::latency::{Hop, Recorder};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A log for each hop, in one folder: `latency.complete.hlog`.
#[derive(Debug)]
pub struct Logs {
    folder: PathBuf,
    begun: SystemTime,
    /// Those that have their head.
    headed: [bool; 4],
    /// Since `begun`, when the last interval ended.
    last: Duration,
}

impl Logs {
    /// Makes the folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(folder: &Path, begun: SystemTime) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| {
            Error::new(Kind::Output, format!("cannot make the folder {}", folder.display()))
                .because(e)
                .cure("check its permissions, or name another folder")
        })?;
        Ok(Logs { folder: folder.into(), begun, headed: [false; 4], last: Duration::ZERO })
    }

    /// An interval that is not logged, of the warm-up, has ended. What it takes to log is done all the same, so that the memory for
    /// it does not look like growth behind the warm-up.
    ///
    /// # Errors
    /// It cannot be put into words.
    pub fn skip(&mut self, recorder: &Recorder, now: Duration) -> Result<()> {
        for hop in Hop::ALL {
            let histogram = recorder.interval(hop);
            if !histogram.is_empty() {
                self.words(hop, histogram, now)?;
            }
        }
        self.last = now;
        Ok(())
    }

    /// Writes what a recorder holds since its last interval; `now` since the beginning.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn add(&mut self, recorder: &Recorder, now: Duration) -> Result<()> {
        for hop in Hop::ALL {
            let histogram = recorder.interval(hop);
            if !histogram.is_empty() {
                self.line(hop, histogram, now)?;
            }
        }
        self.last = now;
        Ok(())
    }

    /// Appends to the file of a hop; none stays open between two intervals.
    fn line(&mut self, hop: Hop, histogram: &Histogram<u64>, now: Duration) -> Result<()> {
        let text = self.words(hop, histogram, now)?;
        let Some(headed) = self.headed.get_mut(hop as usize) else { return Ok(()) };
        let mut options = File::options();
        let (options, text) = if *headed {
            // The head stands once at the beginning.
            let from = text.trim_ascii_end().iter().rposition(|o| *o == b'\n').map_or(0, |n| n + 1);
            (options.append(true), text.get(from..).unwrap_or_default())
        } else {
            (options.write(true).create(true).truncate(true), text.as_slice())
        };
        let path = path(&self.folder, hop);
        options.open(&path).and_then(|mut file| file.write_all(text)).map_err(|e| failed(&path, &e))?;
        *headed = true;
        Ok(())
    }

    /// Head and line of an interval.
    fn words(&self, hop: Hop, histogram: &Histogram<u64>, now: Duration) -> Result<Vec<u8>> {
        let path = || path(&self.folder, hop);
        let mut text = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let mut builder = IntervalLogWriterBuilder::new();
        builder
            .add_comment("gdmedia soak: latency in nanoseconds")
            .with_start_time(self.begun)
            .with_base_time(self.begun);
        builder.with_max_value_divisor(1e6);
        builder
            .begin_log_with(&mut text, &mut serializer)
            .map_err(|e| failed(&path(), &e))?
            .write_histogram(histogram, self.last, now.saturating_sub(self.last), None)
            .map_err(|e| failed(&path(), &format!("{e:?}")))?;
        Ok(text)
    }
}

fn path(folder: &Path, hop: Hop) -> PathBuf {
    folder.join(format!("latency.{}.hlog", hop.name()))
}

fn failed(path: &Path, e: &dyn std::fmt::Display) -> Error {
    Error::new(Kind::Output, format!("cannot write {}: {e}", path.display()))
        .cure("check its permissions and the space on the disk")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::{Media, channel};
    use crate::time::Tai;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn intervals_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let begun = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let (probe, mut recorder) = channel(Media { rate: None, clock: None, clock_rate: 90_000 });
        let mut logs = Logs::create(&folder.path().join("deep/er"), begun).unwrap();
        // A warm-up of ten seconds belongs to no interval.
        logs.skip(&recorder, Duration::from_secs(10)).unwrap();
        for second in 1..=3u64 {
            for n in 0..second {
                probe.delivered(n, 0, Tai(5), Tai(1_000_000_000), Tai(1_000_000_000 + second * 1_000_000));
            }
            recorder.drain();
            logs.add(&recorder, Duration::from_secs(10 + second)).unwrap();
            recorder.next_interval();
        }
        let text = std::fs::read(folder.path().join("deep/er/latency.complete.hlog")).unwrap();
        let mut found = Vec::new();
        for entry in IntervalLogIterator::new(&text) {
            match entry.unwrap() {
                LogEntry::Interval(i) => {
                    let octets = base64(i.encoded_histogram());
                    let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &octets[..]).unwrap();
                    assert!((histogram.max() as f64 / 1e6 - i.max()).abs() < 0.01, "the largest, in ms");
                    found.push((i.start_timestamp().as_secs(), i.duration().as_secs(), histogram.len()));
                }
                LogEntry::StartTime(t) | LogEntry::BaseTime(t) => assert_eq!(t.as_secs(), 1_700_000_000),
            }
        }
        assert_eq!(found, [(10, 1, 1), (11, 1, 2), (12, 1, 3)]);
        assert!(!folder.path().join("deep/er/latency.gpu.hlog").exists(), "no GPU");
    }

    /// RFC 4648, for the test alone.
    fn base64(text: &str) -> Vec<u8> {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
        for c in text.bytes().filter(|c| *c != b'=') {
            bits = bits << 6 | ALPHABET.iter().position(|a| *a == c).unwrap() as u32;
            count += 6;
            if count >= 8 {
                count -= 8;
                out.push((bits >> count) as u8);
            }
        }
        out
    }
}

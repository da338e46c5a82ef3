//! A soak test: hours of reception, judged by thresholds, against a baseline, and against the faults that were planned.
//!
//! ```text
//! counters, latencies, memory --Soak--> metrics --thresholds, baseline, faults--> checks --> report, exit code
//!                               |
//!                               checkpoint (a file that survives a crash, and from which the report is made as well)
//! ```
//!
//! | module | does |
//! | --- | --- |
//! | [`metric`] | what can be asked for, with its unit |
//! | [`threshold`] | `lost>0`, `latency.complete.p99.9 > 2ms`: an expression and its value |
//! | [`record`] | what is kept of a run, in bounded memory |
//! | [`slope`] | growth by least squares |
//! | [`faults`] | faults that were planned against what was found |
//! | [`baseline`] | an earlier run against this one |
//! | [`checkpoint`] | written whole or not at all |
//! | [`log`](mod@log) | histograms as others' viewers read them |
//! | [`process`] | memory and files of this process |
//! | [`summary`](mod@summary) | all of it as a [`Report`](crate::report::Report) |

pub mod baseline;
pub mod checkpoint;
pub mod faults;
pub mod log;
pub mod metric;
pub mod process;
pub mod record;
pub mod slope;
pub mod summary;
pub mod threshold;

pub use baseline::Baseline;
pub use record::{Record, Sample};
pub use summary::{Judges, summary};
pub use threshold::{Threshold, Wrong};

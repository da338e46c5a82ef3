//! Options of a run from a daemon's configuration: the same options, whoever gives them.

use super::limits::Budget;
use super::{Args, Container, IncompleteArg, Pixels, RecordWay, Stamps, backend};
use clap::{Args as _, FromArgMatches};
use gdmedia::daemon::config::{self, Word};
use gdmedia::encode::Target;
use gdmedia::error::{Error, Kind, Result};
use gdmedia::worker::Seats;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a daemon decides besides.
#[derive(Default)]
pub struct Given {
    /// Who shares threads and cores out.
    pub seats: Option<Arc<Seats>>,
    /// Sockets of ptp4l; none: where linuxptp puts them.
    pub ptp4l: Vec<PathBuf>,
    /// What all have for their frames; none: as the machine has it.
    pub memory: Option<Arc<Budget>>,
}

impl Args {
    /// Those of a receiver.
    ///
    /// # Errors
    /// Options contradict each other.
    pub fn of(receiver: &config::Receiver, given: &Given) -> Result<Args> {
        let config::Receiver { encode, record, preview, export, gst, file, .. } = receiver;
        let mut args =
            Args { again: true, headless: true, wait: Duration::ZERO, called: "gdmedia daemon", ..defaults()? };
        args.flow = receiver.flow;
        args.backend = receiver.backend.iter().map(|backend| (*backend).into()).collect();
        args.interface.clone_from(&receiver.interfaces);
        args.xdp.clone_from(&receiver.xdp);
        args.rivermax.clone_from(&receiver.rivermax);
        args.verbs.clone_from(&receiver.verbs);
        args.dpdk.clone_from(&receiver.dpdk);
        args.core = receiver.core;
        args.seats = given.seats.clone().map(|seats| (seats, receiver.id.clone()));
        args.ptp4l.clone_from(&given.ptp4l);
        args.memory.clone_from(&given.memory);
        args.sleep = receiver.sleep.0;
        args.buffer = receiver.buffer;
        args.stamps = receiver.stamps.into();
        args.tai_offset = receiver.tai_offset;
        args.gpu = receiver.gpu.0;
        args.gpu_memory = receiver.gpu_memory;
        args.redundancy = receiver.redundancy.map(|Word(class)| class);
        args.incomplete = receiver.incomplete.into();
        args.timing = receiver.timing;
        args.patience = receiver.switch_timeout.0;
        args.output = receiver.output.map(Into::into);
        if let Some(config::Encode { codec: Some(Word(spec)), to: Some(Word(target)) }) = encode {
            args.encode = Some(spec.clone());
            args.out = Some(match target {
                Target::File { path, .. } => path.clone(),
                Target::Srt { url } => url.into(),
                Target::Rtp { host, port } if host.contains(':') => format!("rtp://[{host}]:{port}").into(),
                Target::Rtp { host, port } => format!("rtp://{host}:{port}").into(),
            });
        }
        if let Some(record) = record {
            args.record = Some(record.folder.clone());
            args.segment = record.segment.0;
            args.way = record.way.into();
        }
        if let Some(preview) = preview {
            (args.preview_elsewhere, args.preview_width, args.preview_rate) = (true, preview.width, preview.rate);
        }
        if let Some(config::Export { to: Some(Word(target)) }) = export {
            args.export = Some(target.clone());
        }
        if let Some(gst) = gst {
            args.sink = Some(gst.fragment.clone());
            args.headless = false;
        }
        if let Some(file) = file {
            args.also = Some(file.path.clone());
            args.format = file.format.map(Into::into);
        }
        args.settle()?;
        Ok(args)
    }

    /// Files that sinks write to, or their folders: no two receivers may have the same.
    pub fn places(&self) -> impl Iterator<Item = &Path> {
        let export = self.export.as_ref().map(|target| target.path.as_path());
        let coded = self.out.as_deref().filter(|out| !out.to_string_lossy().contains("://"));
        [coded, self.file(), self.record.as_deref(), export].into_iter().flatten()
    }
}

/// Every option as it is when nobody gives it.
fn defaults() -> Result<Args> {
    let command = Args::augment_args(clap::Command::new("receiver"));
    let wrong = |e: clap::Error| Error::new(Kind::Internal, "options have no defaults").because(e);
    let matches = command.try_get_matches_from(["receiver"]).map_err(wrong)?;
    Args::from_arg_matches(&matches).map_err(wrong)
}

impl From<config::Backend> for backend::Backend {
    fn from(backend: config::Backend) -> Self {
        match backend {
            config::Backend::Auto => backend::Backend::Auto,
            config::Backend::Socket => backend::Backend::Socket,
            config::Backend::Xdp => backend::Backend::Xdp,
            config::Backend::Rivermax => backend::Backend::Rivermax,
            config::Backend::Verbs => backend::Backend::Verbs,
            config::Backend::Dpdk => backend::Backend::Dpdk,
        }
    }
}

impl From<config::Stamps> for Stamps {
    fn from(stamps: config::Stamps) -> Self {
        match stamps {
            config::Stamps::Auto => Stamps::Auto,
            config::Stamps::Software => Stamps::Software,
            config::Stamps::Hardware => Stamps::Hardware,
        }
    }
}

impl From<config::Incomplete> for IncompleteArg {
    fn from(incomplete: config::Incomplete) -> Self {
        match incomplete {
            config::Incomplete::Conceal => IncompleteArg::Conceal,
            config::Incomplete::Show => IncompleteArg::Show,
            config::Incomplete::Drop => IncompleteArg::Drop,
        }
    }
}

impl From<config::Pixels> for Pixels {
    fn from(pixels: config::Pixels) -> Self {
        match pixels {
            config::Pixels::Wire => Pixels::Wire,
            config::Pixels::Planar => Pixels::Planar,
            config::Pixels::P010 => Pixels::P010,
            config::Pixels::P210 => Pixels::P210,
            config::Pixels::Nv12 => Pixels::Nv12,
            config::Pixels::Uyvy => Pixels::Uyvy,
            config::Pixels::V210 => Pixels::V210,
            config::Pixels::Rgba => Pixels::Rgba,
            config::Pixels::Rgb16f => Pixels::Rgb16f,
        }
    }
}

impl From<config::Way> for RecordWay {
    fn from(way: config::Way) -> Self {
        match way {
            config::Way::Auto => RecordWay::Auto,
            config::Way::Cufile => RecordWay::Cufile,
            config::Way::Uring => RecordWay::Uring,
            config::Way::Pwrite => RecordWay::Pwrite,
        }
    }
}

impl From<config::FileFormat> for Container {
    fn from(format: config::FileFormat) -> Self {
        match format {
            config::FileFormat::Y4m => Container::Y4m,
            config::FileFormat::Raw => Container::Raw,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    const NONE: Given = Given { seats: None, ptp4l: Vec::new(), memory: None };

    fn receiver(text: &str) -> config::Receiver {
        gdmedia::config::parse("receiver", text).unwrap()
    }

    /// What a receiver leaves out is what `play` has without the option.
    #[test]
    fn defaults_are_those_of_play() {
        let args = Args::of(&receiver("id = \"a\""), &NONE).unwrap();
        let play = defaults().unwrap();
        assert_eq!(
            (args.buffer, args.sleep, args.backend, args.timing),
            (play.buffer, play.sleep, play.backend, play.timing)
        );
        assert_eq!(
            (args.segment, args.preview_width, args.preview_rate),
            (play.segment, play.preview_width, play.preview_rate)
        );
        let preview = config::Preview::default();
        assert_eq!((preview.width, preview.rate), (play.preview_width, play.preview_rate));
        assert_eq!(config::Segment::default().0, play.segment);
        let (word, of_play) = (config::Incomplete::Conceal.word(), play.incomplete.to_possible_value().unwrap());
        assert_eq!(word, of_play.get_name());
    }

    #[test]
    fn sinks_become_options() {
        let text = "id = \"a\"\ncore = 3\n[encode]\ncodec = \"h264\"\nto = \"a.mp4\"\n[record]\nfolder = \"/srv\"\nway = \"pwrite\"\n\
             [gst]\nfragment = \"fakesink\"\n[file]\npath = \"b.raw\"\nformat = \"raw\"\n[preview]\nrate = 5\n";
        let args = Args::of(&receiver(text), &Given { memory: Some(Budget::new(5)), ..NONE }).unwrap();
        assert_eq!((args.core, args.memory.is_some(), args.preview_rate), (Some(3), true, 5));
        assert_eq!(args.file(), Some(Path::new("b.raw")));
        assert!(!args.headless && args.again && args.preview_elsewhere && args.preview.is_none());
        let places: Vec<_> = args.places().map(Path::to_owned).collect();
        assert_eq!(places, ["a.mp4", "b.raw", "/srv"].map(PathBuf::from));
        let given = Given { ptp4l: vec!["/run/x".into()], ..NONE };
        let args = Args::of(&receiver("id = \"a\""), &given).unwrap();
        assert!(args.headless && args.core.is_none() && args.ptp4l == given.ptp4l);
    }
}

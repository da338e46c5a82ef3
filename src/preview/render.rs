//! The thread that makes pictures of frames: low in priority, at most so many a second, none that nobody asked for.

use super::eye::{self, Eye};
#[cfg(feature = "cuda")]
use super::gpu::DeviceEye;
use super::mailbox::{Answer, Ask, ScopePictures, Shown, Work};
use super::{Live, Options, Source, Still, draw};
#[cfg(feature = "cuda")]
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::gpu::Gpu;
use crate::kernel::Conversion;
use crate::scale::Picture;
use crate::scope::Scope;
use crate::unix::{priority, rights};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Between the parts of the live picture.
pub const BOUNDARY: &str = "gdmedia-picture";
/// Columns of a waveform.
const COLUMNS: usize = 480;
/// Scopes are made so often at most, however many ask.
const SCOPES: Duration = Duration::from_millis(150);
/// Columns of pictures to step through, about: those of HD.
const STILL: u32 = 1920;
/// Columns of thumbnails, about.
const THUMBNAIL: u32 = 320;
/// They are made so often at most, however many ask.
const THUMBNAILS: Duration = Duration::from_secs(1);
/// Quality of pictures that are looked at closely.
const FINE: u8 = 92;

/// Makes pictures.
pub struct Renderer {
    source: Source,
    options: Options,
    /// For live pictures, for those to step through, and for thumbnails.
    factors: [u32; 3],
    eye: Eye,
    #[cfg(feature = "cuda")]
    device: Option<DeviceEye>,
    scopes: Option<(Instant, Answer)>,
    /// Also good for as long as no other frame has come.
    thumbnail: Option<(Instant, Answer)>,
}

impl Renderer {
    #[cfg(feature = "cuda")]
    pub fn new(source: Source, conversion: &Conversion, options: Options, gpu: Option<&Arc<Gpu>>) -> Result<Self> {
        let factors = factors(conversion, options);
        let device = gpu.map(|gpu| DeviceEye::new(gpu, conversion, factors)).transpose()?;
        Ok(Renderer { source, options, factors, eye: Eye::new(conversion), device, scopes: None, thumbnail: None })
    }
    #[cfg(not(feature = "cuda"))]
    pub fn new(source: Source, conversion: &Conversion, options: Options) -> Self {
        let factors = factors(conversion, options);
        Renderer { source, options, factors, eye: Eye::new(conversion), scopes: None, thumbnail: None }
    }

    /// Until the mailbox is closed.
    pub fn run(&mut self) {
        priority::lower();
        rights::none();
        let pause = Duration::from_secs(1) / self.options.rate.max(1);
        let mut not_before = Instant::now();
        loop {
            match self.source.0.mailbox.next(not_before) {
                Work::End => break,
                Work::Live(frame) => {
                    let begun = Instant::now();
                    self.live(&frame);
                    not_before = begun + pause;
                }
                Work::Answer(ask, frame, answers) => {
                    let answer = self.answer(ask, frame);
                    for to in answers {
                        // Whoever has gone meanwhile needs none.
                        let _ = to.send(answer.clone());
                    }
                }
                Work::Freeze(frames, answers) => {
                    let answer = self.freeze(frames);
                    for to in answers {
                        let _ = to.send(answer.clone());
                    }
                }
            }
        }
        // Whoever watches learns that there is no more.
        self.source.0.live.send_replace(None);
    }

    fn live(&mut self, frame: &Shown) {
        let Some(jpeg) = self.jpeg(frame, self.factors[0], self.options.quality) else { return };
        let meta = frame.meta();
        let mut part = format!(
            "Content-Type: image/jpeg\r\nContent-Length: {}\r\nX-Frame-Number: {}\r\nX-Frame-Complete: {}\r\n\r\n",
            jpeg.len(),
            meta.number,
            meta.complete
        )
        .into_bytes();
        let at = part.len();
        part.extend_from_slice(&jpeg);
        // Browsers show a part when they see the boundary behind it.
        part.extend_from_slice(format!("\r\n--{BOUNDARY}\r\n").as_bytes());
        self.source.0.rendered.fetch_add(1, Relaxed);
        if self.source.0.mailbox.viewers() > 0 {
            let part = Bytes::from(part);
            let jpeg = part.slice(at..at + jpeg.len());
            self.source.0.live.send_replace(Some(Arc::new(Live { part, jpeg, number: meta.number })));
        }
    }

    fn answer(&mut self, ask: Ask, frame: Option<Shown>) -> Answer {
        if let (Ask::Scopes, Some((made, scopes))) = (ask, &self.scopes)
            && made.elapsed() < SCOPES
        {
            return scopes.clone();
        }
        let Some(frame) = frame else { return Answer::None("no frame has come yet".into()) };
        let number = frame.meta().number;
        if let (Ask::Thumbnail, Some((made, thumbnail))) = (ask, &self.thumbnail)
            && (made.elapsed() < THUMBNAILS || matches!(thumbnail, Answer::Picture(_, of) if *of == number))
        {
            return thumbnail.clone();
        }
        let answer = match ask {
            Ask::Jpeg => self
                .full(&frame)
                .and_then(|(width, height, rgb)| draw::jpeg_rgb(&rgb, width, height, FINE))
                .map(|file| Answer::Picture(file.into(), number)),
            Ask::Png => self
                .full(&frame)
                .and_then(|(width, height, rgb)| draw::png_rgb(&rgb, width, height))
                .map(|file| Answer::Picture(file.into(), number)),
            Ask::Scopes => self.scope(&frame).and_then(|scope| {
                let waveform = draw::waveform(&scope)?.into();
                let vectorscope = draw::vectorscope(&scope).map(Bytes::from);
                Some(Answer::Scopes(Arc::new(ScopePictures { number, waveform, vectorscope })))
            }),
            Ask::Thumbnail => self
                .jpeg(&frame, self.factors[2], self.options.quality)
                .map(|file| Answer::Picture(file.into(), number)),
            // Has its own way.
            Ask::Freeze => None,
        };
        let answer = answer.unwrap_or_else(|| Answer::None("frames of this output cannot be shown so".into()));
        match ask {
            Ask::Scopes => self.scopes = Some((Instant::now(), answer.clone())),
            Ask::Thumbnail => self.thumbnail = Some((Instant::now(), answer.clone())),
            Ask::Jpeg | Ask::Png | Ask::Freeze => {}
        }
        answer
    }

    fn freeze(&mut self, frames: Vec<Shown>) -> Answer {
        let mut pictures = Vec::with_capacity(frames.len());
        for frame in frames {
            let Some(jpeg) = self.jpeg(&frame, self.factors[1], FINE) else { continue };
            let meta = frame.meta();
            pictures.push(Still {
                jpeg: jpeg.into(),
                number: meta.number,
                timestamp: meta.timestamp,
                complete: meta.complete,
                missing: meta.missing.iter().map(|missing| u64::from(missing.len)).sum(),
            });
        }
        self.source.0.mailbox.thaw();
        if pictures.is_empty() {
            return Answer::None("no frame has come yet".into());
        }
        Answer::Frozen(self.source.keep_frozen(pictures))
    }

    fn jpeg(&mut self, frame: &Shown, factor: u32, quality: u8) -> Option<Vec<u8>> {
        let Picture { width, height, octets } = self.picture(frame, factor)?;
        draw::jpeg_rgba(&octets, width, height, quality)
    }

    /// None of a frame on a GPU that was lost.
    fn picture(&mut self, frame: &Shown, factor: u32) -> Option<Picture> {
        match frame {
            Shown::Host(frame) => Some(self.eye.picture(frame, factor)),
            #[cfg(feature = "cuda")]
            Shown::Device(frame) => match self.device.as_mut()?.picture(frame, factor) {
                Ok(Some(picture)) => Some(picture),
                // What the GPU cannot make small is brought here whole.
                Ok(None) => Some(self.eye.picture(&self.device.as_mut()?.download(frame).ok()?, factor)),
                Err(_) => None,
            },
        }
    }

    fn scope(&mut self, frame: &Shown) -> Option<Scope> {
        match frame {
            Shown::Host(frame) => self.eye.scope(frame, COLUMNS),
            #[cfg(feature = "cuda")]
            Shown::Device(frame) => match self.device.as_mut()?.scope(frame, COLUMNS) {
                Ok(Some(scope)) => Some(scope),
                Ok(None) => self.eye.scope(&self.device.as_mut()?.download(frame).ok()?, COLUMNS),
                Err(_) => None,
            },
        }
    }

    fn full(&mut self, frame: &Shown) -> Option<(u32, u32, Vec<u8>)> {
        match frame {
            Shown::Host(frame) => Some(self.eye.full(frame)),
            #[cfg(feature = "cuda")]
            Shown::Device(frame) => Some(self.eye.full(&self.device.as_mut()?.download(frame).ok()?)),
        }
    }
}

fn factors(conversion: &Conversion, options: Options) -> [u32; 3] {
    let width = conversion.wire().width;
    [options.width, STILL, THUMBNAIL].map(|wanted| eye::factor(width, wanted))
}

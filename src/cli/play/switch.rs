//! From one flow to another: the new one is received beside the old one, which is left when the new one has brought a whole
//! frame. Sinks live on where the picture is the same.

use super::backend::{Backend, Inputs};
use super::engine::Engine;
use super::gate::{Gate, When};
use super::health::Watch;
use super::overlay::Words;
use super::preview::Teller;
use super::session::{Line, Plan, Session, conversion, layout, seat, take_memory};
use super::sinks::{self, Offers, Prepared};
use super::time::{self, Time};
use super::{Args, choose};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::format::WireFormat;
use gdmedia::gpu::Found;
use gdmedia::kernel::Conversion;
use gdmedia::mem;
use gdmedia::pipeline;
use gdmedia::sdp::{Description, Flow, Video};
use gdmedia::worker::{Ended, Worker};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// A flow that is to take the place of another.
pub struct Next {
    line: Line,
    begun: Instant,
    /// Sinks are made anew for it.
    anew: Option<Anew>,
}

/// What sinks of another picture are made from.
struct Anew {
    offers: Offers,
    prepared: Box<Prepared>,
}

/// How a switch began.
pub enum Begun {
    /// Both flows are received; [`Session::progress`] tells of the rest.
    Beside,
    /// It is done, and this is to be said: the old flow had to be left first.
    Done(String),
    /// The two cannot be received at once, for this reason: this session is to end, and another one to begin.
    Apart(String),
}

/// Where a switch stands.
pub enum Progress {
    /// There is none, or it goes on.
    Going,
    /// It is done; what there is to say.
    Done(String),
    /// The new flow could not be had, and the old one goes on.
    Refused(Error),
    /// Neither of them can: the session has to be opened anew.
    Broken(Error),
}

/// A flow to go to.
struct Wanted {
    flow: Flow,
    video: Video,
    conversion: Conversion,
}

impl Session {
    /// Is there a flow that could be received?
    ///
    /// # Errors
    /// What is wrong with it. A flow that is to come is not touched.
    pub fn check(&self, description: &Description) -> Result<()> {
        self.find(description).map(drop)
    }
    fn find<'a>(&self, description: &'a Description) -> Result<(&'a Flow, &'a Video, WireFormat)> {
        let flow = choose::flow(description, self.line.plan.args.flow)?;
        let video = choose::video(flow, description)?;
        Ok((flow, video, pipeline::wire(video)?))
    }

    /// Begins to receive another flow. One that was to come before is given up, see [`Session::give_up_next`].
    ///
    /// # Errors
    /// It cannot be received; everything is as it was.
    pub fn switch(&mut self, description: &Description) -> Result<Begun> {
        let (flow, video, wire) = self.find(description)?;
        self.give_up_next();
        let args = self.line.plan.args.clone();
        let on_gpu = self.gpu.clone().filter(|_| self.line.on_gpu);
        let now = &self.line.plan;
        let same =
            alike(video, &now.video) && layout(wire, now.conversion.output()).is_ok_and(|l| l == now.conversion.layout);
        let taken = common_leg(&now.flow, flow);
        if same && !self.are_bound() {
            let layout = layout(wire, now.conversion.output())?;
            let wanted = Wanted { flow: flow.clone(), video: video.clone(), conversion: conversion(video, layout) };
            return match taken {
                None => self.beside(wanted, None),
                Some(taken) => self.in_its_place(wanted, &taken),
            };
        }
        let prepared = sinks::prepare(&args, video, &wire, on_gpu.as_ref())?;
        let layout = layout(wire, prepared.output)?;
        if let Some(taken) = taken {
            return Ok(Begun::Apart(taken));
        }
        if on_gpu.is_some() || prepared.wants_gpu() {
            return Ok(Begun::Apart("its sinks know the GPU's memory of the flow before".into()));
        }
        let wanted = Wanted { flow: flow.clone(), video: video.clone(), conversion: conversion(video, layout) };
        let anew = Anew { offers: Offers::later(), prepared: Box::new(prepared) };
        self.beside(wanted, Some(anew))
    }

    #[cfg(feature = "cuda")]
    fn are_bound(&self) -> bool {
        self.sinks.are_bound()
    }
    #[cfg(not(feature = "cuda"))]
    const fn are_bound(&self) -> bool {
        false
    }

    /// Begins to receive it while the old one goes on.
    fn beside(&mut self, wanted: Wanted, anew: Option<Anew>) -> Result<Begun> {
        let number = self.line.plan.line.wrapping_add(1);
        let line = match self.open_line(wanted, number, anew.as_ref().map(|anew| anew.offers.clone())) {
            Ok(line) => line,
            // There may be room for one of them.
            Err(error) if error.kind() == Kind::Unavailable && may_want_all(&self.line.plan.args, self.line.on_gpu) => {
                return Ok(Begun::Apart(error.in_one_line()));
            }
            Err(error) => return Err(error),
        };
        let when = if anew.is_some() { When::Told } else { When::Whole };
        expect(&line.plan, when);
        self.next = Some(Next { line, begun: Instant::now(), anew });
        Ok(Begun::Beside)
    }

    /// Leaves the old one first. Sinks live on.
    fn in_its_place(&mut self, wanted: Wanted, why: &str) -> Result<Begun> {
        let text = format!("switched to {}; the flow before was left first: {why}", choose::summary(&wanted.flow));
        let (number, gate) = (self.line.plan.line.wrapping_add(1), self.gate().clone());
        gate.shut();
        self.line.close();
        match self.open_line(wanted, number, None) {
            Ok(line) => {
                expect(&line.plan, When::Whole);
                self.install(line);
                Ok(Begun::Done(text))
            }
            Err(error) => {
                let Plan { flow, video, conversion, .. } = &self.line.plan;
                let before = Wanted { flow: flow.clone(), video: video.clone(), conversion: conversion.clone() };
                // Where that fails too, reception has ended by itself, which is seen.
                if let Ok(line) = self.open_line(before, number, None) {
                    expect(&line.plan, When::Any);
                    self.install(line);
                }
                Err(error)
            }
        }
    }

    fn open_line(&self, wanted: Wanted, number: u32, later: Option<Offers>) -> Result<Line> {
        let Plan { args, gate, .. } = &self.line.plan;
        let stop = Arc::new(AtomicBool::new(false));
        let Wanted { flow, video, conversion } = wanted;
        let plan = Plan { args: args.clone(), flow, video, conversion, gate: gate.clone(), line: number, stop };
        let share = take_memory(&plan, &self.sinks)?;
        let on_gpu = self.gpu.as_ref().filter(|_| self.line.on_gpu);
        let seat = seat(&plan.args, &plan.flow, &plan.video, on_gpu);
        let _near = mem::near(seat.node());
        let chosen = Found { gpu: self.gpu.clone().filter(|_| self.line.on_gpu), why: self.line.processor.clone() };
        let Plan { flow, video, conversion, stop, .. } = &plan;
        let inputs = Inputs { args, flow, video, layout: &conversion.layout, stop };
        let opened = inputs.open(chosen.gpu.as_ref())?;
        let mut engine = Engine::beside(&plan.run(), chosen, opened, &self.sinks, later)?;
        Line::join(&mut engine, &plan)?;
        let processor = engine.processor();
        Line::start(engine, plan, &self.sinks, processor, seat, share)
    }

    /// Goes on with a switch that has begun; to be called with every look.
    pub fn progress(&mut self) -> Progress {
        let Some(next) = &mut self.next else { return Progress::Going };
        let gate = next.line.plan.gate.clone();
        let patience = next.line.plan.args.patience;
        let late = next.begun.elapsed() >= patience;
        let open = gate.is_open(next.line.plan.line);
        let ended = next.line.worker.as_ref().is_none_or(Worker::is_finished);
        if ended && !open {
            gate.expect_none();
            let Some(mut next) = self.next.take() else { return Progress::Going };
            return Progress::Refused(match next.line.close().0 {
                Ended::Failed(error) => error,
                _ => Error::new(Kind::Unavailable, "the new flow ended before it began"),
            });
        }
        let due = match &next.anew {
            None => open || late,
            Some(_) => gate.has_come() || late,
        };
        if !due {
            return Progress::Going;
        }
        let Some(Next { line, anew, .. }) = self.next.take() else { return Progress::Going };
        let mut text = format!("switched to {}", choose::summary(&line.plan.flow));
        let whole = if anew.is_some() { gate.has_come() } else { open };
        if !whole {
            text += &format!("; no whole frame of it came within {patience:?}");
        }
        match anew {
            None => {
                gate.take_over(line.plan.line, time::media(&line.plan.flow, &line.plan.video));
                self.install(line);
                Progress::Done(text)
            }
            Some(anew) => match self.rebuild(&line.plan, anew, whole) {
                Ok(()) => {
                    self.install(line);
                    Progress::Done(text + "; its picture is another, so that all sinks began anew")
                }
                Err(error) => {
                    let mut line = line;
                    line.close();
                    Progress::Broken(error)
                }
            },
        }
    }

    /// Ends the sinks of the picture before, and begins those of the new one.
    fn rebuild(&mut self, plan: &Plan, Anew { offers, prepared }: Anew, whole: bool) -> Result<()> {
        let Plan { args, flow, video, conversion, gate, .. } = plan;
        gate.shut();
        // What was taken is as good as it can be; the next sinks say what is in their way.
        let _ = self.sinks.finish();
        let mut sinks = sinks::build(args, *prepared, flow, video, conversion, &gate.probe, false)?;
        sinks.without_gpu(&plan.run())?;
        offers.come(&sinks);
        self.sinks = sinks;
        expect(plan, if whole { When::Whole } else { When::Any });
        Ok(())
    }

    /// From now on it is this one that is looked at; the one before ends.
    fn install(&mut self, line: Line) {
        let mut before = std::mem::replace(&mut self.line, line);
        before.close();
        let Plan { args, flow, video, .. } = &self.line.plan;
        self.health = Watch::new(args, flow);
        self.words = Words::new(video, args.overlay);
        self.teller = self.sinks.page().map(|page| Teller::new(page, flow, video));
        if let Ok(time) = Time::open(args, flow) {
            self.time = time;
        }
    }

    /// A flow that was to come is not to any more. True: its frames pass already, so that it has taken the place of the one before.
    pub fn give_up_next(&mut self) -> bool {
        let Some(mut next) = self.next.take() else { return false };
        let Plan { gate, line, .. } = &next.line.plan;
        gate.expect_none();
        let passes = gate.is_open(*line);
        if passes {
            self.install(next.line);
        } else {
            next.line.close();
        }
        passes
    }
}

fn expect(plan: &Plan, when: When) {
    let gate: &Gate = &plan.gate;
    gate.expect(plan.line, time::media(&plan.flow, &plan.video), when);
}

/// A backend, or a GPU, that may have no room for two.
fn may_want_all(args: &Args, on_gpu: bool) -> bool {
    on_gpu || args.backend.iter().any(|backend| !matches!(backend, Backend::Socket | Backend::Auto))
}

/// Sinks cannot tell them apart: all but how the packets are cut and paced.
fn alike(a: &Video, b: &Video) -> bool {
    let picture =
        |v: &Video| (v.sampling, v.depth, v.width, v.height, v.rate, v.scan, v.colorimetry, v.tcs, v.range, v.par);
    picture(a) == picture(b)
}

/// Two flows to one address and port are one to a socket.
fn common_leg(a: &Flow, b: &Flow) -> Option<String> {
    let same = |leg: &&gdmedia::sdp::Leg| b.legs.iter().any(|l| (l.destination, l.port) == (leg.destination, leg.port));
    let leg = a.legs.iter().find(same)?;
    Some(format!("both come to {} port {}", leg.destination, leg.port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdmedia::sdp::{Mode, Packing, Scan, parse};

    fn flow(port: u16) -> Flow {
        let sdp = format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=video {port} RTP/AVP 96\r\nc=IN IP4 239.1.1.1/8\r\n\
             a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=64; height=32; exactframerate=25; depth=10; \
             TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
             a=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:direct=0\r\n"
        );
        parse(sdp.as_bytes(), Mode::Lenient).flows.remove(0)
    }

    #[test]
    fn pictures_are_alike_whatever_their_packets_are() {
        let flow = flow(5004);
        let video = pipeline::video(&flow).unwrap();
        assert!(alike(video, &Video { packing: Packing::Bpm, max_udp: 8960, cmax: Some(3), ..video.clone() }));
        assert!(!alike(video, &Video { scan: Scan::Interlaced, ..video.clone() }));
        assert!(!alike(video, &Video { rate: None, ..video.clone() }));
    }

    #[test]
    fn one_address_and_port_cannot_have_two_flows() {
        assert_eq!(common_leg(&flow(5004), &flow(5006)), None);
        assert_eq!(common_leg(&flow(5004), &flow(5004)).as_deref(), Some("both come to 239.1.1.1 port 5004"));
    }
}

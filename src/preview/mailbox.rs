//! What lies between frames and their pictures: the newest frame in one slot, the few before it for stepping, and what
//! viewers ask for. Putting a frame in takes a pointer's move and never waits for whoever renders.

use crate::error::Result;
use crate::frame::{Frame, Meta};
#[cfg(feature = "cuda")]
use crate::mem::Device;
use crate::mem::{Host, Space};
use crate::sink::{Next, Sink};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A frame, wherever it lies.
#[derive(Clone, Debug)]
pub enum Shown {
    /// In memory of the CPU.
    Host(Frame<Host>),
    /// In memory of the GPU.
    #[cfg(feature = "cuda")]
    Device(Frame<Device>),
}

impl Shown {
    /// What is known of it.
    pub fn meta(&self) -> &Meta {
        match self {
            Shown::Host(frame) => frame.meta(),
            #[cfg(feature = "cuda")]
            Shown::Device(frame) => frame.meta(),
        }
    }
}

impl From<Frame<Host>> for Shown {
    fn from(frame: Frame<Host>) -> Self {
        Shown::Host(frame)
    }
}

#[cfg(feature = "cuda")]
impl From<Frame<Device>> for Shown {
    fn from(frame: Frame<Device>) -> Self {
        Shown::Device(frame)
    }
}

/// What a viewer asks for besides the live picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The newest frame in full size.
    Jpeg,
    /// The same without loss.
    Png,
    /// Waveform and vectorscope of the newest frame.
    Scopes,
    /// The newest frame, very small.
    Thumbnail,
    /// The last frames, to step through.
    Freeze,
}

/// What comes back.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A picture as a file, and the number of its frame.
    Picture(Bytes, u64),
    /// Both scopes as PNG; the vectorscope where there is colour.
    Scopes(Arc<ScopePictures>),
    /// What is to be stepped through.
    Frozen(Arc<super::Frozen>),
    /// There is none: no frame has come yet, or it cannot be read; says why.
    None(String),
}

/// Both scopes of a frame.
#[derive(Clone, Debug)]
pub struct ScopePictures {
    /// Number of the frame.
    pub number: u64,
    /// PNG.
    pub waveform: Bytes,
    /// PNG.
    pub vectorscope: Option<Bytes>,
}

/// What there is to do for the thread that renders.
pub enum Work {
    /// Nothing any more.
    End,
    /// The live picture, of this frame.
    Live(Shown),
    /// What these viewers ask for, all the same; of this frame, where there is one.
    Answer(Ask, Option<Shown>, Vec<oneshot::Sender<Answer>>),
    /// The last frames, oldest first, for these viewers; they stay as they are until [`Mailbox::thaw`].
    Freeze(Vec<Shown>, Vec<oneshot::Sender<Answer>>),
}

/// The slot.
#[derive(Debug)]
pub struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
    /// Frames that are kept for stepping.
    keep: usize,
}

#[derive(Debug, Default)]
struct State {
    newest: Option<Shown>,
    /// Counts frames; that of the newest.
    count: u64,
    /// Of the frame that was rendered last.
    seen: u64,
    /// When it came.
    came: Option<Instant>,
    /// The last frames, oldest first.
    kept: VecDeque<Shown>,
    frozen: bool,
    viewers: usize,
    jobs: VecDeque<(Ask, oneshot::Sender<Answer>)>,
    /// Something was asked for, and done, since the last live picture.
    answered: bool,
    closing: bool,
}

impl Mailbox {
    /// Empty; keeps the last `keep` frames, at least one.
    pub fn new(keep: usize) -> Self {
        Mailbox { state: Mutex::default(), changed: Condvar::new(), keep: keep.max(1) }
    }
    /// Frames that it may hold, those that are being rendered included: the kept ones, the newest one beside kept ones that
    /// are frozen, and one in hand.
    pub const fn holds(&self) -> usize {
        self.keep + 2
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole at every instant, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame has come.
    pub fn put(&self, frame: Shown) {
        let mut state = self.lock();
        state.count += 1;
        state.came = Some(Instant::now());
        let mut old = [None, None];
        if !state.frozen {
            if state.kept.len() >= self.keep {
                old[0] = state.kept.pop_front();
            }
            state.kept.push_back(frame.clone());
        }
        old[1] = state.newest.replace(frame);
        let wanted = state.viewers > 0;
        drop(state);
        if wanted {
            self.changed.notify_one();
        }
        // Going home, they take the pool's lock and not this one.
        drop(old);
    }

    /// No frames come any more: gives back those that it holds.
    pub fn clear(&self) {
        let mut state = self.lock();
        let old = (state.newest.take(), std::mem::take(&mut state.kept));
        drop(state);
        drop(old);
    }

    /// Time since the newest frame came.
    pub fn age(&self) -> Option<Duration> {
        self.lock().came.map(|came| came.elapsed())
    }

    /// Somebody watches, until [`Mailbox::leave`]. The first one has the newest frame rendered, however old it is.
    pub fn join(&self) {
        let mut state = self.lock();
        if state.viewers == 0 {
            state.seen = 0;
        }
        state.viewers += 1;
        drop(state);
        self.changed.notify_one();
    }
    /// Somebody watches no longer. Says whether nobody does.
    pub fn leave(&self) -> bool {
        let mut state = self.lock();
        state.viewers = state.viewers.saturating_sub(1);
        state.viewers == 0
    }
    /// How many watch.
    pub fn viewers(&self) -> usize {
        self.lock().viewers
    }

    /// Asks; the answer comes when the thread that renders has it, or never, when it ends.
    pub fn ask(&self, ask: Ask) -> oneshot::Receiver<Answer> {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.lock();
        if !state.closing {
            state.jobs.push_back((ask, answer));
        }
        drop(state);
        self.changed.notify_one();
        receiver
    }

    /// Frames go on being kept.
    pub fn thaw(&self) {
        self.lock().frozen = false;
    }

    /// No more work.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        state.jobs.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for work: what is asked for, first come first served, and the live picture where somebody watches and a frame has
    /// come since the last one, not before `not_before`. Where there is both they take turns, so that none waits for the other
    /// for long.
    pub fn next(&self, not_before: Instant) -> Work {
        let mut state = self.lock();
        loop {
            if state.closing {
                return Work::End;
            }
            let due = state.viewers > 0 && state.count > state.seen;
            let wait = not_before.saturating_duration_since(Instant::now());
            if let Some(frame) = state.newest.clone().filter(|_| due && wait.is_zero())
                && (state.jobs.is_empty() || state.answered)
            {
                (state.seen, state.answered) = (state.count, false);
                return Work::Live(frame);
            }
            if let Some((ask, answer)) = state.jobs.pop_front() {
                state.answered = true;
                let mut answers = vec![answer];
                // Who asks for the same gets the same.
                let (same, others): (VecDeque<_>, VecDeque<_>) =
                    std::mem::take(&mut state.jobs).into_iter().partition(|(other, _)| *other == ask);
                state.jobs = others;
                answers.extend(same.into_iter().map(|(_, answer)| answer));
                if ask == Ask::Freeze {
                    state.frozen = true;
                    return Work::Freeze(state.kept.iter().cloned().collect(), answers);
                }
                return Work::Answer(ask, state.newest.clone(), answers);
            }
            state = if due && !wait.is_zero() {
                self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

/// The sink: puts frames into the mailbox and returns at once.
#[derive(Debug)]
pub struct Post {
    mailbox: Arc<Mailbox>,
    text: String,
}

impl Post {
    pub(super) fn new(mailbox: Arc<Mailbox>, text: String) -> Self {
        Post { mailbox, text }
    }
}

impl<F: Space> Sink<F> for Post
where
    Shown: From<Frame<F>>,
{
    fn take(&mut self, frame: &Frame<F>) -> Result<Next> {
        self.mailbox.put(frame.clone().into());
        Ok(Next::More)
    }
    fn finish(&mut self) -> Result<()> {
        self.mailbox.clear();
        Ok(())
    }
    fn describe(&self) -> String {
        self.text.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Layout, Output, WireFormat};
    use crate::frame::FramePool;
    use gdmedia_sdp::{Depth, Sampling, Scan};

    fn pool(frames: usize) -> FramePool<Host> {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 16, 4, Scan::Progressive).unwrap();
        FramePool::host(Layout::new(wire, Output::Planar).unwrap(), frames).unwrap()
    }

    fn put(mailbox: &Mailbox, pool: &FramePool<Host>, number: u64) {
        let mut frame = pool.take().expect("a frame is free");
        frame.meta_mut().number = number;
        mailbox.put(frame.seal().into());
    }

    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn it_holds_no_more_frames_than_it_says() {
        let mailbox = Mailbox::new(3);
        // One more, which is being filled when the next one comes.
        let pool = pool(mailbox.holds() + 1);
        (0..50).for_each(|n| put(&mailbox, &pool, n));
        drop(mailbox.ask(Ask::Freeze));
        let Work::Freeze(frames, _) = mailbox.next(now()) else { panic!("freezing is asked for") };
        let numbers: Vec<u64> = frames.iter().map(|frame| frame.meta().number).collect();
        assert_eq!(numbers, [47, 48, 49]);
        // Live goes on meanwhile, and what is frozen stays.
        (50..60).for_each(|n| put(&mailbox, &pool, n));
        drop(frames);
        drop(mailbox.ask(Ask::Freeze));
        let Work::Freeze(frames, _) = mailbox.next(now()) else { panic!() };
        assert_eq!(frames.iter().map(|frame| frame.meta().number).collect::<Vec<_>>(), numbers);
        drop(frames);
        mailbox.thaw();
        put(&mailbox, &pool, 60);
        mailbox.clear();
        assert_eq!(std::iter::from_fn(|| pool.take()).count(), pool.frames(), "all came home");
    }

    #[test]
    fn live_pictures_are_made_of_the_newest_frame_for_those_who_watch() {
        let mailbox = Mailbox::new(2);
        let pool = pool(8);
        (0..3).for_each(|n| put(&mailbox, &pool, n));
        mailbox.join();
        let Work::Live(frame) = mailbox.next(now()) else { panic!("the newest is to be rendered") };
        assert_eq!(frame.meta().number, 2);
        // Nothing new: only what is asked for is done.
        drop(mailbox.ask(Ask::Png));
        assert!(matches!(mailbox.next(now()), Work::Answer(Ask::Png, Some(_), answers) if answers.len() == 1));
        assert!(mailbox.leave());
        put(&mailbox, &pool, 3);
        let asked = [Ask::Scopes, Ask::Jpeg, Ask::Scopes].map(|ask| mailbox.ask(ask));
        let mut done = Vec::new();
        for _ in 0..2 {
            // Nobody watches, so that no live picture is made.
            let Work::Answer(ask, _, answers) = mailbox.next(now()) else { panic!() };
            done.push((ask, answers.len()));
        }
        done.sort_by_key(|(_, n)| *n);
        assert_eq!(done, [(Ask::Jpeg, 1), (Ask::Scopes, 2)]);
        drop(asked);
        // Who joins later sees the frame that came last, even if none comes any more.
        mailbox.join();
        assert!(matches!(mailbox.next(now()), Work::Live(frame) if frame.meta().number == 3));
        mailbox.leave();
        mailbox.join();
        assert!(matches!(mailbox.next(now()), Work::Live(frame) if frame.meta().number == 3));
        mailbox.close();
        assert!(matches!(mailbox.next(now()), Work::End));
    }

    #[test]
    fn whoever_keeps_asking_holds_up_nobody() {
        let mailbox = Mailbox::new(2);
        let pool = pool(8);
        mailbox.join();
        let mut done = Vec::new();
        for n in 0..6 {
            put(&mailbox, &pool, n);
            // One asks without a pause, another once.
            drop(mailbox.ask(if n == 1 { Ask::Thumbnail } else { Ask::Png }));
            drop(mailbox.ask(Ask::Jpeg));
            done.push(match mailbox.next(now()) {
                Work::Live(frame) => format!("live {}", frame.meta().number),
                Work::Answer(ask, ..) => format!("{ask:?}"),
                _ => panic!(),
            });
        }
        // In the order in which they came, with the newest picture between them.
        assert_eq!(done, ["Png", "live 1", "Jpeg", "live 3", "Thumbnail", "live 5"]);
        // Where the next picture is not due yet nothing waits for it.
        put(&mailbox, &pool, 6);
        drop(mailbox.ask(Ask::Scopes));
        let later = now() + Duration::from_secs(3600);
        assert!(matches!(mailbox.next(later), Work::Answer(Ask::Png, ..)));
        assert!(matches!(mailbox.next(later), Work::Answer(Ask::Jpeg, ..)));
        assert!(matches!(mailbox.next(later), Work::Answer(Ask::Scopes, ..)));
    }

    #[test]
    fn without_a_frame_the_answer_says_so() {
        let mailbox = Mailbox::new(2);
        mailbox.join();
        drop(mailbox.ask(Ask::Jpeg));
        assert!(matches!(mailbox.next(now()), Work::Answer(Ask::Jpeg, None, _)));
        mailbox.close();
        assert!(matches!(mailbox.next(now()), Work::End));
        assert!(mailbox.ask(Ask::Jpeg).blocking_recv().is_err(), "nobody will answer");
    }
}

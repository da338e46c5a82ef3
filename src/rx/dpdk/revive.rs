//! One of several ports that has gone, and is had again while the others receive.
//!
//! To close a port and to attach it takes its time, and whoever polls is not kept waiting: a thread of its own does both, at first after a
//! second, later every 8 s. It writes to the same pools, so that nothing else changes.
#![allow(unsafe_code)]

use super::abi::Pool;
use super::options::Options;
use super::port::Port;
use crate::error::{Error, Kind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The first pause between two attempts, and the longest.
const PERIOD: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(8);

/// The thread, which is in the network namespace of whoever made it.
pub struct Reviver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    // Ports end before the pools that they write to: fields are dropped in this order.
    back: Mutex<Vec<Port>>,
    gone: Mutex<Vec<Gone>>,
    ready: AtomicBool,
    stop: AtomicBool,
    options: Options,
    pool: Arc<Pool>,
    /// And how many octets do not go there.
    bodies: Option<(u16, Arc<Pool>)>,
}

/// A port by its number in the options, until it is closed the old one.
struct Gone {
    number: usize,
    old: Option<Port>,
}

impl Reviver {
    /// None where the system gives no thread: then nothing is had again.
    pub fn new(options: &Options, pool: &Arc<Pool>, bodies: Option<(u16, &Arc<Pool>)>) -> Option<Self> {
        let shared = Arc::new(Shared {
            back: Mutex::default(),
            gone: Mutex::default(),
            ready: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            options: options.clone(),
            pool: pool.clone(),
            bodies: bodies.map(|(cut, bodies)| (cut, bodies.clone())),
        });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("dpdk-port".into()).spawn(move || theirs.run()).ok()?;
        Some(Reviver { shared, thread: Some(thread) })
    }

    /// This one has gone.
    pub fn lose(&self, port: Port) {
        lock(&self.shared.gone).push(Gone { number: port.number(), old: Some(port) });
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }

    /// One that is there again, and receives; it has joined nothing.
    pub fn take(&self) -> Option<Port> {
        if !self.shared.ready.load(Ordering::Acquire) {
            return None;
        }
        // The thread holds it for a moment only; whoever polls comes again.
        let mut back = self.shared.back.try_lock().ok()?;
        let port = back.pop();
        self.shared.ready.store(!back.is_empty(), Ordering::Release);
        port
    }
}

impl Drop for Reviver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut pause = PERIOD;
        while !self.stop.load(Ordering::Acquire) {
            let old: Vec<Port> = lock(&self.gone).iter_mut().filter_map(|gone| gone.old.take()).collect();
            drop(old);
            let Some(number) = lock(&self.gone).first().map(|gone| gone.number) else {
                pause = PERIOD;
                std::thread::park();
                continue;
            };
            std::thread::park_timeout(pause);
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            match self.attempt(number) {
                Ok(port) => {
                    lock(&self.gone).retain(|gone| gone.number != number);
                    let mut back = lock(&self.back);
                    back.push(port);
                    self.ready.store(true, Ordering::Release);
                }
                Err(error) => {
                    tracing::debug!("a port cannot be had yet: {}", error.in_one_line());
                    pause = (pause * 2).min(PATIENCE);
                    // The next one, where there are several.
                    lock(&self.gone).rotate_left(1);
                }
            }
        }
    }

    fn attempt(&self, number: usize) -> Result<Port> {
        let none = || Error::new(Kind::Internal, "a port that no option names");
        let spec = self.options.ports.get(number).ok_or_else(none)?;
        let mut notes = Vec::new();
        let mut port = Port::open(spec, number, &self.options, &mut notes)?;
        let split = self.bodies.as_ref().map(|(cut, bodies)| (*cut, &**bodies));
        // SAFETY: the pools are kept by this, and whoever takes the port keeps them as well.
        unsafe { port.start(&self.options, &self.pool, split, &mut notes) }?;
        Ok(port)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

//! io_uring: pieces of a slot are with the kernel at once.
#![allow(unsafe_code)]

use super::{Disk, Piece};
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Writes that are with the kernel at once at most.
const DEPTH: usize = 32;
/// Octets of a write: disks are as fast as they get from here on, and a frame has some of them.
const PIECE: usize = 1 << 20;
/// The kernel has no room for the moment (EAGAIN, EBUSY): then it is asked again.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(1);

/// A ring of the kernel for writes.
pub(in crate::record) struct Uring {
    ring: IoUring,
    /// What is left of each piece: address, octets, place.
    todo: Vec<(*const u8, usize, u64)>,
}

// SAFETY: the addresses in `todo` are only used within `write`, which holds what they belong to.
unsafe impl Send for Uring {}

impl Uring {
    /// Makes a ring; where the system gives none, says why.
    pub fn new() -> Result<Self, String> {
        let why = |e: io::Error| match e.raw_os_error() {
            Some(libc::ENOSYS) => "io_uring: this kernel has none".to_owned(),
            Some(libc::EPERM | libc::EACCES) => {
                "io_uring: forbidden (kernel.io_uring_disabled, or the container's seccomp rules)".to_owned()
            }
            Some(libc::ENOMEM) => "io_uring: no locked memory for its ring (ulimit -l)".to_owned(),
            _ => format!("io_uring: {e}"),
        };
        let ring = IoUring::new(DEPTH as u32).map_err(why)?;
        let mut probe = io_uring::Probe::new();
        let knows = ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode::Write::CODE);
        if !knows {
            return Err("io_uring: this kernel's has no plain writes (they came with 5.6)".into());
        }
        Ok(Uring { ring, todo: Vec::new() })
    }

    /// Puts what is left of piece `number` into the ring.
    fn push(&mut self, file: &File, number: usize) -> io::Result<()> {
        let Some(&(start, octets, at)) = self.todo.get(number) else { return Ok(()) };
        let write = opcode::Write::new(types::Fd(file.as_raw_fd()), start, octets.min(PIECE) as u32)
            .offset(at)
            .build()
            .user_data(number as u64);
        // SAFETY: `write` waits for every entry that it has pushed before it returns, and its caller's pieces and file live
        // until then.
        let pushed = unsafe { self.ring.submission().push(&write) };
        pushed.map_err(|_| io::Error::other("io_uring: no room for a write"))
    }

    /// Writes all of `todo`. Returns when the kernel holds none of it any more, also after a failure.
    fn run(&mut self, file: &File) -> io::Result<()> {
        let (mut next, mut flying, mut result) = (0, 0, Ok(()));
        loop {
            while result.is_ok() && flying < DEPTH && next < self.todo.len() {
                result = self.push(file, next);
                if result.is_ok() {
                    (next, flying) = (next + 1, flying + 1);
                }
            }
            if flying == 0 {
                return result;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // What was pushed is with the kernel, or goes there with the next call: its memory is not given back before
                // it is done, whatever this is.
                Err(_) => std::thread::sleep(AGAIN),
            }
            loop {
                let next = self.ring.completion().next();
                let Some(done) = next else { break };
                flying -= 1;
                let number = done.user_data() as usize;
                let outcome = match done.result() {
                    code if code == -libc::EINTR || code == -libc::EAGAIN => Ok(0),
                    code if code < 0 => Err(io::Error::from_raw_os_error(-code)),
                    0 => Err(io::ErrorKind::WriteZero.into()),
                    written => Ok(written as usize),
                };
                match (outcome, self.todo.get_mut(number)) {
                    (Ok(written), Some((start, octets, at))) => {
                        let written = written.min(*octets);
                        (*start, *octets, *at) = (start.wrapping_add(written), *octets - written, *at + written as u64);
                        if *octets > 0 && result.is_ok() {
                            match self.push(file, number) {
                                Ok(()) => flying += 1,
                                failed => result = failed,
                            }
                        }
                    }
                    (Err(e), _) => result = result.and(Err(e)),
                    (Ok(_), None) => {}
                }
            }
        }
    }
}

impl Disk for Uring {
    fn write(&mut self, file: &File, pieces: &[Piece<'_>]) -> io::Result<()> {
        self.todo.clear();
        for (octets, at) in pieces {
            for (n, piece) in octets.chunks(PIECE).enumerate() {
                self.todo.push((piece.as_ptr(), piece.len(), at + (n * PIECE) as u64));
            }
        }
        self.run(file)
    }
    fn direct(&self) -> bool {
        true
    }
    fn describe(&self) -> String {
        format!("io_uring with O_DIRECT, {} MiB a write, up to {DEPTH} in flight", PIECE >> 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn uring() -> Option<Uring> {
        Uring::new().map_err(|why| println!("skipped: {why}")).ok()
    }

    #[test]
    fn pieces_lie_where_they_belong_and_more_of_them_than_the_ring_has_room_for() {
        let Some(mut uring) = uring() else { return };
        let file = tempfile::tempfile().unwrap();
        let octets: Vec<u8> = (0..(DEPTH + 3) * PIECE + 5).map(|i| (i % 251) as u8).collect();
        uring.write(&file, &[(&octets, 7), (b"head", 0)]).unwrap();
        let mut back = vec![0; octets.len() + 7];
        file.read_exact_at(&mut back, 0).unwrap();
        assert!(back[..4] == *b"head" && back[7..] == octets);
        assert_eq!(file.metadata().unwrap().len(), back.len() as u64);
    }

    #[test]
    fn a_failure_is_told_and_the_ring_goes_on() {
        let Some(mut uring) = uring() else { return };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, b"").unwrap();
        let for_reading = File::open(&path).unwrap();
        let octets = vec![1; 3 * PIECE];
        assert_eq!(uring.write(&for_reading, &[(&octets, 0)]).unwrap_err().raw_os_error(), Some(libc::EBADF));
        let file = tempfile::tempfile().unwrap();
        uring.write(&file, &[(&octets, 0)]).unwrap();
        assert_eq!(file.metadata().unwrap().len(), octets.len() as u64);
    }
}

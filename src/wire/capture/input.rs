//! A buffered input that hands out runs of octets in one piece, and takes gzip off.

use flate2::read::MultiGzDecoder;
use std::io::{self, Chain, Cursor, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Octets read at once.
const CHUNK: usize = 1 << 18;

type Begun<R> = Chain<Cursor<Vec<u8>>, R>;

enum Source<R: Read> {
    Plain(Begun<R>),
    Gzip(Box<MultiGzDecoder<Begun<R>>>),
    /// One of the former, read by a thread.
    Ahead(Ahead),
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Plain(read) => read.read(into),
            // gzip cut short is a file cut short: the end, as without gzip.
            Source::Gzip(read) => match read.read(into) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                other => other,
            },
            // Its buffers are taken whole, see [`Input::look`].
            Source::Ahead(_) => Ok(0),
        }
    }
}

/// Octets that the thread reads at once: they stay in the cache until they are looked at.
const AHEAD: usize = 1 << 20;
/// Room before them for the beginning of a record that ends in them.
const ROOM: usize = super::MAX_RECORD as usize + 4096;
/// Buffers that go round.
const BUFFERS: usize = 4;

/// Buffers filled by a thread that reads ahead.
struct Ahead {
    full: Receiver<io::Result<Filled>>,
    empty: Sender<Vec<u8>>,
}

/// Octets from [`ROOM`] to `end`.
struct Filled {
    buffer: Vec<u8>,
    end: usize,
}

impl Ahead {
    fn start(read: impl Read + Send + 'static) -> io::Result<Self> {
        let (to_us, full) = sync_channel(BUFFERS);
        let (empty, to_fill) = channel();
        for _ in 0..BUFFERS {
            let _ = empty.send(vec![0; ROOM + AHEAD]);
        }
        let thread = std::thread::Builder::new().name("read ahead".into());
        thread.spawn(move || read_ahead(read, &to_fill, &to_us))?;
        Ok(Ahead { full, empty })
    }
}

/// Fills buffers until the input ends, fails, or nobody wants them any more.
fn read_ahead(mut read: impl Read, empty: &Receiver<Vec<u8>>, full: &SyncSender<io::Result<Filled>>) {
    while let Ok(mut buffer) = empty.recv() {
        let mut end = ROOM;
        let stop = loop {
            match read.read(buffer.get_mut(end..).unwrap_or_default()) {
                Ok(0) => break Some(Ok(())),
                Ok(got) => end += got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Some(Err(e)),
            }
            if end == buffer.len() {
                break None;
            }
        };
        if end > ROOM && full.send(Ok(Filled { buffer, end })).is_err() {
            return;
        }
        match stop {
            None => {}
            Some(Ok(())) => return,
            Some(Err(e)) => {
                let _ = full.send(Err(e));
                return;
            }
        }
    }
}

pub(super) struct Input<R: Read> {
    source: Source<R>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Octets handed out or skipped.
    position: u64,
    gzip: bool,
}

impl<R: Read> Input<R> {
    pub(super) fn new(mut read: R) -> io::Result<Self> {
        let mut first = Vec::new();
        read.by_ref().take(2).read_to_end(&mut first)?;
        let gzip = first == [0x1f, 0x8b];
        let begun = Cursor::new(first).chain(read);
        let source = if gzip { Source::Gzip(Box::new(MultiGzDecoder::new(begun))) } else { Source::Plain(begun) };
        Ok(Input { source, buffer: vec![0; CHUNK], start: 0, end: 0, position: 0, gzip })
    }
    /// From here on a thread reads (and decompresses) ahead.
    pub(super) fn ahead(self) -> io::Result<Self>
    where
        R: Send + 'static,
    {
        Ok(Input { source: Source::Ahead(Ahead::start(self.source)?), ..self })
    }
    pub(super) fn gzip(&self) -> bool {
        self.gzip
    }
    /// Octets of the (decompressed) file so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }
    /// Makes up to `n` octets readable in one piece, fewer only at the end of the input.
    pub(super) fn look(&mut self, n: usize) -> io::Result<&[u8]> {
        if self.end - self.start < n {
            self.more(n)?;
        }
        let end = self.end.min(self.start + n);
        Ok(self.buffer.get(self.start..end).unwrap_or_default())
    }
    fn more(&mut self, n: usize) -> io::Result<()> {
        if let Source::Ahead(ahead) = &mut self.source {
            while self.end - self.start < n {
                let Ok(filled) = ahead.full.recv() else { break };
                let Filled { mut buffer, end } = filled?;
                let left = self.buffer.get(self.start..self.end).unwrap_or_default();
                let Some(from) = ROOM.checked_sub(left.len()) else {
                    return Err(io::Error::other("a record is larger than what is kept of the one before"));
                };
                if let Some(room) = buffer.get_mut(from..ROOM) {
                    room.copy_from_slice(left);
                }
                let used = std::mem::replace(&mut self.buffer, buffer);
                (self.start, self.end) = (from, end);
                // The first one is of another kind; the thread may have ended.
                if used.len() == ROOM + AHEAD {
                    let _ = ahead.empty.send(used);
                }
            }
            return Ok(());
        }
        if self.start + n > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if n > self.buffer.len() {
                self.buffer.resize(n, 0);
            }
        }
        while self.end - self.start < n {
            let free = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.source.read(free) {
                Ok(0) => break,
                Ok(got) => self.end += got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
    /// The next `n` octets, or `None` when there are not so many.
    pub(super) fn take(&mut self, n: usize) -> io::Result<Option<&[u8]>> {
        if self.look(n)?.len() < n {
            return Ok(None);
        }
        self.start += n;
        self.position += n as u64;
        Ok(self.buffer.get(self.start - n..self.start))
    }
    /// As [`Input::take`], for a number that is fixed.
    pub(super) fn array<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        Ok(self.take(N)?.and_then(|octets| octets.try_into().ok()))
    }
    /// The octets that were taken last.
    pub(super) fn taken(&self, n: u32) -> &[u8] {
        self.start.checked_sub(n as usize).and_then(|from| self.buffer.get(from..self.start)).unwrap_or_default()
    }
    /// Passes over `n` octets without keeping them; `false` when there are not so many.
    pub(super) fn skip(&mut self, mut n: u64) -> io::Result<bool> {
        while n > 0 {
            let step = n.min(CHUNK as u64);
            if self.take(step as usize)?.is_none() {
                return Ok(false);
            }
            n -= step;
        }
        Ok(true)
    }
}

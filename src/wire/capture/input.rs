//! A buffered input that hands out runs of octets in one piece, and takes gzip off.

use flate2::read::MultiGzDecoder;
use std::io::{self, Chain, Cursor, Read};

/// Octets read at once.
const CHUNK: usize = 1 << 18;

type Begun<R> = Chain<Cursor<Vec<u8>>, R>;

enum Source<R: Read> {
    Plain(Begun<R>),
    Gzip(Box<MultiGzDecoder<Begun<R>>>),
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
    pub(super) fn gzip(&self) -> bool {
        self.gzip
    }
    /// Octets of the (decompressed) file so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }
    /// Makes up to `n` octets readable in one piece, fewer only at the end of the input.
    pub(super) fn look(&mut self, n: usize) -> io::Result<&[u8]> {
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
        let end = self.end.min(self.start + n);
        Ok(self.buffer.get(self.start..end).unwrap_or_default())
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

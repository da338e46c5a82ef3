//! Frames to send.

use super::pattern::Pattern;
use crate::error::Result;
use crate::format::WireFormat;

/// Gives one wire-format frame after the other.
pub trait Source: Send {
    /// The format of its frames.
    fn format(&self) -> &WireFormat;
    /// The next frame, [`WireFormat::frame_octets`] long; `None` at the end.
    ///
    /// # Errors
    /// The input cannot be read or is damaged.
    fn next(&mut self) -> Result<Option<&[u8]>>;
    /// For the start block.
    fn describe(&self) -> String;
    /// What is worth saying at the end.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// The test pattern, for ever; frames count from 0.
#[derive(Debug)]
pub struct PatternSource {
    pattern: Pattern,
    frame: Vec<u8>,
    next: u64,
}

impl PatternSource {
    /// From frame `first` on.
    pub fn new(mut pattern: Pattern, first: u64) -> Self {
        let mut frame = vec![0; pattern.format().frame_octets() as usize];
        pattern.frame(first, &mut frame);
        PatternSource { pattern, frame, next: first }
    }
}

impl Source for PatternSource {
    fn format(&self) -> &WireFormat {
        self.pattern.format()
    }
    fn next(&mut self) -> Result<Option<&[u8]>> {
        self.pattern.update(self.next, &mut self.frame);
        self.next += 1;
        Ok(Some(&self.frame))
    }
    fn describe(&self) -> String {
        "colour bars with frame number".into()
    }
}

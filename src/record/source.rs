//! A recording to be sent again as ST 2110: its frames in wire octets, one after the other.

use super::form::Header;
use super::read::Recording;
use super::wire::ToWire;
use crate::error::{Error, Kind, Result};
use crate::format::WireFormat;
use crate::send::source::Source;

/// The frames of a recording. They follow one another without the gaps that it has.
#[derive(Debug)]
pub struct RecordedSource {
    recording: Recording,
    places: Vec<(usize, u64)>,
    next: usize,
    repeat: bool,
    to_wire: ToWire,
    octets: Vec<u8>,
    wire: Vec<u8>,
    damaged: u64,
    gaps: u64,
}

impl RecordedSource {
    /// Of this recording; `repeat`: begin again at its end.
    ///
    /// # Errors
    /// It holds no frame, or not all that goes over the wire.
    pub fn new(recording: Recording, repeat: bool) -> Result<Self> {
        let header: &Header = recording.header();
        let to_wire = ToWire::new(&header.layout)?;
        let places: Vec<_> = recording.places().collect();
        if places.is_empty() {
            return Err(Error::new(Kind::Data, format!("{} holds no whole frame", recording.segments()[0].name()))
                .cure("give another recording"));
        }
        let (octets, wire) = (vec![0; header.frame_octets()], vec![0; header.layout.wire.frame_octets() as usize]);
        Ok(RecordedSource { recording, places, next: 0, repeat, to_wire, octets, wire, damaged: 0, gaps: 0 })
    }
}

impl Source for RecordedSource {
    fn format(&self) -> &WireFormat {
        &self.recording.header().layout.wire
    }

    fn next(&mut self) -> Result<Option<&[u8]>> {
        let mut tried = 0;
        loop {
            let Some(&place) = self.places.get(self.next) else {
                if !self.repeat {
                    return Ok(None);
                }
                self.next = 0;
                continue;
            };
            self.next += 1;
            match self.recording.load(place, &mut self.octets) {
                Ok(head) => {
                    self.gaps += head.gap;
                    self.to_wire.pack(&self.octets, &mut self.wire);
                    return Ok(Some(&self.wire));
                }
                Err(error) => {
                    self.damaged += 1;
                    tried += 1;
                    // A disk that has gone is not asked for ever.
                    if tried >= self.places.len() {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn describe(&self) -> String {
        let again = if self.repeat { ", again and again" } else { "" };
        let header = self.recording.header();
        format!("recording of {} frames ({}){again}", self.places.len(), header.layout.output.word())
    }

    fn remark(&self) -> Option<String> {
        let mut remarks = self.recording.remarks();
        if self.damaged > 0 {
            remarks.push(format!("{} damaged frames were left out", self.damaged));
        }
        if self.gaps > 0 {
            remarks
                .push(format!("{} frames are not in the recording; those around them followed one another", self.gaps));
        }
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }
}

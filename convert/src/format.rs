//! Pictures in memory: the wire format, the output formats and where their octets lie.

mod layout;
mod names;

pub use layout::Unsupported;

use gdmedia_sdp::{Depth, Pgroup, Sampling, Scan, Video};

/// The picture as the wire has it: rows of pgroups without gaps.
///
/// Octet `n` of a wire-format frame lies in wire row `n / row_octets`; a wire row is a row of the picture (4:2:0: a
/// pair of rows), fields are woven. This is the address space that placements of packets
/// refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireFormat {
    /// Component structure.
    pub sampling: Sampling,
    /// Bits a sample.
    pub depth: Depth,
    /// Pixels a row.
    pub width: u32,
    /// Rows of the frame.
    pub height: u32,
    /// Progressive, interlaced or PsF.
    pub scan: Scan,
    /// From the table of ST 2110-20.
    pub pgroup: Pgroup,
}

impl WireFormat {
    /// `None` where ST 2110-20 has no such combination, or the frame exceeds 2^31 octets.
    pub fn new(sampling: Sampling, depth: Depth, width: u32, height: u32, scan: Scan) -> Option<Self> {
        let pgroup = sampling.pgroup(depth)?;
        if !(1..=32767).contains(&width) || !(1..=32767).contains(&height) {
            return None;
        }
        if pgroup.rows == 2 && scan != Scan::Progressive {
            return None;
        }
        let format = WireFormat { sampling, depth, width, height, scan, pgroup };
        let octets = u64::from(format.row_octets()) * u64::from(format.rows());
        (octets < 1 << 31).then_some(format)
    }
    /// The wire format that an SDP describes.
    pub fn from_video(video: &Video) -> Option<Self> {
        Self::new(video.sampling, video.depth, video.width, video.height, video.scan)
    }
    /// Pgroups of one wire row; the last one may hold pixels beyond the width.
    pub const fn row_pgroups(&self) -> u32 {
        self.width.div_ceil(self.pgroup.width())
    }
    /// Octets of one wire row.
    pub const fn row_octets(&self) -> u32 {
        self.row_pgroups() * self.pgroup.octets
    }
    /// Wire rows of a frame.
    pub const fn rows(&self) -> u32 {
        self.height.div_ceil(self.pgroup.rows)
    }
    /// Octets of a frame.
    pub const fn frame_octets(&self) -> u32 {
        self.row_octets() * self.rows()
    }
}

/// How a frame lies in memory when it leaves the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Wire octets as they are.
    Wire,
    /// One plane a component, 16-bit little-endian samples in the low bits (8-bit formats: one octet a sample).
    Planar,
    /// Y plane and interleaved CbCr plane, 4:2:0, 10 bits at the top of 16.
    P010,
    /// Y plane and interleaved CbCr plane, 4:2:2, 10 bits at the top of 16.
    P210,
    /// Y plane and interleaved CbCr plane, 4:2:0, 8 bits.
    Nv12,
    /// Packed 4:2:2, 8 bits: Cb Y Cr Y.
    Uyvy,
    /// Packed 4:2:2, 10 bits, six pixels in four 32-bit words.
    V210,
    /// R G B A, 8 bits, full range.
    Rgba,
    /// R, G and B planes of half floats (IEEE 754 binary16), 0 to 1, as inference takes them (NCHW).
    Rgb16f,
}

impl Output {
    /// Every output.
    pub const ALL: [Output; 9] = [
        Output::Wire,
        Output::Planar,
        Output::P010,
        Output::P210,
        Output::Nv12,
        Output::Uyvy,
        Output::V210,
        Output::Rgba,
        Output::Rgb16f,
    ];
    /// Its word on the command line and in tables.
    pub const fn word(self) -> &'static str {
        match self {
            Output::Wire => "wire",
            Output::Planar => "planar",
            Output::P010 => "p010",
            Output::P210 => "p210",
            Output::Nv12 => "nv12",
            Output::Uyvy => "uyvy",
            Output::V210 => "v210",
            Output::Rgba => "rgba",
            Output::Rgb16f => "rgb16f",
        }
    }
}

/// One plane of a [`Layout`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plane {
    /// First octet in the frame's memory; a multiple of 64.
    pub offset: usize,
    /// Octets from one row to the next.
    pub stride: usize,
    /// Octets of a row that hold picture.
    pub row_octets: usize,
    /// Rows.
    pub rows: usize,
}

/// Where the octets of an output frame lie.
///
/// | output | planes |
/// | --- | --- |
/// | wire | one, as [`WireFormat`] describes it, rows without gaps |
/// | planar | Y, Cb, Cr (ICtCp: I, Ct, Cp); G, B, R; X, Y, Z; or K. 8 bits: an octet a sample; else 16 bits, little-endian, value in the low bits; 16f: the half float's bits |
/// | P010, NV12 | Y; CbCr interleaved, half the width, half the rows |
/// | P210 | Y; CbCr interleaved, half the width, all rows |
/// | UYVY, v210, RGBA | one |
/// | rgb16f | R; G; B: half floats, little-endian |
///
/// Every plane begins at a multiple of 64 octets. A stride has room for what a wire row carries beyond the width
/// (the rest of its last pgroup) and for whole blocks of the output; these pixels are padding and mean nothing.
/// Behind the last plane lie at least 64 octets of slack.
///
/// # Subsampling
///
/// A conversion never filters: colour of 4:4:4 and 4:2:2 is decimated by taking the co-sited sample, that of the even
/// column and, for 4:2:0 outputs, of the even row; 4:2:0 is brought to more by repetition. In an interlaced picture
/// "even row" means within its field, and the colour rows of the two fields alternate as its rows do (row `r` of the
/// picture is row `r / 2` of field `r % 2`; when that is even, its colour goes to colour row `(r / 4) * 2 + r % 2`).
/// PsF is progressive in this respect.
///
/// # Depth
///
/// Fewer bits: the lowest are dropped. More bits: zeros are added below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What came over the wire.
    pub wire: WireFormat,
    /// What is in memory.
    pub output: Output,
    /// One to three planes.
    pub planes: Vec<Plane>,
    /// Octets of the whole, slack included.
    pub size: usize,
}

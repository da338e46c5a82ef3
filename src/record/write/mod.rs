//! The ways from memory to a disk, and which is taken.
//!
//! | way | how | needs |
//! | --- | --- | --- |
//! | [`Way::Cufile`] | from memory of the GPU to the disk (GPUDirect Storage) | feature `cuda`, a GPU, libcufile, nvidia-fs or its compatibility mode |
//! | [`Way::Uring`] | pieces of a frame side by side by io_uring, past the page cache (O_DIRECT) | Linux 5.6, a file system with O_DIRECT |
//! | [`Way::Pwrite`] | one call after the other, through the page cache | nothing |

#[cfg(feature = "cuda")]
pub mod cufile;
pub(super) mod disk;
mod uring;

pub(super) use uring::Uring;

use crate::error::{Error, Kind, Result};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How octets come to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// The best that there is.
    #[default]
    Auto,
    /// From memory of the GPU.
    Cufile,
    /// io_uring with O_DIRECT.
    Uring,
    /// pwrite through the page cache.
    Pwrite,
}

impl Way {
    /// Its word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Way::Auto => "auto",
            Way::Cufile => "cufile",
            Way::Uring => "uring",
            Way::Pwrite => "pwrite",
        }
    }
}

/// Octets that belong at a place of a file.
pub(super) type Piece<'a> = (&'a [u8], u64);

/// Writes pieces; when a call returns they are with the disk, or with the page cache where it goes through that.
pub(super) trait Disk: Send {
    /// Writes all of them, in any order: whoever is killed meanwhile leaves a slot whose CRCs do not fit.
    ///
    /// # Errors
    /// As of the system's calls.
    fn write(&mut self, file: &File, pieces: &[Piece<'_>]) -> io::Result<()>;
    /// Files have to be opened with O_DIRECT; addresses, places and lengths of pieces are multiples of a page then.
    fn direct(&self) -> bool;
    /// For people.
    fn describe(&self) -> String;
}

/// pwrite(2).
pub(super) struct Pwrite;

impl Disk for Pwrite {
    fn write(&mut self, file: &File, pieces: &[Piece<'_>]) -> io::Result<()> {
        for (octets, at) in pieces {
            file.write_all_at(octets, *at)?;
        }
        // Pages begin their way now and not all at once later.
        if let (Some(first), Some(octets)) =
            (pieces.iter().map(|p| p.1).min(), pieces.iter().map(|p| p.0.len() as u64).reduce(|a, b| a + b))
        {
            disk::begin_writing(file, first, octets);
        }
        Ok(())
    }
    fn direct(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        "pwrite through the page cache".into()
    }
}

/// The way for memory of the CPU, and what is said of those that were passed over.
///
/// # Errors
/// The one that is asked for is not there.
pub(super) fn choose(way: Way) -> Result<(Box<dyn Disk>, Vec<String>)> {
    match way {
        Way::Pwrite => Ok((Box::new(Pwrite), Vec::new())),
        Way::Cufile => Err(Error::new(Kind::Unavailable, "--way cufile: frames are in memory of the CPU")
            .cure("receive on a GPU (--gpu require), or choose another way")),
        Way::Uring => Ok((Box::new(Uring::new().map_err(|why| not_there(&why))?), Vec::new())),
        Way::Auto => Ok(match Uring::new() {
            Ok(uring) => (Box::new(uring), Vec::new()),
            Err(why) => (Box::new(Pwrite), vec![why]),
        }),
    }
}

fn not_there(why: &str) -> Error {
    Error::new(Kind::Unavailable, why).cure("choose another way (--way pwrite), or leave --way out")
}

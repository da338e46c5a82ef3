//! Calls of the system for files that the standard library does not have.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Gives the file room from `at` on; it has that length then, and reads as zeros there.
///
/// # Errors
/// The disk is full; the file system does not do that (EOPNOTSUPP).
pub fn allocate(file: &File, at: u64, octets: u64) -> io::Result<()> {
    let bad = |_| io::Error::from(io::ErrorKind::FileTooLarge);
    let (at, octets) = (libc::off_t::try_from(at).map_err(bad)?, libc::off_t::try_from(octets).map_err(bad)?);
    loop {
        // SAFETY: the descriptor is open; no memory is touched.
        match unsafe { libc::fallocate(file.as_raw_fd(), 0, at, octets) } {
            0 => return Ok(()),
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            },
        }
    }
}

/// Dirty pages there begin their way to the disk; nobody waits for them.
pub fn begin_writing(file: &File, at: u64, octets: u64) {
    let (Ok(at), Ok(octets)) = (libc::off64_t::try_from(at), libc::off64_t::try_from(octets)) else { return };
    // SAFETY: the descriptor is open; no memory is touched. Where it fails, pages go when the kernel wants.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), at, octets, libc::SYNC_FILE_RANGE_WRITE) };
}

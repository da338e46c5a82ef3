//! What a call answers.

use crate::raw;
use std::ffi::c_int;
use std::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $constant:ident,)*) => {
        /// What a call answers, with the names that public sources tell; all others are `Other`, and
        /// [`name`](Status::name) finds their names in the user's header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$doc])* $name,)*
            /// One that public sources do not name.
            Other(c_int),
        }

        impl Status {
            /// From the number of the user's header.
            pub fn from_raw(raw: c_int) -> Self {
                $(if raw == raw::$constant as c_int { return Status::$name; })*
                Status::Other(raw)
            }
            /// The number in the user's header.
            pub fn raw(self) -> c_int {
                match self {
                    $(Status::$name => raw::$constant as c_int,)*
                    Status::Other(raw) => raw,
                }
            }
        }
    };
}

statuses! {
    /// Done.
    Ok = GDMEDIA_OK,
    /// Notification: data is there, do not wait. PTP clock: it is in use already. Clock: not settled yet.
    Busy = GDMEDIA_BUSY,
    /// A signal asked the process to stop.
    Signal = GDMEDIA_SIGNAL,
    /// A checksum is wrong; the data is delivered.
    ChecksumIssue = GDMEDIA_CHECKSUM_ISSUE,
    /// The hardware reported a completion with an error.
    HwCompletionIssue = GDMEDIA_HW_COMPLETION_ISSUE,
    /// The library, or what the call is about, is not initialised.
    NotInitialized = GDMEDIA_NOT_INITIALIZED,
    /// Not by this library, NIC or firmware.
    NotImplemented = GDMEDIA_NOT_IMPLEMENTED,
    /// The second argument is wrong.
    InvalidParam2 = GDMEDIA_INVALID_PARAM_2,
    /// Sending: no chunk is free.
    NoFreeChunk = GDMEDIA_NO_FREE_CHUNK,
    /// Sending: the queue of the hardware is full.
    HwSendQueueIsFull = GDMEDIA_HW_SEND_QUEUE_IS_FULL,
}

impl Status {
    /// Its name in the user's header.
    pub fn name(self) -> Option<&'static str> {
        raw::built::STATUSES.iter().find(|&&(code, _)| code == self.raw()).map(|&(_, name)| name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.raw()),
            None => write!(f, "status {}", self.raw()),
        }
    }
}

/// A call that did not answer OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The call, by its name in the user's header.
    pub call: &'static str,
    /// What it answered.
    pub status: Status,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.status)
    }
}

impl std::error::Error for Error {}

/// The `Result` of a call.
pub(crate) fn check(call: &'static str, status: c_int) -> Result<(), Error> {
    match Status::from_raw(status) {
        Status::Ok => Ok(()),
        status => Err(Error { call, status }),
    }
}

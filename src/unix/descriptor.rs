//! A message with a file descriptor beside it (`SCM_RIGHTS`).
#![allow(unsafe_code)]

use libc::{MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_NOSIGNAL, SCM_RIGHTS, SOL_SOCKET};
use socket2::{MaybeUninitSlice, MsgHdr, MsgHdrMut, Socket};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct cmsghdr`: length, level, type.
const HEAD: usize = size_of::<libc::cmsghdr>();
const WORD: usize = size_of::<usize>();
/// Room for as many as the kernel passes at once (253), so that none is cut off and none is lost unclosed.
const ROOM: usize = HEAD + 256 * 4;

/// Sends a whole message, without waiting; the descriptor goes along.
pub fn send(socket: &Socket, octets: &[u8], passed: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    let Some(passed) = passed else { return socket.send_with_flags(octets, flags) };
    let mut control = [0; HEAD + WORD];
    control[..WORD].copy_from_slice(&(HEAD + 4).to_ne_bytes());
    control[WORD..WORD + 4].copy_from_slice(&SOL_SOCKET.to_ne_bytes());
    control[WORD + 4..WORD + 8].copy_from_slice(&SCM_RIGHTS.to_ne_bytes());
    control[HEAD..HEAD + 4].copy_from_slice(&passed.as_raw_fd().to_ne_bytes());
    let buffers = [IoSlice::new(octets)];
    socket.sendmsg(&MsgHdr::new().with_buffers(&buffers).with_control(&control), flags)
}

/// Receives a message and the first descriptor that comes with it. An end is an empty message.
pub fn receive(socket: &Socket, longest: usize) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut octets = vec![MaybeUninit::new(0u8); longest];
    let mut control = [MaybeUninit::new(0u8); ROOM];
    let (len, truncated, used) = {
        let mut buffers = [MaybeUninitSlice::new(&mut octets)];
        let mut message = MsgHdrMut::new().with_buffers(&mut buffers).with_control(&mut control);
        let len = socket.recvmsg(&mut message, MSG_CMSG_CLOEXEC)?;
        (len, message.flags().is_truncated(), message.control_len().min(ROOM))
    };
    // SAFETY: both were initialised with zeros when they were made.
    let control = control.map(|octet| unsafe { octet.assume_init() });
    let mut passed = descriptors(&control[..used]).map(|raw| {
        // SAFETY: the kernel made it for this process with this message, and nobody else knows it.
        unsafe { OwnedFd::from_raw_fd(raw) }
    });
    let first = passed.next();
    passed.for_each(drop);
    if truncated {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    // SAFETY: as above.
    Ok((octets[..len].iter().map(|octet| unsafe { octet.assume_init() }).collect(), first))
}

/// The descriptors in control messages.
fn descriptors(control: &[u8]) -> impl Iterator<Item = i32> {
    let mut rest = control;
    let mut all = Vec::new();
    while rest.len() >= HEAD {
        let number = |at: usize| i32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let mut len = [0; WORD];
        len.copy_from_slice(&rest[..WORD]);
        let len = usize::from_ne_bytes(len).clamp(HEAD, rest.len());
        if (number(WORD), number(WORD + 4)) == (SOL_SOCKET, SCM_RIGHTS) {
            all.extend((HEAD..).step_by(4).take_while(|at| at + 4 <= len).map(number));
        }
        rest = &rest[len.next_multiple_of(WORD).min(rest.len())..];
    }
    all.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};
    use std::fs::File;
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_arrives_and_is_the_same_file() {
        let (a, b) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"same file").unwrap();
        send(&a, b"hello", Some(file.as_fd())).unwrap();
        send(&a, b"without", None).unwrap();
        let (octets, passed) = receive(&b, 100).unwrap();
        assert_eq!(octets, b"hello");
        let mut passed = File::from(passed.unwrap());
        passed.seek(SeekFrom::Start(0)).unwrap();
        let mut text = String::new();
        passed.read_to_string(&mut text).unwrap();
        assert_eq!(text, "same file");
        let (octets, passed) = receive(&b, 100).unwrap();
        assert!(octets == b"without" && passed.is_none());
        send(&a, b"too long", None).unwrap();
        assert!(receive(&b, 4).is_err());
        drop(a);
        assert!(receive(&b, 4).unwrap().0.is_empty());
    }

    #[test]
    fn control_messages_octet_by_octet() {
        let mut control = Vec::new();
        // One of another type, as long as a word and a bit, then two descriptors.
        control.extend((HEAD + 2).to_ne_bytes());
        control.extend([SOL_SOCKET, 2].map(i32::to_ne_bytes).concat());
        control.extend([0; WORD]);
        control.extend((HEAD + 8).to_ne_bytes());
        control.extend([SOL_SOCKET, SCM_RIGHTS, 5, 6].map(i32::to_ne_bytes).concat());
        assert_eq!(descriptors(&control).collect::<Vec<_>>(), [5, 6]);
        // Cut off anywhere, or with senseless lengths, it ends.
        for len in 0..control.len() {
            assert!(descriptors(&control[..len]).count() <= 1);
        }
        for len in [0, 1, HEAD, usize::MAX] {
            control[..WORD].copy_from_slice(&len.to_ne_bytes());
            let _ = descriptors(&control).count();
        }
    }
}

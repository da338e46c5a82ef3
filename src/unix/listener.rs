//! The socket in the file system: found, made, and removed.

use crate::error::{Error, Kind, Result};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 8;

/// A listening `SOCK_SEQPACKET` socket. It is removed with this.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    path: PathBuf,
    /// Device and inode: whoever put another file there keeps it.
    file: Option<(u64, u64)>,
}

impl Listener {
    /// Takes the place of a socket where nobody listens any more. `mode` says who may connect.
    pub fn bind(path: &Path, mode: u32) -> Result<Self> {
        let address = address(path)?;
        let failed = |e: io::Error| {
            let kind = if e.kind() == io::ErrorKind::PermissionDenied { Kind::Permission } else { Kind::Unavailable };
            Error::new(kind, format!("no socket can be made at {}", path.display()))
                .because(e)
                .cure("choose a path in a directory that exists and is writable, such as $XDG_RUNTIME_DIR")
        };
        clear(path, &address)?;
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).map_err(failed)?;
        socket.bind(&address).map_err(failed)?;
        let file = fs::symlink_metadata(path).map(|m| (m.dev(), m.ino())).ok();
        let listener = Listener { socket, path: path.into(), file };
        // Nobody can connect before it listens.
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
        listener.socket.set_nonblocking(true).map_err(failed)?;
        listener.socket.listen(BACKLOG).map_err(failed)?;
        Ok(listener)
    }
    /// The next connection, non-blocking; none when there is none now.
    pub fn accept(&self) -> Option<Socket> {
        // Whatever else goes wrong (no more files, a connection that has gone) concerns that connection.
        let (socket, _) = self.socket.accept().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(socket)
    }
    /// Where it is.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Nobody can connect any more.
    pub fn remove(&mut self) {
        if let Some(file) = self.file.take()
            && fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == file)
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A path as the address of a socket.
pub fn address(path: &Path) -> Result<SockAddr> {
    let wrong = |why: &str| {
        Error::new(Kind::Usage, format!("`{}` is no path for a socket: {why}", path.display()))
            .cure("choose a path of at most 107 octets")
    };
    let octets = path.as_os_str().as_bytes();
    if octets.is_empty() {
        return Err(wrong("it is empty"));
    }
    if octets.contains(&0) {
        return Err(wrong("it contains a zero"));
    }
    SockAddr::unix(path).map_err(|_| wrong("it is too long"))
}

/// Removes a socket that nobody listens at; anything else stays and is an error.
fn clear(path: &Path, address: &SockAddr) -> Result<()> {
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    let taken = |what: &str| Error::new(Kind::Unavailable, format!("{} {what}", path.display()));
    if !there.file_type().is_socket() {
        return Err(taken("exists and is no socket").cure("choose another path, or remove it"));
    }
    let probe = Socket::new(Domain::UNIX, Type::SEQPACKET, None)
        .and_then(|socket| socket.set_nonblocking(true).and_then(|()| socket.connect(address)));
    match probe {
        Err(e) if e.raw_os_error() == Some(libc::ECONNREFUSED) => fs::remove_file(path).map_err(|e| {
            taken("is left over from a program that has ended, and cannot be removed").because(e).cure("remove it")
        }),
        // Gone since.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        // Connected; a full backlog; or a socket of another type or user.
        _ => Err(taken("belongs to a program that runs").cure("choose another path, or end that program")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_the_user_may_connect_and_the_file_goes_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("frames");
        let listener = Listener::bind(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(listener.accept().is_none());
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_that_nobody_listens_at_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("frames");
        // Closing leaves the file, as after a crash.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        Listener::bind(&path, 0o600).unwrap();
    }

    #[test]
    fn what_lives_or_is_something_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("frames");
        let living = Listener::bind(&path, 0o600).unwrap();
        let error = Listener::bind(&path, 0o600).unwrap_err();
        assert!(error.to_string().contains("belongs to a program that runs"), "{error}");
        assert!(!error.cure_text().is_empty());
        drop(living);
        // Of another type, which answers something else.
        let stream = UnixListener::bind(&path).unwrap();
        assert!(Listener::bind(&path, 0o600).unwrap_err().to_string().contains("belongs to a program that runs"));
        drop(stream);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "text").unwrap();
        assert!(Listener::bind(&path, 0o600).unwrap_err().to_string().contains("is no socket"));
        assert_eq!(fs::read(&path).unwrap(), b"text");
    }

    #[test]
    fn somebody_elses_file_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("frames");
        let listener = Listener::bind(&path, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "text").unwrap();
        drop(listener);
        assert!(path.exists());
    }

    #[test]
    fn impossible_paths_are_errors_with_a_cure() {
        for path in ["", "/no/such/directory/frames", &"x".repeat(108), "/proc/frames", "a\0b"] {
            let error = Listener::bind(Path::new(path), 0o600).unwrap_err();
            assert!(!error.cure_text().is_empty(), "{error}");
        }
        // The longest.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let path = dir.path().join("x".repeat(108 - path.as_os_str().len()));
        assert_eq!(path.as_os_str().len(), 107);
        Listener::bind(&path, 0o600).unwrap();
    }
}

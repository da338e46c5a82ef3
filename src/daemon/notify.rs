//! What systemd is told (`Type=notify` or `notify-reload`): one datagram to the socket that it names, as sd_notify(3) says.

use crate::error::{Error, Kind, Result};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager; or nobody, to whom telling is no failure.
#[derive(Debug, Default)]
pub struct Notifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Of the variables that systemd sets. A name that begins with `@` is an abstract one.
    ///
    /// # Errors
    /// `NOTIFY_SOCKET` is no name of a socket.
    pub fn of(socket: Option<&OsStr>, watchdog_usec: Option<&str>, watchdog_pid: Option<&str>) -> Result<Self> {
        let Some(name) = socket.filter(|name| !name.is_empty()) else { return Ok(Notifier::default()) };
        let wrong = |e: std::io::Error| {
            Error::new(Kind::Unavailable, format!("NOTIFY_SOCKET={} cannot be used", name.to_string_lossy()))
                .because(e)
                .cure("start the daemon from systemd, or unset the variable")
        };
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
            _ => SocketAddr::from_pathname(name),
        };
        let socket = UnixDatagram::unbound().map_err(wrong)?;
        // The manager's troubles are not ours.
        socket.set_nonblocking(true).map_err(wrong)?;
        let ours = watchdog_pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let usec = watchdog_usec.and_then(|usec| usec.parse().ok()).filter(|usec| ours && *usec > 0);
        Ok(Notifier { to: Some((socket, address.map_err(wrong)?)), watchdog: usec.map(Duration::from_micros) })
    }
    /// Of the environment.
    ///
    /// # Errors
    /// As of [`Notifier::of`].
    pub fn from_env() -> Result<Self> {
        let text = |name| std::env::var(name).ok();
        Self::of(
            std::env::var_os("NOTIFY_SOCKET").as_deref(),
            text("WATCHDOG_USEC").as_deref(),
            text("WATCHDOG_PID").as_deref(),
        )
    }

    /// How often the watchdog wants to hear that the daemon lives; none where it does not care.
    pub const fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }
    /// All has begun.
    pub fn ready(&self) {
        self.send("READY=1");
    }
    /// The configuration is read again; [`Notifier::ready`] ends that.
    pub fn reloading(&self) {
        // CLOCK_MONOTONIC, as systemd.service(5) asks of notify-reload.
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", crate::unix::clock::monotonic().as_micros()));
    }
    /// The daemon ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }
    /// What goes on (the start, a reload, the end) may take so long from now on, whatever the unit's TimeoutStartSec= or
    /// TimeoutStopSec= says; it shortens neither.
    pub fn extend(&self, time: Duration) {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}", time.as_micros()));
    }
    /// It lives.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }
    /// In a line, for people.
    pub fn status(&self, text: &str) {
        let mut line = String::from("STATUS=");
        let _ = write!(line, "{}", text.replace('\n', " "));
        self.send(&line);
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.to {
            // A manager that is being restarted, or whose queue is full, hears the next one.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn heard(socket: &UnixDatagram) -> String {
        let mut octets = [0; 256];
        let n = socket.recv(&mut octets).unwrap();
        String::from_utf8_lossy(&octets[..n]).into_owned()
    }

    #[test]
    fn by_a_path_and_by_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("gdmedia-test-{}-{}", std::process::id(), by_path.as_raw_fd());
        let abstract_one = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes()).unwrap()).unwrap();
        let at = format!("@{name}");
        for (socket, address) in [(by_path, path.as_os_str()), (abstract_one, OsStr::new(at.as_str()))] {
            let notifier = Notifier::of(Some(address), Some("4000000"), None).unwrap();
            assert_eq!(notifier.watchdog(), Some(Duration::from_secs(4)));
            notifier.ready();
            assert_eq!(heard(&socket), "READY=1");
            notifier.reloading();
            let said = heard(&socket);
            let usec = said.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            assert!(usec.parse::<u64>().is_ok_and(|usec| usec > 0), "{said}");
            notifier.status("2 of 3 receive\nx");
            assert_eq!(heard(&socket), "STATUS=2 of 3 receive x");
            notifier.extend(Duration::from_millis(70_500));
            assert_eq!(heard(&socket), "EXTEND_TIMEOUT_USEC=70500000");
            notifier.alive();
            notifier.stopping();
            assert_eq!((heard(&socket), heard(&socket)), ("WATCHDOG=1".into(), "STOPPING=1".into()));
        }
    }

    #[test]
    fn nobody_is_told_where_nobody_asks() {
        let notifier = Notifier::of(None, Some("1000"), None).unwrap();
        assert_eq!(notifier.watchdog(), None);
        notifier.ready();
        let gone = Notifier::of(Some(OsStr::new("/nosuch/socket")), Some("1000"), Some("1")).unwrap();
        assert_eq!(gone.watchdog(), None, "of another process");
        gone.ready();
    }
}

//! Is there a display, and which elements open a window on it?
//!
//! `autovideosink` is not asked: when no window can be opened it goes on to try whatever is installed (DirectFB brings
//! the process down on a machine without a console), and in the end shows nothing without saying so.

use crate::error::{Error, Kind, Result};
use std::env;
use std::ffi::OsString;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Elements to try, best first; empty when there is no display.
///
/// # Errors
/// The environment names a display that does not answer.
pub(super) fn sinks() -> Result<Vec<&'static str>> {
    let set = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let (wayland, x) = (set("WAYLAND_DISPLAY"), set("DISPLAY"));
    let mut sinks = Vec::new();
    if wayland.as_ref().is_some_and(wayland_answers) {
        sinks.extend(["glimagesink", "waylandsink"]);
    }
    if x.as_ref().and_then(|name| name.to_str()).is_some_and(x_answers) {
        // With RGBA the graphics card does the scaling; Xv wants YUV, and the last one scales on the CPU.
        sinks.extend(["glimagesink", "xvimagesink", "ximagesink"]);
    }
    match wayland.or(x) {
        Some(name) if sinks.is_empty() => {
            let what = format!("no window can be opened: display {} does not answer", name.display());
            Err(Error::new(Kind::Unavailable, what)
                .cure("check DISPLAY (`xdpyinfo`), or unset it to run without a window"))
        }
        _ => Ok(sinks),
    }
}

fn wayland_answers(name: &OsString) -> bool {
    // A relative name lies in the runtime folder; joining keeps an absolute one as it is.
    let folder = env::var_os("XDG_RUNTIME_DIR").unwrap_or_default();
    UnixStream::connect(Path::new(&folder).join(name)).is_ok()
}

/// `[host]:number[.screen]`, as X has it.
fn x_answers(name: &str) -> bool {
    let Some((host, rest)) = name.rsplit_once(':') else { return false };
    let Ok(number) = rest.split('.').next().unwrap_or_default().parse::<u16>() else { return false };
    if host.is_empty() || host == "unix" {
        let path = format!("/tmp/.X11-unix/X{number}");
        let hidden = SocketAddr::from_abstract_name(&path).and_then(|a| UnixStream::connect_addr(&a));
        return UnixStream::connect(&path).is_ok() || hidden.is_ok();
    }
    // Somewhere else, such as the end of an ssh tunnel.
    let Some(port) = number.checked_add(6000) else { return false };
    let Ok(mut addresses) = (host, port).to_socket_addrs() else { return false };
    addresses.any(|a| TcpStream::connect_timeout(&a, Duration::from_secs(1)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_displays() {
        // What is no name at all never answers; a number that nobody uses neither.
        for name in
            ["", "4711", ":", ":x", ":4711", "unix:4711.0", ":99999", "no.such.host.invalid:0", "127.0.0.1:4711"]
        {
            assert!(!x_answers(name), "{name}");
        }
    }
}

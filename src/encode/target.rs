//! Where what is encoded goes: a file whose name says its container, or a network.

use super::spec::{Codec, Wrong, wrong};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What a file's name ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// `.mp4`, in fragments, so that a crash costs the last second at most.
    Mp4,
    /// `.mov`, likewise.
    Mov,
    /// `.mkv`, Matroska.
    Mkv,
    /// `.ts`, a transport stream.
    Ts,
}

/// A place for what is encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file. When an encoder has to be started again, the next one goes to a file beside it.
    File {
        /// Its name.
        path: PathBuf,
        /// Its container.
        container: Container,
    },
    /// A transport stream by SRT; the address as it was given.
    Srt {
        /// `srt://host:port?mode=caller`.
        url: String,
    },
    /// RTP to a host or group.
    Rtp {
        /// Name or address, without brackets.
        host: String,
        /// UDP port.
        port: u16,
    },
}

/// The cure where a name says nothing.
const SUFFIXES: &str = "name it .mp4, .mov, .mkv or .ts, or give srt://host:port or rtp://host:port";

impl FromStr for Target {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        if let Some((scheme, rest)) = text.split_once("://") {
            return match scheme {
                "srt" => srt(text, rest),
                "rtp" => rtp(text, rest),
                _ => Err(wrong(format!("encoded video is not sent by {scheme}://"), SUFFIXES)),
            };
        }
        let path = PathBuf::from(text);
        let suffix = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        let container = match suffix.as_str() {
            "mp4" | "m4v" => Container::Mp4,
            "mov" => Container::Mov,
            "mkv" => Container::Mkv,
            "ts" | "mts" | "m2t" => Container::Ts,
            "" => return Err(wrong(format!("{text}: the name does not say which container is wanted"), SUFFIXES)),
            other => return Err(wrong(format!("{text}: no container .{other}"), SUFFIXES)),
        };
        Ok(Target::File { path, container })
    }
}

/// Host and port of an address.
fn authority(text: &str, rest: &str, hostless: bool) -> Result<(String, u16), Wrong> {
    let example = "write scheme://host:port, such as rtp://239.1.1.1:5004 or srt://[2001:db8::1]:9000";
    let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong(format!("{text} has no port"), example))?;
    let port = port.parse().ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| wrong(format!("{text} has no usable port"), example))?;
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) if inner.parse::<Ipv6Addr>().is_ok() => inner,
        None if host.is_empty() && hostless => host,
        // Digits and dots alone are an address or nothing.
        None if host.chars().all(|c| c.is_ascii_digit() || c == '.') && host.parse::<Ipv4Addr>().is_err() => {
            return Err(wrong(format!("{text} has no usable host"), example));
        }
        None if host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')) => host,
        _ => return Err(wrong(format!("{text} has no usable host"), example)),
    };
    Ok((host.to_owned(), port))
}

fn srt(text: &str, rest: &str) -> Result<Target, Wrong> {
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut mode = None;
    for (key, value) in query.split('&').filter(|part| !part.is_empty()).map(|p| p.split_once('=').unwrap_or((p, ""))) {
        let fits = match key {
            "mode" => {
                mode = Some(value);
                matches!(value, "caller" | "listener" | "rendezvous")
            }
            "latency" | "pbkeylen" | "localport" => value.parse::<u32>().is_ok(),
            "passphrase" => (10..=79).contains(&value.len()),
            "streamid" | "localaddress" => !value.is_empty(),
            _ => false,
        };
        if !fits {
            return Err(wrong(
                format!("{text}: `{key}={value}` is nothing that SRT is told"),
                "use mode=caller, listener or rendezvous, latency=MS, passphrase=… (10 to 79 characters), pbkeylen, \
                 streamid, localaddress, localport",
            ));
        }
    }
    authority(text, place, mode == Some("listener"))?;
    Ok(Target::Srt { url: text.to_owned() })
}

fn rtp(text: &str, rest: &str) -> Result<Target, Wrong> {
    let (host, port) = authority(text, rest.trim_end_matches('/'), false)?;
    Ok(Target::Rtp { host, port })
}

impl Target {
    /// Does it take this codec?
    ///
    /// # Errors
    /// It does not; says what does.
    pub fn takes(&self, codec: Codec) -> Result<(), Wrong> {
        let cure = match codec {
            Codec::H264 | Codec::Hevc => return Ok(()),
            Codec::Av1 => match self {
                Target::File { container: Container::Mp4 | Container::Mov | Container::Mkv, .. } => return Ok(()),
                Target::Rtp { .. } => return Ok(()),
                _ => "write AV1 to .mp4 or .mkv, or choose h264 or hevc",
            },
            Codec::Mjpeg => match self {
                Target::File { container: Container::Mov | Container::Mkv, .. } | Target::Rtp { .. } => return Ok(()),
                _ => "write MJPEG to .mkv or .mov, or choose h264 or hevc",
            },
        };
        Err(wrong(format!("{} does not hold {codec}", self.kind()), cure))
    }
    /// Latency matters there.
    pub const fn is_stream(&self) -> bool {
        !matches!(self, Target::File { .. })
    }
    /// The file, where it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Target::File { path, .. } => Some(path),
            _ => None,
        }
    }
    /// What it is, for people.
    pub const fn kind(&self) -> &'static str {
        match self {
            Target::File { container: Container::Mp4, .. } => "MP4",
            Target::File { container: Container::Mov, .. } => "QuickTime (.mov)",
            Target::File { container: Container::Mkv, .. } => "Matroska",
            Target::File { container: Container::Ts, .. } => "a transport stream (.ts)",
            Target::Srt { .. } => "a transport stream (SRT)",
            Target::Rtp { .. } => "RTP",
        }
    }
    /// Where the `part`th start of an encoder writes, counted from 1: `name.mp4`, `name-002.mp4`; a network stays.
    #[must_use]
    pub fn part(&self, part: u32) -> Target {
        match self {
            Target::File { path, container } if part > 1 => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                let suffix = path.extension().unwrap_or_default().to_string_lossy();
                let name = format!("{stem}-{part:03}.{suffix}");
                Target::File { path: path.with_file_name(name), container: *container }
            }
            other => other.clone(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::File { path, .. } => write!(f, "{}", path.display()),
            // A pass phrase is nobody's business.
            Target::Srt { url } => match url.split_once("passphrase=") {
                Some((before, after)) => {
                    write!(f, "{before}passphrase=…{}", after.find('&').and_then(|at| after.get(at..)).unwrap_or(""))
                }
                None => f.write_str(url),
            },
            Target::Rtp { host, port } if host.contains(':') => write!(f, "rtp://[{host}]:{port}"),
            Target::Rtp { host, port } => write!(f, "rtp://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn names_and_addresses() {
        for (name, container) in [
            ("a.mp4", Container::Mp4),
            ("b/c.d/E.MKV", Container::Mkv),
            ("x.ts", Container::Ts),
            ("x.mov", Container::Mov),
        ] {
            assert_eq!(target(name), Target::File { path: name.into(), container });
        }
        assert_eq!(target("rtp://239.1.1.1:5004"), Target::Rtp { host: "239.1.1.1".into(), port: 5004 });
        assert_eq!(target("rtp://[2001:db8::1]:9/"), Target::Rtp { host: "2001:db8::1".into(), port: 9 });
        assert_eq!(target("rtp://[2001:db8::1]:9").to_string(), "rtp://[2001:db8::1]:9");
        target("srt://:9000?mode=listener&latency=200");
        let secret = target("srt://host.example:9000?passphrase=0123456789&mode=caller").to_string();
        assert_eq!(secret, "srt://host.example:9000?passphrase=…&mode=caller");
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for (text, what) in [
            ("out", "does not say which container"),
            ("-", "does not say which container"),
            ("out.avi", "no container .avi"),
            ("http://x:80", "not sent by http://"),
            ("rtp://host", "no port"),
            ("rtp://host:0", "no usable port"),
            ("rtp://host:70000", "no usable port"),
            ("rtp://:5004", "no usable host"),
            ("rtp://1.2.3:5004", "no usable host"),
            ("rtp://a b:5004", "no usable host"),
            ("rtp://[1::2::3]:5004", "no usable host"),
            ("srt://host:1?mode=sideways", "`mode=sideways`"),
            ("srt://host:1?passphrase=short", "nothing that SRT is told"),
            ("srt://:9000", "no usable host"),
        ] {
            let wrong = text.parse::<Target>().unwrap_err();
            assert!(wrong.what.contains(what) && !wrong.cure.is_empty(), "{text}: {wrong}");
        }
    }

    #[test]
    fn containers_and_their_codecs() {
        use Codec::*;
        for (name, codecs) in [
            ("a.mp4", &[H264, Hevc, Av1][..]),
            ("a.mov", &[H264, Hevc, Av1, Mjpeg]),
            ("a.mkv", &[H264, Hevc, Av1, Mjpeg]),
            ("a.ts", &[H264, Hevc]),
            ("srt://h:1", &[H264, Hevc]),
            ("rtp://h:1", &[H264, Hevc, Av1, Mjpeg]),
        ] {
            for codec in Codec::ALL {
                assert_eq!(target(name).takes(codec).is_ok(), codecs.contains(&codec), "{name} {codec}");
            }
        }
        let wrong = target("a.ts").takes(Av1).unwrap_err();
        assert_eq!(wrong.what, "a transport stream (.ts) does not hold AV1");
        assert!(wrong.cure.contains(".mkv"));
    }

    #[test]
    fn parts_have_numbers() {
        let names = [1, 2, 13, 1000].map(|part| target("dir.x/take.one.mp4").part(part).to_string());
        let wanted = ["take.one", "take.one-002", "take.one-013", "take.one-1000"];
        assert_eq!(names, wanted.map(|name| format!("dir.x/{name}.mp4")));
        assert_eq!(target("srt://h:1").part(2).to_string(), "srt://h:1");
    }
}

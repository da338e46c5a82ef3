//! Asks ptp4l (linuxptp) by its Unix socket: the one that anybody may use to read (linuxptp 4), or root's.

use super::management::{self, ClockIdentity, DataSet, Id, PortState, Response, TimeProperties};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Where ptp4l keeps its sockets, without the slash in front: the read-only one first.
pub const SOCKETS: [&str; 6] =
    ["var/run/ptp4lro", "run/ptp4lro", "run/ptp/ptp4lro", "var/run/ptp4l", "run/ptp4l", "run/ptp/ptp4l"];
/// Each question has its own name.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// How long it may take, all together.
const PATIENCE: Duration = Duration::from_millis(500);

/// What ptp4l says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct State {
    /// State of its port; of several the one that follows a master, or comes nearest to it.
    pub port: PortState,
    /// PTP domain.
    pub domain: u8,
    /// This clock.
    pub clock: ClockIdentity,
    /// Nanoseconds that this clock is ahead of its master, where there is one.
    pub offset_ns: Option<i64>,
    /// Nanoseconds of the way to it.
    pub path_delay_ns: Option<i64>,
    /// Clocks between this one and the grandmaster.
    pub steps_removed: u16,
    /// The grandmaster, where it is another clock.
    pub grandmaster: Option<ClockIdentity>,
    /// Its class (IEEE 1588-2008, 7.6.2.4); 6: locked to a primary reference.
    pub clock_class: u8,
    /// Its accuracy (table 6); 0xfe: not known.
    pub clock_accuracy: u8,
    /// What its time is.
    pub time: TimeProperties,
}

impl State {
    /// It follows a master and is settled.
    pub fn is_locked(&self) -> bool {
        self.port == PortState::Slave
    }

    /// Takes over what an answer says.
    pub fn take(&mut self, response: &Response) {
        self.domain = response.domain;
        match response.data {
            DataSet::Default { identity, .. } => self.clock = identity,
            DataSet::Current { steps_removed, offset_ns, path_delay_ns } => {
                self.steps_removed = steps_removed;
                self.path_delay_ns = Some(path_delay_ns);
                self.offset_ns = self.offset_ns.or(Some(offset_ns));
            }
            DataSet::Parent { grandmaster, clock_class, clock_accuracy } => {
                // Before it knows of another clock, it is its own.
                self.grandmaster = Some(grandmaster).filter(|gm| *gm != response.from);
                (self.clock_class, self.clock_accuracy) = (clock_class, clock_accuracy);
            }
            DataSet::TimeProperties(time) => self.time = time,
            DataSet::Port { state, .. } => self.port = nearer(self.port, state),
            DataSet::TimeStatusNp { offset_ns, .. } => self.offset_ns = offset_ns,
        }
    }

    /// What is left of a master that is gone does not count: ptp4l keeps its data sets until another one comes. Where
    /// there is no master, there is no way to it.
    fn settle(mut self) -> Self {
        if !matches!(self.port, PortState::Slave | PortState::Uncalibrated | PortState::Passive) {
            self.grandmaster = None;
        }
        if self.grandmaster.is_none() {
            (self.offset_ns, self.path_delay_ns) = (None, None);
        }
        self
    }
}

fn nearer(a: PortState, b: PortState) -> PortState {
    let rank = |state: PortState| match state {
        PortState::Slave => 9,
        PortState::Uncalibrated => 8,
        PortState::Master => 7,
        PortState::Passive => 6,
        PortState::PreMaster => 5,
        PortState::Listening => 4,
        PortState::Initializing => 3,
        PortState::Faulty => 2,
        PortState::Disabled => 1,
        PortState::Unknown => 0,
    };
    if rank(b) > rank(a) { b } else { a }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Silent {
    /// It does not run, or keeps its socket elsewhere.
    Absent,
    /// This user may not write to its socket.
    Denied,
    /// Nothing came in time: another domain, or an old ptp4l.
    Mute,
}

/// Asks the first ptp4l that answers at one of these sockets, in each of these domains.
///
/// # Errors
/// None answers, and why.
pub fn ask<P: AsRef<Path>>(sockets: impl IntoIterator<Item = P>, domains: &[u8]) -> Result<State, Silent> {
    let mut why = Silent::Absent;
    for path in sockets {
        let path = path.as_ref();
        if !path.exists() {
            continue;
        }
        let Some(Own { socket, .. }) = &Own::bind() else { continue };
        match socket.connect(path) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                why = Silent::Denied;
                continue;
            }
            // The file is left from one that has ended.
            Err(_) => continue,
        }
        return talk(socket, domains).ok_or(Silent::Mute);
    }
    Err(why)
}

/// A socket with a name of its own, to which answers come: a file, for ptp4l answers to no other names.
struct Own {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Own {
    fn bind() -> Option<Self> {
        let name = format!("gdmedia-ptp-{}-{}", std::process::id(), ASKED.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        // Left from one with the same number that was killed.
        let _ = std::fs::remove_file(&path);
        UnixDatagram::bind(&path).ok().map(|socket| Own { socket, path })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn talk(socket: &UnixDatagram, domains: &[u8]) -> Option<State> {
    let mut sequence = 0;
    for domain in domains {
        for id in Id::ALL {
            // What ptp4l does with it shows in the answers.
            let _ = socket.send(&management::get(*domain, sequence, id));
            sequence += 1;
        }
    }
    let end = Instant::now() + PATIENCE;
    let mut state = State::default();
    let mut answered = 0u32;
    // Other domains are silent, and ports answer one by one: the last question is answered last.
    while answered.count_ones() < Id::ALL.len() as u32 {
        let Some(left) = end.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else { break };
        socket.set_read_timeout(Some(left)).ok()?;
        let mut octets = [0u8; 1500];
        let Ok(len) = socket.recv(&mut octets) else { break };
        let Some(response) = octets.get(..len).and_then(management::response) else { continue };
        state.take(&response);
        answered |= 1 << (usize::from(response.sequence) % Id::ALL.len());
    }
    (answered != 0).then(|| state.settle())
}

/// A stand-in for ptp4l that answers requests in domain 127, for tests.
#[cfg(test)]
pub(crate) mod tests {
    use super::super::management::tests::answer;
    use super::*;

    /// Answers at `path` until nobody has asked for two seconds.
    pub fn stand_in(path: &Path) {
        const CLOCK: [u8; 8] = [2, 0, 0, 0xff, 0xfe, 0, 0, 1];
        const GRANDMASTER: [u8; 8] = [0x08, 0x00, 0x11, 0xff, 0xfe, 0x22, 0x33, 0x44];
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        std::thread::spawn(move || {
            let mut octets = [0; 1500];
            while let Ok((len, from)) = socket.recv_from(&mut octets) {
                let asked = &mut octets[..len];
                assert_eq!(len, 54);
                if asked[4] != 127 {
                    continue;
                }
                asked[20..28].copy_from_slice(&CLOCK);
                let mut data = match u16::from_be_bytes([asked[52], asked[53]]) {
                    0x2000 => [&[3, 0, 0, 1, 128, 255, 0xfe, 0xff, 0xff, 128][..], &CLOCK, &[127, 0]].concat(),
                    0x2001 => [&[0, 1][..], &(-35i64 << 16).to_be_bytes(), &(900i64 << 16).to_be_bytes()].concat(),
                    0x2002 => [&[0; 18][..], &[100, 6, 0x21, 0, 0, 128], &GRANDMASTER].concat(),
                    0x2003 => vec![0, 37, 0x0c, 0x20],
                    0x2004 => [&CLOCK[..], &[0, 1, 9], &[0; 15]].concat(),
                    _ => [&(-37i64).to_be_bytes()[..], &[1; 8], &[0; 22], &[0, 0, 0, 1], &GRANDMASTER].concat(),
                };
                data.truncate(50);
                let _ =
                    socket.send_to(&answer(asked, &data), from.as_pathname().expect("ptp4l answers to files alone"));
            }
        });
    }

    #[test]
    fn the_state_is_read_in_the_right_domain() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ptp4lro");
        assert_eq!(ask([&path], &[0]), Err(Silent::Absent));
        stand_in(&path);
        let wanted = State {
            port: PortState::Slave,
            domain: 127,
            clock: "02-00-00-FF-FE-00-00-01".parse().unwrap(),
            offset_ns: Some(-37),
            path_delay_ns: Some(900),
            steps_removed: 1,
            grandmaster: Some("08-00-11-FF-FE-22-33-44".parse().unwrap()),
            clock_class: 6,
            clock_accuracy: 0x21,
            time: TimeProperties {
                utc_offset_s: 37,
                utc_offset_valid: true,
                ptp_timescale: true,
                time_source: 0x20,
                ..TimeProperties::default()
            },
        };
        assert_eq!(ask([&path], &[0, 127]), Ok(wanted));
        assert!(wanted.is_locked());
        assert_eq!(ask([&path], &[5]), Err(Silent::Mute));
    }

    #[test]
    fn of_several_ports_the_one_that_follows_counts() {
        assert_eq!(nearer(PortState::Slave, PortState::Master), PortState::Slave);
        assert_eq!(nearer(PortState::Listening, PortState::Uncalibrated), PortState::Uncalibrated);
        assert_eq!(nearer(PortState::Unknown, PortState::Faulty), PortState::Faulty);
    }
}

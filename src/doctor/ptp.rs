//! The state of ptp4l (linuxptp), asked by PTP management messages at its socket that anybody may use to read.

use super::root::Root;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What ptp4l says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ptp {
    /// State of its first port, as IEEE 1588 names them.
    pub state: String,
    /// Nanoseconds that this clock is ahead of its master, where there is one.
    pub offset: Option<i64>,
    /// EUI-64 of the grandmaster, as SDPs write it.
    pub grandmaster: Option<String>,
    /// PTP domain.
    pub domain: u8,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silent {
    /// It does not run, or keeps its socket elsewhere.
    Absent,
    /// This user may not write to its socket.
    Denied,
    /// Nothing came in time: another domain, or an old ptp4l.
    Mute,
}

/// The read-only socket (linuxptp 4), and the one that root has.
const SOCKETS: [&str; 4] = ["var/run/ptp4lro", "run/ptp4lro", "var/run/ptp4l", "run/ptp4l"];
/// Each question has its own name.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// How long it may take, all together.
const PATIENCE: Duration = Duration::from_millis(500);

/// IEEE 1588 15.5.4: identifiers of data sets; the second is linuxptp's own.
const PORT_DATA_SET: u16 = 0x2004;
const TIME_STATUS_NP: u16 = 0xc000;

/// Asks ptp4l, in each of these domains.
///
/// # Errors
/// It does not answer.
pub fn ask(root: &Root, domains: &[u8]) -> Result<Ptp, Silent> {
    let mut why = Silent::Absent;
    for path in SOCKETS.map(|s| root.path(s)) {
        if !path.exists() {
            continue;
        }
        // A name without a file, so that nothing is left behind.
        let name = format!("gdmedia-doctor-{}-{}", std::process::id(), ASKED.fetch_add(1, Relaxed));
        let Ok(here) = SocketAddr::from_abstract_name(name) else { continue };
        let Ok(socket) = UnixDatagram::bind_addr(&here) else { continue };
        match socket.connect(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                why = Silent::Denied;
                continue;
            }
            // The file is left from one that has ended.
            Err(_) => continue,
        }
        match talk(&socket, domains) {
            Some(ptp) => return Ok(ptp),
            None => return Err(Silent::Mute),
        }
    }
    Err(why)
}

fn talk(socket: &UnixDatagram, domains: &[u8]) -> Option<Ptp> {
    for (n, domain) in domains.iter().enumerate() {
        for (k, id) in [PORT_DATA_SET, TIME_STATUS_NP].into_iter().enumerate() {
            // What ptp4l does with it shows in the answers.
            let _ = socket.send(&request(*domain, (2 * n + k) as u16, id));
        }
    }
    let end = Instant::now() + PATIENCE;
    let mut found: Option<Ptp> = None;
    let mut timed = false;
    while found.is_none() || !timed {
        let Some(left) = end.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else { break };
        socket.set_read_timeout(Some(left)).ok()?;
        let mut octets = [0u8; 1500];
        let Ok(len) = socket.recv(&mut octets) else { break };
        let Some((domain, id, data)) = answer(octets.get(..len)?) else { continue };
        match id {
            PORT_DATA_SET if found.as_ref().is_none_or(|p| p.state.is_empty()) => {
                if let Some(state) = data.get(10) {
                    let ptp = found.get_or_insert_default();
                    ptp.state = state_name(*state).into();
                    ptp.domain = domain;
                }
            }
            TIME_STATUS_NP => {
                if let Some((offset, grandmaster)) = time_status(data) {
                    let ptp = found.get_or_insert_default();
                    (ptp.offset, ptp.grandmaster, ptp.domain) = (offset, grandmaster, domain);
                    timed = true;
                }
            }
            _ => {}
        }
    }
    found
}

/// GET of a data set: header of 34 octets, target (any port), hops, action, then the TLV (IEEE 1588-2008 13.3, 15.4).
fn request(domain: u8, sequence: u16, id: u16) -> Vec<u8> {
    let mut out = vec![0x0d, 0x02, 0, 54, domain];
    out.resize(30, 0);
    out.extend(sequence.to_be_bytes());
    // Control field 4: management; interval 0x7f: does not matter.
    out.extend([4, 0x7f]);
    out.extend([0xff; 10]);
    // No hops: nothing goes out to the network. Then the action, GET.
    out.extend([0, 0, 0, 0]);
    for number in [1u16, 2, id] {
        out.extend(number.to_be_bytes());
    }
    out
}

/// Domain, data set and data of a response; anything else (another message, an error) is none.
fn answer(message: &[u8]) -> Option<(u8, u16, &[u8])> {
    let u16_at = |at: usize| message.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b));
    let management = message.first()? & 0x0f == 0x0d;
    let response = message.get(46)? & 0x0f == 2;
    let tlv = u16_at(48)? == 1;
    let len = usize::from(u16_at(50)?);
    (management && response && tlv).then_some(())?;
    Some((*message.get(4)?, u16_at(52)?, message.get(54..)?.get(..len.checked_sub(2)?)?))
}

/// Offset (8 octets), time of entry (8), rates (4, 4), time base (2), phase (12), presence (4), grandmaster (8).
fn time_status(data: &[u8]) -> Option<(Option<i64>, Option<String>)> {
    let offset = i64::from_be_bytes(*data.first_chunk()?);
    let present = data.get(38..42)?.iter().any(|o| *o != 0);
    let master: Vec<String> = data.get(42..50)?.iter().map(|o| format!("{o:02X}")).collect();
    Some((present.then_some(offset), present.then(|| master.join("-"))))
}

const fn state_name(state: u8) -> &'static str {
    match state {
        1 => "INITIALIZING",
        2 => "FAULTY",
        3 => "DISABLED",
        4 => "LISTENING",
        5 => "PRE_MASTER",
        6 => "MASTER",
        7 => "PASSIVE",
        8 => "UNCALIBRATED",
        9 => "SLAVE",
        _ => "of no known state",
    }
}

/// A stand-in for ptp4l that answers requests in domain 127, for tests.
#[cfg(test)]
pub mod tests {
    use super::super::root::tests::Tree;
    use super::*;

    fn response(to: &[u8], data: &[u8]) -> Vec<u8> {
        let mut out = to[..48].to_vec();
        out[46] = 2;
        out.extend([0, 1]);
        out.extend((data.len() as u16 + 2).to_be_bytes());
        out.extend(&to[52..54]);
        out.extend(data);
        out
    }

    /// Answers until nobody has asked for two seconds.
    pub fn stand_in(tree: &Tree) {
        tree.file("run/folder", "");
        let socket = UnixDatagram::bind(tree.root().path("run/ptp4lro")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        std::thread::spawn(move || {
            let mut octets = [0; 1500];
            while let Ok((len, from)) = socket.recv_from(&mut octets) {
                let asked = &octets[..len];
                assert_eq!(len, 54);
                if asked[4] != 127 {
                    continue;
                }
                let data = match u16::from_be_bytes([asked[52], asked[53]]) {
                    PORT_DATA_SET => {
                        let mut data = vec![0; 26];
                        data[10] = 9;
                        data
                    }
                    _ => {
                        let mut data = Vec::from((-37i64).to_be_bytes());
                        data.resize(38, 0);
                        data.extend([0, 0, 0, 1, 0x08, 0x00, 0x11, 0xff, 0xfe, 0x22, 0x33, 0x44]);
                        data
                    }
                };
                let _ = socket.send_to_addr(&response(asked, &data), &from);
            }
        });
    }

    #[test]
    fn the_state_is_read_in_the_right_domain() {
        let tree = Tree::new();
        assert_eq!(ask(&tree.root(), &[0]), Err(Silent::Absent));
        stand_in(&tree);
        let wanted = Ptp {
            state: "SLAVE".into(),
            offset: Some(-37),
            grandmaster: Some("08-00-11-FF-FE-22-33-44".into()),
            domain: 127,
        };
        assert_eq!(ask(&tree.root(), &[0, 127]), Ok(wanted));
        assert_eq!(ask(&tree.root(), &[5]), Err(Silent::Mute));
    }

    #[test]
    fn requests_are_laid_out_as_the_standard_says() {
        let out = request(127, 258, 0x2004);
        assert_eq!(out.len(), 54);
        assert_eq!(out[..5], [0x0d, 2, 0, 54, 127]);
        assert_eq!(out[30..34], [1, 2, 4, 0x7f]);
        assert_eq!(out[34..48], [255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0]);
        assert_eq!(out[48..], [0, 1, 0, 2, 0x20, 0x04]);
        assert_eq!(answer(&out), None, "a request is no response");
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_read_without_harm(octets in proptest::collection::vec(0u8.., 0..120)) {
            if let Some((_, _, data)) = answer(&octets) {
                let _ = time_status(data);
            }
            let _ = time_status(&octets);
        }
    }
}

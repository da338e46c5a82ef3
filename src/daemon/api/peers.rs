//! Who asks how often: a bucket for each peer, which a request takes from and time fills again.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Peers that are remembered. When there are more, those who have asked for nothing for a while are forgotten; if there are
/// none of these, the ones that are new share a bucket.
const PEERS: usize = 4096;

/// Buckets and connections of all peers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers(Arc<Mutex<HashMap<IpAddr, Peer>>>);

#[derive(Clone, Copy, Debug)]
struct Peer {
    /// Requests that it may make now.
    left: f64,
    /// When that was reckoned.
    at: Instant,
    connections: usize,
}

impl Peers {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Peer>> {
        // Whole at every instant.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request of `address`; otherwise the time after which it may come again.
    pub fn take(&self, address: IpAddr, now: Instant, rate: u32, burst: u32) -> Result<(), Duration> {
        let (rate, burst) = (f64::from(rate.max(1)), f64::from(burst.max(1)));
        let mut peers = self.lock();
        let peer = entry(&mut peers, address, now, burst, rate);
        let passed = now.saturating_duration_since(peer.at).as_secs_f64();
        peer.left = (peer.left + passed * rate).min(burst);
        peer.at = now;
        if peer.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - peer.left) / rate));
        }
        peer.left -= 1.0;
        Ok(())
    }

    /// One more connection of `address`, for as long as what is returned lives; none where it has `most` already.
    pub fn connect(&self, address: IpAddr, now: Instant, burst: u32, most: usize) -> Option<Connection> {
        let mut peers = self.lock();
        let peer = entry(&mut peers, address, now, f64::from(burst.max(1)), 1.0);
        if peer.connections >= most {
            return None;
        }
        peer.connections += 1;
        let address = if peers.contains_key(&network(address)) { network(address) } else { OTHERS };
        Some(Connection { peers: self.clone(), address })
    }
}

/// A connection of a peer.
#[derive(Debug)]
pub(super) struct Connection {
    peers: Peers,
    address: IpAddr,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(peer) = self.peers.lock().get_mut(&self.address) {
            peer.connections = peer.connections.saturating_sub(1);
        }
    }
}

/// Those for whom there is no room; nobody's own address.
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

fn entry(peers: &mut HashMap<IpAddr, Peer>, address: IpAddr, now: Instant, burst: f64, rate: f64) -> &mut Peer {
    let mut of = network(address);
    if peers.len() >= PEERS && !peers.contains_key(&of) {
        // Whose bucket is full again is as one who was never here.
        let full = |peer: &Peer| peer.left + now.saturating_duration_since(peer.at).as_secs_f64() * rate >= burst;
        peers.retain(|_, peer| peer.connections > 0 || !full(peer));
        if peers.len() >= PEERS {
            of = OTHERS;
        }
    }
    peers.entry(of).or_insert(Peer { left: burst, at: now, connections: 0 })
}

/// An IPv6 peer has a whole /64 (RFC 6177); a mapped address is the IPv4 one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn a_burst_and_then_a_rate() {
        let (peers, now) = (Peers::default(), Instant::now());
        let take = |at_ms: u64, of: IpAddr| peers.take(of, now + Duration::from_millis(at_ms), 10, 3);
        assert_eq!([0, 0, 0].map(|at| take(at, ip(1))), [Ok(()); 3]);
        assert_eq!(take(0, ip(1)), Err(Duration::from_millis(100)));
        assert_eq!(take(0, ip(2)), Ok(()), "another one has its own");
        assert_eq!(take(50, ip(1)), Err(Duration::from_millis(50)));
        assert_eq!(take(100, ip(1)), Ok(()));
        assert_eq!(take(100, ip(1)), Err(Duration::from_millis(100)));
        assert_eq!([9_000; 3].map(|at| take(at, ip(1))), [Ok(()); 3], "full again, and no fuller");
        assert!(take(9_000, ip(1)).is_err());
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let (peers, now) = (Peers::default(), Instant::now());
        let one = |text: &str| peers.take(text.parse().unwrap(), now, 1, 1).is_ok();
        assert!(one("2001:db8::1") && !one("2001:db8::2:1") && one("2001:db8:0:1::1"));
        assert!(one("10.0.0.1") && !one("::ffff:10.0.0.1"));
    }

    #[test]
    fn connections_are_counted_and_forgotten() {
        let (peers, now) = (Peers::default(), Instant::now());
        let connect = |of| peers.connect(of, now, 10, 2);
        let (a, b) = (connect(ip(1)), connect(ip(1)));
        assert!(a.is_some() && b.is_some() && connect(ip(1)).is_none() && connect(ip(2)).is_some());
        drop(a);
        assert!(connect(ip(1)).is_some());
        drop(b);
    }

    #[test]
    fn many_peers_take_no_more_memory_than_that() {
        let (peers, now) = (Peers::default(), Instant::now());
        let held = peers.connect(ip(7), now, 2, 1);
        for n in 0..20_000 {
            let _ = peers.take(ip(n), now, 1, 2);
        }
        assert!(peers.lock().len() <= PEERS + 1, "{}", peers.lock().len());
        assert!(peers.take(ip(30_000), now, 1, 2).is_err(), "the new ones share a bucket, which is empty");
        // A minute later all are forgotten but the one that is connected.
        assert_eq!(peers.take(ip(40_000), now + Duration::from_secs(60), 1, 2), Ok(()));
        assert_eq!(peers.lock().len(), 2);
        drop(held);
    }
}

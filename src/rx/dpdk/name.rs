//! What a port is called: a PCI address or a virtual device, which one receiver of a process has at a time.

use crate::error::{Error, Kind, Result};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Names of ports that receivers of this process have.
static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The name of a port, which nobody else has meanwhile.
pub struct Name(pub String);

impl Name {
    /// And what DPDK is told to attach it.
    pub fn take(spec: &str) -> Result<(Self, String)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (device, rest) = spec.split_once(',').map_or((spec, ""), |(device, _)| (device, &spec[device.len()..]));
        let name = match pci(device) {
            Some(address) => address,
            None if device.is_empty() || !device.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                return Err(Error::new(Kind::Usage, format!("`{spec}` names no port")).cure(
                    "a PCI address (0000:3b:00.0), or a virtual device and what its driver is told \
                     (net_af_packet,iface=eth1)",
                ));
            }
            None if device.ends_with(|c: char| c.is_ascii_digit()) => device.to_owned(),
            None => format!("{device}_gd{}", NEXT.fetch_add(1, Ordering::Relaxed)),
        };
        if !TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone()) {
            return Err(Error::new(Kind::Unavailable, format!("another receiver of this process has port {name}"))
                .cure("a port serves one receiver: name another one, or end the other"));
        }
        let spec = format!("{name}{rest}");
        Ok((Name(name), spec))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// A PCI address, with its domain; none where it is none.
pub fn pci(text: &str) -> Option<String> {
    let hex = |part: &str, digits: usize| part.len() == digits && part.chars().all(|c| c.is_ascii_hexdigit());
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let (device, bus, domain) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0000"));
    let right = hex(function, 1) && hex(device, 2) && hex(bus, 2) && hex(domain, 4) && parts.next().is_none();
    right.then(|| format!("{domain}:{bus}:{device}.{function}").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_named_by_address_or_device_and_taken_once() {
        assert_eq!(pci("3B:00.1").as_deref(), Some("0000:3b:00.1"));
        assert_eq!(pci("0001:3b:00.0").as_deref(), Some("0001:3b:00.0"));
        for wrong in ["3b:00", "3b.00.0", "1:0000:3b:00.0", "net_pcap0", "3b:00.10", "", "000:3b:00.0"] {
            assert_eq!(pci(wrong), None, "{wrong}");
        }
        let (one, spec) = Name::take("net_null77,size=64").unwrap();
        assert_eq!((one.0.as_str(), spec.as_str()), ("net_null77", "net_null77,size=64"));
        let error = Name::take("net_null77").map(drop).unwrap_err().to_string();
        assert!(error.contains("another receiver of this process has port net_null77"), "{error}");
        drop(one);
        let (_one, _) = Name::take("net_null77").unwrap();
        // Without a number there is no other.
        let (first, spec) = Name::take("net_null,size=64").unwrap();
        let (second, _) = Name::take("net_null").unwrap();
        assert_ne!(first.0, second.0);
        assert_eq!(spec, format!("{},size=64", first.0));
        let (device, spec) = Name::take("3B:00.7,x=1").unwrap();
        assert_eq!((device.0.as_str(), spec.as_str()), ("0000:3b:00.7", "0000:3b:00.7,x=1"));
        assert!(Name::take("").is_err() && Name::take("7:8").is_err());
    }
}

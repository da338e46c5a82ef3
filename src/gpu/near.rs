//! Which device lies nearest to another on PCI Express: the one whose path in sysfs has most in common.

use std::path::{Path, PathBuf};

/// The place of a network interface on the bus; none for those that are no PCI device (loopback, veth, bond).
pub fn of_interface(name: &str) -> Option<PathBuf> {
    let device = std::fs::canonicalize(Path::new("/sys/class/net").join(name).join("device")).ok()?;
    is_pci(&device).then_some(device)
}

/// The place of a PCI device, by its address as CUDA says it (`0000:1B:00.0`).
pub fn of_pci(address: &str) -> Option<PathBuf> {
    std::fs::canonicalize(Path::new("/sys/bus/pci/devices").join(address.to_ascii_lowercase())).ok()
}

fn is_pci(path: &Path) -> bool {
    path.components().any(|c| c.as_os_str().to_string_lossy().starts_with("pci"))
}

/// Steps of the path that both have: more is nearer.
pub fn shared(a: &Path, b: &Path) -> usize {
    a.components().zip(b.components()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_switch_is_nearer_than_the_same_root() {
        let nic = Path::new("/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0");
        let same_switch = Path::new("/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0");
        let same_root = Path::new("/sys/devices/pci0000:15/0000:15:03.0/0000:20:00.0");
        let elsewhere = Path::new("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0");
        assert!(shared(nic, same_switch) > shared(nic, same_root));
        assert!(shared(nic, same_root) > shared(nic, elsewhere));
    }

    #[test]
    fn interfaces_that_are_no_pci_device_have_no_place() {
        assert_eq!(of_interface("lo"), None);
        assert_eq!(of_interface("no such interface"), None);
        assert_eq!(of_interface("../../etc"), None);
    }
}

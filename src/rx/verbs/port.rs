//! Which port of which RDMA device an interface belongs to, and what the kernel counts there: its files in sysfs.

use crate::error::{Error, Kind, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name of the device, such as `mlx5_0`.
    pub device: String,
    /// Number of the port, from 1 on.
    pub number: u8,
    /// Its folder.
    folder: PathBuf,
}

/// Ports of a device at most, as libibverbs numbers them.
const PORTS: u8 = 16;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(std::result::Result::ok);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn line(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Interfaces of a device, with the ports that they belong to.
fn interfaces(sysfs: &Path, device: &str) -> Vec<(String, u8)> {
    let folder = sysfs.join("class/infiniband").join(device);
    let mut list: Vec<(String, u8)> = Vec::new();
    for number in names(&folder.join("ports")).iter().filter_map(|name| name.parse().ok()) {
        let of_port = folder.join(format!("ports/{number}/gid_attrs/ndevs"));
        // Places without an address do not answer.
        list.extend(names(&of_port).iter().filter_map(|gid| Some((line(&of_port.join(gid))?, number))));
    }
    for name in names(&folder.join("device/net")) {
        // Counted from 0; of devices with one port it is always 0.
        let number = line(&sysfs.join("class/net").join(&name).join("dev_port")).and_then(|n| n.parse::<u8>().ok());
        list.push((name, number.filter(|n| *n < PORTS).map_or(1, |n| n + 1)));
    }
    let mut seen = Vec::new();
    list.retain(|(name, _)| {
        !seen.contains(name) && {
            seen.push(name.clone());
            true
        }
    });
    list
}

/// The port of an interface.
///
/// # Errors
/// It belongs to no RDMA device, or its port is no Ethernet.
pub fn of_interface(sysfs: &Path, interface: &str) -> Result<Port> {
    let class = sysfs.join("class/infiniband");
    let all: Vec<(String, Vec<(String, u8)>)> =
        names(&class).into_iter().map(|device| (interfaces(sysfs, &device), device)).map(|(i, d)| (d, i)).collect();
    let found = all.iter().find_map(|(device, interfaces)| {
        let (_, number) = interfaces.iter().find(|(name, _)| name == interface)?;
        let one = class.join(device).join(format!("ports/{number}"));
        // A function of a card with two ports may have one, which is its first.
        let number = if one.exists() { *number } else { 1 };
        let folder = class.join(device).join(format!("ports/{number}"));
        Some(Port { device: device.clone(), number, folder })
    });
    let Some(port) = found else {
        let each = |(device, interfaces): &(String, Vec<(String, u8)>)| {
            let names: Vec<&str> = interfaces.iter().map(|(name, _)| name.as_str()).collect();
            if names.is_empty() { device.clone() } else { format!("{device} with {}", names.join(" ")) }
        };
        let list: Vec<String> = all.iter().map(each).collect();
        let what = if list.is_empty() { "there is none".into() } else { format!("found: {}", list.join(", ")) };
        return Err(Error::new(
            Kind::Unavailable,
            format!("no RDMA device belongs to interface {interface} ({what})"),
        )
        .cure(
            "name an interface of a ConnectX card with --interface (rdma link shows them), load its driver (modprobe mlx5_ib), \
             or receive with --backend socket",
        ));
    };
    if let Some(layer) = line(&port.folder.join("link_layer")).filter(|layer| layer != "Ethernet") {
        let what = format!("port {} of {} is {layer}, not Ethernet", port.number, port.device);
        return Err(Error::new(Kind::Unavailable, what)
            .cure("set the port's type with mlxconfig (LINK_TYPE_P1=ETH), or use another interface"));
    }
    Ok(port)
}

impl Port {
    /// Packets that came for a queue without an entry, of all queues of the port; none where the driver does not count them.
    pub fn out_of_buffer(&self) -> Option<u64> {
        line(&self.folder.join("hw_counters/out_of_buffer"))?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_port_is_found_by_its_addresses_and_by_its_device() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        // A bond has the device of its first port, and is known by the port's addresses alone.
        write(root, "class/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/0", "bond0\n");
        write(root, "class/infiniband/mlx5_bond_0/ports/1/link_layer", "Ethernet\n");
        write(root, "class/infiniband/mlx4_0/ports/2/link_layer", "Ethernet\n");
        write(root, "class/infiniband/mlx4_0/ports/2/hw_counters/out_of_buffer", "17\n");
        write(root, "class/infiniband/mlx4_0/device/net/ens2d1/x", "");
        write(root, "class/net/ens2d1/dev_port", "1\n");
        write(root, "class/infiniband/mlx5_2/ports/1/link_layer", "InfiniBand\n");
        write(root, "class/infiniband/mlx5_2/device/net/ib0/x", "");
        let of = |interface| of_interface(root, interface);
        let bond = of("bond0").unwrap();
        assert_eq!((bond.device.as_str(), bond.number, bond.out_of_buffer()), ("mlx5_bond_0", 1, None));
        let second = of("ens2d1").unwrap();
        assert_eq!((second.device.as_str(), second.number, second.out_of_buffer()), ("mlx4_0", 2, Some(17)));
        let text = of("ib0").unwrap_err().to_string();
        assert!(text.contains("port 1 of mlx5_2 is InfiniBand") && text.contains("cure"), "{text}");
        let text = of("eth0").unwrap_err().to_string();
        assert!(
            text.contains("interface eth0 (found: mlx4_0 with ens2d1, mlx5_2 with ib0, mlx5_bond_0 with bond0)"),
            "{text}"
        );
    }

    #[test]
    fn a_machine_without_devices_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let error = of_interface(folder.path(), "eth0").unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.to_string().starts_with("no RDMA device belongs to interface eth0 (there is none)"), "{error}");
    }
}

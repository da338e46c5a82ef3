//! The words for ports that cannot be had.

use super::abi::{Info, Refused};
use super::name::pci;
use super::port::AF_XDP;
use crate::error::{Error, Kind};

/// Drivers of interfaces say no more than that they failed: is it for want of rights?
fn lacks_rights(name: &str) -> bool {
    let raw = || socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None);
    name.starts_with("net_af_") && raw().is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// It could not be attached.
pub fn not_attached(name: &str, refused: Refused) -> Error {
    if lacks_rights(name) {
        let what = format!("DPDK cannot have port {name}: this process may not use raw sockets (CAP_NET_RAW)");
        return Error::new(Kind::Permission, what)
            .because(refused)
            .cure("run it as root, or: setcap cap_net_raw,cap_net_admin+ep gdmedia (cap_bpf too for net_af_xdp)");
    }
    let cure = match pci(name) {
        _ if refused.errno == libc::EEXIST => {
            "DPDK has it already, by eal=: leave -a, --allow and --vdev out there, for port= names what is attached"
                .into()
        }
        Some(address) if std::path::Path::new("/sys/bus/pci/devices").join(&address).exists() => format!(
            "the kernel has it, or no driver of DPDK is for it: dpdk-devbind.py --bind=vfio-pci {address} (cards of NVIDIA \
             keep their driver, and need DPDK's mlx5)"
        ),
        Some(_) => "dpdk-devbind.py --status names the devices of this machine".into(),
        None if name.starts_with("net_af_") => {
            "see that the interface is there, and that gdmedia may open it: root, or CAP_NET_RAW and CAP_NET_ADMIN"
                .into()
        }
        None => "see that its driver is installed (librte-net-…), and that what it is told is right".into(),
    };
    Error::new(Kind::Unavailable, format!("DPDK cannot have port {name}")).because(refused).cure(cure)
}

/// It is attached, and does not receive.
pub fn not_started(name: &str, info: &Info, splits: bool, refused: Refused) -> Error {
    let cure = match refused.errno {
        _ if splits => {
            "its driver does not cut packets for memory of a GPU as it says it does: receive with --gpu-direct off, which takes \
             pinned memory"
        }
        libc::ENOMEM if info.driver == "net_af_packet" => {
            "frames of its ring are larger than a packet's room: room=OCTETS, or framesz="
        }
        libc::ENOMEM => "give DPDK more memory (eal=… -m MIB), or ask for fewer descriptors",
        // libxdp 1.3 does not close the socket when it is told to.
        _ if info.driver == AF_XDP => {
            "another AF_XDP socket has the queue; with the libxdp of Debian 12 also one of this process that has ended: start \
             gdmedia again, or take --backend xdp"
        }
        libc::EINVAL if info.max_mtu < 1500 => "its packets are too small for the flow",
        _ => "receive with sockets, or see docs/dpdk.md",
    };
    Error::new(Kind::Unavailable, format!("port {name} (driver {}) does not start", info.driver))
        .because(refused)
        .cure(cure)
}

/// It may not write to the packets' memory, of so many octets: `of_gpu` where that is a GPU's.
pub fn not_reached(name: &str, info: &Info, octets: usize, of_gpu: bool, refused: Refused) -> Error {
    let mib = octets.div_ceil(1 << 20);
    let (whose, cure) = if of_gpu {
        (
            "memory of the GPU",
            "load nvidia-peermem (modprobe nvidia-peermem), by which drivers of DPDK are given memory of a GPU; without it packets \
             go into pinned memory",
        )
    } else {
        (
            "memory",
            "let gdmedia lock more memory: ulimit -l unlimited, or LimitMEMLOCK=infinity in its service (systemd); else use a \
             shorter ring (hold=)",
        )
    };
    let what = format!("port {name} (driver {}) is not let write to {mib} MiB of {whose} (IOMMU)", info.driver);
    Error::new(Kind::Unavailable, what).because(refused).cure(cure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_a_card_does_not_reach_has_its_cure() {
        let info = Info { driver: "net_ice".into(), ..Info::default() };
        let refused = || Refused { errno: libc::EIO, said: "cannot set up DMA remapping, error 12".into() };
        let text = not_reached("0000:3b:00.0", &info, 70 << 20, false, refused()).to_string();
        for word in ["port 0000:3b:00.0", "70 MiB of memory", "error 12", "ulimit -l", "LimitMEMLOCK"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let text = not_reached("0000:3b:00.0", &info, 70 << 20, true, refused()).to_string();
        assert!(text.contains("memory of the GPU") && text.contains("nvidia-peermem"), "{text}");
        let text =
            not_started("0000:3b:00.0", &info, true, Refused { errno: libc::EINVAL, said: String::new() }).to_string();
        assert!(text.contains("pinned memory"), "{text}");
    }
}

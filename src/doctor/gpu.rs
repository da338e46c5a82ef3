//! Steps from the network to a GPU.

use super::interface::Interface;
use super::machine::{Machine, size};
use super::pci::{self, Near};
use super::report::{Finding, State};
use super::root::Root;
use super::system::{Cuda, System};

/// NVIDIA's number on PCI.
const NVIDIA: u32 = 0x10de;
/// The oldest kernel module for CUDA 12.0.
const OLDEST: u32 = 525;
/// BAR1 of which NVIDIA's guides for Rivermax say that it is enough.
const BAR1_ENOUGH: u64 = 1 << 30;

/// What the recommendation wants to know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// Its PCI address.
    pub address: String,
    /// gdmedia can unpack on it.
    pub usable: bool,
    /// How near it is to the interface that lies nearest, and which that is.
    pub near: Option<(Near, String)>,
    /// What keeps cards from writing into its memory; empty: nothing.
    pub closed: Vec<String>,
    /// Its links up to the host.
    pub links: Vec<pci::Link>,
}

/// Every step, and the GPU that would be used.
pub fn findings(
    root: &Root,
    system: &dyn System,
    machine: &Machine,
    interfaces: &[Interface],
) -> (Vec<Finding>, Option<Gpu>) {
    let is_gpu = |d: &pci::Device| d.vendor == NVIDIA && d.class >> 16 == 3;
    let gpus: Vec<pci::Device> = pci::devices(root).into_iter().filter(is_gpu).collect();
    let nearest = |gpu: &pci::Device| {
        let each = interfaces.iter().filter_map(|i| Some((pci::near(i.device.as_ref()?, gpu), i.base.name.clone())));
        each.min()
    };
    let cuda = system.gpu(interfaces.iter().find(|i| i.device.is_some()).and_then(|i| i.card.as_deref()));
    let device = match &cuda.address {
        Some(address) => gpus.iter().find(|d| d.address == *address),
        None => gpus.iter().min_by_key(|d| nearest(d)),
    };
    let mut out = vec![driver(root, &cuda, &gpus)];
    // What stands between a card and memory of the GPU counts only where there is a GPU.
    let Some(device) = device else {
        let none = |id| Finding::new(id, State::NotApplicable, "no GPU");
        out.extend(["distance", "bar1", "dma-buf", "peermem"].map(none));
        out.extend([nvenc(system, false), cufile(root, system)]);
        return (out, None);
    };
    let near = nearest(device);
    out.push(distance(machine, device, near.as_ref()));
    let (bar1, small) = bar1(device, &cuda);
    let (dma_buf, peermem, shut) = sharing(root, &cuda);
    out.extend([bar1, dma_buf, peermem, nvenc(system, true), cufile(root, system)]);
    let gpu = Gpu {
        address: device.address.clone(),
        usable: cuda.address.is_some(),
        near,
        closed: small.into_iter().chain(shut).collect(),
        links: pci::links(root, &device.path),
    };
    (out, Some(gpu))
}

fn driver(root: &Root, cuda: &Cuda, gpus: &[pci::Device]) -> Finding {
    const ID: &str = "gpu-driver";
    let gives = "frames unpacked in memory of the GPU, while they arrive";
    if cuda.address.is_some() {
        return Finding::good(ID, cuda.why.clone());
    }
    let why = cuda.why.trim_start_matches("none: ");
    if gpus.is_empty() {
        return Finding::new(ID, State::Missing, format!("no NVIDIA GPU on the bus ({why})")).gives(gives);
    }
    let names = gpus.iter().map(|g| g.address.as_str()).collect::<Vec<_>>().join(", ");
    let module = root.text("proc/driver/nvidia/version").and_then(|t| module_version(&t));
    let finding = match module {
        Some((major, version)) if major < OLDEST => {
            let text = format!("GPU {names} has driver {version}, needed is {OLDEST} or later (CUDA 12.0)");
            Finding::new(ID, State::CouldBeBetter, text).fix("apt install nvidia-driver")
        }
        Some((_, version)) => {
            let text = format!("GPU {names} has driver {version}, but cannot be used: {why}");
            Finding::new(ID, State::CouldBeBetter, text).see("nvidia-smi")
        }
        None => {
            let text = format!("GPU {names} is there, but NVIDIA's kernel module is not loaded");
            Finding::new(ID, State::CouldBeBetter, text).fix("modprobe nvidia").fix("apt install nvidia-driver")
        }
    };
    finding.gives(gives)
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159  Wed …`, or the open one's `… for x86_64  580.159 …`.
fn module_version(text: &str) -> Option<(u32, String)> {
    let line = text.lines().find(|l| l.starts_with("NVRM version"))?;
    line.split_ascii_whitespace().find_map(|word| {
        let major = word.split_once('.')?.0.parse().ok()?;
        word.bytes().all(|b| b.is_ascii_digit() || b == b'.').then(|| (major, word.to_owned()))
    })
}

fn distance(machine: &Machine, gpu: &pci::Device, near: Option<&(Near, String)>) -> Finding {
    const ID: &str = "distance";
    let cores =
        gpu.node.and_then(|n| Some(format!("; NUMA node {n}, cores {}", machine.cores_of(n)?))).unwrap_or_default();
    match near {
        None => Finding::new(ID, State::NotApplicable, format!("no card on PCI Express to be near to{cores}")),
        Some((near @ (Near::Switch | Near::Root), name)) => {
            Finding::good(ID, format!("{name} is {}{cores}", near.as_str()))
        }
        Some((near, name)) => {
            let text = format!("{name} is {}{cores}", near.as_str());
            Finding::new(ID, State::CouldBeBetter, text).see("nvidia-smi topo -m").see("lspci -tv")
        }
    }
}

/// And what is wrong with it for a card that writes there.
fn bar1(gpu: &pci::Device, cuda: &Cuda) -> (Finding, Option<String>) {
    const ID: &str = "bar1";
    let free = cuda.bar1_free.map_or_else(String::new, |n| format!(", {} free", size(n)));
    match gpu.bar1 {
        None => (Finding::new(ID, State::NotKnown, "cannot be read").see("nvidia-smi -q -d MEMORY"), None),
        Some(all) if all < BAR1_ENOUGH => {
            let text = format!(
                "{}{free}: little room for packets of a card; see Above 4G Decoding and Resizable BAR in the firmware's setup",
                size(all)
            );
            let finding =
                Finding::new(ID, State::Missing, text).gives("room for packets that cards write into the GPU's memory");
            (finding, Some(format!("BAR1 has {} only", size(all))))
        }
        Some(all) => (Finding::good(ID, format!("{}{free}", size(all))), None),
    }
}

/// dma-buf, peermem, and what is wrong when there is neither.
fn sharing(root: &Root, cuda: &Cuda) -> (Finding, Finding, Option<String>) {
    let gives = "a card that writes into the GPU's memory";
    let dma_buf = match cuda.dma_buf {
        Some(true) => Finding::good("dma-buf", "the driver hands memory of the GPU to other drivers"),
        Some(false) => {
            Finding::new("dma-buf", State::Missing, "the driver does not hand memory of the GPU to other drivers")
                .gives(gives)
                .fix("apt install nvidia-open")
        }
        None => Finding::new("dma-buf", State::NotKnown, "only a driver that runs tells").see("nvidia-smi"),
    };
    let peermem = root.module("nvidia_peermem") || root.module("nv_peer_mem");
    let finding = if peermem {
        Finding::good("peermem", "nvidia_peermem is loaded")
    } else {
        Finding::new("peermem", State::Missing, "nvidia_peermem is not loaded")
            .gives(format!("{gives}, where dma-buf is not used"))
            .fix("modprobe nvidia_peermem")
    };
    let shut = (!peermem && cuda.dma_buf != Some(true))
        .then(|| "neither dma-buf nor nvidia_peermem is known to work".to_owned());
    (dma_buf, finding, shut)
}

fn nvenc(system: &dyn System, gpu: bool) -> Finding {
    const ID: &str = "nvenc";
    match system.library(&["libnvidia-encode.so.1"]) {
        None if !gpu => Finding::new(ID, State::NotApplicable, "no GPU"),
        None => Finding::new(ID, State::Missing, "libnvidia-encode is not installed")
            .gives("encoders of GStreamer on the GPU (nvh264enc, nvh265enc)")
            .fix("apt install libnvidia-encode1"),
        Some(_) if gpu => {
            let text = "library there; whether this GPU has an encoder (data-centre ones often have none) shows when it is used";
            Finding::new(ID, State::NotKnown, text).see("gst-inspect-1.0 nvcodec")
        }
        Some(_) => Finding::new(ID, State::NotApplicable, "library there, no GPU"),
    }
}

fn cufile(root: &Root, system: &dyn System) -> Finding {
    const ID: &str = "cufile";
    let library = system.library(&["libcufile.so.0", "libcufile.so.1", "libcufile.so"]);
    let module = root.module("nvidia_fs");
    let text = match (library, module) {
        (None, false) => "neither libcufile nor the module nvidia-fs; gdmedia does not use them",
        (Some(_), false) => {
            "libcufile without the module nvidia-fs: it would copy through the host; gdmedia does not use it"
        }
        (None, true) => "the module nvidia-fs without libcufile; gdmedia does not use them",
        (Some(_), true) => "libcufile and nvidia-fs; gdmedia does not use them",
    };
    Finding::new(ID, State::Missing, text).gives("GPUDirect Storage: files straight into the GPU's memory")
}

/// GPUDirect Storage could work here.
pub fn storage(root: &Root, system: &dyn System) -> bool {
    root.module("nvidia_fs") && system.library(&["libcufile.so.0", "libcufile.so.1", "libcufile.so"]).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_kernel_modules_are_read() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\nGCC version:  gcc 12";
        assert_eq!(module_version(closed), Some((470, "470.256.02".into())));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159  Release Build  (dvs-builder@U22)";
        assert_eq!(module_version(open), Some((580, "580.159".into())));
        assert_eq!(module_version("no"), None);
    }
}

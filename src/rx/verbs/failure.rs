//! What fails, in words: each cause has its own, with what to do about it.

use super::library::Failure;
use crate::error::{Error, Kind};

const MANUAL: &str = "docs/verbs.md";

/// The library is not there, or is another.
pub fn library(failure: Failure) -> Error {
    let (what, cure) = match failure.call.as_str() {
        "dlsym" => (
            format!("libibverbs cannot be used: it lacks {}", failure.text),
            "install libibverbs of rdma-core 34 or later, or take library=PATH away",
        ),
        _ => (
            format!("libibverbs cannot be used: {}", failure.text),
            "apt install libibverbs1 ibverbs-providers, or receive with --backend socket",
        ),
    };
    Error::new(Kind::Unavailable, what).cure(format!("{cure} ({MANUAL})"))
}

/// A call failed while `what` was tried.
pub fn call(what: impl std::fmt::Display, failure: Failure) -> Error {
    let (kind, cause, cure) = judge(&failure.call, failure.error);
    let what = if cause.is_empty() { format!("verbs: {what} failed") } else { format!("verbs: {what}: {cause}") };
    Error::new(kind, what).because(failure).cure(format!("{cure} ({MANUAL})"))
}

const AS_ROOT: &str = "run as root, or: setcap cap_net_raw,cap_ipc_lock+ep on the program";

/// Kind, cause and cure of what a call gave.
fn judge(call: &str, error: i32) -> (Kind, &'static str, &'static str) {
    use libc::{EACCES, EFAULT, EINVAL, EIO, ENODEV, ENOMEM, ENOSYS, ENOTSUP, EPERM};
    let no = Kind::Unavailable;
    match (call, error) {
        (_, EIO) => (no, "the device has gone", "start again when it is back; see dmesg"),
        ("ibv_get_device_list", ENODEV) => {
            (no, "libibverbs has no driver for it", "apt install ibverbs-providers, or a later rdma-core")
        }
        ("ibv_get_device_list", _) => {
            (no, "the kernel offers no RDMA devices", "modprobe ib_uverbs and mlx5_ib, or use another kernel")
        }
        ("ibv_open_device", EACCES | EPERM) => (
            Kind::Permission,
            "this process may not open the device",
            "give the user read and write rights on /dev/infiniband/uverbs*, and the container these devices",
        ),
        (_, EPERM | EACCES) => (Kind::Permission, "this process may not use raw packets (CAP_NET_RAW)", AS_ROOT),
        ("ibv_reg_mr" | "ibv_reg_dmabuf_mr", ENOMEM) => (
            no,
            "no more memory may be locked",
            "raise the limit (ulimit -l unlimited, LimitMEMLOCK=infinity, cap_ipc_lock), or use a shorter ring (hold=, capacity=)",
        ),
        ("ibv_reg_mr", EFAULT | EINVAL) => {
            (no, "the device cannot write to this memory", "for memory of a GPU: modprobe nvidia-peermem")
        }
        ("ibv_reg_dmabuf_mr", _) => (
            no,
            "the device cannot write to this dma-buf",
            "use Linux 5.12 or later with rdma-core 34 or later, mlx5_ib, and NVIDIA's open kernel modules",
        ),
        ("ibv_create_qp" | "ibv_create_wq", ENOTSUP | ENOSYS) => (
            no,
            "the device takes no raw packets",
            "use a ConnectX card (mlx5), or receive with --backend xdp or socket",
        ),
        ("ibv_create_flow", ENOTSUP | ENOSYS) => (
            no,
            "the device does not steer flows",
            "use a ConnectX card (mlx5), and let mlx4_core steer flows (log_num_mgm_entry_size=-1)",
        ),
        ("ibv_create_flow", ENOMEM) => {
            (no, "the device has no room for one more rule", "end other receivers at this port")
        }
        (_, ENOMEM) => (
            no,
            "no memory for it",
            "raise the limit of locked memory (ulimit -l unlimited), or use a shorter ring (hold=, capacity=)",
        ),
        _ => (no, "", "check the card, its driver, its firmware and dmesg"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_words() {
        let error = |call: &str, error| self::call("it", Failure { call: call.into(), error, text: String::new() });
        for (call, errno, kind, cause) in [
            ("ibv_create_qp", libc::EPERM, Kind::Permission, "CAP_NET_RAW"),
            ("ibv_create_flow", libc::EPERM, Kind::Permission, "CAP_NET_RAW"),
            ("ibv_open_device", libc::EACCES, Kind::Permission, "may not open"),
            ("ibv_reg_mr", libc::ENOMEM, Kind::Unavailable, "locked"),
            ("ibv_reg_mr", libc::EFAULT, Kind::Unavailable, "peermem"),
            ("ibv_reg_dmabuf_mr", libc::EOPNOTSUPP, Kind::Unavailable, "dma-buf"),
            ("ibv_create_qp", libc::EOPNOTSUPP, Kind::Unavailable, "no raw packets"),
            ("ibv_create_flow", libc::EOPNOTSUPP, Kind::Unavailable, "does not steer"),
            ("ibv_create_flow", libc::ENOMEM, Kind::Unavailable, "one more rule"),
            ("ibv_create_cq", libc::ENOMEM, Kind::Unavailable, "no memory"),
            ("ibv_modify_qp", libc::EIO, Kind::Unavailable, "gone"),
            ("ibv_get_device_list", libc::ENODEV, Kind::Unavailable, "no driver"),
            ("ibv_get_device_list", libc::ENOSYS, Kind::Unavailable, "no RDMA devices"),
            ("ibv_modify_qp", libc::EINVAL, Kind::Unavailable, "it failed: ibv_modify_qp: Invalid argument"),
        ] {
            let error = error(call, errno);
            let text = error.to_string();
            assert!(error.kind() == kind && text.contains(cause) && text.contains(call), "{call} {errno}: {text}");
            assert!(error.cure_text().contains(MANUAL));
        }
    }

    #[test]
    fn a_library_that_lacks_calls_names_them() {
        let missing = Failure { call: "dlsym".into(), error: 0, text: "ibv_open_device, ibv_create_qp".into() };
        assert!(library(missing).to_string().contains("it lacks ibv_open_device, ibv_create_qp"));
        let none = Failure { call: "dlopen".into(), error: 0, text: "libibverbs.so.1: cannot open".into() };
        let error = library(none);
        assert!(error.kind() == Kind::Unavailable && error.cure_text().contains("apt install libibverbs1"), "{error}");
    }
}

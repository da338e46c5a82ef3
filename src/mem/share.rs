//! Memory of the GPU across processes: handed out, and opened.
#![allow(unsafe_code)]

use super::Region;
use super::cuda::{Device, Pinned, Slab};
use crate::error::{Error, Kind, Result};
use crate::gpu::{Gpu, Stream, check, sys};
use std::ffi::{c_char, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

impl Slab {
    /// What other processes open it by, with [`Foreign::open`] or `cudaIpcOpenMemHandle`. They may read and write all
    /// of it, and have to be done with it before it is dropped.
    ///
    /// # Errors
    /// The system shares no memory (WSL, some containers).
    pub fn ipc_handle(&self) -> Result<[u8; 64]> {
        let gpu = self.gpu();
        gpu.bind()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the slab is an allocation of its own; writes 64 octets.
        check("cuIpcGetMemHandle", unsafe { sys::cuIpcGetMemHandle(&mut handle, self.address()) }).map_err(
            |fault| {
                Error::new(Kind::Unavailable, format!("memory of GPU {} cannot be shared by CUDA IPC", gpu.number()))
                    .because(fault)
                    .cure("share it as a dma-buf, or run on a Linux without virtual GPUs")
            },
        )?;
        Ok(handle.reserved.map(|octet| octet as u8))
    }

    /// The slab as a dma-buf, which other drivers (network, display, video) import.
    ///
    /// # Errors
    /// The GPU's driver makes none.
    pub fn dma_buf(&self) -> Result<OwnedFd> {
        dma_buf(self.gpu(), self.address(), self.octets())
    }
}

impl Region<Device> {
    /// The region as a dma-buf, which other drivers (network, display, video) import. Its length is to be a multiple of
    /// [`GRAIN`](super::cuda::GRAIN), and `gpu` the one that it belongs to.
    ///
    /// # Errors
    /// The GPU's driver makes none.
    pub fn dma_buf(&self, gpu: &Arc<Gpu>) -> Result<OwnedFd> {
        dma_buf(gpu, self.address(), self.len())
    }
}

fn dma_buf(gpu: &Gpu, address: u64, octets: usize) -> Result<OwnedFd> {
    let refused = || Error::new(Kind::Unavailable, format!("GPU {} exports no dma-buf", gpu.number()));
    let cure = "install NVIDIA's open kernel modules on Linux 5.12 or later, or share memory by CUDA IPC";
    gpu.bind()?;
    if gpu.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)? == 0 {
        return Err(refused().because("its driver does not support it (DMA_BUF_SUPPORTED is 0)").cure(cure));
    }
    let mut fd: i32 = -1;
    let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let to = (&raw mut fd).cast::<c_void>();
    // SAFETY: the driver checks the range; for this kind an `int` is written.
    let code = unsafe { sys::cuMemGetHandleForAddressRange(to, address, octets, kind, 0) };
    check("cuMemGetHandleForAddressRange", code).map_err(|fault| refused().because(fault).cure(cure))?;
    if fd < 0 {
        return Err(refused().because("its driver gave no file").cure(cure));
    }
    // SAFETY: a new file that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Memory of the GPU that another process shares: its [`Slab`].
#[derive(Debug)]
pub struct Foreign {
    gpu: Arc<Gpu>,
    address: u64,
    octets: usize,
}

impl Foreign {
    /// Opens it by its [`Slab::ipc_handle`].
    ///
    /// # Errors
    /// It is of another GPU or of this process, it is gone, or it is smaller than `octets`.
    pub fn open(gpu: &Arc<Gpu>, handle: &[u8; 64], octets: usize) -> Result<Self> {
        let refused = || Error::new(Kind::Unavailable, "the other process's GPU memory cannot be opened");
        gpu.bind()?;
        let mut address = 0;
        let handle = sys::CUipcMemHandle { reserved: handle.map(|octet| octet as c_char) };
        let flags = sys::CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        // SAFETY: the context is bound; the driver checks the handle; closed by `drop`.
        let code = unsafe { sys::cuIpcOpenMemHandle_v2(&mut address, handle, flags) };
        check("cuIpcOpenMemHandle", code).map_err(|fault| {
            refused().because(fault).cure("check that it still runs, sees the same GPU and is in no other container")
        })?;
        let memory = Foreign { gpu: gpu.clone(), address, octets };
        let (mut start, mut len) = (0, 0);
        // SAFETY: writes two numbers; the address was given above.
        let code = unsafe { sys::cuMemGetAddressRange_v2(&mut start, &mut len, address) };
        check("cuMemGetAddressRange", code)?;
        if start != address || len < octets {
            return Err(refused().because(format!("it has {len} octets, not {octets}")));
        }
        Ok(memory)
    }
    /// Its GPU.
    pub const fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
    /// First octet, where this process's GPU finds it.
    pub const fn address(&self) -> u64 {
        self.address
    }
    /// Octets.
    pub const fn octets(&self) -> usize {
        self.octets
    }
    /// Copies `octets` octets, `at` from the start, to the beginning of `to`, after all work of `stream`, and waits for
    /// it. Whether the other process writes there meanwhile is a matter between the two.
    ///
    /// # Errors
    /// They do not lie inside, or `to` is too small ([`Kind::Internal`]); the GPU is lost.
    pub fn read(&self, stream: &Stream, at: usize, octets: usize, to: &mut Region<Pinned>) -> Result<()> {
        if at.checked_add(octets).is_none_or(|end| end > self.octets) || octets > to.len() {
            let what = format!("octets {at} to {at} + {octets} of {} do not go into {}", self.octets, to.len());
            return Err(Error::new(Kind::Internal, what));
        }
        // SAFETY: both ranges were checked and live until the stream has been waited for; `to` is exclusive.
        let copied = unsafe { stream.copy(to.address(), self.address + at as u64, octets) };
        // Waited for even after an error, since work before it may still run.
        let done = stream.synchronize();
        copied?;
        Ok(done?)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.gpu.bind();
        // SAFETY: opened in `open`; work that reads it holds `self`.
        let _ = unsafe { sys::cuIpcCloseMemHandle(self.address) };
    }
}

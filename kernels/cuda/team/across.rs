//! Device memory that other processes on this machine write to (CUDA IPC); each process maps it at its own
//! address.
//!
//! Each process allocates memory, sends the others its IPC handle, and opens their memory. Memory that others
//! have opened is not freed before the program ends, because they may still write to it; so callers keep and
//! reuse regions.

use crate::cuda::device::Device;
use crate::cuda::device::error::{Error, Result};
use cudarc::driver::{result, sys};
use memmap2::MmapMut;
use std::fs::OpenOptions;
use std::mem::ManuallyDrop;
use std::path::Path;

/// Bytes of an IPC handle.
pub const NAME: usize = 64;

/// Bytes of a page of host memory.
const PAGE: u64 = 4096;

/// Granularity of allocations in bytes: that of the driver's pages, so that an allocation that others open
/// shares no page with another one.
const PIECE: usize = 2 << 20;

/// A word of host memory that processes share; initially zero.
#[derive(Debug)]
pub struct SharedWord(pub(super) MmapMut);

/// Maps a shared word in a file. The process that passes `first` creates the file, which may be removed once
/// all processes have mapped it.
pub fn shared_word(path: &Path, first: bool) -> Result<SharedWord> {
    let open = || {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(first).open(path)?;
        if first {
            file.set_len(PAGE)?;
        }
        // SAFETY: no process truncates the file, and all access the word atomically
        unsafe { MmapMut::map_mut(&file) }
    };
    open().map(SharedWord).map_err(|error| Error::Driver(format!("cannot map shared memory: {error}")))
}

/// Zeroed memory of this process that others may open.
#[derive(Debug)]
pub struct Offer {
    device: Device,
    address: u64,
    bytes: usize,
}

impl Offer {
    /// Allocates this many bytes or more.
    pub fn new(device: &Device, bytes: usize) -> Result<Offer> {
        device.inner.context.bind_to_thread()?;
        let bytes = bytes.max(1).next_multiple_of(PIECE);
        // SAFETY: freed once, on drop
        let address = unsafe { result::malloc_sync(bytes) }?;
        let offer = Offer { device: device.clone(), address, bytes };
        offer.clear(bytes)?;
        Ok(offer)
    }

    /// IPC handle of the memory, for other processes.
    pub fn name(&self) -> Result<[u8; NAME]> {
        self.device.inner.context.bind_to_thread()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; NAME] };
        // SAFETY: the address of a live allocation; the result goes to a local
        unsafe { sys::cuIpcGetMemHandle(&mut handle, self.address) }.result()?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    fn clear(&self, bytes: usize) -> Result<()> {
        self.device.inner.context.bind_to_thread()?;
        // SAFETY: the allocation has this many bytes
        unsafe { result::memset_d8_async(self.address, 0, bytes, self.device.inner.stream.cu_stream()) }?;
        self.device.synchronize()
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let freed = self.device.inner.context.bind_to_thread().and_then(|()| {
            // SAFETY: allocated once, and freed once
            unsafe { result::free_sync(self.address) }
        });
        self.device.inner.context.record_err(freed);
    }
}

/// Memory of several processes, mapped into this one's address space until the program ends.
#[derive(Debug)]
pub struct Region {
    own: ManuallyDrop<Offer>,
    addresses: Vec<u64>,
    /// Minimum size over all processes, in bytes.
    bytes: usize,
}

impl Region {
    /// Opens the memory of all processes, given their handles; `place` is the index of this process.
    pub fn open(own: Offer, place: usize, names: &[[u8; NAME]]) -> Result<Region> {
        own.device.inner.context.bind_to_thread()?;
        let (mut least, mut addresses) = (own.bytes, Vec::with_capacity(names.len()));
        for (at, name) in names.iter().enumerate() {
            if at == place {
                addresses.push(own.address);
                continue;
            }
            let handle = sys::CUipcMemHandle { reserved: name.map(|byte| byte as _) };
            let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
            let (mut address, mut start, mut bytes) = (0, 0, 0);
            // SAFETY: the results go to locals; the driver rejects invalid handles
            unsafe {
                sys::cuIpcOpenMemHandle_v2(&mut address, handle, flags).result()?;
                sys::cuMemGetAddressRange_v2(&mut start, &mut bytes, address).result()?;
            }
            addresses.push(address);
            least = least.min(bytes - (address - start) as usize);
        }
        Ok(Region { own: ManuallyDrop::new(own), addresses, bytes: least })
    }

    /// Start address of each process's memory.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// Bytes available in each process.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets this process's memory to zero. No other process may use it meanwhile.
    pub fn clear(&self) -> Result<()> {
        self.own.clear(self.own.bytes)
    }
}

impl Device {
    /// A UUID that distinguishes this device from all others, also on other machines.
    pub fn identity(&self) -> Result<[u8; 16]> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the device was found before; the result goes to a local
        unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, self.inner.context.cu_device()) }.result()?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }
}

//! Memory of a device that other processes of this machine write to: their kernels find it at an address of their own.
//!
//! Each process offers memory, tells the others the name by which the driver knows it, and opens what they offer. What others
//! have opened is not given back before the program ends, for they may still write there: whoever makes regions keeps them, and
//! uses them again.

use crate::cuda::device::Device;
use crate::cuda::device::error::{Error, Result};
use cudarc::driver::{result, sys};
use memmap2::MmapMut;
use std::fs::OpenOptions;
use std::mem::ManuallyDrop;
use std::path::Path;

/// The bytes of a name.
pub const NAME: usize = 64;

/// Bytes of a page of host memory.
const PAGE: u64 = 4096;

/// Memory is offered in pieces of this many bytes, which share no page with anything else.
const PIECE: usize = 2 << 20;

/// A word of host memory that processes share, zero at first.
#[derive(Debug)]
pub struct SharedWord(pub(super) MmapMut);

/// In a file that `first` makes, and that may be removed as soon as all have opened it.
pub fn shared_word(path: &Path, first: bool) -> Result<SharedWord> {
    let open = || {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(first).open(path)?;
        if first {
            file.set_len(PAGE)?;
        }
        // SAFETY: nobody makes the file shorter, and all use the word as an atomic
        unsafe { MmapMut::map_mut(&file) }
    };
    open().map(SharedWord).map_err(|error| Error::Driver(format!("no memory that processes share: {error}")))
}

/// Memory of this process, all zero, that others may open.
#[derive(Debug)]
pub struct Offer {
    device: Device,
    address: u64,
    bytes: usize,
}

impl Offer {
    /// So many bytes or more.
    pub fn new(device: &Device, bytes: usize) -> Result<Offer> {
        device.inner.context.bind_to_thread()?;
        let bytes = bytes.max(1).next_multiple_of(PIECE);
        // SAFETY: freed once, on drop
        let address = unsafe { result::malloc_sync(bytes) }?;
        let offer = Offer { device: device.clone(), address, bytes };
        offer.clear(bytes)?;
        Ok(offer)
    }

    /// Its name, for other processes.
    pub fn name(&self) -> Result<[u8; NAME]> {
        self.device.inner.context.bind_to_thread()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; NAME] };
        // SAFETY: the address of an allocation that lives; the answer goes to a local
        unsafe { sys::cuIpcGetMemHandle(&mut handle, self.address) }.result()?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    fn clear(&self, bytes: usize) -> Result<()> {
        self.device.inner.context.bind_to_thread()?;
        // SAFETY: the allocation has as many bytes
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

/// Memory of each of several processes, as this one's kernels find it, until the program ends.
#[derive(Debug)]
pub struct Region {
    own: ManuallyDrop<Offer>,
    addresses: Vec<u64>,
    /// Bytes that all have.
    bytes: usize,
}

impl Region {
    /// Opens what all processes offer by these names; this one's is the one at `place`.
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
            // SAFETY: the answers go to locals; the driver refuses what is no name of memory
            unsafe {
                sys::cuIpcOpenMemHandle_v2(&mut address, handle, flags).result()?;
                sys::cuMemGetAddressRange_v2(&mut start, &mut bytes, address).result()?;
            }
            addresses.push(address);
            least = least.min(bytes - (address - start) as usize);
        }
        Ok(Region { own: ManuallyDrop::new(own), addresses, bytes: least })
    }

    /// Where the memory of each process begins.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// Bytes that it has in each process.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes this process's memory zero. Nobody else may use it meanwhile.
    pub fn clear(&self) -> Result<()> {
        self.own.clear(self.own.bytes)
    }
}

impl Device {
    /// What tells this device from all others, also on other machines.
    pub fn identity(&self) -> Result<[u8; 16]> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the device was found before; the answer goes to a local
        unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, self.inner.context.cu_device()) }.result()?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }
}

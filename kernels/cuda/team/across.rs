//! Device memory that other members of a team write to: members of the same process, or of other processes on
//! this machine.
//!
//! Each member allocates memory. Members of one process have access to the memory of all ([`Device::access`]);
//! it is freed when no member needs it. Processes send each other IPC handles (CUDA IPC), and map the
//! memory of the others at their own addresses. Memory that other processes have opened is not freed before the
//! program ends, because they may still write to it; so callers keep and reuse regions.
//!
//! While kernels of a team run, one member must not allocate or free such memory alone: the driver may then
//! wait for all devices of the process, one of which may wait for this member. Ranks allocate regions
//! together, and keep them.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::{Device, Held};
use cudarc::driver::{DriverError, result, sys};
use memmap2::MmapMut;
use std::fmt;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;

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

/// Zeroed memory of a member that others may access.
pub struct Offer {
    address: u64,
    held: Held,
}

impl Offer {
    /// Allocates this many bytes or more.
    pub fn new(device: &Device, bytes: usize) -> Result<Offer> {
        device.inner.context.bind_to_thread()?;
        let bytes = bytes.max(1).next_multiple_of(PIECE);
        let held = device.hold(bytes)?;
        // SAFETY: freed once, on drop
        let allocate = || unsafe { result::malloc_sync(bytes) };
        let address = match allocate() {
            // pools may have unused memory
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                device.release_unused()?;
                allocate()
            }
            allocated => allocated,
        };
        let offer = Offer { address: address.map_err(|error| device.full(bytes, error))?, held };
        offer.clear()?;
        Ok(offer)
    }

    fn device(&self) -> &Device {
        self.held.device()
    }

    /// Size in bytes.
    fn bytes(&self) -> usize {
        self.held.bytes()
    }

    /// IPC handle of the memory, for other processes.
    pub fn name(&self) -> Result<[u8; NAME]> {
        self.device().inner.context.bind_to_thread()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; NAME] };
        // SAFETY: the address of a live allocation; the result goes to a local
        unsafe { sys::cuIpcGetMemHandle(&mut handle, self.address) }.result()?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    fn clear(&self) -> Result<()> {
        let device = self.device();
        device.inner.context.bind_to_thread()?;
        let stream = device.inner.stream.cu_stream();
        // SAFETY: the allocation has this many bytes
        unsafe { result::memset_d8_async(self.address, 0, self.bytes(), stream) }?;
        // finish now: other members write to the memory as soon as their work is queued
        device.synchronize()
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x} of {:?}", self.bytes(), self.address, self.device())
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let context = &self.device().inner.context;
        let freed = context.bind_to_thread().and_then(|()| {
            // SAFETY: allocated once, and freed once
            unsafe { result::free_sync(self.address) }
        });
        context.record_err(freed);
    }
}

/// Memory of all members of a team, as one of them sees it.
#[derive(Debug)]
pub struct Region {
    own: Arc<Offer>,
    /// Memory of all members of this process. It is freed when no region refers to it.
    _kept: Vec<Arc<Offer>>,
    addresses: Vec<u64>,
    /// Minimum size over all members, in bytes.
    bytes: usize,
}

impl Region {
    /// The memory of members in one process, whose devices have access to each other's memory; `place` is the
    /// index of this member.
    pub fn within(all: Vec<Arc<Offer>>, place: usize) -> Region {
        let (own, addresses) = (all[place].clone(), all.iter().map(|offer| offer.address).collect());
        let bytes = all.iter().map(|offer| offer.bytes()).min().unwrap_or(0);
        Region { own, _kept: all, addresses, bytes }
    }

    /// Opens the memory of all processes, given their handles; `place` is the index of this process. The
    /// memory stays allocated and mapped until the program ends.
    pub fn open(own: Arc<Offer>, place: usize, names: &[[u8; NAME]]) -> Result<Region> {
        own.device().inner.context.bind_to_thread()?;
        let (mut least, mut addresses) = (own.bytes(), Vec::with_capacity(names.len()));
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
        // other processes may write to the memory until the program ends
        std::mem::forget(own.clone());
        Ok(Region { own, _kept: vec![], addresses, bytes: least })
    }

    /// Start address of each member's memory.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// Bytes available on each member.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets this member's memory to zero. No other member may use it meanwhile.
    pub fn clear(&self) -> Result<()> {
        self.own.clear()
    }
}

impl Device {
    /// Enables access of work queued on this device to the memory of another device of this process. Memory of
    /// pools is excluded.
    pub fn access(&self, other: &Device) -> Result<()> {
        if self.ordinal() == other.ordinal() {
            return Ok(());
        }
        let (mut possible, [from, to]) = (0, [self, other].map(|device| device.inner.context.cu_device()));
        // SAFETY: both devices were found before; the result goes to a local
        unsafe { sys::cuDeviceCanAccessPeer(&mut possible, from, to) }.result()?;
        if possible == 0 {
            let [a, b] = [self, other].map(Device::ordinal);
            return Err(Error::Driver(format!("device {a} cannot access the memory of device {b}")));
        }
        self.inner.context.bind_to_thread()?;
        // SAFETY: both contexts live
        match unsafe { sys::cuCtxEnablePeerAccess(other.inner.context.cu_ctx(), 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            enabled => Ok(enabled.result()?),
        }
    }

    /// A UUID that distinguishes this device from all others, also on other machines.
    pub fn identity(&self) -> Result<[u8; 16]> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the device was found before; the result goes to a local
        unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, self.inner.context.cu_device()) }.result()?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }
}

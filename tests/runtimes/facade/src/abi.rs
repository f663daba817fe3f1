//! The C types of HIP's calls, in HIP's layout.
//!
//! Owns: handles, structs and numbers that cross the C boundary; names in words, HIP's name in the comment. Always
//! true: sizes and offsets are those of the HIP 7 headers (tests below), which hold for ROCm 6 too. Not here: errors
//! (`error`), the calls (`calls`, `exports`).

use core::ffi::{c_int, c_uint, c_void};

/// `hipStream_t`; null is the legacy null stream.
pub type Stream = *mut c_void;
/// `hipEvent_t`
pub type Event = *mut c_void;
/// `hipModule_t`
pub type ModuleHandle = *mut c_void;
/// `hipFunction_t`
pub type Function = *mut c_void;
/// `hipGraph_t`
pub type Graph = *mut c_void;
/// `hipGraphNode_t`
pub type GraphNode = *mut c_void;
/// `hipGraphExec_t`
pub type GraphExec = *mut c_void;
/// `hipMemGenericAllocationHandle_t`
pub type Physical = *mut c_void;
/// `hipHostFn_t`
pub type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;

/// `hipStreamNonBlocking`
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `hipEventDisableTiming`
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `hipMemcpyHostToHost`
pub const COPY_HOST_TO_HOST: c_int = 0;
/// `hipMemcpyHostToDevice`
pub const COPY_HOST_TO_DEVICE: c_int = 1;
/// `hipMemcpyDeviceToHost`
pub const COPY_DEVICE_TO_HOST: c_int = 2;
/// `hipMemcpyDeviceToDevice`
pub const COPY_DEVICE_TO_DEVICE: c_int = 3;
/// `hipMemcpyDefault`
pub const COPY_DEFAULT: c_int = 4;
/// `hipMemcpyDeviceToDeviceNoCU`
pub const COPY_DEVICE_TO_DEVICE_NO_CU: c_int = 1024;
/// `hipStreamCaptureModeGlobal`
pub const CAPTURE_GLOBAL: c_int = 0;
/// `hipStreamCaptureModeThreadLocal`
pub const CAPTURE_THREAD_LOCAL: c_int = 1;
/// `hipStreamCaptureModeRelaxed`
pub const CAPTURE_RELAXED: c_int = 2;
/// `hipStreamCaptureStatusNone`
pub const CAPTURE_STATUS_NONE: c_int = 0;
/// `hipStreamCaptureStatusActive`
pub const CAPTURE_STATUS_ACTIVE: c_int = 1;
/// `hipStreamCaptureStatusInvalidated`
pub const CAPTURE_STATUS_INVALIDATED: c_int = 2;
/// `hipGraphNodeTypeKernel`
pub const NODE_KERNEL: c_int = 0;
/// `hipGraphNodeTypeMemcpy`
pub const NODE_COPY: c_int = 1;
/// `hipGraphNodeTypeMemset`
pub const NODE_FILL: c_int = 2;
/// `hipGraphNodeTypeHost`
pub const NODE_HOST: c_int = 3;
/// `hipGraphNodeTypeEmpty`
pub const NODE_EMPTY: c_int = 5;
/// `hipGraphExecUpdateSuccess`
pub const UPDATE_SUCCESS: c_int = 0;
/// `hipGraphExecUpdateError`
pub const UPDATE_ERROR: c_int = 1;
/// `hipGraphExecUpdateErrorTopologyChanged`
pub const UPDATE_TOPOLOGY_CHANGED: c_int = 2;
/// `hipGraphExecUpdateErrorNodeTypeChanged`
pub const UPDATE_NODE_TYPE_CHANGED: c_int = 3;
/// `hipGraphExecUpdateErrorFunctionChanged`
pub const UPDATE_FUNCTION_CHANGED: c_int = 4;
/// `hipMemLocationTypeDevice`
pub const LOCATION_DEVICE: c_int = 1;
/// `hipMemAllocationTypePinned`
pub const ALLOCATION_PINNED: c_int = 1;
/// `hipMemAccessFlagsProtNone`
pub const ACCESS_NONE: c_int = 0;
/// `hipMemAccessFlagsProtReadWrite`
pub const ACCESS_READ_WRITE: c_int = 3;
/// `hipFuncAttributeMaxDynamicSharedMemorySize`
pub const FUNCTION_MAX_DYNAMIC_LDS: c_int = 8;
/// `HIP_LAUNCH_PARAM_BUFFER_POINTER`
pub const LAUNCH_BUFFER_POINTER: usize = 1;
/// `HIP_LAUNCH_PARAM_BUFFER_SIZE`
pub const LAUNCH_BUFFER_SIZE: usize = 2;
/// `HIP_LAUNCH_PARAM_END`
pub const LAUNCH_END: usize = 3;

/// `dim3`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim3 {
    /// First dimension.
    pub x: u32,
    /// Second dimension.
    pub y: u32,
    /// Third dimension.
    pub z: u32,
}

/// `hipKernelNodeParams`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KernelNodeParams {
    /// Work-items a workgroup.
    pub block: Dim3,
    /// The `HIP_LAUNCH_PARAM_*` list, or null.
    pub extra: *mut *mut c_void,
    /// A [`Function`].
    pub function: *mut c_void,
    /// Workgroups.
    pub grid: Dim3,
    /// One pointer an argument, or null.
    pub arguments: *mut *mut c_void,
    /// Dynamic LDS in bytes.
    pub dynamic_lds: c_uint,
}

/// `hipMemLocation`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLocation {
    /// [`LOCATION_DEVICE`] for a device.
    pub kind: c_int,
    /// Its ordinal.
    pub id: c_int,
}

/// `hipMemAccessDesc`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Who is given access.
    pub location: MemoryLocation,
    /// `hipMemAccessFlags`
    pub flags: c_int,
}

/// `hipMemAllocationProp`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PhysicalProperties {
    /// `hipMemAllocationType`
    pub kind: c_int,
    /// `hipMemAllocationHandleType`
    pub handle_type: c_int,
    /// Where the memory is.
    pub location: MemoryLocation,
    /// Unused on Linux.
    pub win32_meta_data: *mut c_void,
    /// Compression, RDMA.
    pub compression: u8,
    /// RDMA.
    pub rdma: u8,
    /// Usage.
    pub usage: u16,
}

/// `hipDeviceProp_tR0600`: 1,472 bytes, of which the stand-ins fill in what they know, at the headers' offsets.
#[repr(C, align(8))]
#[derive(Debug, Clone)]
pub struct DeviceProperties {
    bytes: [u8; 1472],
}

impl Default for DeviceProperties {
    fn default() -> Self {
        Self { bytes: [0; 1472] }
    }
}

impl DeviceProperties {
    /// Writes an `int` member.
    pub fn int(&mut self, offset: usize, value: i32) {
        self.bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// Writes a `size_t` member.
    pub fn size(&mut self, offset: usize, value: usize) {
        self.bytes[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// Writes a `char[256]` member, cut to fit with its final zero.
    pub fn text(&mut self, offset: usize, value: &str) {
        let length = value.len().min(255);
        self.bytes[offset..offset + length].copy_from_slice(&value.as_bytes()[..length]);
        self.bytes[offset + length] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_the_sizes_of_the_hip_headers() {
        assert_eq!(size_of::<DeviceProperties>(), 1472);
        assert_eq!(size_of::<PhysicalProperties>(), 32);
        assert_eq!(core::mem::offset_of!(PhysicalProperties, location), 8);
        assert_eq!(size_of::<MemoryAccess>(), 12);
        assert_eq!(size_of::<KernelNodeParams>(), 64);
        assert_eq!(core::mem::offset_of!(KernelNodeParams, grid), 32);
    }
}

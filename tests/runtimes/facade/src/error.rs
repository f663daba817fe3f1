//! HIP's error numbers.
//!
//! Owns: the codes the stand-ins can answer with, their names and a few words each. Always true: an unknown number
//! stays that number and is called `hipErrorUnknown` in words. Not here: when which is answered.

use core::ffi::CStr;

/// A HIP error number other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HipError(pub i32);

/// What a call ends with.
pub type Outcome<T = ()> = Result<T, HipError>;

macro_rules! errors {
    ($($constant:ident $code:literal $name:literal $text:literal)*) => {
        impl HipError {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $constant: HipError = HipError($code);)*
        }
        const TABLE: &[(i32, &CStr, &CStr)] = &[(0, c"hipSuccess", c"no error"), $(($code, $name, $text)),*];
    };
}

errors! {
    INVALID_VALUE 1 c"hipErrorInvalidValue" c"invalid argument"
    OUT_OF_MEMORY 2 c"hipErrorOutOfMemory" c"out of memory"
    NOT_INITIALIZED 3 c"hipErrorNotInitialized" c"initialization error"
    INVALID_CONFIGURATION 9 c"hipErrorInvalidConfiguration" c"invalid configuration argument"
    INVALID_MEMCPY_DIRECTION 21 c"hipErrorInvalidMemcpyDirection" c"invalid copy direction for memcpy"
    INSUFFICIENT_DRIVER 35 c"hipErrorInsufficientDriver" c"driver version is insufficient for runtime version"
    INVALID_DEVICE_FUNCTION 98 c"hipErrorInvalidDeviceFunction" c"invalid device function"
    NO_DEVICE 100 c"hipErrorNoDevice" c"no ROCm-capable device is detected"
    INVALID_DEVICE 101 c"hipErrorInvalidDevice" c"invalid device ordinal"
    INVALID_IMAGE 200 c"hipErrorInvalidImage" c"device kernel image is invalid"
    INVALID_CONTEXT 201 c"hipErrorInvalidContext" c"invalid device context"
    MAP_FAILED 205 c"hipErrorMapFailed" c"mapping of buffer object failed"
    UNMAP_FAILED 206 c"hipErrorUnmapFailed" c"unmapping of buffer object failed"
    ALREADY_MAPPED 208 c"hipErrorAlreadyMapped" c"resource already mapped"
    NO_BINARY_FOR_GPU 209 c"hipErrorNoBinaryForGpu" c"no kernel image is available for execution on the device"
    NOT_MAPPED 211 c"hipErrorNotMapped" c"resource not mapped"
    INVALID_KERNEL_FILE 218 c"hipErrorInvalidKernelFile" c"invalid kernel file"
    FILE_NOT_FOUND 301 c"hipErrorFileNotFound" c"file not found"
    SHARED_OBJECT_INIT_FAILED 303 c"hipErrorSharedObjectInitFailed" c"shared object initialization failed"
    OPERATING_SYSTEM 304 c"hipErrorOperatingSystem" c"OS call failed or operation not supported on this OS"
    INVALID_HANDLE 400 c"hipErrorInvalidHandle" c"invalid resource handle"
    ILLEGAL_STATE 401 c"hipErrorIllegalState" c"the operation cannot be performed in the present state"
    NOT_FOUND 500 c"hipErrorNotFound" c"named symbol not found"
    NOT_READY 600 c"hipErrorNotReady" c"device not ready"
    ILLEGAL_ADDRESS 700 c"hipErrorIllegalAddress" c"an illegal memory access was encountered"
    LAUNCH_OUT_OF_RESOURCES 701 c"hipErrorLaunchOutOfResources" c"out of resources"
    LAUNCH_TIME_OUT 702 c"hipErrorLaunchTimeOut" c"the launch timed out and was terminated"
    HOST_MEMORY_ALREADY_REGISTERED 712 c"hipErrorHostMemoryAlreadyRegistered" c"memory is registered already"
    HOST_MEMORY_NOT_REGISTERED 713 c"hipErrorHostMemoryNotRegistered" c"pointer does not belong to a registered region"
    LAUNCH_FAILURE 719 c"hipErrorLaunchFailure" c"unspecified launch failure"
    NOT_SUPPORTED 801 c"hipErrorNotSupported" c"operation not supported"
    CAPTURE_UNSUPPORTED 900 c"hipErrorStreamCaptureUnsupported" c"operation not permitted when stream is capturing"
    CAPTURE_INVALIDATED 901 c"hipErrorStreamCaptureInvalidated" c"a previous error spoilt the capture"
    CAPTURE_MERGE 902 c"hipErrorStreamCaptureMerge" c"operation would merge two captures"
    CAPTURE_UNMATCHED 903 c"hipErrorStreamCaptureUnmatched" c"capture was not ended in the same stream as it began"
    CAPTURE_UNJOINED 904 c"hipErrorStreamCaptureUnjoined" c"capturing stream has unjoined work"
    CAPTURE_ISOLATION 905 c"hipErrorStreamCaptureIsolation" c"dependency on work outside the capture"
    CAPTURE_IMPLICIT 906 c"hipErrorStreamCaptureImplicit" c"operation would make the null stream wait for a capture"
    CAPTURED_EVENT 907 c"hipErrorCapturedEvent" c"event was recorded in a capture"
    CAPTURE_WRONG_THREAD 908 c"hipErrorStreamCaptureWrongThread" c"capture ended in another thread"
    GRAPH_EXEC_UPDATE_FAILURE 910 c"hipErrorGraphExecUpdateFailure" c"the graph differs too much for an update"
    UNKNOWN 999 c"hipErrorUnknown" c"unknown error"
}

/// The name of a code, for `hipGetErrorName`.
pub fn name(code: i32) -> &'static CStr {
    TABLE.iter().find(|row| row.0 == code).map_or(c"hipErrorUnknown", |row| row.1)
}

/// The words for a code, for `hipGetErrorString`.
pub fn text(code: i32) -> &'static CStr {
    TABLE.iter().find(|row| row.0 == code).map_or(c"unknown error", |row| row.2)
}

impl std::fmt::Display for HipError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", name(self.0).to_string_lossy(), self.0)
    }
}

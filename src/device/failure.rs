//! What HIP answers when it refuses: a number, its name, and what a person can do.
//!
//! Owns: the names of HIP's error codes and the sentence of a failed call.
//! Always true: a number that no header knew when this was written has a name too (`hipError 9999 (unknown)`).
//! Not here: deciding what to do about a failure.

use std::fmt;

use super::sys::hipError_t as Code;
use crate::error::Error;

/// A call of HIP that did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    call: &'static str,
    arguments: String,
    cause: Cause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Cause {
    /// HIP's answer.
    Code(u32),
    /// The library, by its path, has no such entry point.
    Missing(String),
}

impl Failure {
    /// `call` answered `code`.
    pub fn refused(call: &'static str, arguments: String, code: u32) -> Failure {
        Failure { call, arguments, cause: Cause::Code(code) }
    }

    /// `library` has no `call`.
    pub fn missing(call: &'static str, library: &str) -> Failure {
        Failure { call, arguments: String::new(), cause: Cause::Missing(library.into()) }
    }

    /// HIP's number; `None` if the call does not exist.
    pub fn code(&self) -> Option<u32> {
        match self.cause {
            Cause::Code(code) => Some(code),
            Cause::Missing(_) => None,
        }
    }

    fn is(&self, code: Code) -> bool {
        self.code() == Some(code.0)
    }

    /// The device, or whatever a handle of it needs, is full.
    pub fn is_out_of_memory(&self) -> bool {
        self.is(Code::hipErrorOutOfMemory)
    }
    /// The work that was asked about has not ended.
    pub fn is_not_ready(&self) -> bool {
        self.is(Code::hipErrorNotReady)
    }
    /// HIP works and sees no device.
    pub fn is_no_device(&self) -> bool {
        self.is(Code::hipErrorNoDevice)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { call, arguments, cause } = self;
        match cause {
            Cause::Missing(library) => {
                write!(f, "{library} has no {call}: install ROCm 6.4 or newer, or name its library in ")?;
                f.write_str(super::library::VARIABLE)
            }
            Cause::Code(code) => {
                write!(f, "{call}({arguments}) failed: {}", name(*code))?;
                advice(Code(*code)).map_or(Ok(()), |advice| write!(f, "; {advice}"))
            }
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure.is_out_of_memory() {
            true => Error::InsufficientMemory(failure.to_string()),
            false => Error::Device(failure.to_string()),
        }
    }
}

/// What helps, where something does.
fn advice(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::hipErrorNoDevice => "HIP works but sees no AMD GPU: `hipfire doctor` says what may hide it",
        Code::hipErrorInsufficientDriver => {
            "the kernel driver is older than the library: update one to match the other"
        }
        Code::hipErrorInvalidDevice => "there is no device of this number: `hipfire doctor` lists them",
        Code::hipErrorNoBinaryForGpu | Code::hipErrorInvalidImage => {
            "the kernels were not built for this GPU: `hipfire doctor` compares them"
        }
        Code::hipErrorOutOfMemory => "lower --max-seq or --memory-limit, or end what else uses the GPU",
        Code::hipErrorIllegalAddress | Code::hipErrorLaunchFailure | Code::hipErrorLaunchTimeOut => {
            "a kernel died and took the device's context along: restart the process, and run `hipfire doctor --self-test` \
             if it happens again"
        }
        _ => return None,
    })
}

/// `hipErrorInvalidValue (1)`.
pub fn name(code: u32) -> String {
    match known(Code(code)) {
        Some(name) => format!("{name} ({code})"),
        None => format!("hipError {code} (unknown)"),
    }
}

macro_rules! names {
    ($($name:ident)*) => {
        /// The name in HIP's header.
        fn known(code: Code) -> Option<&'static str> {
            match code {
                $(Code::$name => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

names! {
    hipSuccess hipErrorInvalidValue hipErrorOutOfMemory hipErrorNotInitialized hipErrorDeinitialized
    hipErrorProfilerDisabled hipErrorProfilerNotInitialized hipErrorProfilerAlreadyStarted
    hipErrorProfilerAlreadyStopped hipErrorInvalidConfiguration hipErrorInvalidPitchValue hipErrorInvalidSymbol
    hipErrorInvalidDevicePointer hipErrorInvalidMemcpyDirection hipErrorInsufficientDriver
    hipErrorMissingConfiguration hipErrorPriorLaunchFailure hipErrorInvalidDeviceFunction hipErrorNoDevice
    hipErrorInvalidDevice hipErrorInvalidImage hipErrorInvalidContext hipErrorContextAlreadyCurrent
    hipErrorMapFailed hipErrorUnmapFailed hipErrorArrayIsMapped hipErrorAlreadyMapped hipErrorNoBinaryForGpu
    hipErrorAlreadyAcquired hipErrorNotMapped hipErrorNotMappedAsArray hipErrorNotMappedAsPointer
    hipErrorECCNotCorrectable hipErrorUnsupportedLimit hipErrorContextAlreadyInUse hipErrorPeerAccessUnsupported
    hipErrorInvalidKernelFile hipErrorInvalidGraphicsContext hipErrorInvalidSource hipErrorFileNotFound
    hipErrorSharedObjectSymbolNotFound hipErrorSharedObjectInitFailed hipErrorOperatingSystem hipErrorInvalidHandle
    hipErrorIllegalState hipErrorNotFound hipErrorNotReady hipErrorIllegalAddress hipErrorLaunchOutOfResources
    hipErrorLaunchTimeOut hipErrorPeerAccessAlreadyEnabled hipErrorPeerAccessNotEnabled hipErrorSetOnActiveProcess
    hipErrorContextIsDestroyed hipErrorAssert hipErrorHostMemoryAlreadyRegistered hipErrorHostMemoryNotRegistered
    hipErrorLaunchFailure hipErrorCooperativeLaunchTooLarge hipErrorNotSupported hipErrorStreamCaptureUnsupported
    hipErrorStreamCaptureInvalidated hipErrorStreamCaptureMerge hipErrorStreamCaptureUnmatched
    hipErrorStreamCaptureUnjoined hipErrorStreamCaptureIsolation hipErrorStreamCaptureImplicit hipErrorCapturedEvent
    hipErrorStreamCaptureWrongThread hipErrorGraphExecUpdateFailure hipErrorInvalidChannelDescriptor
    hipErrorInvalidTexture hipErrorUnknown hipErrorRuntimeMemory hipErrorRuntimeOther
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_header_has_its_name_and_every_other_its_number() {
        let header = include_str!("sys.rs");
        let mut seen = 0;
        for line in header.lines().filter_map(|line| line.trim().strip_prefix("pub const hipE")) {
            let Some((spelled, value)) = line.split_once(": hipError_t = hipError_t(") else { continue };
            let value: u32 = value.trim_end_matches(");").parse().unwrap();
            // Some numbers have an older second name.
            let text = name(value);
            assert!(
                text.contains(&format!("hipE{spelled}"))
                    || header.matches(&format!("hipError_t({value});")).count() > 1
                    || spelled == "rrorTbd",
                "{text} is called hipE{spelled}"
            );
            seen += 1;
        }
        assert!(seen > 70, "{seen} codes were read");
        assert_eq!(name(9999), "hipError 9999 (unknown)");
        assert_eq!(name(u32::MAX), "hipError 4294967295 (unknown)");
    }

    #[test]
    fn a_failure_names_the_call_its_arguments_the_code_and_what_helps() {
        let full = Failure::refused("hipMalloc", "4096 bytes".into(), 2);
        let text = full.to_string();
        assert!(text.starts_with("hipMalloc(4096 bytes) failed: hipErrorOutOfMemory (2); lower --max-seq"), "{text}");
        assert!(matches!(Error::from(full), Error::InsufficientMemory(_)));
        let missing = Failure::missing("hipMemMap", "/lib/libamdhip64.so.5").to_string();
        assert!(missing.contains("/lib/libamdhip64.so.5 has no hipMemMap") && missing.contains("ROCm 6"), "{missing}");
        let strange = Error::from(Failure::refused("hipInit", "0".into(), 9999));
        assert!(matches!(&strange, Error::Device(text) if text.contains("hipError 9999 (unknown)")), "{strange}");
    }
}

//! A launch of a kernel with what it has to do, and the memory it needs.
//!
//! Owns: what a case says, memory of a launch. Always true: memory lives until its launch has ended; matrices hold
//! zeros, and no kernel's work depends on values but where a case says so.
//! Not here: the launches (`dense`, `attention`, `experts`, `delta`), counting (`main`), time (`target`).

use bytemuck::Pod;
use hipfire::backend::hip::kernels::Kernels;
use hipfire::device::{Context, DeviceMemory, Stream};
use hipfire::error::Result;
use serde::{Deserialize, Serialize};

/// A launch, counted over `run` workgroups of `grid`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Case {
    pub kernel: String,
    pub geometry: String,
    pub grid: usize,
    pub run: usize,
    /// What the kernel makes, and how many of them the whole grid makes.
    pub unit: String,
    pub units: f64,
    /// Bytes that the whole grid must move at least once, in and out.
    pub floor: f64,
    /// Bytes of vector loads that the design asks for, of the whole grid: `None` where a cache's help is not counted.
    pub loads: Option<f64>,
}

/// Runs cases.
pub struct Device<'a> {
    pub context: &'a Context,
    pub kernels: &'a Kernels,
    pub stream: &'a Stream,
    pub cases: Vec<Case>,
    kept: Vec<DeviceMemory>,
}

impl<'a> Device<'a> {
    /// With nothing run.
    pub fn new(context: &'a Context, kernels: &'a Kernels, stream: &'a Stream) -> Device<'a> {
        Device { context, kernels, stream, cases: Vec::new(), kept: Vec::new() }
    }

    /// Memory for the next launch.
    pub fn zeros(&mut self, bytes: usize) -> Result<u64> {
        let memory = DeviceMemory::new(self.context, bytes)?;
        memory.span().fill(self.stream, 0)?;
        self.kept.push(memory);
        Ok(self.kept.last().map_or(0, DeviceMemory::address))
    }

    /// The same with values.
    pub fn put<T: Pod>(&mut self, values: &[T]) -> Result<u64> {
        let address = self.zeros(size_of_val(values))?;
        if let Some(memory) = self.kept.last() {
            memory.span().upload(self.stream, bytemuck::cast_slice(values))?;
        }
        Ok(address)
    }

    /// Runs a case.
    pub fn launch<T: Pod>(&mut self, case: Case, arguments: &T) -> Result<()> {
        self.kernels.launch(self.stream, &case.kernel, case.run as u32, arguments)?;
        self.stream.synchronize()?;
        self.kept.clear();
        self.cases.push(case);
        Ok(())
    }
}

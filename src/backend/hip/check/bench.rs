//! What every check needs: inputs from a fixed generator, poisoned outputs, comparison with a bound.

use bytemuck::Pod;

use super::super::kernels::Kernels;
use super::{Class, Outcome, digest};
use crate::device::{Context, DeviceMemory, Stream};
use crate::error::{Error, Result};

/// Unit roundoff of F32 and F16: a correctly rounded result is off by at most this share of itself.
pub const U32: f64 = 1.0 / (1u32 << 24) as f64;
/// See [`U32`].
pub const U16: f64 = 1.0 / (1u32 << 11) as f64;

/// Byte that outputs are filled with: every F32 and F16 of it is a NaN.
const POISON: u8 = 0xff;
/// Bytes behind an output that must keep the poison.
const GUARD: usize = 256;

/// The worst relative error of a sum of products whose longest chain of operations is `depth`
/// (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
pub fn gamma(depth: usize) -> f64 {
    let n = depth as f64 * U32;
    n / (1.0 - n)
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Relative error of a sigmoid or SiLU in F32 whose argument is at most `most` in magnitude: the argument scaled for
/// exp2 (half a place of it), exp2, sum, reciprocal, product, each good to one place.
pub const fn sigmoid_error(most: f64) -> f64 {
    (most + 8.0) * U32
}

/// The same for arguments up to 16.
pub const SIGMOID: f64 = sigmoid_error(16.0);

/// An expected element and how far from it is still right.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// The oracle's value.
    pub value: f64,
    /// Absolute bound.
    pub bound: f64,
}

/// A device and the outcomes so far.
pub struct Bench<'a> {
    context: &'a Context,
    kernels: &'a Kernels,
    stream: Stream,
    progress: &'a mut dyn FnMut(&Outcome),
    outcomes: Vec<Outcome>,
    state: u64,
}

/// Memory that a kernel writes.
pub struct Output {
    memory: DeviceMemory,
    bytes: usize,
}

impl Output {
    /// Its address.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }
}

impl<'a> Bench<'a> {
    /// With nothing run.
    pub fn new(context: &'a Context, kernels: &'a Kernels, progress: &'a mut dyn FnMut(&Outcome)) -> Result<Bench<'a>> {
        Ok(Bench { context, kernels, stream: Stream::new(context)?, progress, outcomes: Vec::new(), state: 0 })
    }

    /// The outcomes.
    pub fn finish(self) -> Vec<Outcome> {
        self.outcomes
    }

    /// A uniform number in [0, 1) of 24 bits (SplitMix64).
    pub fn uniform(&mut self) -> f32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 24) as f32
    }

    /// Numbers in [-1, 1).
    pub fn signed(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| 2.0 * self.uniform() - 1.0).collect()
    }

    /// Starts a family of cases at a place of the generator that no other family moves.
    pub fn seed(&mut self, seed: u64) {
        self.state = seed;
    }

    /// Copies values to the device.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<DeviceMemory> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let memory = DeviceMemory::new(self.context, bytes.len())?;
        memory.span().upload(&self.stream, bytes)?;
        Ok(memory)
    }

    /// Memory for `count` values, poisoned.
    pub fn output<T: Pod>(&self, count: usize) -> Result<Output> {
        let bytes = count * size_of::<T>();
        let memory = DeviceMemory::new(self.context, bytes + GUARD)?;
        memory.span().fill(&self.stream, POISON)?;
        Ok(Output { memory, bytes })
    }

    /// Memory that a kernel updates in place.
    pub fn update<T: Pod>(&self, values: &[T]) -> Result<Output> {
        let output = self.output::<T>(values.len())?;
        output.memory.span().upload(&self.stream, bytemuck::cast_slice(values))?;
        Ok(output)
    }

    /// Runs a kernel and waits for it.
    pub fn launch<T: Pod>(&self, name: &str, grid: usize, arguments: &T) -> Result<()> {
        let context = |e: Error| Error::Device(format!("kernel {name}: {e}"));
        self.kernels.launch(&self.stream, name, grid as u32, arguments).map_err(context)?;
        self.stream.synchronize().map_err(context)
    }

    /// What a kernel wrote. An error if it wrote behind the end.
    pub fn read<T: Pod>(&self, output: &Output) -> Result<Vec<T>> {
        let mut bytes = vec![0; output.bytes + GUARD];
        output.memory.span().download(&self.stream, &mut bytes)?;
        if let Some(at) = bytes[output.bytes..].iter().position(|&byte| byte != POISON) {
            return Err(Error::Device(format!("a kernel wrote {at} bytes behind the end of its output")));
        }
        bytes.truncate(output.bytes);
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    /// Compares bits.
    pub fn exact<T: Pod + std::fmt::Debug>(&mut self, kernel: &str, case: String, got: &[T], want: &[T]) {
        self.same(kernel, case, Class::Exact, got, want);
    }

    /// Compares bits of a kernel of any class.
    pub fn same<T>(&mut self, kernel: &str, case: String, class: Class, got: &[T], want: &[T])
    where
        T: Pod + std::fmt::Debug,
    {
        let differ = |(g, w): &(&T, &T)| bytemuck::bytes_of(*g) != bytemuck::bytes_of(*w);
        let first = got.iter().zip(want).position(|pair| differ(&pair));
        let count = got.iter().zip(want).filter(differ).count() + got.len().abs_diff(want.len());
        let message = first.map(|i| format!("element {i} is {:?}, expected {:?}", got[i], want[i]));
        let worst = count as f64 / want.len().max(1) as f64;
        self.record(kernel, case, class, worst, count == 0, bytemuck::cast_slice(got), message);
    }

    /// Compares values with their bounds; a NaN is over every bound.
    pub fn close(&mut self, kernel: &str, case: String, class: Class, got: &[f32], want: &[Expected]) {
        let share = |g: f32, w: &Expected| {
            let error = (g as f64 - w.value).abs();
            if error == 0.0 {
                0.0
            } else if error.is_nan() {
                f64::INFINITY
            } else {
                error / w.bound
            }
        };
        let (mut worst, mut at) = (0.0, 0);
        for (i, (&g, w)) in got.iter().zip(want).enumerate() {
            let share = share(g, w);
            if share > worst {
                (worst, at) = (share, i);
            }
        }
        let passed = worst <= 1.0 && got.len() == want.len();
        let message = (!passed).then(|| {
            let (g, w) = (got.get(at), want.get(at));
            format!("element {at} is {g:?}, expected {w:?}")
        });
        self.record(kernel, case, class, worst, passed, bytemuck::cast_slice(got), message);
    }

    #[allow(clippy::too_many_arguments)] // the fields of an outcome
    fn record(
        &mut self,
        kernel: &str,
        case: String,
        class: Class,
        worst: f64,
        passed: bool,
        bits: &[u8],
        message: Option<String>,
    ) {
        let outcome = Outcome { kernel: kernel.into(), case, class, worst, passed, digest: digest(bits), message };
        (self.progress)(&outcome);
        self.outcomes.push(outcome);
    }
}

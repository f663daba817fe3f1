//! Running a grid: workgroups, their waves, and the order in which they take turns.
//!
//! Owns: launch state of registers, scheduling, faults' text, the step limit. Always true: a schedule is a number, and the
//! same number gives the same run; a kernel with global atomics runs on one thread, as its results may depend on the
//! order of workgroups; every other kernel gives the same result on any number of threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};

use hip_facade::executor::{Launch, Memory};

use crate::inst::{Class, EXEC, Flow, Inst, SCC, TTMP0};
use crate::memory::{Checked, Extra};
use crate::object::{Code, Kernel};
use crate::profile::Counters;
use crate::wave::{Arrival, Fault, Group, LANES, Lanes, Mode, POISON_LDS, POISON_SCALAR, POISON_VECTOR, Wave};

/// Instructions that one wave may execute before its kernel counts as stuck: about a minute of this stand-in's time, and
/// a hundred times what the longest real kernel needs.
pub const STEP_LIMIT: u64 = 1 << 30;

/// Largest LDS of a workgroup on both targets.
const LDS_LIMIT: u32 = 64 << 10;

/// Whether the handlers compiled for AVX2, FMA and F16C can run here.
pub fn fast_handlers() -> bool {
    static FAST: LazyLock<bool> = LazyLock::new(|| {
        #[cfg(target_arch = "x86_64")]
        {
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            false
        }
    });
    *FAST
}

/// A small generator (splitmix64): the schedule must not depend on a library's version.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// What every workgroup of a launch shares.
struct Grid<'a> {
    code: &'a Code,
    kernel: &'a Kernel,
    launch: &'a Launch<'a>,
    arguments: u64,
    threads: u32,
    step_limit: u64,
}

/// Runs a whole grid. Returns the counters, workgroups and waves.
pub fn grid(
    code: &Code,
    launch: &Launch<'_>,
    memory: &dyn Memory,
    workers: usize,
    step_limit: u64,
) -> Result<(Counters, u64, u64), String> {
    let name = launch.kernel;
    let kernel = code.kernels.get(name).ok_or_else(|| format!("the module has no kernel {name}"))?;
    let product = |v: [u32; 3]| v.iter().map(|&n| u64::from(n)).try_fold(1u64, u64::checked_mul);
    let threads =
        product(launch.block).filter(|&n| n > 0 && n <= u64::from(kernel.info.max_threads)).ok_or_else(|| {
            format!(
                "kernel {name} takes 1 to {} work-items a workgroup, not {:?}",
                kernel.info.max_threads, launch.block
            )
        })? as u32;
    let groups = product(launch.grid)
        .filter(|&n| n > 0 && launch.grid[1] <= 0xffff && launch.grid[2] <= 0xffff)
        .ok_or_else(|| format!("kernel {name}: a grid of {:?} is empty or beyond 65,535 in y or z", launch.grid))?;
    if launch.arguments.len() < kernel.info.kernarg_bytes {
        let (given, wanted) = (launch.arguments.len(), kernel.info.kernarg_bytes);
        return Err(format!("kernel {name} takes {wanted} bytes of arguments, and {given} were given"));
    }
    let lds = u64::from(kernel.info.lds_bytes) + u64::from(launch.dynamic_lds);
    if lds > u64::from(LDS_LIMIT) {
        return Err(format!("kernel {name} asks for {lds} bytes of LDS, above {LDS_LIMIT}"));
    }
    // Words, so that the segment is aligned to 16 bytes.
    let mut segment = vec![0u128; launch.arguments.len().div_ceil(16).max(1)];
    for (to, from) in segment.iter_mut().zip(launch.arguments.chunks(16)) {
        let mut whole = [0; 16];
        whole[..from.len()].copy_from_slice(from);
        *to = u128::from_le_bytes(whole);
    }
    let arguments = segment.as_mut_ptr() as u64;
    let mut extra = code.segments.clone();
    // Readable to the next 16 bytes: a scalar load may be wider than the last argument.
    extra.push(Extra { start: arguments, end: arguments + 16 * segment.len() as u64, writable: false });
    let grid = Grid { code, kernel, launch, arguments, threads, step_limit };
    let workers = if kernel.atomics { 1 } else { workers.clamp(1, groups.min(64) as usize) };
    let (next, worst) = (AtomicU64::new(0), Mutex::new(None::<(u64, String)>));
    let total = Mutex::new(Counters::default());
    let work = || {
        let mut worker = Worker::new(&grid, Checked::new(memory, &extra), lds as usize);
        loop {
            let turn = next.fetch_add(1, Relaxed);
            // Turns before a fault have all been taken already: the first fault in order is always found.
            if turn >= groups || worst.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                break;
            }
            let group = scheduled(turn, groups, launch.schedule);
            if let Err(text) = worker.run(group) {
                let mut worst = worst.lock().unwrap_or_else(PoisonError::into_inner);
                if worst.as_ref().is_none_or(|(at, _)| turn < *at) {
                    *worst = Some((turn, text));
                }
            }
        }
        total.lock().unwrap_or_else(PoisonError::into_inner).merge(&worker.group.counters);
    };
    if workers == 1 {
        work();
    } else {
        std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    }
    match worst.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, text)) => Err(text),
        None => {
            let waves = groups * u64::from(threads.div_ceil(LANES as u32));
            Ok((total.into_inner().unwrap_or_else(PoisonError::into_inner), groups, waves))
        }
    }
}

/// Which workgroup runs at a turn: all in order, or a seeded stride through them.
fn scheduled(turn: u64, groups: u64, schedule: u64) -> u64 {
    if schedule == 0 || groups < 2 {
        return turn;
    }
    let mut random = Random(schedule);
    let start = random.next() % groups;
    let mut stride = random.next() % groups;
    while gcd(stride, groups) != 1 {
        stride = (stride + 1) % groups;
    }
    ((u128::from(turn) * u128::from(stride) + u128::from(start)) % u128::from(groups)) as u64
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Why a wave gave its turn up.
#[derive(PartialEq)]
enum Stop {
    Barrier,
    End,
    Yield,
    Fault,
    Limit,
}

/// One thread's waves and LDS, reused for all of its workgroups.
struct Worker<'a> {
    grid: &'a Grid<'a>,
    waves: Vec<Wave>,
    group: Group<'a>,
}

impl<'a> Worker<'a> {
    fn new(grid: &'a Grid<'a>, memory: Checked<'a>, lds: usize) -> Self {
        let count = grid.threads.div_ceil(LANES as u32);
        let waves = (0..count).map(|_| Wave::default()).collect();
        let counters = Counters { executed: vec![0; grid.code.program.insts.len() + 1], ..Counters::default() };
        let group = Group {
            lds: vec![0; lds],
            memory,
            counters,
            fault: None,
            image_base: grid.code.base,
            gfx12: grid.code.arch.starts_with("gfx12"),
            reverse_lanes: grid.launch.schedule & 1 != 0,
            launched: count,
            arrived: 0,
            alive: count,
            phase: 0,
        };
        Self { grid, waves, group }
    }

    /// Runs one workgroup to its end.
    fn run(&mut self, number: u64) -> Result<(), String> {
        let [gx, gy, _] = self.grid.launch.grid.map(u64::from);
        let id = [number % gx, number / gx % gy, number / gx / gy].map(|n| n as u32);
        self.reset(id);
        let mut random = Random(self.grid.launch.schedule ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let random = (self.grid.launch.schedule != 0).then_some(&mut random);
        self.take_turns(random).map_err(|(wave, fault)| self.sentence(id, wave, &fault))
    }

    fn take_turns(&mut self, mut random: Option<&mut Random>) -> Result<(), (usize, Fault)> {
        let Self { grid, waves, group } = self;
        let program = &grid.code.program.insts;
        let mut left = vec![grid.step_limit; waves.len()];
        let mut alive: Vec<usize> = (0..waves.len()).collect();
        let mut turn = 0;
        while !alive.is_empty() {
            let at = random.as_deref_mut().map_or(turn % alive.len(), |r| r.below(alive.len()));
            let k = alive[at];
            match run_wave(&mut waves[k], program, group, random.as_deref_mut(), &mut left[k]) {
                Stop::Barrier | Stop::Yield => turn = at + 1,
                Stop::End => {
                    alive.remove(at);
                    turn = at;
                    group.alive -= 1;
                    if group.arrived > 0 {
                        let waiting = group.arrived;
                        let text = format!("ends while {waiting} waves of its workgroup wait at a barrier");
                        return Err((k, Fault { lane: None, text }));
                    }
                }
                Stop::Fault => {
                    let unknown = || Fault { lane: None, text: "stopped without saying why".into() };
                    return Err((k, group.fault.take().unwrap_or_else(unknown)));
                }
                Stop::Limit => {
                    let text =
                        format!("has executed {} instructions without an end: the kernel runs away", grid.step_limit);
                    return Err((k, Fault { lane: None, text }));
                }
            }
        }
        Ok(())
    }

    /// Registers and LDS as a launch leaves them: poisoned but for what it promises.
    fn reset(&mut self, id: [u32; 3]) {
        let Grid { kernel, launch, arguments, threads, .. } = *self.grid;
        let gfx12 = self.group.gfx12;
        self.group.lds.chunks_mut(2).for_each(|c| c.copy_from_slice(&POISON_LDS.to_le_bytes()[..c.len()]));
        (self.group.arrived, self.group.alive, self.group.phase) = (0, self.group.launched, 0);
        for (n, w) in self.waves.iter_mut().enumerate() {
            w.v[..kernel.allocated_vgprs].fill([POISON_VECTOR; LANES]);
            w.s.fill(POISON_SCALAR);
            let lanes = (threads - n as u32 * LANES as u32).min(LANES as u32);
            w.launched = ((1u64 << lanes) - 1) as u32;
            w.s[EXEC] = w.launched;
            w.s[EXEC + 1] = 0;
            w.s[SCC] = 0;
            if let Some(at) = kernel.arguments_at {
                w.set_pair(at, arguments);
            }
            if gfx12 {
                w.s[TTMP0 + 9] = id[0];
                w.s[TTMP0 + 7] = id[1] | id[2] << 16;
            } else {
                let asked = (0..3).filter(|&axis| kernel.group_ids[axis]);
                asked.enumerate().for_each(|(k, axis)| w.s[kernel.user_scalars + k] = id[axis]);
            }
            w.v[0] = item_ids(n as u32 * LANES as u32, launch.block, kernel.item_ids);
            w.pc = kernel.entry;
            w.mode = Mode { flush_in: kernel.flush.0, flush_out: kernel.flush.1 };
            w.arrival = Arrival::Away;
            w.index = n as u32;
        }
    }

    fn sentence(&self, id: [u32; 3], wave: usize, fault: &Fault) -> String {
        let w = &self.waves[wave];
        let at = w.pc.saturating_sub(1);
        let program = &self.grid.code.program.insts;
        let (pc, name) = program.get(at).map_or((0, "the end of the code"), |i| (i.pc, i.name));
        let lane =
            fault.lane.map_or(String::new(), |l| format!(", lane {l} (work-item {})", wave as u32 * LANES as u32 + l));
        format!(
            "kernel {} ({}), workgroup ({}, {}, {}), wave {wave}{lane}, pc {pc:#x}: {name} {}",
            self.grid.launch.kernel, self.grid.code.arch, id[0], id[1], id[2], fault.text
        )
    }
}

/// v0: x in bits 0 to 9, y from 10, z from 20.
fn item_ids(first: u32, block: [u32; 3], ids: u32) -> Lanes {
    std::array::from_fn(|l| {
        let n = first + l as u32;
        let (x, y, z) = (n % block[0], n / block[0] % block[1], n / block[0] / block[1]);
        x | if ids > 0 { y << 10 } else { 0 } | if ids > 1 { z << 20 } else { 0 }
    })
}

/// Runs a wave until it must or may stop. With a generator it may stop before any memory access.
fn run_wave(
    w: &mut Wave,
    program: &[Inst],
    g: &mut Group<'_>,
    mut random: Option<&mut Random>,
    left: &mut u64,
) -> Stop {
    let mut steps = *left;
    let stop = loop {
        let Some(i) = program.get(w.pc) else {
            w.pc += 1;
            let _ = g.fail("lies beyond the code");
            break Stop::Fault;
        };
        if steps == 0 {
            w.pc += 1;
            break Stop::Limit;
        }
        steps -= 1;
        g.counters.executed[w.pc] += 1;
        w.pc += 1;
        // SAFETY: handlers of the fast set are installed only after `fast_handlers` found their CPU features.
        match unsafe { (i.run)(w, i, g) } {
            Flow::Next => {
                if let Some(random) = random.as_deref_mut()
                    && matches!(i.class, Class::Vmem | Class::Lds | Class::Smem)
                    && random.next() & 3 == 0
                {
                    break Stop::Yield;
                }
            }
            Flow::Barrier => {
                // It will be executed again.
                g.counters.executed[w.pc] -= 1;
                break Stop::Barrier;
            }
            Flow::End => break Stop::End,
            Flow::Fault => break Stop::Fault,
        }
    };
    *left = steps;
    stop
}

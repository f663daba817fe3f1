//! Threads that wait awake while a step runs: the short parallel regions of one token start and end without a wake-up.
//!
//! Owns: the crew of a step, the hand-over of a region's tasks to it.
//! Always true: [`each`] returns after its last task, with and without a crew; which thread runs a task changes no bit.
//! A crew is the rayon pool of its leader, whose other parallel iterators it serves as well. Between steps it sleeps.
//! Not here: what the tasks are (`linear`, `moe`).
//!
//! A sleeping thread takes 20 to 50 µs to wake on a virtual machine, and on a busy one may come too late to help at all:
//! regions of 30 to 600 µs took as long as on one thread (Zen 3, two cores shared with a build, 2026-11).

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use rayon::Yield;
use rayon::prelude::*;

/// What a crew works on.
struct Crew {
    /// Whether there is a region.
    open: AtomicBool,
    /// Members that look for a region or run tasks of it.
    inside: AtomicUsize,
    /// The region's first task that nobody has taken.
    next: AtomicUsize,
    region: Cell<Option<Region>>,
    /// Whether the step is.
    over: AtomicBool,
}

/// Tasks by their numbers. The lifetime of `work` is erased: it is valid while its region is open or a member is inside,
/// because its leader stays in [`Crew::lead`] for that long.
#[derive(Clone, Copy)]
struct Region {
    work: *const (dyn Fn(usize) + Sync),
    count: usize,
}

// SAFETY: all fields but `region` are atomic. Its leader writes that one while no region is open and no member that saw
// one is inside; members read it while they are inside and have seen the region open.
unsafe impl Sync for Crew {}

thread_local! {
    /// The crew that this thread leads, unless it runs a region.
    static LED: Cell<Option<*const Crew>> = const { Cell::new(None) };
}

/// Spins before a waiting thread lets others have its core: about half a millisecond, longer than a step's serial parts.
const SPINS: usize = 10_000;

fn pause(waited: &mut usize) {
    *waited += 1;
    if *waited < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

/// Runs `work` on this thread while the other threads of its rayon pool stay awake for its regions.
pub fn with<T>(work: impl FnOnce() -> T) -> T {
    let leader = rayon::current_thread_index();
    if leader.is_none() || rayon::current_num_threads() == 1 || LED.get().is_some() {
        return work();
    }
    let crew = &Crew {
        open: AtomicBool::new(false),
        inside: AtomicUsize::new(0),
        next: AtomicUsize::new(0),
        region: Cell::new(None),
        over: AtomicBool::new(false),
    };
    rayon::in_place_scope(|scope| {
        scope.spawn_broadcast(move |_, context| {
            if Some(context.index()) != leader {
                crew.serve();
            }
        });
        let _over = Finally(|| {
            LED.set(None);
            crew.over.store(true, Release);
        });
        LED.set(Some(crew));
        work()
    })
}

/// Runs `work(i)` for every i below `count`: on the crew that this thread leads, else on the current rayon pool.
pub fn each(count: usize, work: impl Fn(usize) + Sync + Send) {
    let Some(crew) = LED.take() else {
        return (0..count).into_par_iter().with_max_len(1).for_each(work);
    };
    let _led = Finally(|| LED.set(Some(crew)));
    // SAFETY: `with` keeps the crew until its work returns, and this call is part of that work.
    unsafe { (*crew).lead(count, &work) }
}

impl Crew {
    /// Runs a region's tasks with whoever comes.
    fn lead(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        // SAFETY: the lifetime alone changes, and `closed` below outlasts every use (see `Region`).
        let work: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let region = Region { work, count };
        self.region.set(Some(region));
        self.next.store(0, Relaxed);
        self.open.store(true, SeqCst);
        // Also by a panic: nobody may run a task whose data is gone.
        let _closed = Finally(|| {
            self.open.store(false, SeqCst);
            let mut waited = 0;
            while self.inside.load(SeqCst) != 0 {
                pause(&mut waited);
            }
        });
        self.take_tasks(region);
    }

    /// What the others do until the step is over.
    fn serve(&self) {
        let mut waited = 0;
        loop {
            if self.open.load(Relaxed) {
                self.inside.fetch_add(1, SeqCst);
                let _left = Finally(|| {
                    self.inside.fetch_sub(1, SeqCst);
                });
                // Either the leader sees this member inside, or this member sees the region closed.
                if self.open.load(SeqCst)
                    && let Some(region) = self.region.get()
                {
                    self.take_tasks(region);
                    waited = 0;
                }
            } else if self.over.load(Acquire) {
                return;
            } else if let Some(Yield::Executed) = rayon::yield_now() {
                waited = 0;
            }
            pause(&mut waited);
        }
    }

    fn take_tasks(&self, region: Region) {
        loop {
            let task = self.next.fetch_add(1, Relaxed);
            if task >= region.count {
                return;
            }
            // SAFETY: the region is open, or this thread inside (see `Region`).
            unsafe { (*region.work)(task) }
        }
    }
}

/// Calls a closure when it is dropped, also by a panic.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap()
    }

    #[test]
    fn every_task_runs_once_before_its_region_ends() {
        let total = AtomicUsize::new(0);
        pool().install(|| {
            for _ in 0..20 {
                with(|| {
                    for count in [0, 1, 2, 7, 100] {
                        let before = total.load(Relaxed);
                        each(count, |i| {
                            total.fetch_add(i + 1, Relaxed);
                        });
                        assert_eq!(total.load(Relaxed) - before, count * (count + 1) / 2);
                    }
                });
            }
        });
    }

    #[test]
    fn regions_inside_of_tasks_and_other_parallel_iterators_run_too() {
        let total = AtomicUsize::new(0);
        let count = || {
            total.fetch_add(1, Relaxed);
        };
        let inner = || each(5, |_| count());
        pool().install(|| {
            with(|| {
                with(|| each(4, |_| inner()));
                (0..10).into_par_iter().for_each(|_| count());
            });
            inner();
        });
        each(3, |_| inner());
        assert_eq!(total.into_inner(), 20 + 10 + 5 + 15);
    }

    #[test]
    fn a_panic_in_a_task_comes_out_and_leaves_the_pool_usable() {
        let pool = pool();
        for culprit in [0, 50, 99] {
            let work = || with(|| each(100, |i| assert!(i != culprit, "task")));
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.install(work)));
            assert!(result.is_err());
        }
        let total = AtomicUsize::new(0);
        let count = |_| {
            total.fetch_add(1, Relaxed);
        };
        pool.install(|| with(|| each(9, count)));
        assert_eq!(total.into_inner(), 9);
    }
}

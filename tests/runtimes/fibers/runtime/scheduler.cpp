// Who runs next: barriers, wave operations and the workgroups of a launch.
//
// Always true: exactly one fiber of a group runs; it goes on until a barrier or a wave operation that others have yet
// to reach. Within the lanes (waves) that can run, the schedule picks the lowest, the highest or a random one, so any
// order that a kernel may not rely on is tried. Divergence is found at once: a wave operation that misses a lane
// when none of the wave's lanes can run, a barrier that misses a thread when no thread can.
#include <stdio.h>
#include <string.h>
#include "runtime.h"
#include "sanitizers.h"

__thread Group* current_group;
__thread Fiber* current_fiber;

#define CPU_ENTRY extern "C" RUNTIME_LOCAL

// xorshift64*: good enough to shuffle lanes, and the same on every machine.
static u32 random_below(Group& group, u32 bound) {
  group.random ^= group.random >> 12;
  group.random ^= group.random << 25;
  group.random ^= group.random >> 27;
  return static_cast<u32>((group.random * 0x2545f4914f6cdd1dull >> 32) % bound);
}

static u32 pick(Group& group, u32 mask, Pick how) {
  if (how == Pick::Lowest) return static_cast<u32>(__builtin_ctz(mask));
  if (how == Pick::Highest) return 31u - static_cast<u32>(__builtin_clz(mask));
  for (u32 skip = random_below(group, static_cast<u32>(__builtin_popcount(mask))); skip > 0; skip--) mask &= mask - 1;
  return static_cast<u32>(__builtin_ctz(mask));
}

static Wave& wave_of(Group& group, const Fiber& fiber) { return group.wave[fiber.thread / LANES]; }

// Takes the next fiber to run, or null when none can. The running fiber's wave goes first, unless at random.
static Fiber* take_next(Group& group, u32 own_wave) {
  u32 index = own_wave;
  const bool stay = group.wave[own_wave].ready && (group.pick_wave != Pick::Random || random_below(group, 4) != 0);
  if (!stay) {
    if (!group.ready_waves) return nullptr;
    index = pick(group, group.ready_waves, group.pick_wave);
  }
  Wave& wave = group.wave[index];
  const u32 lane = pick(group, wave.ready, group.pick_lane);
  wave.ready &= ~(1u << lane);
  if (!wave.ready) group.ready_waves &= ~(1u << index);
  return &group.fibers[index * LANES + lane];
}

// The running fiber cannot go on: runs another, and returns when this one is let go on.
static void wait(Group& group, Fiber& me) {
  const Wave& wave = wave_of(group, me);
  if (wave.arrived && !wave.ready) fail_divergent(group);
  Fiber* const next = take_next(group, me.thread / LANES);
  if (!next) fail_divergent(group);
  switch_to(*next);
}

static void make_ready(Group& group, u32 index) {
  Wave& wave = group.wave[index];
  wave.ready = wave.members;
  group.ready_waves |= 1u << index;
  for (u32 lane = 0; lane < LANES && (wave.members >> lane & 1); lane++)
    group.fibers[index * LANES + lane].state = State::Ready;
}

// After the last one arrived: it goes on itself, unless the order is to be a random one.
static void go_on(Group& group, Fiber& me) {
  const u32 own = me.thread / LANES;
  if (group.pick_lane == Pick::Random) {
    Fiber* const next = take_next(group, own);
    if (next != &me) switch_to(*next);
    return;
  }
  Wave& wave = group.wave[own];
  wave.ready &= ~(1u << me.thread % LANES);
  if (!wave.ready) group.ready_waves &= ~(1u << own);
}

CPU_ENTRY u32 cpu_thread() { return current_fiber->thread; }
CPU_ENTRY u32 cpu_block(u32 axis) { return current_group->block[axis]; }

CPU_ENTRY void cpu_barrier() {
  Group& group = *current_group;
  Fiber& me = *current_fiber;
  me.site = __builtin_return_address(0);
  me.state = State::Barrier;
  sanitizer_release(&group.at_barrier);
  if (++group.at_barrier < group.threads) {
    wait(group, me);
  } else {
    for (u32 i = 0; i < group.threads; i++)
      if (group.fibers[i].site != me.site) fail_divergent(group);
    group.at_barrier = 0;
    for (u32 i = 0; i < group.waves; i++) make_ready(group, i);
    go_on(group, me);
  }
  sanitizer_acquire(&group.at_barrier);
}

bool arrive(Group& group, const void* site) {
  Fiber& me = *current_fiber;
  Wave& wave = wave_of(group, me);
  me.site = site;
  me.state = State::WaveOperation;
  if (wave.arrived && wave.site != site) fail_divergent(group);
  wave.site = site;
  if (++wave.arrived == static_cast<u32>(__builtin_popcount(wave.members))) return true;
  wait(group, me);
  return false;
}

void leave(Group& group) {
  Fiber& me = *current_fiber;
  Wave& wave = wave_of(group, me);
  wave.arrived = 0;
  wave.count++;
  make_ready(group, me.thread / LANES);
  go_on(group, me);
}

// All lanes give a word; returns the words given. They stay until the operation after the next one: every lane must
// have read them to arrive there.
static const u32* exchange(u32 value, const void* site) {
  Group& group = *current_group;
  const Fiber& me = *current_fiber;
  Wave& wave = wave_of(group, me);
  u32* const slots = wave.slots[wave.count & 1];
  slots[me.thread % LANES] = value;
  if (arrive(group, site)) leave(group);
  return slots;
}

CPU_ENTRY u32 cpu_shuffle(u32 value, u32 source_lane) {
  const u32 word = exchange(value, __builtin_return_address(0))[source_lane];
  if (!(wave_of(*current_group, *current_fiber).members >> source_lane & 1))
    fail("shuffle from lane %u, which the workgroup does not have, at %s", source_lane,
         position(__builtin_return_address(0)).text);
  return word;
}

CPU_ENTRY u32 cpu_ballot(u32 predicate) {
  const u32* const words = exchange(predicate != 0, __builtin_return_address(0));
  const u32 members = wave_of(*current_group, *current_fiber).members;
  u32 ballot = 0;
  for (u32 lane = 0; lane < LANES && (members >> lane & 1); lane++) ballot |= words[lane] << lane;
  return ballot;
}

// Conservative for TSan: orders everything before a fence against everything after any later fence.
CPU_ENTRY void cpu_fence() {
  std::atomic_thread_fence(std::memory_order_acq_rel);
  static char order;
  sanitizer_release(&order);
  sanitizer_acquire(&order);
}

// Whatever follows a launch follows all of its work-items.
static char end_of_launch;

// The first thing a fiber does, and the last: it is never resumed after this.
void run_fiber() {
  sanitizer_finish_switch(nullptr);
  Group& group = *current_group;
  group.launch->entry(group.launch->arguments);
  Fiber& me = *current_fiber;
  me.state = State::Done;
  me.site = nullptr;
  sanitizer_release(&end_of_launch);
  if (++group.finished == group.threads) switch_to(group.scheduler);
  wait(group, me);
  __builtin_unreachable();
}

// Which workgroup is begun as the nth. At random: steps of a number that has no divisor in common with the total.
static u64 workgroup_at(const CpuLaunch& launch, u64 nth, u64 total) {
  if (launch.schedule < 2) return nth;
  if (launch.schedule < 4) return total - 1 - nth;
  u64 step = total * 5 / 8 | 1;
  const auto divisor = [](u64 a, u64 b) { while (b) { const u64 rest = a % b; a = b; b = rest; } return a; };
  while (divisor(step, total) != 1) step += 2;
  return static_cast<u64>((static_cast<unsigned __int128>(nth) * step + launch.schedule) % total);
}

static void run_workgroup(Group& group, u64 index) {
  const CpuLaunch& launch = *group.launch;
  group.block[0] = static_cast<u32>(index % launch.grid[0]);
  group.block[1] = static_cast<u32>(index / launch.grid[0] % launch.grid[1]);
  group.block[2] = static_cast<u32>(index / launch.grid[0] / launch.grid[1]);
  const bool at_random = launch.schedule >= 4;
  group.pick_lane = at_random ? Pick::Random : launch.schedule & 1 ? Pick::Highest : Pick::Lowest;
  group.pick_wave = at_random ? Pick::Random : launch.schedule & 2 ? Pick::Highest : Pick::Lowest;
  group.random = (launch.schedule ^ index * 0x9e3779b97f4a7c15ull) | 1;
  group.at_barrier = group.finished = 0;
  group.failed = false;
  group.ready_waves = 0;
  reset_lds(group);
  for (u32 i = 0; i < group.threads; i++) {
    group.fibers[i].thread = i;
    group.fibers[i].site = nullptr;
    prepare(group, group.fibers[i]);
  }
  for (u32 i = 0; i < group.waves; i++) {
    Wave& wave = group.wave[i];
    const u32 lanes = group.threads - i * LANES;
    wave.members = lanes >= LANES ? ~0u : (1u << lanes) - 1;
    wave.arrived = 0;
    make_ready(group, i);
  }
  announce_fibers(group);
  current_fiber = &group.scheduler;
  const u32 first = pick(group, group.ready_waves, group.pick_wave);
  group.in_kernel = true;
  switch_to(*take_next(group, first));
  group.in_kernel = false;
  forget_fibers(group);
}

int cpu_work(CpuLaunch* launch, char* error, u64 error_bytes) {
  const u64 total = static_cast<u64>(launch->grid[0]) * launch->grid[1] * launch->grid[2];
  Group* const group = launch->threads && launch->threads <= MAX_THREADS ? take_group(launch->threads) : nullptr;
  if (!group) {
    snprintf(error, error_bytes, "no stacks for a workgroup of %u threads", launch->threads);
    launch->failed = 1;
    return -1;
  }
  group->launch = launch;
  group->threads = launch->threads;
  group->waves = (launch->threads + LANES - 1) / LANES;
  group->recent_next = 0;
  memset(group->recent, 0, sizeof group->recent);
  group->lds.variable_count = group->lds.end = group->lds.total = 0;
  group->failed = false;
  current_group = group;
  {
    const SignalScope signals(*group);
    while (!launch->failed) {
      const u64 nth = launch->taken++;
      if (nth >= total) break;
#if defined(CPU_TSAN) || defined(CPU_ASAN)
      run_workgroup(*group, workgroup_at(*launch, nth, total));
#else
      if (sigsetjmp(group->landing, 0) == 0) run_workgroup(*group, workgroup_at(*launch, nth, total));
#endif
      if (group->failed) launch->failed = 1;
      if (group->failed) break;
    }
  }
  sanitizer_acquire(&end_of_launch);
  const bool failed = group->failed;
  if (failed) snprintf(error, error_bytes, "%s", group->error);
  current_group = nullptr;
  current_fiber = nullptr;
  give_group_back(group);
  return failed ? -1 : 0;
}

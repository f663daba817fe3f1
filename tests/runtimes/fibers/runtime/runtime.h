// The fiber runtime's shared types: how one workgroup runs on one OS thread.
//
// Owns: the structures of a launch, a workgroup, a wave and a fiber, and which file does what:
//   scheduler.cpp  who runs next; barriers and wave operations; the workgroups of a launch
//   context.cpp    switching from one fiber to another
//   memory.cpp     LDS and the check of every load and store
//   matrix.cpp     WMMA
//   fault.cpp      what is said of a kernel that did wrong, signals included
//   replay.cpp     main() of the sanitizer programs
// Always true: a Group belongs to one OS thread while it runs; fibers never move between OS threads. The runtime
// itself is not instrumented by any sanitizer: only kernels are (CPU_CHECKED, CPU_TSAN, CPU_ASAN say how).
#pragma once
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <atomic>
#include "dialect/types.h"

constexpr u32 LANES = 32, MAX_THREADS = 1024, MAX_WAVES = MAX_THREADS / LANES;

// An accessible range of device memory: [start, end).
struct Range { u64 start, end; };

// A launch, shared by the OS threads that work on it. The same layout as `Launch` in src/library.rs.
struct CpuLaunch {
  void (*entry)(const void* arguments);
  const void* arguments;
  u64 argument_bytes;
  u32 grid[3];
  u32 threads;
  u32 dynamic_lds;
  u32 unused;
  u64 schedule;
  const Range* ranges;      // ascending
  u64 range_count;
  std::atomic<u64> taken;   // workgroups begun
  std::atomic<u64> failed;  // 1 once a workgroup failed: the others stop
};

// Runs workgroups until none is left; 0, or -1 with a sentence in `error`. A source position stands in it as
// "@{offset}", an offset into this module in hexadecimal, for whoever has the debug information.
extern "C" __attribute__((visibility("default"))) int cpu_work(CpuLaunch* launch, char* error, u64 error_bytes);

enum class State : u8 { Ready, WaveOperation, Barrier, Done };

// Saved registers; see context.cpp.
struct Context {
#if defined(__x86_64__)
  void* stack_pointer;
#else
  void* machine;            // a ucontext_t
#endif
};

struct Fiber {
  Context context;
  u8* stack;                // lowest address; STACK_BYTES long
  const void* site;         // return address of the barrier or wave operation it waits in
  void* sanitizer;          // TSan's fiber, or ASan's fake stack
  u32 thread;
  State state;
};

// What a lane gives to a wave operation.
struct MatrixOperands { void* c; const void* a; const void* b; };
struct Wave {
  u32 ready;                // lanes that can run; the running lane is not among them
  u32 members;              // all its lanes
  u32 arrived;              // lanes in the wave operation under way
  u32 count;                // operations done: its parity picks the slots
  const void* site;         // of the operation under way
  u32 slots[2][LANES];
  MatrixOperands operands[LANES];
};

// The LDS of a workgroup. A byte's state tells reads of what was never written and accesses outside any variable.
enum : u32 { LDS_LIMIT = 64 << 10, LDS_SPAN = 128 << 10, MAX_LDS_VARIABLES = 64 };
enum LdsByte : u8 { LDS_OUTSIDE = 0, LDS_UNWRITTEN = 1, LDS_WRITTEN = 2 };
struct LdsVariable { const void* name; u32 offset, bytes; };
struct Lds {
  u8* base;                 // between guard pages
  u8* bytes;                // LdsByte of each byte, LDS_SPAN long
  u32 end;                  // first byte not given to a static variable
  u32 total;                // bytes of all variables, without the gaps between them
  u32 variable_count;
  u32 dynamic_offset, dynamic_bytes;
  LdsVariable variables[MAX_LDS_VARIABLES];
};

enum class Pick : u8 { Lowest, Highest, Random };

struct Group {
  const CpuLaunch* launch;
  u32 block[3];
  u32 threads, waves;
  u32 ready_waves;          // waves with a lane that can run
  u32 at_barrier, finished;
  Pick pick_lane, pick_wave;
  bool failed, in_kernel;
  u64 accesses;             // loads and stores since the last switch
  u64 random;
  Range recent[4];          // ranges of device memory that were accessed last
  u32 recent_next;
  Lds lds;
  u32 stack_count;
  u8* signal_stack;
  sigjmp_buf landing;       // where a signal in a kernel goes on
  char error[1024];
  Group* next_free;
  Fiber scheduler;
  Wave wave[MAX_WAVES];
  Fiber fibers[MAX_THREADS];
};

#define RUNTIME_LOCAL __attribute__((visibility("hidden")))
// initial-exec: one instruction instead of a call for each access that is checked.
extern RUNTIME_LOCAL __thread Group* current_group __attribute__((tls_model("initial-exec")));
extern RUNTIME_LOCAL __thread Fiber* current_fiber __attribute__((tls_model("initial-exec")));

// ---- context.cpp -----------------------------------------------------------
#if defined(CPU_TSAN) || defined(CPU_ASAN)
constexpr u32 STACK_BYTES = 512 << 10;
#else
constexpr u32 STACK_BYTES = 128 << 10;
#endif
constexpr size_t SIGNAL_STACK_BYTES = 64 << 10;
// Takes a group with stacks for so many threads from those kept, or makes one; null if memory is refused.
RUNTIME_LOCAL Group* take_group(u32 threads);
RUNTIME_LOCAL void give_group_back(Group* group);
// Makes the fiber start at run_fiber() when it is switched to.
RUNTIME_LOCAL void prepare(Group& group, Fiber& fiber);
RUNTIME_LOCAL void switch_to(Fiber& fiber);
// The fibers of a workgroup are all prepared, or all done with.
RUNTIME_LOCAL void announce_fibers(Group& group);
RUNTIME_LOCAL void forget_fibers(Group& group);

// ---- scheduler.cpp -----------------------------------------------------------
RUNTIME_LOCAL void run_fiber();
// For matrix.cpp: true for the lane that arrives last, which does the work and then calls leave().
RUNTIME_LOCAL bool arrive(Group& group, const void* site);
RUNTIME_LOCAL void leave(Group& group);

// ---- memory.cpp --------------------------------------------------------------
RUNTIME_LOCAL bool make_lds(Lds& lds);
RUNTIME_LOCAL void reset_lds(Group& group);
// Reports a load or store that a kernel may not make.
RUNTIME_LOCAL void check_read(u64 address, u64 bytes, const void* site);
RUNTIME_LOCAL void check_write(u64 address, u64 bytes, const void* site);

// ---- fault.cpp ----------------------------------------------------------------
// Ends the workgroup with a sentence about the running thread. Called on a fiber.
[[noreturn]] RUNTIME_LOCAL void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Which threads wait where, when none can go on.
[[noreturn]] RUNTIME_LOCAL void fail_divergent(Group& group);
// "@{…}" for a return address.
struct Position { char text[32]; };
RUNTIME_LOCAL Position position(const void* site);
// Sends faults of kernels on this OS thread to Group::landing; undone when it goes out of scope.
struct RUNTIME_LOCAL SignalScope {
  explicit SignalScope(Group& group);
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
  char old_stack[64];
};

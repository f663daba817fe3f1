// Switching from one fiber to another, and the stacks they run on.
//
// Owns: the saved registers, by hand on x86-64 (about 2 ns, as no signal mask is saved) and by ucontext elsewhere;
// stacks with a guard page below each; the groups kept for the next launch. Not here: who is switched to.
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <mutex>
#include <new>
#include "runtime.h"
#include "sanitizers.h"
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

static constexpr size_t GUARD_BYTES = 64 << 10;

#if defined(__x86_64__)
// Saves what the System V ABI wants kept across calls, swaps stacks, restores.
extern "C" RUNTIME_LOCAL void swap_stacks(void** save, void* load);
asm(R"(
  .text
  .hidden swap_stacks
  .globl swap_stacks
  .type swap_stacks, @function
swap_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size swap_stacks, .-swap_stacks
)");

void prepare(Group&, Fiber& fiber) {
  // Stacks lie a power of two apart: without a shift their tops would share one set of the L1 cache.
  u8* const top = fiber.stack + STACK_BYTES - fiber.thread % LANES * 192;
  void** stack = reinterpret_cast<void**>(top);
  *--stack = nullptr;  // the ABI's alignment at a function's entry
  *--stack = reinterpret_cast<void*>(run_fiber);
  for (int i = 0; i < 6; i++) *--stack = nullptr;
  fiber.context.stack_pointer = stack;
}
static void swap(Fiber& from, Fiber& to) { swap_stacks(&from.context.stack_pointer, to.context.stack_pointer); }
#else
static ucontext_t& machine(Fiber& fiber) {
  if (!fiber.context.machine) fiber.context.machine = new ucontext_t;
  return *static_cast<ucontext_t*>(fiber.context.machine);
}
void prepare(Group&, Fiber& fiber) {
  ucontext_t& context = machine(fiber);
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack;
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = nullptr;
  makecontext(&context, run_fiber, 0);
}
static void swap(Fiber& from, Fiber& to) { swapcontext(&machine(from), &machine(to)); }
#endif

void switch_to(Fiber& to) {
  Fiber& from = *current_fiber;
  current_fiber = &to;
  current_group->accesses = 0;
#if defined(CPU_TSAN)
  __tsan_switch_to_fiber(to.sanitizer, 1 /* does not order the two */);
#endif
#if defined(CPU_ASAN)
  // A fiber that is done gives its fake stack up. The scheduler's stack is the OS thread's.
  const bool to_scheduler = &to == &current_group->scheduler;
  __sanitizer_start_switch_fiber(from.state == State::Done ? nullptr : &from.sanitizer, to.stack,
                                 to_scheduler ? to.thread : STACK_BYTES);
#endif
  swap(from, to);
  sanitizer_finish_switch(from.sanitizer);
}

void announce_fibers(Group& group) {
#if defined(CPU_TSAN)
  group.scheduler.sanitizer = __tsan_get_current_fiber();
  for (u32 i = 0; i < group.threads; i++) {
    // Stacks are used again by other fibers: TSan forgets what lay there. New fibers for every workgroup, as those
    // of the last one would hide races between the two.
    mmap(group.fibers[i].stack, STACK_BYTES, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    prepare(group, group.fibers[i]);
    char name[64];
    snprintf(name, sizeof name, "workgroup (%u,%u,%u) thread %u", group.block[0], group.block[1], group.block[2], i);
    group.fibers[i].sanitizer = __tsan_create_fiber(0);
    __tsan_set_fiber_name(group.fibers[i].sanitizer, name);
  }
#endif
#if defined(CPU_ASAN)
  pthread_attr_t attributes;
  void* stack = nullptr;
  size_t bytes = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack, &bytes);
  pthread_attr_destroy(&attributes);
  group.scheduler.stack = static_cast<u8*>(stack);
  group.scheduler.thread = static_cast<u32>(bytes);
  for (u32 i = 0; i < group.threads; i++) {
    group.fibers[i].sanitizer = nullptr;
    sanitizer_allow(group.fibers[i].stack, STACK_BYTES);
  }
#endif
  (void)group;
}

void forget_fibers(Group& group) {
#if defined(CPU_TSAN)
  for (u32 i = 0; i < group.threads; i++) __tsan_destroy_fiber(group.fibers[i].sanitizer);
#endif
  (void)group;
}

// ---- groups, kept between launches ---------------------------------------------------------------------------
static std::mutex kept_lock;
static Group* kept;

static void* map(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

static bool add_stacks(Group& group, u32 threads) {
  const size_t each = GUARD_BYTES + STACK_BYTES;
  if (group.stack_count >= threads) return true;
  const u32 count = threads - group.stack_count;
  u8* const memory = static_cast<u8*>(map(each * count));
  if (!memory) return false;
  for (u32 i = 0; i < count; i++) {
    if (mprotect(memory + i * each, GUARD_BYTES, PROT_NONE) != 0) return false;
    group.fibers[group.stack_count + i].stack = memory + i * each + GUARD_BYTES;
  }
  group.stack_count = threads;
  return true;
}

Group* take_group(u32 threads) {
  Group* group = nullptr;
  {
    const std::lock_guard<std::mutex> guard(kept_lock);
    if ((group = kept)) kept = group->next_free;
  }
  if (!group) {
    void* const memory = map(sizeof(Group) + SIGNAL_STACK_BYTES);
    if (!memory) return nullptr;
    group = new (memory) Group();
    group->signal_stack = static_cast<u8*>(memory) + sizeof(Group);
    if (!make_lds(group->lds)) return nullptr;
  }
  if (add_stacks(*group, threads)) return group;
  give_group_back(group);
  return nullptr;
}

void give_group_back(Group* group) {
  const std::lock_guard<std::mutex> guard(kept_lock);
  group->next_free = kept;
  kept = group;
}

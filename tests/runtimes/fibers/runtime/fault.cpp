// What is said of a kernel that did wrong.
//
// Owns: the sentence, and turning a signal raised by a kernel (a bad address, an integer division by zero) into one.
// Always true: a fault ends the workgroup, never the process; signals raised by anyone else go to the handler that was
// there before. Not here: names of source files: the reader of "@{offset}" has them.
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <mutex>
#include "runtime.h"

extern "C" RUNTIME_LOCAL const u8 __ehdr_start[], _end[];

Position position(const void* site) {
  Position at;
  if (site < __ehdr_start || site > _end) {  // a library's: it has no line of ours
    snprintf(at.text, sizeof at.text, "an unknown line");
    return at;
  }
  // A return address may belong to the next line already.
  const u64 offset = static_cast<u64>(static_cast<const u8*>(site) - __ehdr_start);
  snprintf(at.text, sizeof at.text, "@{%llx}", offset - 1);
  return at;
}

static void describe(Group& group, const char* format, va_list values) {
  const int used = snprintf(group.error, sizeof group.error, "workgroup (%u,%u,%u) thread %u: ", group.block[0],
                            group.block[1], group.block[2], current_fiber->thread);
  vsnprintf(group.error + used, sizeof group.error - static_cast<size_t>(used), format, values);
  group.failed = true;
}

void fail(const char* format, ...) {
  Group& group = *current_group;
  va_list values;
  va_start(values, format);
  describe(group, format, values);
  va_end(values);
  current_fiber->state = State::Done;
  switch_to(group.scheduler);  // the other fibers are abandoned
  __builtin_unreachable();
}

static void describe_state(const Fiber& fiber, char* text, size_t bytes) {
  const char* const what = fiber.state == State::Barrier         ? "waits in the barrier at"
                           : fiber.state == State::WaveOperation ? "waits in the wave operation at"
                           : fiber.state == State::Done          ? "has returned"
                                                                 : "has yet to run";
  const bool waits = fiber.state == State::Barrier || fiber.state == State::WaveOperation;
  snprintf(text, bytes, "thread %u %s%s%s", fiber.thread, what, waits ? " " : "",
           waits ? position(fiber.site).text : "");
}

void fail_divergent(Group& group) {
  // A wave operation that misses lanes is the cause, whoever noticed that nobody can go on.
  const Fiber* first = current_fiber;
  const Wave& own = group.wave[first->thread / LANES];
  u32 from = 0, to = group.threads;
  if (own.arrived) {
    from = first->thread / LANES * LANES;
    to = from + LANES < group.threads ? from + LANES : group.threads;
    for (u32 i = from; i < to && first->state != State::WaveOperation; i++)
      if (group.fibers[i].state == State::WaveOperation) first = &group.fibers[i];
  } else if (first->state != State::Barrier) {
    for (u32 i = 0; i < group.threads && first->state != State::Barrier; i++)
      if (group.fibers[i].state == State::Barrier) first = &group.fibers[i];
  }
  // Rather one that waits elsewhere or has returned than one that merely has not come here yet.
  const Fiber* other = nullptr;
  for (u32 i = from; i < to; i++) {
    const Fiber& fiber = group.fibers[i];
    if (fiber.state == first->state && fiber.site == first->site) continue;
    if (!other || (other->state == State::Ready && fiber.state != State::Ready)) other = &fiber;
  }
  char one[128], two[128];
  describe_state(*first, one, sizeof one);
  if (other) describe_state(*other, two, sizeof two);
  fail("divergent %s: %s, but %s", first->state == State::WaveOperation ? "wave operation" : "barrier", one,
       other ? two : "nobody can go on");
}

// ---- signals ---------------------------------------------------------------------------------------------------
#if defined(CPU_TSAN) || defined(CPU_ASAN)
// The sanitizers report signals themselves.
SignalScope::SignalScope(Group&) {}
SignalScope::~SignalScope() {}
#else
static const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static struct sigaction before[sizeof SIGNALS / sizeof SIGNALS[0]];

static const void* program_counter(const void* machine) {
  const mcontext_t& registers = static_cast<const ucontext_t*>(machine)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(registers.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(registers.pc);
#else
  (void)registers;
  return nullptr;
#endif
}

static void pass_on(int number, siginfo_t* details, void* machine) {
  for (size_t i = 0; i < sizeof SIGNALS / sizeof SIGNALS[0]; i++) {
    if (SIGNALS[i] != number) continue;
    if (before[i].sa_flags & SA_SIGINFO) before[i].sa_sigaction(number, details, machine);
    else if (before[i].sa_handler == SIG_DFL) signal(number, SIG_DFL);  // raised again on return, and ends the process
    else if (before[i].sa_handler != SIG_IGN) before[i].sa_handler(number);
  }
}

static void describe_signal(Group& group, const char* format, ...) {
  va_list values;
  va_start(values, format);
  describe(group, format, values);
  va_end(values);
}

static void on_signal(int number, siginfo_t* details, void* machine) {
  Group* const group = current_group;
  if (!group || !group->in_kernel) return pass_on(number, details, machine);
  const Position at = position(static_cast<const u8*>(program_counter(machine)) + 1);
  const u8* const address = static_cast<const u8*>(details->si_addr);
  const u8* const stack = current_fiber->stack;
  if (number == SIGFPE) describe_signal(*group, "integer division by zero or overflow at %s", at.text);
  else if (number == SIGILL) describe_signal(*group, "reached a trap at %s", at.text);
  else if (address < stack && address + STACK_BYTES > stack)
    describe_signal(*group, "more than %u bytes of stack at %s", STACK_BYTES, at.text);
  else
    describe_signal(*group, "access at %p, outside device memory, at %s", static_cast<const void*>(address), at.text);
  group->in_kernel = false;
  siglongjmp(group->landing, 1);
}

SignalScope::SignalScope(Group& group) {
  static std::once_flag installed;
  std::call_once(installed, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (size_t i = 0; i < sizeof SIGNALS / sizeof SIGNALS[0]; i++) sigaction(SIGNALS[i], &action, &before[i]);
  });
  static_assert(sizeof(stack_t) <= sizeof old_stack);
  stack_t stack = {}, old = {};
  stack.ss_sp = group.signal_stack;
  stack.ss_size = SIGNAL_STACK_BYTES;
  sigaltstack(&stack, &old);
  memcpy(old_stack, &old, sizeof old);
}

SignalScope::~SignalScope() {
  stack_t old;
  memcpy(&old, old_stack, sizeof old);
  sigaltstack(&old, nullptr);
}
#endif

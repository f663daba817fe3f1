// LDS, and the check of every load and store of a kernel.
//
// Owns: where LDS variables lie; a byte of state for each byte of LDS; the calls that clang's instrumentation makes
// (-fsanitize=kernel-address, which leaves what they do to us) in the build with CPU_CHECKED.
// Always true: a kernel may touch its own stack, LDS variables, device memory that was accessible at launch, and
// read constants of its module and its arguments. LDS starts as NaN in every float format, and in the checked build
// a read of a byte that no work-item of this workgroup wrote is an error even if the value is not used afterwards.
// Not here: alignment, arithmetic, arrays inside a struct (UBSan); races (TSan).
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "runtime.h"
#include "sanitizers.h"

enum : u32 { LDS_GUARD = 64 << 10, LDS_GAP = 64 };

bool make_lds(Lds& lds) {
  const size_t bytes = 2 * LDS_GUARD + 2 * LDS_SPAN;
  void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  lds.base = static_cast<u8*>(memory) + LDS_GUARD;
  lds.bytes = lds.base + LDS_SPAN + LDS_GUARD;
  return mprotect(lds.base, LDS_SPAN, PROT_READ | PROT_WRITE) == 0 &&
         mprotect(lds.bytes, LDS_SPAN, PROT_READ | PROT_WRITE) == 0;
}

// Not memset: a sanitizer would take that for a write of the kernel's.
static void fill(u8* at, u8 value, size_t bytes) {
#if defined(__x86_64__)
  asm volatile("rep stosb" : "+D"(at), "+c"(bytes) : "a"(value) : "memory");
#else
  for (volatile u8* p = at; bytes > 0; bytes--) *p++ = value;
#endif
}

static void begin_variable(Lds& lds, u32 offset, u32 bytes) {
  fill(lds.base + offset, 0xff, bytes);
  fill(lds.bytes + offset, LDS_UNWRITTEN, bytes);
  sanitizer_allow(lds.base + offset, bytes);
}

void reset_lds(Group& group) {
  Lds& lds = group.lds;
#if defined(CPU_TSAN)
  // A new mapping: TSan forgets the last workgroup's accesses.
  mmap(lds.base, LDS_SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
#endif
  if (lds.variable_count == 0 && lds.end == 0) {  // the first workgroup of a launch
    fill(lds.bytes, LDS_OUTSIDE, LDS_SPAN);
    sanitizer_forbid(lds.base, LDS_SPAN);
    lds.end = LDS_GAP;
    lds.dynamic_bytes = group.launch->dynamic_lds;
    // Its end lies against the guard page.
    lds.dynamic_offset = lds.dynamic_bytes <= LDS_LIMIT ? LDS_SPAN - ((lds.dynamic_bytes + 15) & ~15u) : LDS_SPAN;
    lds.total = lds.dynamic_bytes;
  }
  for (u32 i = 0; i < lds.variable_count; i++) begin_variable(lds, lds.variables[i].offset, lds.variables[i].bytes);
  if (lds.dynamic_bytes && lds.dynamic_bytes <= LDS_LIMIT) begin_variable(lds, lds.dynamic_offset, lds.dynamic_bytes);
}

extern "C" RUNTIME_LOCAL void* cpu_lds(const void* variable, u64 bytes, u64 alignment) {
  Lds& lds = current_group->lds;
  for (u32 i = 0; i < lds.variable_count; i++)
    if (lds.variables[i].name == variable) return lds.base + lds.variables[i].offset;
  if (lds.variable_count == MAX_LDS_VARIABLES || bytes > LDS_LIMIT || lds.total + bytes > LDS_LIMIT)
    fail("LDS: %u bytes so far and %llu more, of %u, at %s", lds.total, bytes, LDS_LIMIT,
         position(__builtin_return_address(0)).text);
  const u32 align = alignment < 16 ? 16 : static_cast<u32>(alignment);
  const u32 offset = (lds.end + align - 1) & ~(align - 1);
  lds.variables[lds.variable_count++] = {variable, offset, static_cast<u32>(bytes)};
  lds.end = offset + static_cast<u32>(bytes) + LDS_GAP;
  lds.total += static_cast<u32>(bytes);
  begin_variable(lds, offset, static_cast<u32>(bytes));
  return lds.base + offset;
}

extern "C" RUNTIME_LOCAL void* cpu_lds_dynamic() {
  const Lds& lds = current_group->lds;
  if (lds.total > LDS_LIMIT) fail("LDS: %u bytes asked for at launch, of %u", lds.dynamic_bytes, LDS_LIMIT);
  return lds.base + lds.dynamic_offset;
}

#if defined(CPU_CHECKED)
extern "C" RUNTIME_LOCAL const u8 __ehdr_start[], _end[];

[[noreturn]] static void fail_lds(const Lds& lds, u64 offset, u64 bytes, const char* what, const void* site) {
  const LdsByte state = static_cast<LdsByte>(lds.bytes[offset]);
  if (state == LDS_OUTSIDE)
    fail("LDS overrun: %s of %llu bytes outside any LDS variable at %s", what, bytes, position(site).text);
  fail("uninitialised LDS: %s of %llu bytes that nobody wrote at %s", what, bytes, position(site).text);
}

// Whether device memory holds [address, address + bytes); remembers the range.
static bool in_device_memory(Group& group, u64 address, u64 bytes) {
  const CpuLaunch& launch = *group.launch;
  u64 low = 0, high = launch.range_count;
  while (low < high) {
    const u64 middle = (low + high) / 2;
    if (launch.ranges[middle].end > address) high = middle;
    else low = middle + 1;
  }
  if (low == launch.range_count || launch.ranges[low].start > address || launch.ranges[low].end - address < bytes)
    return false;
  group.recent[group.recent_next++ % 4] = launch.ranges[low];
  return true;
}

static void check_rarer(Group& group, u64 address, u64 bytes, const char* what, bool reads, const void* site) {
  if (in_device_memory(group, address, bytes)) return;
  const u64 arguments = reinterpret_cast<u64>(group.launch->arguments);
  if (reads && address - arguments < group.launch->argument_bytes) return;
  if (reads && address >= reinterpret_cast<u64>(__ehdr_start) && address < reinterpret_cast<u64>(_end)) return;
  const u64 lds = reinterpret_cast<u64>(group.lds.base);
  if (address + LDS_GUARD >= lds && address < lds + LDS_SPAN + LDS_GUARD)
    fail("LDS overrun: %s of %llu bytes outside any LDS variable at %s", what, bytes, position(site).text);
  fail("%s of %llu bytes at 0x%llx, outside device memory, at %s", what, bytes, address, position(site).text);
}

// A work-item that waits in a loop for another one never gives it a turn: 2^28 accesses take about a second.
static constexpr u64 ENDLESS = 1ull << 28;

// Whether it is the running fiber's stack or a range used before: nothing more to ask.
static inline bool common(Group& group, u64 address, u64 bytes, const void* site) {
  if (++group.accesses > ENDLESS)
    fail("%llu loads and stores without a barrier or an end: does it wait for another work-item? At %s", ENDLESS,
         position(site).text);
  if (address - reinterpret_cast<u64>(current_fiber->stack) < STACK_BYTES) return true;
  for (const Range& range : group.recent)
    if (address >= range.start && address + bytes <= range.end) return true;
  return false;
}

void check_read(u64 address, u64 bytes, const void* site) {
  Group& group = *current_group;
  const Lds& lds = group.lds;
  const u64 offset = address - reinterpret_cast<u64>(lds.base);
  if (offset < LDS_SPAN) {
    for (u64 i = 0; i < bytes; i++)
      if (offset + i >= LDS_SPAN || lds.bytes[offset + i] != LDS_WRITTEN)
        fail_lds(lds, offset + i < LDS_SPAN ? offset + i : 0, bytes, "load", site);
  } else if (!common(group, address, bytes, site)) {
    check_rarer(group, address, bytes, "load", true, site);
  }
}

void check_write(u64 address, u64 bytes, const void* site) {
  Group& group = *current_group;
  const Lds& lds = group.lds;
  const u64 offset = address - reinterpret_cast<u64>(lds.base);
  if (offset < LDS_SPAN) {
    for (u64 i = 0; i < bytes; i++) {
      if (offset + i >= LDS_SPAN || lds.bytes[offset + i] == LDS_OUTSIDE)
        fail_lds(lds, offset + i < LDS_SPAN ? offset + i : 0, bytes, "store", site);
      lds.bytes[offset + i] = LDS_WRITTEN;
    }
  } else if (!common(group, address, bytes, site)) {
    check_rarer(group, address, bytes, "store", false, site);
  }
}

// ---- what the instrumentation calls -------------------------------------------------------------------------
#define ACCESS(bytes)                                                                       \
  extern "C" RUNTIME_LOCAL void __asan_load##bytes##_noabort(u64 address) {                 \
    check_read(address, bytes, __builtin_return_address(0));                                \
  }                                                                                         \
  extern "C" RUNTIME_LOCAL void __asan_store##bytes##_noabort(u64 address) {                \
    check_write(address, bytes, __builtin_return_address(0));                               \
  }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
extern "C" RUNTIME_LOCAL void __asan_loadN_noabort(u64 address, u64 bytes) {
  check_read(address, bytes, __builtin_return_address(0));
}
extern "C" RUNTIME_LOCAL void __asan_storeN_noabort(u64 address, u64 bytes) {
  check_write(address, bytes, __builtin_return_address(0));
}
static u64 number(const void* address) { return reinterpret_cast<u64>(address); }
extern "C" RUNTIME_LOCAL void* __asan_memcpy(void* to, const void* from, size_t bytes) {
  check_read(number(from), bytes, __builtin_return_address(0));
  check_write(number(to), bytes, __builtin_return_address(0));
  return memcpy(to, from, bytes);
}
extern "C" RUNTIME_LOCAL void* __asan_memmove(void* to, const void* from, size_t bytes) {
  check_read(number(from), bytes, __builtin_return_address(0));
  check_write(number(to), bytes, __builtin_return_address(0));
  return memmove(to, from, bytes);
}
extern "C" RUNTIME_LOCAL void* __asan_memset(void* to, int value, size_t bytes) {
  check_write(number(to), bytes, __builtin_return_address(0));
  return memset(to, value, bytes);
}
// Before a call that does not return: there is no shadow of a stack to clean.
extern "C" RUNTIME_LOCAL void __asan_handle_no_return() {}
#else
void check_read(u64, u64, const void*) {}
void check_write(u64, u64, const void*) {}
#endif

extern "C" RUNTIME_LOCAL void cpu_atomic(const void* address, u64 bytes) {
  check_read(reinterpret_cast<u64>(address), bytes, __builtin_return_address(0));
}

// What the sanitizers are told of fibers: nothing in a build without them.
//
// Always true: TSan takes each work-item for a thread of its own. Switching fibers does not order them; barriers and
// device fences do. ASan is told which stack is in use.
#pragma once
#include <stddef.h>

#if defined(CPU_TSAN)
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void  __tsan_destroy_fiber(void* fiber);
void  __tsan_switch_to_fiber(void* fiber, unsigned flags);
void  __tsan_set_fiber_name(void* fiber, const char* name);
void* __tsan_get_current_fiber(void);
void  __tsan_acquire(void* address);
void  __tsan_release(void* address);
}
static inline void sanitizer_release(void* address) { __tsan_release(address); }
static inline void sanitizer_acquire(void* address) { __tsan_acquire(address); }
#else
static inline void sanitizer_release(void*) {}
static inline void sanitizer_acquire(void*) {}
#endif

#if defined(CPU_ASAN)
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, size_t bytes);
void __sanitizer_finish_switch_fiber(void* fake_stack_save, const void** old_bottom, size_t* old_bytes);
void __asan_poison_memory_region(const volatile void* address, size_t bytes);
void __asan_unpoison_memory_region(const volatile void* address, size_t bytes);
}
static inline void sanitizer_finish_switch(void* fake_stack) {
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}
static inline void sanitizer_forbid(const void* address, size_t bytes) { __asan_poison_memory_region(address, bytes); }
static inline void sanitizer_allow(const void* address, size_t bytes) { __asan_unpoison_memory_region(address, bytes); }
#else
static inline void sanitizer_finish_switch(void*) {}
static inline void sanitizer_forbid(const void*, size_t) {}
static inline void sanitizer_allow(const void*, size_t) {}
#endif

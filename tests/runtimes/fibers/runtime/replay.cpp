// Runs a recorded launch again under a sanitizer: main() of the replay programs.
//
// Owns: reading a record (src/record.rs writes it), mapping its allocations where they were, and the exit code: 0 ran
// clean, 1 the kernel did wrong, 2 the record cannot be used, 3 an address is taken (run again: addresses are random).
// A sanitizer that reports ends the program with a code of its own. Always true: one OS thread, so a report is the same
// on every run; races are found all the same, as TSan takes fibers for threads.
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <string>
#include <vector>
#include "runtime.h"
#include "sanitizers.h"

static FILE* record;

static void read_bytes(void* to, size_t bytes) {
  if (bytes > 0 && fread(to, 1, bytes, record) != bytes) {
    fprintf(stderr, "the record ends too early\n");
    exit(2);
  }
}
static u64 read_u64() {
  u64 value;
  read_bytes(&value, sizeof value);
  return value;
}
static std::string read_text() {
  const u64 bytes = read_u64();
  if (bytes > 1 << 16) { fprintf(stderr, "the record is damaged\n"); exit(2); }
  std::string text(bytes, '\0');
  read_bytes(text.data(), bytes);
  return text;
}

// Whether someone only keeps these addresses from others. ASan's allocator does so with 4 TiB, where Linux also places
// the allocations of the process that was recorded, and uses a few megabytes of them.
static bool only_reserved(u64 start, u64 end) {
  FILE* const maps = fopen("/proc/self/maps", "r");
  bool found = false;
  char line[512];
  while (maps && !found && fgets(line, sizeof line, maps)) {
    unsigned long long from, to;
    char access[5];
    const bool read = sscanf(line, "%llx-%llx %4s", &from, &to, access) == 3;
    found = read && from <= start && end <= to && !strcmp(access, "---p");
  }
  if (maps) fclose(maps);
  return found;
}

// Maps whole pages; `mapped_end` is where the range before ended, as two may share a page.
static void map_range(const Range& range, u64& mapped_end) {
  u64 start = range.start & ~4095ull;
  const u64 end = (range.end + 4095) & ~4095ull;
  if (start < mapped_end) start = mapped_end;
  if (start < end) {
    void* const at = reinterpret_cast<void*>(start);
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | (only_reserved(start, end) ? MAP_FIXED : MAP_FIXED_NOREPLACE);
    void* const got = mmap(at, end - start, PROT_READ | PROT_WRITE, how, -1, 0);
    if (got != at) {
      fprintf(stderr, "the address 0x%llx of an allocation is taken here (%s)\n", start, strerror(errno));
      exit(3);
    }
    sanitizer_forbid(at, end - start);
    mapped_end = end;
  }
  sanitizer_allow(reinterpret_cast<void*>(range.start), range.end - range.start);
}

int main(int count, char** words) {
  if (count != 2 || !(record = fopen(words[1], "rb"))) {
    fprintf(stderr, "usage: %s RECORD\n", words[0]);
    return 2;
  }
  char magic[8];
  read_bytes(magic, sizeof magic);
  if (memcmp(magic, "FIBERS01", 8) != 0) { fprintf(stderr, "%s is not a record of a launch\n", words[1]); return 2; }
  const std::string kernel = read_text(), arguments = read_text();
  CpuLaunch launch = {};
  for (u32& extent : launch.grid) extent = static_cast<u32>(read_u64());
  launch.threads = static_cast<u32>(read_u64());
  launch.dynamic_lds = static_cast<u32>(read_u64());
  launch.schedule = read_u64();
  std::vector<Range> ranges(read_u64());
  u64 mapped_end = 0;
  for (Range& range : ranges) {
    range.start = read_u64();
    range.end = read_u64();
    map_range(range, mapped_end);
    read_bytes(reinterpret_cast<void*>(range.start), range.end - range.start);
  }
  launch.entry = reinterpret_cast<void (*)(const void*)>(dlsym(RTLD_DEFAULT, (kernel + "__host").c_str()));
  if (!launch.entry) { fprintf(stderr, "no kernel %s in this program: build it again\n", kernel.c_str()); return 2; }
  std::vector<u64> argument_words((arguments.size() + 7) / 8 + 1);
  memcpy(argument_words.data(), arguments.data(), arguments.size());
  launch.arguments = argument_words.data();
  launch.argument_bytes = arguments.size();
  launch.ranges = ranges.data();
  launch.range_count = ranges.size();
  char error[1024];
  if (cpu_work(&launch, error, sizeof error) == 0) return 0;
  fprintf(stderr, "%s\n", error);
  return 1;
}

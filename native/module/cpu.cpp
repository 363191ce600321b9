#include "cpu.hpp"

#include <cstdint>
#include <cstring>

#if defined(_MSC_VER) && defined(_M_X64)
#include <intrin.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lancelet {
namespace {

#if defined(__x86_64__) || defined(_M_X64)

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
#if defined(_MSC_VER)
  int out[4];
  __cpuidex(out, static_cast<int>(leaf), static_cast<int>(subleaf));
  r.eax = out[0], r.ebx = out[1], r.ecx = out[2], r.edx = out[3];
#else
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return Registers{};
#endif
  return r;
}

// Register states saved by the operating system; features need them.
uint64_t saved_states(const Registers& one) {
  if (!(one.ecx & 1u << 27)) return 0;  // OSXSAVE
#if defined(_MSC_VER)
  return _xgetbv(0);
#else
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
#endif
}

bool all(uint32_t found, uint32_t required) { return (found & required) == required; }

int x86_level() {
  const Registers one = cpuid(1, 0);
  const Registers seven = cpuid(7, 0);
  const Registers extended = cpuid(0x80000001u, 0);
  const uint64_t states = saved_states(one);
  // SSE3, PCLMULQDQ, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT; LAHF.
  const uint32_t v2 = 1u << 0 | 1u << 1 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23;
  if (!all(one.ecx, v2) || !all(extended.ecx, 1u << 0)) return 1;
  // FMA, MOVBE, AVX, F16C; BMI1, AVX2, BMI2; LZCNT; the system saves XMM and YMM.
  const uint32_t v3 = 1u << 12 | 1u << 22 | 1u << 28 | 1u << 29;
  if (!all(one.ecx, v3) || !all(seven.ebx, 1u << 3 | 1u << 5 | 1u << 8) ||
      !all(extended.ecx, 1u << 5) || (states & 0x6) != 0x6)
    return 2;
  // AVX-512 F, DQ, CD, BW, VL; the system saves the masks and ZMM.
  const uint32_t v4 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
  if (!all(seven.ebx, v4) || (states & 0xe0) != 0xe0) return 3;
  return 4;
}

bool can_run_x86(const char* set) {
  const int level = x86_level();
  if (!std::strcmp(set, "x86_64_v2")) return level >= 2;
  if (!std::strcmp(set, "x86_64_v3")) return level >= 3;
  if (!std::strcmp(set, "x86_64_v4")) return level >= 4;
  return false;
}

#else

bool can_run_x86(const char*) { return false; }

#endif

}  // namespace

bool cpu_can_run(const char* set) { return !std::strcmp(set, "generic") || can_run_x86(set); }

}  // namespace lancelet

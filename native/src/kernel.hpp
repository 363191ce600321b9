// Shared definitions of kernels: spans, faults, unaligned loads.
//
// A topic file is compiled once per instruction set, each time in its own namespace. The linker
// keeps one copy of an inline function defined by several objects, possibly the one that uses
// AVX-512. A topic file therefore defines code in its own namespace only, and uses neither standard
// containers nor standard algorithms. Types without code (Span) are shared.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_MSC_VER)
#include <intrin.h>
#endif

#include "parameters.hpp"
#include "span.hpp"

namespace lancelet {

// Faults of kernels; lancelet/kernels/faults.py has the same numbers and the messages.
enum Fault : int64_t {
  kOutOfSource = 1,   // a slice exceeds its source
  kTooShort = 2,      // a slice is shorter than its content
  kBadWidth = 3,      // a bit width exceeds its word
  kBadCount = 4,      // a count exceeds the capacity of the encoding
  kBadOffsets = 5,    // offsets decrease or exceed their buffer
  kTooLarge = 6,      // the result does not fit the offset type
  kBadCode = 7,       // an undefined code, or a truncated escape
  kBadStream = 8,     // a compressed stream is malformed
  kBadIndex = 9,      // an index is out of range
  kBadLength = 10,    // lengths do not add up to the count
  kNoMemory = 11,     // memory allocation failed
  kOutputFull = 12,   // the output buffer is too small
  kBadLevels = 13,    // levels continue a null, empty or missing list
};

}  // namespace lancelet

#ifndef LANCELET_INSTRUCTION_SET
#define LANCELET_INSTRUCTION_SET baseline
#endif
#define LANCELET_NAMESPACE lancelet::LANCELET_INSTRUCTION_SET

#if defined(_MSC_VER)
#define LANCELET_INLINE __forceinline
#define LANCELET_LIKELY(x) (x)
#define LANCELET_UNLIKELY(x) (x)
#define LANCELET_RESTRICT __restrict
#else
#define LANCELET_INLINE inline __attribute__((always_inline))
#define LANCELET_LIKELY(x) __builtin_expect(!!(x), 1)
#define LANCELET_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LANCELET_RESTRICT __restrict__
#endif

namespace LANCELET_NAMESPACE {

// Returns the result of a failed kernel: the fault and the index of its slice or value.
static LANCELET_INLINE int64_t fail(Fault fault, int64_t index) { return -(index * 16 + fault); }

template <class T>
static LANCELET_INLINE T load(const void* from) {
  T value;
  memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
static LANCELET_INLINE void store(void* to, T value) {
  memcpy(to, &value, sizeof value);
}

// Returns whether [position, position + size) is within `limit` bytes, for any arguments.
static LANCELET_INLINE bool within(int64_t position, int64_t size, int64_t limit) {
  return position >= 0 && size >= 0 && size <= limit && position <= limit - size;
}

// Starts to load a cache line. The address may be invalid.
static LANCELET_INLINE void prefetch(const void* at) {
#if defined(_MSC_VER)
  (void)at;
#else
  __builtin_prefetch(at);
#endif
}

template <class T>
static LANCELET_INLINE T smaller(T a, T b) {
  return a < b ? a : b;
}

template <class T>
static LANCELET_INLINE T larger(T a, T b) {
  return a < b ? b : a;
}

// Returns the number of trailing zero bits; `bits` must not be 0.
static LANCELET_INLINE int trailing_zeros(uint64_t bits) {
#if defined(_MSC_VER)
  unsigned long index;
  _BitScanForward64(&index, bits);
  return static_cast<int>(index);
#else
  return __builtin_ctzll(bits);
#endif
}

}  // namespace LANCELET_NAMESPACE

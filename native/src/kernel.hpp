// What every kernel shares: spans, faults, unaligned loads.
//
// A topic file is compiled once per instruction set, each time in its own namespace. The linker
// keeps one copy of an inline function that several objects define, and it might keep the one
// with AVX-512 in it. So a topic file defines code only in its own namespace, and uses neither
// the standard containers nor the standard algorithms. Types without code (Span) are shared.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_MSC_VER)
#include <intrin.h>
#endif

namespace lancelet {

template <class T>
struct Span {
  T* data;
  int64_t size;  // elements
};

using Bytes = Span<uint8_t>;
using ConstBytes = Span<const uint8_t>;
using Ints = Span<int64_t>;
using ConstInts = Span<const int64_t>;

// Why a kernel gave up; lancelet/kernels/faults.py has the same numbers and the words.
enum Fault : int64_t {
  kOutOfSource = 1,   // a slice lies outside of its source
  kTooShort = 2,      // a slice is shorter than what it claims to hold
  kBadWidth = 3,      // a bit width exceeds its word
  kBadCount = 4,      // more values are claimed than the encoding can hold
  kBadOffsets = 5,    // offsets go backwards or leave their buffer
  kTooLarge = 6,      // the result does not fit the offsets that were asked for
  kBadCode = 7,       // a code that the symbol table does not define, or half an escape
  kBadStream = 8,     // a compressed stream is malformed
  kBadIndex = 9,      // an index is outside of what it points into
  kBadLength = 10,    // lengths do not add up to the count
  kNoMemory = 11,     // scratch memory was refused
  kOutputFull = 12,   // the output that the caller gave is too small
  kBadLevels = 13,    // levels continue a list that is null or empty, or none at all
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

// What a kernel returns when it fails: the fault, and which slice or value it met it at.
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

// Whether [position, position + size) lies in a buffer of `limit` bytes, whatever the numbers.
static LANCELET_INLINE bool within(int64_t position, int64_t size, int64_t limit) {
  return position >= 0 && size >= 0 && size <= limit && position <= limit - size;
}

template <class T>
static LANCELET_INLINE T smaller(T a, T b) {
  return a < b ? a : b;
}

template <class T>
static LANCELET_INLINE T larger(T a, T b) {
  return a < b ? b : a;
}

// How many of the lowest bits are zero; `bits` is not.
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

// Text access: UTF-8 decoding, character sets and text offsets.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr uint32_t kNoCharacter = 0x110000;  // an invalid byte, in no character set

struct Character {
  uint32_t code;
  int64_t bytes;
};

LANCELET_INLINE Character read_character(const uint8_t* at, int64_t left) {
  const uint32_t first = at[0];
  if (LANCELET_LIKELY(first < 0x80)) return {first, 1};
  const int64_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc0 || bytes > left) return {kNoCharacter, 1};
  uint32_t code = first & (0x7f >> bytes);
  for (int64_t k = 1; k < bytes; ++k) {
    if ((at[k] & 0xc0) != 0x80) return {kNoCharacter, 1};
    code = code << 6 | (at[k] & 0x3f);
  }
  return {code, bytes};
}

struct Members {
  const uint8_t* bits;
  uint32_t count;
  bool has(uint32_t code) const { return code < count && (bits[code >> 3] >> (code & 7) & 1); }
};

inline int64_t check_texts(ConstInts offsets, ConstBytes data) {
  if (offsets.size == 0) return fail(kBadOffsets, 0);
  if (offsets.data[0] < 0) return fail(kBadOffsets, 0);
  for (int64_t i = 0; i + 1 < offsets.size; ++i)
    if (offsets.data[i + 1] < offsets.data[i]) return fail(kBadOffsets, i);
  return offsets.data[offsets.size - 1] <= data.size ? 0 : fail(kBadOffsets, 0);
}

inline Members members_of(ConstBytes bits) {
  return {bits.data, static_cast<uint32_t>(smaller<int64_t>(bits.size * 8, kNoCharacter))};
}

}  // namespace
}  // namespace LANCELET_NAMESPACE

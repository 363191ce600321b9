// Validation of UTF-8.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {

// Returns whether bytes are valid UTF-8, without overlong forms and surrogates.
static inline bool is_utf8(const uint8_t* at, int64_t size) {
  const uint8_t* const end = at + size;
  while (at < end) {
    if (end - at >= 8 && !(load<uint64_t>(at) & 0x8080808080808080u)) {
      at += 8;
      continue;
    }
    const uint8_t first = *at++;
    if (first < 0x80) continue;
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || end - at < more) return false;
    const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (at[0] < low || at[0] > high) return false;
    for (int k = 1; k < more; ++k)
      if ((at[k] & 0xC0) != 0x80) return false;
    at += more;
  }
  return true;
}

// Returns whether adjacent strings are valid UTF-8; offset i is `offsets[i] - first` in the bytes.
template <class Offset>
static inline bool are_utf8(const uint8_t* bytes, int64_t size, const uint8_t* offsets,
                            int64_t count) {
  uint64_t high = 0;
  int64_t at = 0;
  for (; at + 8 <= size; at += 8) high |= load<uint64_t>(bytes + at);
  for (; at < size; ++at) high |= bytes[at];
  if (!(high & 0x8080808080808080u)) return true;
  if (!is_utf8(bytes, size)) return false;
  // No string begins within a character.
  const Offset first = load<Offset>(offsets);
  bool is_inside = false;
  for (int64_t i = 0; i < count; ++i) {
    const auto start = static_cast<int64_t>(load<Offset>(offsets + i * sizeof(Offset)) - first);
    is_inside |= start < size && (bytes[start] & 0xC0) == 0x80;
  }
  return !is_inside;
}

}  // namespace LANCELET_NAMESPACE

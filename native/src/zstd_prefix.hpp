// Words with mostly unchanged high bytes, encoded as sequences without a match search.
//
//     words       c1 24 01 00 00 ..   0f 7a 03 00 00 ..   decimals of 16 bytes, below 2^24
//     literals    c1 24 01 00 00 ..   0f 7a 03
//     copy                                    13 bytes from 16 back
//
// The first word, and any word whose high bytes changed, are literals, combined with the low bytes
// of the next unchanged word. All matches have the same length, and between changes all sequences
// are equal: they take no bits, and decoding is a loop without branches. The distance is written
// once, in a separate block, and repeated afterwards.
#pragma once
#include "zstd_codes.hpp"
#include "zstd_sequences.hpp"

namespace LANCELET_NAMESPACE {
namespace zstd {

constexpr int64_t kPartMax = 1 << 16;
constexpr int kWordMax = 32;
constexpr int64_t kSequencesMin = 16;    // fewer do not amortize the headers
constexpr int64_t kSequencesMax = 0x7EFF;
constexpr int kCopyMin = 3;

struct PrefixScratch {
  uint8_t literals[kPartMax + 2 * kWordMax];
  uint32_t taken[kPartMax / 4 + 1];
  StateWriter of_literals;
};

inline uint8_t* write_little(uint8_t* to, uint64_t value, int bytes) {
  for (int k = 0; k < bytes; ++k) *to++ = static_cast<uint8_t>(value >> 8 * k);
  return to;
}

inline uint8_t* write_block_head(uint8_t* to, int kind, int64_t size, bool is_last) {
  return write_little(to, static_cast<uint64_t>(size << 3 | kind << 1 | is_last), 3);
}

// Returns the number of low bytes that contain all changes from the previous word.
template <int kBytes>
LANCELET_INLINE int changed_bytes(const uint8_t* word) {
  if (kBytes == 4) {
    const uint32_t changed = load<uint32_t>(word) ^ load<uint32_t>(word - 4);
    return changed == 0 ? 0 : highest_bit(changed) / 8 + 1;
  }
  for (int k = kBytes - 8; k >= 0; k -= 8) {
    const uint64_t changed = load<uint64_t>(word + k) ^ load<uint64_t>(word + k - kBytes);
    if (changed != 0) return k + highest_bit(changed) / 8 + 1;
  }
  return 0;
}

// Chooses the number of low bytes that minimizes the literals, or 0 if nothing is saved.
template <int kBytes>
int choose_low(const uint8_t* data, int64_t num_words) {
  int64_t found[kBytes + 1] = {};
  for (int64_t i = 1; i < num_words; ++i) ++found[changed_bytes<kBytes>(data + i * kBytes)];
  int64_t changed = num_words - 1, least = num_words * kBytes;
  int best = 0;
  changed -= found[0];
  for (int low = 1; low <= kBytes - kCopyMin; ++low) {
    changed -= found[low];
    const int64_t bytes = low * num_words + changed * (kBytes - low + 1);
    if (bytes < least) least = bytes, best = low;
  }
  return best;
}

// Returns the code of a literal length.
LANCELET_INLINE int literals_code(uint32_t count) {
  return static_cast<int>(count < 16 ? count : count < 24 ? 16 + (count - 16) / 2
                          : count < 32 ? 20 + (count - 24) / 4 : count < 48 ? 22 + (count - 32) / 8
                          : count < 64 ? 24 : 19 + static_cast<uint32_t>(highest_bit(count)));
}

// Writes a block of sequences with matches of `length` bytes.
inline uint8_t* write_sequences(uint8_t* to, const uint8_t* literals, int64_t num_literals,
                                const uint32_t* taken, int64_t count, uint32_t distance,
                                int length, bool is_last, StateWriter* of_literals) {
  uint8_t* at = to + 3;
  const int form = num_literals < 32 ? 0 : num_literals < 4096 ? 1 : 3;
  at = write_little(at, static_cast<uint64_t>(form << 2 | num_literals << (form ? 4 : 3)),
                    form == 3 ? 3 : form + 1);
  memcpy(at, literals, static_cast<size_t>(num_literals));
  at += num_literals;
  if (count >= 128) *at++ = static_cast<uint8_t>(128 + (count >> 8));
  *at++ = static_cast<uint8_t>(count);
  int32_t found[kLiteralCodes] = {};
  for (int64_t k = 0; k < count; ++k) ++found[literals_code(taken[k])];
  const bool has_states = found[literals_code(taken[0])] < count;
  *at++ = static_cast<uint8_t>((has_states ? 2 : 1) << 6 | 1 << 4 | 1 << 2);
  if (has_states) {
    Counts counts;
    scale_counts(found, kLiteralCodes, 6, &counts);
    at = write_counts(counts, at);
    of_literals->build(counts);
  } else {
    *at++ = static_cast<uint8_t>(literals_code(taken[0]));
  }
  const int distance_code = highest_bit(distance);
  *at++ = static_cast<uint8_t>(distance_code);
  *at++ = static_cast<uint8_t>(length - kCopyMin);
  BitWriter out = {at, 0, 0};
  uint32_t state = 0;
  for (int64_t k = count - 1; k >= 0; --k) {
    const int code = literals_code(taken[k]);
    if (has_states)
      state = k == count - 1 ? of_literals->first(code) : of_literals->step(state, code, &out);
    out.put(taken[k] - kLiteralBase[code], kLiteralBits[code]);
    out.put(distance - (1u << distance_code), distance_code);
    out.flush();
  }
  if (has_states) of_literals->last(state, &out);
  at = out.close();
  write_block_head(to, 2, at - to - 3, is_last);
  return at;
}

// Writes up to kPartMax bytes of words as blocks. Returns null if nothing is saved.
template <int kBytes>
uint8_t* write_prefix_of(uint8_t* to, const uint8_t* data, int64_t size, bool is_last,
                        PrefixScratch* scratch) {
  const int64_t num_words = size / kBytes;
  const int low = choose_low<kBytes>(data, num_words);
  if (low == 0) return nullptr;
  uint8_t* literals = scratch->literals;
  int64_t count = 0;
  uint32_t pending = 0;
  for (int64_t i = 0; i < num_words; ++i) {
    const uint8_t* const word = data + i * kBytes;
    const bool is_like = i > 0 && changed_bytes<kBytes>(word) <= low;
    memcpy(literals, word, kBytes);
    const int taken = is_like ? low : kBytes;
    literals += taken;
    scratch->taken[count] = pending += static_cast<uint32_t>(taken);
    count += is_like;
    if (is_like) pending = 0;
  }
  if (count < kSequencesMin || count > kSequencesMax) return nullptr;
  const int64_t num_literals = literals - scratch->literals, first = scratch->taken[0];
  uint8_t* at = write_sequences(to, scratch->literals, first, scratch->taken, 1, kBytes + 3,
                                kBytes - low, false, &scratch->of_literals);
  at = write_sequences(at, scratch->literals + first, num_literals - first, scratch->taken + 1,
                       count - 1, 1, kBytes - low, is_last, &scratch->of_literals);
  return at - to < size ? at : nullptr;
}

inline uint8_t* write_prefix(uint8_t* to, const uint8_t* data, int64_t size, int word_bytes,
                            bool is_last, PrefixScratch* scratch) {
  switch (word_bytes) {
    case 4: return write_prefix_of<4>(to, data, size, is_last, scratch);
    case 8: return write_prefix_of<8>(to, data, size, is_last, scratch);
    case 16: return write_prefix_of<16>(to, data, size, is_last, scratch);
    default: return write_prefix_of<32>(to, data, size, is_last, scratch);
  }
}

}  // namespace zstd
}  // namespace LANCELET_NAMESPACE

// Posting lists: blocks of documents and frequencies, bit-packed in lanes, and tails.
//
// A packed run of 32 * L values has L lanes: value i is number i / L of lane i % L. A lane fills
// 32-bit words from the lowest bit up, and word r of all lanes are adjacent.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kStreamRun = 128;

template <int lanes>
void unpack(const uint8_t* data, int width, uint32_t* out) {
  if (width == 0) {
    memset(out, 0, lanes * 32 * 4);
    return;
  }
  const uint32_t mask = width == 32 ? 0xffffffffu : (1u << width) - 1;
  uint32_t words[lanes];
  memcpy(words, data, sizeof words);
  int row = 0, bits = 0;
  for (int k = 0; k < 32; ++k) {
    uint32_t* to = out + k * lanes;
    for (int lane = 0; lane < lanes; ++lane) to[lane] = words[lane] >> bits;
    bits += width;
    if (bits >= 32) {
      bits -= 32;
      if (++row < width) {
        memcpy(words, data + static_cast<int64_t>(row) * lanes * 4, sizeof words);
        if (bits > 0)
          for (int lane = 0; lane < lanes; ++lane) to[lane] |= words[lane] << (width - bits);
      }
    }
    for (int lane = 0; lane < lanes; ++lane) to[lane] &= mask;
  }
}

// Returns the end of the number, or null if it is truncated or too large.
LANCELET_INLINE const uint8_t* get_varint(const uint8_t* at, const uint8_t* end, uint32_t* value) {
  if (at < end && *at < 0x80) {
    *value = *at;
    return at + 1;
  }
  uint64_t found = 0;
  for (int shift = 0; shift < 35 && at < end; shift += 7) {
    const uint8_t byte = *at++;
    found |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *value = static_cast<uint32_t>(found);
      return found >> 32 ? nullptr : at;
    }
  }
  return nullptr;
}

template <int lanes>
const uint8_t* get_packed(const uint8_t* at, const uint8_t* end, uint32_t* values) {
  if (at >= end) return nullptr;
  const int width = *at++;
  if (width > 32 || end - at < static_cast<int64_t>(width) * lanes * 4) return nullptr;
  unpack<lanes>(at, width, values);
  return at + static_cast<int64_t>(width) * lanes * 4;
}

const uint8_t* get_patched(const uint8_t* at, const uint8_t* end, uint32_t* values) {
  if (end - at < 2) return nullptr;
  const int width = at[0], exceptions = at[1];
  at += 2;
  if (width > 32 || end - at < 32 * width) return nullptr;
  unpack<8>(at, width, values);
  at += 32 * width;
  for (int k = 0; k < exceptions; ++k) {
    uint32_t high = 0;
    if (at >= end) return nullptr;
    const uint8_t index = *at++;
    at = get_varint(at, end, &high);
    if (!at || width == 32) return nullptr;
    values[index] |= high << width;
  }
  return at;
}

const uint8_t* get_tail(const uint8_t* at, const uint8_t* end, int64_t count, bool is_varint,
                        uint32_t* docs, uint32_t* freqs) {
  if (!is_varint) {
    if (end - at < count * 8) return nullptr;
    memcpy(docs, at, count * 4);
    memcpy(freqs, at + count * 4, count * 4);
    return at + count * 8;
  }
  uint32_t doc = 0;
  for (int64_t k = 0; k < count; ++k) {
    uint32_t delta = 0;
    if (!(at = get_varint(at, end, &delta))) return nullptr;
    docs[k] = doc += delta;
  }
  for (int64_t k = 0; k < count; ++k)
    if (!(at = get_varint(at, end, &freqs[k]))) return nullptr;
  return at;
}

template <int lanes>
const uint8_t* get_block(const uint8_t* at, const uint8_t* end, uint32_t* docs, uint32_t* freqs) {
  constexpr int count = lanes * 32;
  if (end - at < 4) return nullptr;
  uint32_t doc = load<uint32_t>(at);
  at = get_packed<lanes>(at + 4, end, docs);
  if (!at) return nullptr;
  for (int k = 0; k < count; ++k) docs[k] = doc += docs[k];
  if constexpr (lanes == 8) return get_patched(at, end, freqs);
  return get_packed<lanes>(at, end, freqs);
}

// Reads the documents and frequencies of a block, or of a tail if there are fewer than a block.
// Blocks of 128 start with a score. Returns the end, or null if malformed.
[[maybe_unused]] const uint8_t* get_postings(const uint8_t* at, const uint8_t* end, int64_t count, int64_t block_docs,
                            bool is_varint, uint32_t* docs, uint32_t* freqs) {
  if (block_docs == 128) {
    if (end - at < 4) return nullptr;
    at += 4;
  }
  if (count < block_docs) return get_tail(at, end, count, is_varint, docs, freqs);
  return block_docs == 128 ? get_block<4>(at, end, docs, freqs)
                           : get_block<8>(at, end, docs, freqs);
}

}  // namespace
}  // namespace LANCELET_NAMESPACE

// Literals of a Zstandard block: raw, RLE or Huffman-coded.
//
// Codes have at most 11 bits, so a refill covers five of them. Four streams are interleaved,
// because each symbol depends on the previous one of its stream.
#pragma once
#include "zstd_bits.hpp"

namespace LANCELET_NAMESPACE {
namespace zstd {

constexpr int kCodeBitsMax = 11;
constexpr int64_t kBlockMax = 128 * 1024;
constexpr int64_t kOverrun = 32;  // bytes that copies may read or write beyond the end

struct Codes {
  uint16_t of[1 << kCodeBitsMax];  // the symbol, and above it the length of its code
  int bits;
  bool is_set;
};

struct Literals {
  Codes codes;
  Table weights;
  const uint8_t* data;  // followed by kOverrun readable bytes
  int64_t size;
  uint8_t buffer[kBlockMax + kOverrun];
};

// Reads the Huffman weights; returns their size in bytes, or -1.
inline int64_t read_weights(const uint8_t* at, const uint8_t* end, Table* table, uint8_t* weights,
                            int* symbols) {
  if (at >= end) return -1;
  const int head = *at++;
  if (head >= 128) {
    *symbols = head - 127;
    const int64_t bytes = (*symbols + 1) / 2;
    if (bytes > end - at) return -1;
    for (int k = 0; k < *symbols; ++k)
      weights[k] = k % 2 ? at[k / 2] & 15 : static_cast<uint8_t>(at[k / 2] >> 4);
    return 1 + bytes;
  }
  if (head > end - at) return -1;
  Counts counts;
  static const uint32_t kNumber[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  static const uint8_t kNoBits[13] = {};
  const int64_t table_bytes = read_counts(at, at + head, 6, 13, &counts);
  if (table_bytes < 0) return -1;
  fill_table(counts, kNumber, kNoBits, table);
  Bits bits;
  if (!bits.open(at + table_bytes, head - table_bytes)) return -1;
  const State* state[2];
  for (const State*& one : state) {
    bits.refill();
    one = &table->states[bits.take(counts.log)];
  }
  if (bits.left < 0) return -1;
  // Two states alternate. If one runs out of bits, the other holds the last symbol.
  int count = 0;
  for (int current = 0;; current ^= 1) {
    if (count > 253) return -1;
    weights[count++] = static_cast<uint8_t>(state[current]->base);
    bits.refill();
    const State* now = state[current];
    state[current] = &table->states[now->next + bits.take(now->next_bits)];
    if (bits.left < 0) {
      weights[count++] = static_cast<uint8_t>(state[current ^ 1]->base);
      break;
    }
  }
  *symbols = count;
  return 1 + head;
}

// Reads a Huffman table; returns its size in bytes, or -1.
inline int64_t read_codes(const uint8_t* at, const uint8_t* end, Literals* literals) {
  uint8_t weights[256];
  int symbols = 0;
  const int64_t bytes = read_weights(at, end, &literals->weights, weights, &symbols);
  if (bytes < 0) return -1;
  int64_t sum = 0;
  for (int k = 0; k < symbols; ++k) {
    if (weights[k] > kCodeBitsMax) return -1;
    sum += 1ll << weights[k] >> 1;
  }
  if (sum == 0) return -1;
  const int code_bits = highest_bit(static_cast<uint64_t>(sum)) + 1;
  const int64_t rest = (1ll << code_bits) - sum;
  if (code_bits > kCodeBitsMax || (rest & (rest - 1)) != 0) return -1;
  weights[symbols++] = static_cast<uint8_t>(highest_bit(static_cast<uint64_t>(rest)) + 1);
  Codes& codes = literals->codes;
  int of_weight[kCodeBitsMax + 2] = {};
  for (int k = 0; k < symbols; ++k) ++of_weight[weights[k]];
  if (of_weight[1] < 2) return -1;
  int start[kCodeBitsMax + 2] = {};
  for (int weight = 1; weight <= kCodeBitsMax; ++weight)
    start[weight + 1] = start[weight] + (of_weight[weight] << (weight - 1));
  for (int k = 0; k < symbols; ++k) {
    if (weights[k] == 0) continue;
    const int width = 1 << (weights[k] - 1);
    const uint16_t entry = static_cast<uint16_t>(k | (code_bits + 1 - weights[k]) << 8);
    uint16_t* to = codes.of + start[weights[k]];
    if (width < 4) {
      to[0] = entry;
      to[width - 1] = entry;
    } else {
      const uint64_t four = entry * 0x0001000100010001u;
      for (int i = 0; i < width; i += 4) store(to + i, four);
    }
    start[weights[k]] += width;
  }
  codes.bits = code_bits;
  codes.is_set = true;
  return bytes;
}

LANCELET_INLINE uint8_t next_symbol(const Codes& codes, int shift, Bits* bits) {
  const uint16_t entry = codes.of[bits->next >> shift];
  bits->next <<= entry >> 8;
  bits->left -= entry >> 8;
  return static_cast<uint8_t>(entry);
}

// Decodes the rest of one stream, which must end with its last symbol.
inline bool finish_stream(const Codes& codes, Bits* bits, uint8_t* to, uint8_t* end) {
  const int shift = 64 - codes.bits;
  while (to < end && bits->left > 0) {
    bits->refill();
    for (int k = 0; k < 5 && to < end; ++k) *to++ = next_symbol(codes, shift, bits);
  }
  return to == end && bits->left == 0;
}

inline bool decode_four(const Codes& codes, const uint8_t* at, int64_t size, uint8_t* to,
                        int64_t count) {
  if (size < 10) return false;
  int64_t sizes[4] = {load<uint16_t>(at), load<uint16_t>(at + 2), load<uint16_t>(at + 4), 0};
  sizes[3] = size - 6 - sizes[0] - sizes[1] - sizes[2];
  const int64_t part = (count + 3) / 4;
  if (sizes[3] <= 0 || 3 * part > count) return false;
  Bits a, b, c, d;
  const uint8_t* from = at + 6;
  if (!a.open(from, sizes[0]) || !b.open(from += sizes[0], sizes[1]) ||
      !c.open(from += sizes[1], sizes[2]) || !d.open(from + sizes[2], sizes[3]))
    return false;
  const int shift = 64 - codes.bits;
  const int64_t last = count - 3 * part;
  int64_t done = 0;
  while (done + 5 <= last && a.left >= 55 && b.left >= 55 && c.left >= 55 && d.left >= 55) {
    a.refill(), b.refill(), c.refill(), d.refill();
    for (int k = 0; k < 5; ++k, ++done) {
      to[done] = next_symbol(codes, shift, &a);
      to[done + part] = next_symbol(codes, shift, &b);
      to[done + 2 * part] = next_symbol(codes, shift, &c);
      to[done + 3 * part] = next_symbol(codes, shift, &d);
    }
  }
  return finish_stream(codes, &a, to + done, to + part) &&
         finish_stream(codes, &b, to + part + done, to + 2 * part) &&
         finish_stream(codes, &c, to + 2 * part + done, to + 3 * part) &&
         finish_stream(codes, &d, to + 3 * part + done, to + count);
}

// Reads the literals of a block; returns their size in bytes, or -1. Memory is readable up to
// `readable`.
inline int64_t read_literals(const uint8_t* at, const uint8_t* end, const uint8_t* readable,
                             Literals* literals) {
  if (end - at < 1) return -1;
  const int kind = at[0] & 3, form = at[0] >> 2 & 3;
  if (kind < 2) {  // raw or RLE
    const int head = form == 1 ? 2 : form == 3 ? 3 : 1;
    if (end - at < head + kind) return -1;
    const uint32_t bits = static_cast<uint32_t>(at[0]) | (head > 1 ? at[1] << 8 : 0) |
                          (head > 2 ? at[2] << 16 : 0);
    const int64_t size = bits >> (head == 1 ? 3 : 4);
    if (size > kBlockMax || (kind == 0 && size > end - at - head)) return -1;
    literals->size = size;
    literals->data = literals->buffer;
    if (kind == 1) {
      memset(literals->buffer, at[head], static_cast<size_t>(size + kOverrun));
    } else if (readable - (at + head) >= size + kOverrun) {
      literals->data = at + head;
    } else {
      memcpy(literals->buffer, at + head, static_cast<size_t>(size));
    }
    return head + (kind == 1 ? 1 : size);
  }
  const int head = form < 2 ? 3 : form + 2;
  if (end - at < head) return -1;
  uint64_t bits = 0;
  for (int k = 0; k < head; ++k) bits |= static_cast<uint64_t>(at[k]) << (8 * k);
  const int width = form < 2 ? 10 : form == 2 ? 14 : 18;
  const int64_t size = static_cast<int64_t>(bits >> 4 & ((1u << width) - 1));
  const int64_t stored = static_cast<int64_t>(bits >> (4 + width) & ((1u << width) - 1));
  if (size > kBlockMax || size == 0 || stored > end - at - head) return -1;
  const uint8_t* from = at + head;
  const uint8_t* const stop = from + stored;
  if (kind == 2) {
    const int64_t table = read_codes(from, stop, literals);
    if (table < 0) return -1;
    from += table;
  } else if (!literals->codes.is_set) {
    return -1;
  }
  literals->data = literals->buffer;
  literals->size = size;
  if (form == 0) {
    Bits stream;
    if (!stream.open(from, stop - from) ||
        !finish_stream(literals->codes, &stream, literals->buffer, literals->buffer + size))
      return -1;
  } else if (!decode_four(literals->codes, from, stop - from, literals->buffer, size)) {
    return -1;
  }
  return head + stored;
}

}  // namespace zstd
}  // namespace LANCELET_NAMESPACE

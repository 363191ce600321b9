// XXH64 of byte strings and of fixed-width values.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr uint64_t kP1 = 0x9E3779B185EBCA87u, kP2 = 0xC2B2AE3D27D4EB4Fu,
                   kP3 = 0x165667B19E3779F9u, kP4 = 0x85EBCA77C2B2AE63u,
                   kP5 = 0x27D4EB2F165667C5u;

LANCELET_INLINE uint64_t rotate(uint64_t value, int bits) {
  return value << bits | value >> (64 - bits);
}

LANCELET_INLINE uint64_t mix_lane(uint64_t lane, uint64_t word) {
  return rotate(lane + word * kP2, 31) * kP1;
}

LANCELET_INLINE uint64_t xxh64(const uint8_t* at, int64_t size, uint64_t seed) {
  const uint8_t* end = at + size;
  uint64_t hash = seed + kP5;
  if (size >= 32) {
    uint64_t lanes[4] = {seed + kP1 + kP2, seed + kP2, seed, seed - kP1};
    for (; end - at >= 32; at += 32)
      for (int k = 0; k < 4; ++k) lanes[k] = mix_lane(lanes[k], load<uint64_t>(at + 8 * k));
    hash = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
    for (const uint64_t lane : lanes) hash = (hash ^ mix_lane(0, lane)) * kP1 + kP4;
  }
  hash += static_cast<uint64_t>(size);
  for (; end - at >= 8; at += 8)
    hash = rotate(hash ^ mix_lane(0, load<uint64_t>(at)), 27) * kP1 + kP4;
  if (end - at >= 4) {
    hash = rotate(hash ^ load<uint32_t>(at) * kP1, 23) * kP2 + kP3;
    at += 4;
  }
  for (; at < end; ++at) hash = rotate(hash ^ *at * kP5, 11) * kP1;
  hash = (hash ^ hash >> 33) * kP2;
  hash = (hash ^ hash >> 29) * kP3;
  return hash ^ hash >> 32;
}

template <class Offset>
int64_t hash_rows(ConstBytes offsets, ConstBytes data, uint64_t seed, Span<uint64_t> hashes) {
  const int64_t rows = offsets.size / static_cast<int64_t>(sizeof(Offset)) - 1;
  if (rows > hashes.size) return fail(kOutputFull, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t start = load<Offset>(offsets.data + row * sizeof(Offset));
    const int64_t stop = load<Offset>(offsets.data + (row + 1) * sizeof(Offset));
    if (start < 0 || stop < start || stop > data.size) return fail(kBadOffsets, row);
    hashes.data[row] = xxh64(data.data + start, stop - start, seed);
  }
  return rows;
}

// With a constant width, the compiler unrolls the hash.
template <int64_t kBytes>
int64_t hash_fixed(ConstBytes values, uint64_t seed, Span<uint64_t> hashes) {
  const int64_t rows = values.size / kBytes;
  if (rows > hashes.size) return fail(kOutputFull, 0);
  for (int64_t row = 0; row < rows; ++row)
    hashes.data[row] = xxh64(values.data + row * kBytes, kBytes, seed);
  return rows;
}

}  // namespace

int64_t xxh64_fixed(ConstBytes values, int64_t value_bytes, uint64_t seed,
                    Span<uint64_t> hashes) {
  switch (value_bytes) {
    case 1: return hash_fixed<1>(values, seed, hashes);
    case 2: return hash_fixed<2>(values, seed, hashes);
    case 4: return hash_fixed<4>(values, seed, hashes);
    case 8: return hash_fixed<8>(values, seed, hashes);
    default: return fail(kBadWidth, 0);
  }
}

int64_t xxh64_many(ConstBytes offsets, int64_t offset_bytes, ConstBytes data, uint64_t seed,
                   Span<uint64_t> hashes) {
  return offset_bytes == 4 ? hash_rows<int32_t>(offsets, data, seed, hashes)
                           : hash_rows<int64_t>(offsets, data, seed, hashes);
}

}  // namespace LANCELET_NAMESPACE

// Validated access to the offsets of variable-width chunks.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {

// A chunk of values: its start, and the first and last offset.
struct VariableChunk {
  const uint8_t* start;
  uint64_t first, last;
};

// Validates the size of a chunk and its outer offsets.
template <class Stored>
static LANCELET_INLINE int64_t read_chunk(ConstBytes source, int64_t position, int64_t size,
                                          int64_t count, int64_t index, VariableChunk* chunk) {
  constexpr int64_t bytes = sizeof(Stored);
  if (!within(position, size, source.size)) return fail(kOutOfSource, index);
  if (count < 0) return fail(kBadCount, index);
  if (count == 0) {
    *chunk = {source.data + position, 0, 0};
    return 0;
  }
  if (count >= size / bytes) return fail(kTooShort, index);
  const uint8_t* start = source.data + position;
  *chunk = {start, load<Stored>(start), load<Stored>(start + count * bytes)};
  if (chunk->first < static_cast<uint64_t>((count + 1) * bytes) || chunk->last < chunk->first ||
      chunk->last > static_cast<uint64_t>(size))
    return fail(kBadOffsets, index);
  return 0;
}

// Returns whether `count` + 1 offsets never decrease.
template <class Stored>
static LANCELET_INLINE bool in_order(const uint8_t* offsets, int64_t count) {
  uint32_t backwards = 0;
  for (int64_t i = 0; i < count; ++i)
    backwards |= load<Stored>(offsets + (i + 1) * sizeof(Stored)) <
                 load<Stored>(offsets + i * sizeof(Stored));
  return !backwards;
}

}  // namespace LANCELET_NAMESPACE

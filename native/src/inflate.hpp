// Compressed buffers with their uncompressed size in front.
#pragma once

#include "plan.hpp"

namespace LANCELET_NAMESPACE {

static constexpr int64_t kInflatedMax = 1 << 21;  // larger buffers are left to the generic reader
static constexpr int64_t kInflateSlack = 64;
static constexpr int64_t kZstdRatioMax = 128 * 1024 / 3;
static constexpr int64_t kLz4RatioMax = 255;

// Decompresses the first `wanted` bytes of an LZ4 block, and maybe more; `out` has its entire size.
int64_t lz4_decompress_start(ConstBytes block, Bytes out, int64_t wanted);

static LANCELET_INLINE int64_t inflate_head(int64_t compression) {
  return compression == plan::kLz4 ? 4 : 8;
}

// Returns the uncompressed size, validated against the maximum compression ratio.
static inline int64_t inflated_bytes(int64_t compression, ConstBytes data) {
  const int64_t head = inflate_head(compression);
  // Empty blocks, and frames without a size in front, are left to the generic reader.
  if (data.size <= head) return fail(kTooShort, 0);
  const int64_t plain = head == 4 ? static_cast<int64_t>(load<uint32_t>(data.data))
                                  : load<int64_t>(data.data);
  const int64_t ratio = compression == plan::kLz4 ? kLz4RatioMax : kZstdRatioMax;
  if (plain < 0 || plain > kInflatedMax || plain / ratio > data.size - head)
    return fail(kBadCount, 0);
  return plain;
}

}  // namespace LANCELET_NAMESPACE

// Short copies that are faster than a call of memcpy.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {

// Copies `size` bytes. Up to 32 bytes are copied as two vectors if both buffers are large enough.
// Bytes after the copy in `to` may change, so the caller must write them later.
static LANCELET_INLINE void copy_ahead(uint8_t* to, int64_t to_room, const uint8_t* from,
                                       int64_t from_room, int64_t size) {
  if (size <= 32 && to_room >= 32 && from_room >= 32) {
    memcpy(to, from, 16);
    memcpy(to + 16, from + 16, 16);
  } else if (size > 0) {
    memcpy(to, from, size);
  }
}

}  // namespace LANCELET_NAMESPACE

// Copies of a few bytes, which a call of memcpy would cost more than the copy.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {

// Copy `size` bytes. Up to 32 go as two vectors where both buffers have room for them, so what
// is behind the copy in `to` may change; the caller writes it later.
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

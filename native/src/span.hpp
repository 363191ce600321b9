// Contiguous arrays of kernels.
#pragma once

#include <stdint.h>

namespace lancelet {

template <class T>
struct Span {
  T* data;
  int64_t size;  // elements
};

using Bytes = Span<uint8_t>;
using ConstBytes = Span<const uint8_t>;
using Ints = Span<int64_t>;
using ConstInts = Span<const int64_t>;

}  // namespace lancelet

// FastLanes bit packing: 1024 values interleaved over 1024/T lanes of T-bit words.
//
// Value r of lane l has bits [r*W, r*W + W) of the lane's own stream, whose words lie `lanes`
// apart. So one step of the loop over r reads one or two rows of `lanes` neighbouring words and
// writes `lanes` neighbouring values, which compilers turn into vector code for any width W.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kBlock = 1024;

// Where the values of row r start: the order of the eight groups makes transposes cheap.
template <class T>
LANCELET_INLINE int64_t row_start(int64_t row) {
  constexpr int64_t order[8] = {0, 4, 2, 6, 1, 5, 3, 7};
  return order[row / 8] * 16 + row % 8 * 128;
}

template <class T>
void unpack_block(const uint8_t* LANCELET_RESTRICT packed, int64_t width,
                  uint8_t* LANCELET_RESTRICT out) {
  constexpr int64_t bits = 8 * sizeof(T);
  constexpr int64_t lanes = kBlock / bits;
  constexpr int64_t row_bytes = lanes * sizeof(T);
  if (width == 0) {
    memset(out, 0, kBlock * sizeof(T));
    return;
  }
  const T mask = static_cast<T>(static_cast<T>(~T{0}) >> (bits - width));
  for (int64_t row = 0; row < bits; ++row) {
    const int64_t bit = row * width;
    const int shift = static_cast<int>(bit % bits);
    const uint8_t* low = packed + bit / bits * row_bytes;
    uint8_t* to = out + row_start<T>(row) * sizeof(T);
    if (shift + width <= bits) {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const T word = load<T>(low + lane * sizeof(T));
        store<T>(to + lane * sizeof(T), static_cast<T>(word >> shift) & mask);
      }
    } else {
      const int up = static_cast<int>(bits) - shift;
      const uint8_t* high = low + row_bytes;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const T word = static_cast<T>(load<T>(low + lane * sizeof(T)) >> shift);
        const T rest = static_cast<T>(load<T>(high + lane * sizeof(T)) << up);
        store<T>(to + lane * sizeof(T), static_cast<T>((word | rest) & mask));
      }
    }
  }
}

template <class T>
int64_t unpack_chunks_of(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                         Bytes out) {
  alignas(64) uint8_t whole[kBlock * sizeof(T)];
  int64_t written = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    const int64_t values = count.data[i];
    if (values < 0 || values > kBlock) return fail(kBadCount, i);
    if (values > (out.size - written) / static_cast<int64_t>(sizeof(T)))
      return fail(kOutputFull, i);
    if (size.data[i] < static_cast<int64_t>(sizeof(T))) return fail(kTooShort, i);
    const uint8_t* chunk = source.data + position.data[i];
    const T width = load<T>(chunk);
    if (width > 8 * sizeof(T)) return fail(kBadWidth, i);
    const int64_t packed_bytes = static_cast<int64_t>(width) * (kBlock / 8);
    if (size.data[i] - static_cast<int64_t>(sizeof(T)) < packed_bytes) return fail(kTooShort, i);
    const int64_t bytes = values * static_cast<int64_t>(sizeof(T));
    if (values == kBlock) {
      unpack_block<T>(chunk + sizeof(T), width, out.data + written);
    } else if (values > 0) {
      unpack_block<T>(chunk + sizeof(T), width, whole);
      memcpy(out.data + written, whole, bytes);
    }
    written += bytes;
  }
  return written;
}

}  // namespace

int64_t unpack_chunks(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                      int64_t word_bits, Bytes out) {
  switch (word_bits) {
    case 8: return unpack_chunks_of<uint8_t>(source, position, size, count, out);
    case 16: return unpack_chunks_of<uint16_t>(source, position, size, count, out);
    case 32: return unpack_chunks_of<uint32_t>(source, position, size, count, out);
    case 64: return unpack_chunks_of<uint64_t>(source, position, size, count, out);
    default: return fail(kBadWidth, 0);
  }
}

}  // namespace LANCELET_NAMESPACE

// Byte stream split, encoding and decoding. Float widths are template constants, so that compilers
// generate shuffles.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

template <int64_t kWidth>
void split(const uint8_t* LANCELET_RESTRICT from, int64_t count, int64_t width,
           uint8_t* LANCELET_RESTRICT to) {
  const int64_t bytes = kWidth ? kWidth : width;
  for (int64_t k = 0; k < count; ++k)
    for (int64_t j = 0; j < bytes; ++j) to[j * count + k] = from[k * bytes + j];
}

// Exchanges the bytes under `mask` in `low` with the bytes above them in `high`.
LANCELET_INLINE void exchange(uint64_t* high, uint64_t* low, int shift, uint64_t mask) {
  const uint64_t both = (*high >> shift ^ *low) & mask;
  *low ^= both;
  *high ^= both << shift;
}

// Transposes eight words at a time as an 8 x 8 byte matrix.
template <>
void split<8>(const uint8_t* LANCELET_RESTRICT from, int64_t count, int64_t,
              uint8_t* LANCELET_RESTRICT to) {
  int64_t k = 0;
  for (; k + 8 <= count; k += 8) {
    uint64_t w[8];
    for (int j = 0; j < 8; ++j) w[j] = load<uint64_t>(from + (k + j) * 8);
    for (int j = 0; j < 4; ++j) exchange(w + j, w + j + 4, 32, 0x00000000FFFFFFFFu);
    for (int j = 0; j < 8; j += j % 4 == 1 ? 3 : 1)
      exchange(w + j, w + j + 2, 16, 0x0000FFFF0000FFFFu);
    for (int j = 0; j < 8; j += 2) exchange(w + j, w + j + 1, 8, 0x00FF00FF00FF00FFu);
    for (int j = 0; j < 8; ++j) store<uint64_t>(to + j * count + k, w[j]);
  }
  for (; k < count; ++k)
    for (int64_t j = 0; j < 8; ++j) to[j * count + k] = from[k * 8 + j];
}

template <int64_t kWidth>
void join(const uint8_t* LANCELET_RESTRICT from, int64_t count, int64_t width,
          uint8_t* LANCELET_RESTRICT to) {
  const int64_t bytes = kWidth ? kWidth : width;
  for (int64_t k = 0; k < count; ++k)
    for (int64_t j = 0; j < bytes; ++j) to[k * bytes + j] = from[j * count + k];
}

}  // namespace

int64_t split_bytes_chunks(ConstBytes values, int64_t value_bytes, ConstInts count, Bytes out) {
  if (value_bytes <= 0) return fail(kBadWidth, 0);
  const auto work = value_bytes == 2   ? split<2>
                    : value_bytes == 4 ? split<4>
                    : value_bytes == 8 ? split<8>
                                       : split<0>;
  const int64_t limit = smaller(values.size, out.size);
  int64_t done = 0;
  for (int64_t i = 0; i < count.size; ++i) {
    const int64_t n = count.data[i];
    if (n < 0 || n > (limit - done) / value_bytes) return fail(kBadCount, i);
    work(values.data + done, n, value_bytes, out.data + done);
    done += n * value_bytes;
  }
  return done;
}

int64_t join_bytes_chunks(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                          int64_t value_bytes, Bytes out) {
  if (value_bytes <= 0) return fail(kBadWidth, 0);
  const auto work = value_bytes == 2   ? join<2>
                    : value_bytes == 4 ? join<4>
                    : value_bytes == 8 ? join<8>
                                       : join<0>;
  int64_t done = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    const int64_t n = count.data[i];
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    if (n < 0 || n > size.data[i] / value_bytes) return fail(kTooShort, i);
    if (n > (out.size - done) / value_bytes) return fail(kOutputFull, i);
    work(source.data + position.data[i], n, value_bytes, out.data + done);
    done += n * value_bytes;
  }
  return done;
}

}  // namespace LANCELET_NAMESPACE

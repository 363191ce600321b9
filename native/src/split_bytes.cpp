// Byte stream split, both ways. The width is known to the compiler for the widths of floats, so
// that it turns the loops into shuffles.
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

// Run-length encoding and decoding by chunk.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kRunMax = 255;

// A value that fits a register.
template <class T>
struct Word {
  static constexpr int64_t bytes = sizeof(T);
  explicit Word(int64_t) {}
  bool differ(const uint8_t* a, const uint8_t* b) const { return load<T>(a) != load<T>(b); }
  void fill(uint8_t* to, const uint8_t* value, int64_t count) const {
    const T word = load<T>(value);
    for (int64_t k = 0; k < count; ++k) store<T>(to + k * bytes, word);
  }
};

// A value of any other width.
struct Wide {
  int64_t bytes;
  explicit Wide(int64_t value_bytes) : bytes(value_bytes) {}
  bool differ(const uint8_t* a, const uint8_t* b) const { return memcmp(a, b, bytes) != 0; }
  void fill(uint8_t* to, const uint8_t* value, int64_t count) const {
    for (int64_t k = 0; k < count; ++k) memcpy(to + k * bytes, value, bytes);
  }
};

int64_t read_length(const uint8_t* at, int64_t length_bytes) {
  switch (length_bytes) {
    case 1: return *at;
    case 2: return load<uint16_t>(at);
    default: return load<uint32_t>(at);
  }
}

template <class Value>
int64_t decode_chunks(const Value& value, ConstBytes values, ConstInts value_position,
                      ConstInts value_size, ConstBytes lengths, ConstInts length_position,
                      ConstInts length_size, ConstInts count, int64_t length_bytes, Bytes out) {
  int64_t written = 0;  // values
  const int64_t room = out.size / value.bytes;
  for (int64_t i = 0; i < count.size; ++i) {
    if (!within(value_position.data[i], value_size.data[i], values.size) ||
        !within(length_position.data[i], length_size.data[i], lengths.size))
      return fail(kOutOfSource, i);
    const int64_t runs = length_size.data[i] / length_bytes;
    if (value_size.data[i] / value.bytes < runs) return fail(kTooShort, i);
    if (count.data[i] < 0 || count.data[i] > room - written) return fail(kOutputFull, i);
    const uint8_t* from = values.data + value_position.data[i];
    const uint8_t* length = lengths.data + length_position.data[i];
    const int64_t end = written + count.data[i];
    for (int64_t run = 0; run < runs; ++run) {
      const int64_t n = read_length(length + run * length_bytes, length_bytes);
      if (n > end - written) return fail(kBadLength, i);
      value.fill(out.data + written * value.bytes, from + run * value.bytes, n);
      written += n;
    }
    if (written != end) return fail(kBadLength, i);
  }
  return written * value.bytes;
}

// Calls `emit(start, length)` for every run of a chunk, split at the maximum length.
template <class Value, class Emit>
LANCELET_INLINE void each_run(const Value& value, const uint8_t* values, int64_t count,
                              Emit emit) {
  for (int64_t start = 0; start < count;) {
    const uint8_t* first = values + start * value.bytes;
    const int64_t most = smaller(count - start, kRunMax);
    int64_t length = 1;
    while (length < most && !value.differ(first, first + length * value.bytes)) ++length;
    emit(first, length);
    start += length;
  }
}

template <class Value>
int64_t count_chunks(const Value& value, ConstBytes values, ConstInts count, Ints runs) {
  const int64_t total = values.size / value.bytes;
  int64_t done = 0, all = 0;
  for (int64_t i = 0; i < count.size; ++i) {
    if (count.data[i] < 0 || count.data[i] > total - done) return fail(kBadCount, i);
    int64_t found = 0;
    each_run(value, values.data + done * value.bytes, count.data[i],
             [&found](const uint8_t*, int64_t) { ++found; });
    runs.data[i] = found;
    all += found;
    done += count.data[i];
  }
  return all;
}

template <class Value>
int64_t encode_chunks(const Value& value, ConstBytes values, ConstInts count, Bytes out_values,
                      Bytes out_lengths) {
  const int64_t room = smaller(out_values.size / value.bytes, out_lengths.size);
  const int64_t total = values.size / value.bytes;
  int64_t done = 0, runs = 0;
  for (int64_t i = 0; i < count.size; ++i) {
    if (count.data[i] < 0 || count.data[i] > total - done) return fail(kBadCount, i);
    bool full = false;
    each_run(value, values.data + done * value.bytes, count.data[i],
             [&](const uint8_t* first, int64_t length) {
               if (runs >= room) {
                 full = true;
                 return;
               }
               memcpy(out_values.data + runs * value.bytes, first, value.bytes);
               out_lengths.data[runs++] = static_cast<uint8_t>(length);
             });
    if (full) return fail(kOutputFull, i);
    done += count.data[i];
  }
  return runs;
}

}  // namespace

// Calls a template for values of `value_bytes`.
#define FOR_VALUE(value_bytes, call, ...)                                   \
  switch (value_bytes) {                                                    \
    case 1: return call(Word<uint8_t>(value_bytes), __VA_ARGS__);           \
    case 2: return call(Word<uint16_t>(value_bytes), __VA_ARGS__);          \
    case 4: return call(Word<uint32_t>(value_bytes), __VA_ARGS__);          \
    case 8: return call(Word<uint64_t>(value_bytes), __VA_ARGS__);          \
    default:                                                                \
      if (value_bytes <= 0) return fail(kBadWidth, 0);                      \
      return call(Wide(value_bytes), __VA_ARGS__);                          \
  }

int64_t rle_decode_chunks(args::Slices value_slices, args::Slices length_slices, ConstInts count,
                          int64_t value_bytes, int64_t length_bytes, Bytes out) {
  const ConstBytes values = value_slices.source;
  const ConstInts value_position = value_slices.position;
  const ConstInts value_size = value_slices.size;
  const ConstBytes lengths = length_slices.source;
  const ConstInts length_position = length_slices.position;
  const ConstInts length_size = length_slices.size;
  FOR_VALUE(value_bytes, decode_chunks, values, value_position, value_size, lengths,
            length_position, length_size, count, length_bytes, out)
}

int64_t rle_count_chunks(ConstBytes values, int64_t value_bytes, ConstInts count, Ints runs) {
  FOR_VALUE(value_bytes, count_chunks, values, count, runs)
}

int64_t rle_encode_chunks(ConstBytes values, int64_t value_bytes, ConstInts count,
                          Bytes out_values, Bytes out_lengths) {
  FOR_VALUE(value_bytes, encode_chunks, values, count, out_values, out_lengths)
}

#undef FOR_VALUE

}  // namespace LANCELET_NAMESPACE

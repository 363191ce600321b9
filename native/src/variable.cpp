// Conversion between variable-width chunks and Arrow offsets and bytes.
#include "variable.hpp"

namespace LANCELET_NAMESPACE {
namespace {

template <class Stored>
int64_t variable_bytes_of(ConstBytes source, ConstInts position, ConstInts size,
                          ConstInts count) {
  int64_t total = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    VariableChunk chunk = {};
    const int64_t status = read_chunk<Stored>(source, position.data[i], size.data[i],
                                              count.data[i], i, &chunk);
    if (status < 0) return status;
    total += static_cast<int64_t>(chunk.last - chunk.first);
  }
  return total;
}

template <class Stored, class Arrow>
int64_t concat_variable_of(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                           Bytes out_offsets, Bytes out) {
  int64_t written = 0;
  int64_t values = 0;
  const int64_t room = out_offsets.size / static_cast<int64_t>(sizeof(Arrow));
  if (room < 1) return fail(kOutputFull, 0);
  store<Arrow>(out_offsets.data, 0);
  for (int64_t i = 0; i < position.size; ++i) {
    VariableChunk chunk = {};
    const int64_t n = count.data[i];
    const int64_t status =
        read_chunk<Stored>(source, position.data[i], size.data[i], n, i, &chunk);
    if (status < 0) return status;
    const int64_t bytes = static_cast<int64_t>(chunk.last - chunk.first);
    if (n >= room - values || bytes > out.size - written) return fail(kOutputFull, i);
    if (!in_order<Stored>(chunk.start, n)) return fail(kBadOffsets, i);
    const Arrow shift = static_cast<Arrow>(written - static_cast<int64_t>(chunk.first));
    uint8_t* to = out_offsets.data + (values + 1) * sizeof(Arrow);
    const uint8_t* from = chunk.start + sizeof(Stored);
    for (int64_t k = 0; k < n; ++k)
      store<Arrow>(to + k * sizeof(Arrow),
                   static_cast<Arrow>(static_cast<Arrow>(load<Stored>(from + k * sizeof(Stored))) +
                                      shift));
    if (bytes > 0) memcpy(out.data + written, chunk.start + chunk.first, bytes);
    written += bytes;
    values += n;
  }
  return written;
}

template <class Stored>
int64_t pick_ranges_of(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                      ConstInts index, Ints picked_position, Ints picked_size) {
  int64_t total = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    const int64_t n = count.data[i], k = index.data[i];
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    if (n < 0) return fail(kBadCount, i);
    if (n > 0 && n >= size.data[i] / static_cast<int64_t>(sizeof(Stored)))
      return fail(kTooShort, i);
    if (k < 0 || k >= n) return fail(kBadIndex, i);
    const uint8_t* offsets = source.data + position.data[i];
    const uint64_t start = load<Stored>(offsets + k * sizeof(Stored));
    const uint64_t stop = load<Stored>(offsets + (k + 1) * sizeof(Stored));
    if (start < (n + 1) * sizeof(Stored) || stop < start ||
        stop > static_cast<uint64_t>(size.data[i]))
      return fail(kBadOffsets, i);
    picked_position.data[i] = position.data[i] + static_cast<int64_t>(start);
    picked_size.data[i] = static_cast<int64_t>(stop - start);
    total += picked_size.data[i];
  }
  return total;
}

template <class Offset>
int64_t split_variable_of(ConstBytes offsets, ConstBytes data, ConstInts count,
                        ConstInts out_position, uint8_t pad, Bytes out) {
  constexpr int64_t width = sizeof(Offset);
  const int64_t values = offsets.size / width - 1;
  int64_t row = 0, end = 0;
  for (int64_t i = 0; i < count.size; ++i) {
    const int64_t n = count.data[i], to = out_position.data[i];
    if (n < 0 || n > values - row) return fail(kBadCount, i);
    const int64_t start = load<Offset>(offsets.data + row * width);
    const int64_t stop = load<Offset>(offsets.data + (row + n) * width);
    if (start < 0 || stop < start || stop > data.size) return fail(kBadOffsets, i);
    const int64_t head = (n + 1) * width;
    if (to < end || !within(to, head + stop - start, out.size)) return fail(kOutputFull, i);
    memset(out.data + end, pad, static_cast<size_t>(to - end));
    // May wrap around; the sums are correct.
    const uint64_t shift = static_cast<uint64_t>(head) - static_cast<uint64_t>(start);
    for (int64_t k = 0; k <= n; ++k)
      store<Offset>(out.data + to + k * width,
                    static_cast<Offset>(load<Offset>(offsets.data + (row + k) * width) + shift));
    memcpy(out.data + to + head, data.data + start, static_cast<size_t>(stop - start));
    row += n;
    end = to + head + stop - start;
  }
  memset(out.data + end, pad, static_cast<size_t>(out.size - end));
  return 0;
}

}  // namespace

int64_t split_variable(ConstBytes offsets, int64_t offset_bytes, ConstBytes data, ConstInts count,
                     ConstInts out_position, int64_t pad, Bytes out) {
  const uint8_t byte = static_cast<uint8_t>(pad);
  return offset_bytes == 4
             ? split_variable_of<int32_t>(offsets, data, count, out_position, byte, out)
             : split_variable_of<int64_t>(offsets, data, count, out_position, byte, out);
}

int64_t variable_bytes(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                       int64_t offset_bytes) {
  return offset_bytes == 4 ? variable_bytes_of<uint32_t>(source, position, size, count)
                           : variable_bytes_of<uint64_t>(source, position, size, count);
}

int64_t concat_variable(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                        int64_t offset_bytes, int64_t out_bytes, Bytes out_offsets, Bytes out) {
  // 32-bit offsets may wrap around; the sums are correct if they fit.
  if (out_bytes == 4 && out.size > INT32_MAX) return fail(kTooLarge, 0);
  if (offset_bytes == 4)
    return out_bytes == 4 ? concat_variable_of<uint32_t, uint32_t>(source, position, size, count,
                                                                   out_offsets, out)
                          : concat_variable_of<uint32_t, uint64_t>(source, position, size, count,
                                                                   out_offsets, out);
  return out_bytes == 4 ? concat_variable_of<uint64_t, uint32_t>(source, position, size, count,
                                                                 out_offsets, out)
                        : concat_variable_of<uint64_t, uint64_t>(source, position, size, count,
                                                                 out_offsets, out);
}

int64_t pick_ranges(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                   ConstInts index, int64_t offset_bytes, Ints picked_position,
                   Ints picked_size) {
  return offset_bytes == 4 ? pick_ranges_of<uint32_t>(source, position, size, count, index,
                                                     picked_position, picked_size)
                           : pick_ranges_of<uint64_t>(source, position, size, count, index,
                                                     picked_position, picked_size);
}

}  // namespace LANCELET_NAMESPACE

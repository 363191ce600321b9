// Gather and scatter of byte ranges.
#include "copies.hpp"

namespace LANCELET_NAMESPACE {
namespace {

template <int64_t kWidth>
int64_t take_width(ConstBytes source, ConstInts position, Bytes out) {
  uint8_t* to = out.data;
  for (int64_t i = 0; i < position.size; ++i, to += kWidth) {
    if (!within(position.data[i], kWidth, source.size)) return fail(kOutOfSource, i);
    memcpy(to, source.data + position.data[i], kWidth);
  }
  return out.size;
}

template <class Offset>
int64_t take_ranges_of(ConstBytes offsets, int64_t data_bytes, ConstInts rows, Ints position,
                      Ints size) {
  const int64_t count = offsets.size / static_cast<int64_t>(sizeof(Offset)) - 1;
  int64_t total = 0;
  for (int64_t i = 0; i < rows.size; ++i) {
    const int64_t row = rows.data[i];
    if (row < 0 || row >= count) return fail(kBadIndex, i);
    const int64_t start = load<Offset>(offsets.data + row * sizeof(Offset));
    const int64_t stop = load<Offset>(offsets.data + (row + 1) * sizeof(Offset));
    if (start < 0 || stop < start || stop > data_bytes) return fail(kBadOffsets, i);
    position.data[i] = start;
    size.data[i] = stop - start;
    total += stop - start;
  }
  return total;
}

}  // namespace

int64_t copy_slices(ConstBytes source, ConstInts position, ConstInts size, Bytes out,
                    ConstInts out_position) {
  for (int64_t i = 0; i < position.size; ++i) {
    const int64_t from = position.data[i], to = out_position.data[i], bytes = size.data[i];
    if (!within(from, bytes, source.size)) return fail(kOutOfSource, i);
    if (!within(to, bytes, out.size)) return fail(kOutOfSource, i);
    if (bytes > 0) memcpy(out.data + to, source.data + from, bytes);
  }
  return 0;
}

int64_t scatter_slices(ConstBytes source, ConstInts position, ConstInts size, Bytes out,
                     ConstInts out_position, int64_t pad) {
  int64_t end = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    const int64_t from = position.data[i], to = out_position.data[i], bytes = size.data[i];
    if (!within(from, bytes, source.size)) return fail(kOutOfSource, i);
    if (to < end || !within(to, bytes, out.size)) return fail(kOutputFull, i);
    if (to > end) memset(out.data + end, static_cast<int>(pad), to - end);
    if (bytes > 0) memcpy(out.data + to, source.data + from, bytes);
    end = to + bytes;
  }
  if (out.size > end) memset(out.data + end, static_cast<int>(pad), out.size - end);
  return 0;
}

int64_t join_slices(ConstBytes source, ConstInts position, ConstInts size, Bytes out) {
  int64_t end = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    const int64_t from = position.data[i], bytes = size.data[i];
    if (!within(from, bytes, source.size)) return fail(kOutOfSource, i);
    if (bytes > out.size - end) return fail(kOutputFull, i);
    // The next copies overwrite the bytes written beyond the end.
    copy_ahead(out.data + end, out.size - end, source.data + from, source.size - from, bytes);
    end += bytes;
  }
  return end;
}

int64_t take_fixed(ConstBytes source, ConstInts position, int64_t width, Bytes out) {
  if (width < 0) return fail(kBadWidth, 0);
  if (width > 0 && out.size / width < position.size) return fail(kOutputFull, 0);
  switch (width) {
    case 1: return take_width<1>(source, position, out);
    case 2: return take_width<2>(source, position, out);
    case 4: return take_width<4>(source, position, out);
    case 8: return take_width<8>(source, position, out);
    case 16: return take_width<16>(source, position, out);
    default: break;
  }
  for (int64_t i = 0; i < position.size; ++i) {
    if (!within(position.data[i], width, source.size)) return fail(kOutOfSource, i);
    if (width > 0) memcpy(out.data + i * width, source.data + position.data[i], width);
  }
  return out.size;
}

int64_t take_ranges(ConstBytes offsets, int64_t offset_bytes, int64_t data_bytes, ConstInts rows,
                   Ints position, Ints size) {
  return offset_bytes == 4 ? take_ranges_of<int32_t>(offsets, data_bytes, rows, position, size)
                           : take_ranges_of<int64_t>(offsets, data_bytes, rows, position, size);
}

}  // namespace LANCELET_NAMESPACE

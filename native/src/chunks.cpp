// Chunk tables and chunk headers of mini-block pages.
//
// These loops over pages, chunks or rows are short, but taking a single row runs all of them, and
// as array operations they would cost more than decoding it.
#include "search.hpp"

namespace LANCELET_NAMESPACE {
namespace {

LANCELET_INLINE int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

int64_t locate_rows(ConstInts bounds, ConstInts rows, Ints parts, Ints part_indices, Ints within) {
  const int64_t count = rows.size;
  if (parts.size < count || part_indices.size < count || within.size < count)
    return fail(kOutputFull, 0);
  if (count > 0 && bounds.size < 2) return fail(kBadIndex, 0);
  int64_t found = 0;
  int64_t part = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows.data[i];
    if (row < bounds.data[0] || row >= bounds.data[bounds.size - 1] ||
        (i > 0 && row < rows.data[i - 1]))
      return fail(kBadIndex, i);
    if (i == 0 || row >= bounds.data[part + 1]) {
      part = part_of(bounds, part, row);
      parts.data[found++] = part;
    }
    part_indices.data[i] = found - 1;
    within.data[i] = row - bounds.data[part];
  }
  return found;
}

int64_t locate_chunks(args::Slices tables, int64_t entry_bytes, ConstInts num_values,
                      args::ChunkData chunk_data, int64_t count_max, Ints chunk_position,
                      Ints chunk_size, Ints count) {
  const ConstBytes source = tables.source;
  const ConstInts position = tables.position;
  const ConstInts size = tables.size;
  const ConstInts data_position = chunk_data.data_position;
  const ConstInts data_bytes = chunk_data.data_bytes;
  const int64_t pages = position.size;
  if (size.size < pages || num_values.size < pages || data_position.size < pages ||
      data_bytes.size < pages)
    return fail(kBadCount, 0);
  if (entry_bytes != 2 && entry_bytes != 4) return fail(kBadWidth, 0);
  int64_t chunk = 0;
  for (int64_t page = 0; page < pages; ++page) {
    if (!within(position.data[page], size.data[page], source.size))
      return fail(kOutOfSource, page);
    if (size.data[page] % entry_bytes != 0) return fail(kTooShort, page);
    const uint8_t* table = source.data + position.data[page];
    const int64_t chunks = size.data[page] / entry_bytes;
    if (chunks > smaller(chunk_position.size, smaller(chunk_size.size, count.size)) - chunk)
      return fail(kOutputFull, page);
    int64_t at = 0;
    int64_t left = num_values.data[page];
    for (int64_t i = 0; i < chunks; ++i, ++chunk) {
      const int64_t entry = entry_bytes == 4 ? static_cast<int64_t>(load<uint32_t>(table + 4 * i))
                                           : static_cast<int64_t>(load<uint16_t>(table + 2 * i));
      const int64_t values = i + 1 < chunks ? int64_t{1} << (entry & 15) : left;
      if (values <= 0 || values > count_max) return fail(kBadCount, page);
      chunk_position.data[chunk] = data_position.data[page] + at;
      chunk_size.data[chunk] = ((entry >> 4) + 1) * 8;
      count.data[chunk] = values;
      at += chunk_size.data[chunk];
      left -= values;
    }
    if (left != 0) return fail(kBadCount, page);
    if (at > data_bytes.data[page]) return fail(kTooShort, page);
  }
  return chunk;
}

int64_t split_chunks(ConstBytes source, ConstInts position, ConstInts size, int64_t num_levels,
                     int64_t num_buffers, int64_t size_bytes, Ints out) {
  const int64_t chunks = position.size;
  if (num_levels < 1 || num_levels > 3 || num_buffers < 0 || num_buffers > 1 << 20 ||
      (size_bytes != 2 && size_bytes != 4))
    return fail(kBadWidth, 0);
  const int64_t parts = num_levels - 1 + num_buffers;
  if (size.size < chunks || out.size < chunks * (1 + 2 * parts)) return fail(kOutputFull, 0);
  const int64_t head_bytes = 2 * num_levels + size_bytes * num_buffers;
  for (int64_t i = 0; i < chunks; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    if (size.data[i] < padded(head_bytes)) return fail(kTooShort, i);
    const uint8_t* head = source.data + position.data[i];
    const int64_t stop = position.data[i] + size.data[i];
    int64_t at = position.data[i] + padded(head_bytes);
    out.data[i] = load<uint16_t>(head);
    head += 2;
    for (int64_t part = 0; part < parts; ++part) {
      const bool is_wide = part >= num_levels - 1 && size_bytes == 4;
      const int64_t bytes = is_wide ? static_cast<int64_t>(load<uint32_t>(head))
                                    : static_cast<int64_t>(load<uint16_t>(head));
      head += is_wide ? 4 : 2;
      out.data[(1 + 2 * part) * chunks + i] = at;
      out.data[(2 + 2 * part) * chunks + i] = bytes;
      at += padded(bytes);
    }
    if (at > stop) return fail(kTooShort, i);
  }
  return chunks;
}

}  // namespace LANCELET_NAMESPACE

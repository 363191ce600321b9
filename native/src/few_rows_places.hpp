// Where the rows of columns are in a file, by the records of few_rows.hpp.
#pragma once

#include "few_rows.hpp"
#include "search.hpp"

namespace lancelet::once {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "once/read_ahead.def"
#undef KERNEL
}  // namespace lancelet::once

namespace LANCELET_NAMESPACE {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "checksum.def"
#undef KERNEL

namespace few {

// Where a value is: of a run, the chunk or page, and the place in it.
struct Spot {
  const int64_t* run;
  int64_t part;
  int64_t within;
};

// What is read: a range of the file for each spot, without those that are that of the one before.
struct Wanted {
  Spot* spots;
  int64_t* position;
  int64_t* size;
};

// The map, and what is known of it.
struct File {
  ConstBytes bytes;
  Bytes known;
  ConstInts blocks;
  Span<const uint32_t> sums;
  Bytes verified;

  // Ask for ranges and verify the blocks that they touch; 0 or a fault.
  int64_t prepare(ConstInts position, ConstInts size) const {
    const int64_t asked = lancelet::once::read_ahead(bytes, position, size, known);
    if (asked < 0) return asked;
    if (blocks.size < 3) return 0;
    const int64_t wrong = crc32c_verify(bytes, position, size, blocks.data[0], blocks.data[1],
                                        blocks.data[2], sums, verified);
    return wrong > 0 ? fail(kBadStream, wrong) : wrong;
  }
};

static LANCELET_INLINE int64_t number_at(const uint8_t* at, int64_t bytes) {
  switch (bytes) {
    case 1: return *at;
    case 2: return load<uint16_t>(at);
    case 4: return load<uint32_t>(at);
    default: return load<int64_t>(at);
  }
}

// Sets `place` to that of item `item` of `bytes` each, and says whether there is a number for it.
static LANCELET_INLINE bool place_of(int64_t position, int64_t item, int64_t bytes,
                                     int64_t* place) {
  if (position < 0 || item < 0 || bytes < 0 || (bytes && item > (INT64_MAX - position) / bytes))
    return false;
  *place = position + item * bytes;
  return true;
}

static inline int64_t find_in_chunks(const ChunkRun& run, int64_t row, Spot* spot, int64_t* position,
                       int64_t* size) {
  if (run.chunks < 1) return fail(kBadIndex, 0);
  const ConstInts bounds = {run.first_value.get(), run.chunks + 1};
  const int64_t chunk = part_of(bounds, 0, row);
  // Another thread may be filling in what was not known when the record was made.
  if (chunk >= run.chunks || (run.known && !run.known[chunk])) return fail(kBadIndex, 0);
  spot->part = chunk;
  if (bounds.data[chunk] < 0) return fail(kBadIndex, 0);
  spot->within = row - bounds.data[chunk];
  if (spot->within < 0 || spot->within >= run.count[chunk]) return fail(kBadIndex, 0);
  *position = run.position[chunk];
  *size = run.size[chunk];
  return 0;
}

static inline int64_t find_item(const ItemRun& run, int64_t row, Spot* spot, int64_t* position, int64_t* size) {
  const ConstInts bounds = {run.first_row.get(), run.pages + 1};
  const int64_t page = part_of(bounds, 0, row);
  if (page >= run.pages || bounds.data[page] < 0 || row < bounds.data[page])
    return fail(kBadIndex, 0);
  spot->part = page;
  spot->within = row - bounds.data[page];
  if (!place_of(run.position[page], spot->within, run.item_bytes, position))
    return fail(kBadIndex, 0);
  *size = run.item_bytes;
  return 0;
}

static inline int64_t find_zipped(const ZippedRun& run, const File& file, int64_t row, Spot* spot,
                    int64_t* position, int64_t* size) {
  if (row >= run.rows) return fail(kBadIndex, 0);
  const int64_t width = run.index_width;
  int64_t entry, both = 2 * width;
  if (!place_of(run.index_position, row, width, &entry)) return fail(kBadIndex, 0);
  const int64_t status = file.prepare({&entry, 1}, {&both, 1});
  if (status < 0) return status;
  const int64_t start = number_at(file.bytes.data + entry, width);
  const int64_t stop = number_at(file.bytes.data + entry + width, width);
  if (start < 0 || stop < start || stop > run.size) return fail(kBadOffsets, 0);
  spot->part = spot->within = row;
  if (!place_of(run.position, start, 1, position)) return fail(kBadIndex, 0);
  *size = stop - start;
  return 0;
}

static inline int64_t find(const Column& column, const File& file, int64_t row, Spot* spot, int64_t* position,
             int64_t* size) {
  const ConstInts bounds = {column.first_row.get(), column.runs + 1};
  if (row < 0 || row >= bounds.data[column.runs]) return fail(kBadIndex, 0);
  const int64_t place = column.runs == 1 ? 0 : part_of(bounds, 0, row);
  spot->run = reinterpret_cast<const int64_t*>(column.run[place]);
  if (spot->run == nullptr || bounds.data[place] < 0) return fail(kBadIndex, 0);
  const int64_t own = row - bounds.data[place];
  switch (spot->run[0]) {
    case kChunks:
      return find_in_chunks(*reinterpret_cast<const ChunkRun*>(spot->run), own, spot, position,
                            size);
    case kItems:
      return find_item(*reinterpret_cast<const ItemRun*>(spot->run), own, spot, position, size);
    case kZippedStrings:
      return find_zipped(*reinterpret_cast<const ZippedRun*>(spot->run), file, own, spot, position,
                         size);
    case kConstant:
      spot->part = spot->within = *position = *size = 0;
      return 0;
    default:
      return fail(kBadWidth, 0);
  }
}

}  // namespace few
}  // namespace LANCELET_NAMESPACE

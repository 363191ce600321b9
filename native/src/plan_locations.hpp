// Locations of rows in a file, by the plans of plan.hpp.
#pragma once

#include "plan.hpp"
#include "search.hpp"

namespace LANCELET_NAMESPACE {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "plans.def"
#undef KERNEL

namespace planned {

using namespace lancelet::plan;

// Location of a value: page, chunk or row, and index within it. For nested pages: the start of a
// row and its last chunk; for their values: whether the levels are null.
struct ValueLocation {
  const Page* page;
  int64_t part;
  int64_t within;
  int64_t last;
  int64_t is_null;  // -1 if the chunk's definition levels decide
};

static LANCELET_INLINE int64_t number_at(const uint8_t* at, int64_t bytes) {
  switch (bytes) {
    case 1: return *at;
    case 2: return load<uint16_t>(at);
    case 4: return load<uint32_t>(at);
    default: return load<int64_t>(at);
  }
}

// Computes the position of item `item` of `bytes` each. Returns false on overflow.
static LANCELET_INLINE bool item_position(int64_t position, int64_t item, int64_t bytes,
                                     int64_t* found) {
  if (position < 0 || item < 0 || bytes < 0 || (bytes && item > (INT64_MAX - position) / bytes))
    return false;
  *found = position + item * bytes;
  return true;
}

static inline int64_t find_in_chunks(const Page& page, int64_t row, ValueLocation* location,
                                     int64_t* position, int64_t* size) {
  const ConstInts bounds = {page.first_value, page.chunks + 1};
  if (page.chunks < 1 || row >= bounds.data[page.chunks]) return fail(kBadIndex, 0);
  const int64_t chunk = part_of(bounds, 0, row);
  location->part = chunk;
  location->within = row - bounds.data[chunk];
  location->last = chunk;
  *position = page.chunk_position[chunk];
  *size = page.chunk_size[chunk];
  return 0;
}

// Finds a row of lists, which spans consecutive chunks.
static inline int64_t find_lists(const Page& page, int64_t row, ValueLocation* location, int64_t* position,
                                 int64_t* size) {
  if (page.chunks < 1) return fail(kBadIndex, 0);
  const int64_t first = part_of({page.begun, page.chunks + 1}, 0, row);
  const int64_t last = part_of({page.ended, page.chunks + 1}, 0, row);
  if (first >= page.chunks || last >= page.chunks || first > last || row < page.begun[first])
    return fail(kBadIndex, 0);
  location->part = first;
  location->last = last;
  location->within = row - page.begun[first];
  *position = page.chunk_position[first];
  *size = page.chunk_position[last] + page.chunk_size[last] - *position;
  return 0;
}

static inline int64_t find_zipped(const Page& page, const File& file, int64_t row, ValueLocation* location,
                                  int64_t* position, int64_t* size) {
  const int64_t width = page.index_width;
  int64_t entry, both = 2 * width;
  if (!item_position(page.index_position, row, width, &entry)) return fail(kBadIndex, 0);
  const int64_t status = prepare_ranges(file, {&entry, 1}, {&both, 1});
  if (status < 0) return status;
  const int64_t start = number_at(file.bytes.data + entry, width);
  const int64_t stop = number_at(file.bytes.data + entry + width, width);
  if (start < 0 || stop < start || stop > page.size) return fail(kBadOffsets, 0);
  location->part = location->within = row;
  if (!item_position(page.position, start, 1, position)) return fail(kBadIndex, 0);
  *size = stop - start;
  return 0;
}

// Finds the location and byte range of a row.
static inline int64_t find(const Page& page, const File& file, int64_t row, ValueLocation* location,
                           int64_t* position, int64_t* size) {
  location->page = &page;
  location->is_null = -1;
  if (row < 0 || row >= page.rows) return fail(kBadIndex, 0);
  switch (page.layout) {
    case kChunks:
      return page.begun != nullptr ? find_lists(page, row, location, position, size)
                                   : find_in_chunks(page, row, location, position, size);
    case kItems:
      location->part = location->within = row;
      *size = page.item_bytes;
      return item_position(page.position, row, page.item_bytes, position) ? 0 : fail(kBadIndex, 0);
    case kZippedStrings:
      return find_zipped(page, file, row, location, position, size);
    case kConstant:
      location->part = location->within = *position = *size = 0;
      return 0;
    default:
      return fail(kBadWidth, 0);
  }
}

}  // namespace planned
}  // namespace LANCELET_NAMESPACE

// Pieces of a column: the chunks or items that hold requested rows.
//
//     rows 100..3000 of chunks of 1024    pieces   chunk 0: 100..1024   chunk 1: all   chunk 2: ..952
//     rows 7 9 5000                                chunk 0: 7 9         chunk 4: 904
//
// A piece is decoded once, and a whole chunk without intermediate copy.
#pragma once

#include "cached_memory.hpp"
#include "plan.hpp"
#include "search.hpp"

namespace LANCELET_NAMESPACE {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "plans.def"
#undef KERNEL

namespace planned {

using namespace lancelet::plan;

// A growing array.
template <class T>
struct Grown {
  T* data = nullptr;
  int64_t count = 0, room = 0;

  Grown() = default;
  Grown(const Grown&) = delete;
  Grown& operator=(const Grown&) = delete;
  ~Grown() { CachedMemory::of_thread().give(data, room * static_cast<int64_t>(sizeof(T))); }

  bool reserve(int64_t more) {
    if (more <= room - count) return true;
    const int64_t target = larger<int64_t>(larger<int64_t>(64, 2 * room), count + more);
    constexpr auto width = static_cast<int64_t>(sizeof(T));
    CachedMemory& memory = CachedMemory::of_thread();
    int64_t size = 0;
    void* const moved = memory.take(target * width, &size);
    if (moved == nullptr) return false;
    if (count > 0) memcpy(moved, data, static_cast<size_t>(count * width));
    memory.give(data, room * width);
    data = static_cast<T*>(moved);
    room = size / width;
    return true;
  }

  bool add(const T& item) {
    if (!reserve(1)) return false;
    data[count++] = item;
    return true;
  }

  // Returns the memory, which the caller frees.
  T* release() {
    T* const released = data;
    data = nullptr;
    return released;
  }

  bool add(const T* items, int64_t more) {
    if (!reserve(more)) return false;
    if (more > 0) memcpy(data + count, items, static_cast<size_t>(more) * sizeof(T));
    count += more;
    return true;
  }
};

// Consecutive values of a chunk.
struct Run {
  int64_t start, count;
};

// Requests `start` to `start + count` that are in one chunk, in the chunks of rows of lists, in
// consecutive items, or in a constant page.
struct Piece {
  const Page* page;
  int64_t part, last;  // chunks, or the first item
  int64_t start, count;
  int64_t base;  // the row number of the first value of a chunk, or of the first row of the page
  int64_t position, size;
  int64_t first_run, num_runs;  // of values beneath lists, which are not found by row number
  int64_t shift;                // from positions in the file to positions in fetched bytes
};

static LANCELET_INLINE int64_t row_at(const Rows& rows, int64_t i) {
  return rows.numbers == nullptr ? rows.first + i : rows.numbers[i];
}

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

// Returns the part of a row. The search starts at `from`, the part of the previous row.
static LANCELET_INLINE int64_t next_part(const int64_t* bounds, int64_t parts, int64_t from,
                                         int64_t row) {
  return part_of({bounds, parts + 1}, bounds[from] <= row ? from : 0, row);
}

// Returns the number of requests from `i` on, at most `count`, for consecutive rows.
static inline int64_t count_consecutive(const Rows& rows, int64_t i, int64_t count) {
  if (rows.numbers == nullptr) return count;
  int64_t found = 1;
  while (found < count && rows.numbers[i + found] == rows.numbers[i] + found) ++found;
  return found;
}

// Finds the pieces of chunks of values.
static inline int64_t find_in_chunks(const PageRows& wanted, const Rows& rows,
                                     Grown<Piece>* pieces) {
  const Page& page = *wanted.page;
  const int64_t* const bounds = page.first_value;
  if (page.chunks < 1) return fail(kBadIndex, 0);
  int64_t part = 0;
  for (int64_t i = 0, count; i < wanted.count; i += count) {
    const int64_t row = row_at(rows, wanted.start + i) - wanted.first_row;
    part = next_part(bounds, page.chunks, part, row);
    if (part >= page.chunks) return fail(kBadIndex, i);
    const int64_t low = bounds[part], high = bounds[part + 1];
    if (rows.numbers == nullptr) {
      count = smaller(wanted.count - i, high - row);
    } else {
      const int64_t* const numbers = rows.numbers + wanted.start + i;
      const auto size = static_cast<uint64_t>(high - low);
      const int64_t shift = wanted.first_row + low;
      for (count = 1; count < wanted.count - i; ++count)
        if (static_cast<uint64_t>(numbers[count] - shift) >= size) break;
    }
    if (!pieces->add({&page, part, part, wanted.start + i, count, wanted.first_row + low,
                      page.chunk_position[part], page.chunk_size[part], 0, 0, 0}))
      return fail(kNoMemory, 0);
  }
  return 0;
}

// Finds the pieces of rows of lists. Rows of a piece ascend, and their chunks overlap.
static inline int64_t find_lists(const PageRows& wanted, const Rows& rows, Grown<Piece>* pieces) {
  const Page& page = *wanted.page;
  if (page.chunks < 1) return fail(kBadIndex, 0);
  int64_t first = 0, last = 0;
  // Finds the chunks of a row, from those of an earlier row.
  const auto find = [&](int64_t row) {
    first = next_part(page.begun, page.chunks, first, row);
    last = next_part(page.ended, page.chunks, last, row);
    return first < page.chunks && last < page.chunks && first <= last && row >= page.begun[first];
  };
  for (int64_t i = 0, count; i < wanted.count; i += count) {
    int64_t row = row_at(rows, wanted.start + i) - wanted.first_row;
    if (!find(row)) return fail(kBadIndex, i);
    const int64_t part = first;
    if (rows.numbers == nullptr) {
      count = wanted.count;
      if (!find(row + count - 1)) return fail(kBadIndex, i);
    } else {
      for (count = 1; i + count < wanted.count; ++count) {
        const int64_t next = row_at(rows, wanted.start + i + count) - wanted.first_row;
        if (next <= row || next >= page.begun[last + 1]) break;
        if (!find(next)) return fail(kBadIndex, i + count);
        row = next;
      }
    }
    const int64_t position = page.chunk_position[part];
    if (!pieces->add({&page, part, last, wanted.start + i, count, wanted.first_row, position,
                      page.chunk_position[last] + page.chunk_size[last] - position, 0, 0, 0}))
      return fail(kNoMemory, 0);
  }
  return 0;
}

// Finds the pieces of items with a known or indexed position.
static inline int64_t find_items(const PageRows& wanted, const Rows& rows, const File& file,
                                 Grown<Piece>* pieces) {
  const Page& page = *wanted.page;
  for (int64_t i = 0, count; i < wanted.count; i += count) {
    count = count_consecutive(rows, wanted.start + i, wanted.count - i);
    const int64_t row = row_at(rows, wanted.start + i) - wanted.first_row;
    Piece piece = {&page, row, row, wanted.start + i, count, wanted.first_row, 0, 0, 0, 0, 0};
    if (page.layout == kItems) {
      if (!item_position(page.position, row, page.item_bytes, &piece.position) ||
          !item_position(0, count, page.item_bytes, &piece.size))
        return fail(kBadIndex, i);
    } else {
      if (file.fetched != nullptr) return fail(kBadWidth, 0);  // the index is not fetched
      const int64_t width = page.index_width;
      int64_t entry, entries;
      if (!item_position(page.index_position, row, width, &entry) ||
          !item_position(0, count + 1, width, &entries))
        return fail(kBadIndex, i);
      const int64_t status = prepare_ranges(file, {&entry, 1}, {&entries, 1});
      if (status < 0) return status;
      const uint8_t* const index = file.bytes.data + entry;
      const int64_t start = number_at(index, width);
      const int64_t stop = number_at(index + count * width, width);
      if (start < 0 || stop < start || stop > page.size) return fail(kBadOffsets, i);
      if (!item_position(page.position, start, 1, &piece.position)) return fail(kBadIndex, i);
      piece.size = stop - start;
    }
    if (!pieces->add(piece)) return fail(kNoMemory, 0);
  }
  return 0;
}

// Finds the pieces of a column. Returns 0 or a fault.
static inline int64_t find_pieces(const File& file, const ColumnRows& requests, const Rows& rows,
                                  Grown<Piece>* pieces) {
  const int64_t before = pieces->count;
  for (int64_t i = 0; i < requests.num_pages; ++i) {
    const PageRows& wanted = requests.pages[i];
    const Page& page = *wanted.page;
    int64_t status = 0;
    switch (page.layout) {
      case kChunks:
        status = page.begun != nullptr ? find_lists(wanted, rows, pieces)
                                       : find_in_chunks(wanted, rows, pieces);
        break;
      case kItems:
      case kZippedStrings:
        status = find_items(wanted, rows, file, pieces);
        break;
      case kConstant:
        if (!pieces->add({&page, 0, 0, wanted.start, wanted.count, 0, 0, 0, 0, 0, 0}))
          status = fail(kNoMemory, 0);
        break;
      default:
        status = fail(kBadWidth, 0);
    }
    if (status < 0) return status;
  }
  // Fetched ranges are compared with the ranges of the pieces.
  for (int64_t i = before; i < pieces->count && file.fetched == nullptr; ++i)
    if (!within(pieces->data[i].position, pieces->data[i].size, file.bytes.size))
      return fail(kOutOfSource, i);
  return 0;
}

}  // namespace planned
}  // namespace LANCELET_NAMESPACE

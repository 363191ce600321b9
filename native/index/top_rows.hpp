// The k best rows.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

struct Row {
  float score;
  uint64_t address;
};

LANCELET_INLINE bool nearer(Row a, Row b) {
  return a.score < b.score || (a.score == b.score && a.address < b.address);
}

// A heap of the best rows, farthest on top, in arrays of the caller.
struct TopRows {
  Span<float> scores;
  Span<uint64_t> addresses;
  int64_t size;

  LANCELET_INLINE Row at(int64_t k) const { return {scores.data[k], addresses.data[k]}; }

  LANCELET_INLINE void put(int64_t k, Row row) {
    scores.data[k] = row.score;
    addresses.data[k] = row.address;
  }

  LANCELET_INLINE bool takes(Row row) const { return size < scores.size || nearer(row, at(0)); }

  // Sifts a row down from an index.
  LANCELET_INLINE void sink(int64_t index, Row row) {
    for (;;) {
      int64_t child = 2 * index + 1;
      if (child >= size) break;
      if (child + 1 < size && nearer(at(child), at(child + 1))) ++child;
      if (!nearer(row, at(child))) break;
      put(index, at(child));
      index = child;
    }
    put(index, row);
  }

  LANCELET_INLINE void add(Row row) {
    if (size == scores.size) {
      sink(0, row);
      return;
    }
    int64_t index = size++;
    while (index > 0) {
      const int64_t parent = (index - 1) / 2;
      if (!nearer(at(parent), row)) break;
      put(index, at(parent));
      index = parent;
    }
    put(index, row);
  }

  LANCELET_INLINE void sort() {
    const int64_t whole = size;
    while (size > 1) {
      const Row last = at(--size);
      const Row farthest = at(0);
      sink(0, last);
      put(size, farthest);
    }
    size = whole;
  }
};

}  // namespace
}  // namespace LANCELET_NAMESPACE

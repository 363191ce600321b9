// HNSW graph traversal: distances by vector type, and the search of a level.
#pragma once

#include "distances.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr uint32_t kNoRow = 0xffffffffu;

enum Kind : int64_t { kFloatL2 = 0, kFloatDot = 1, kByteL2 = 2, kByteDot = 3, kTable = 4 };

// Distances of a query from vectors of each type.
struct FloatL2 {
  static constexpr int64_t kBytes = 4;
  static constexpr int64_t kQueryBytes = 4;
  static LANCELET_INLINE float between(const uint8_t* vector, const uint8_t* query,
                                       int64_t dimension) {
    float distance, none;
    add_up<Plain<float>, kL2>(vector, query, dimension, &distance, &none);
    return distance;
  }
};

struct FloatDot {
  static constexpr int64_t kBytes = 4;
  static constexpr int64_t kQueryBytes = 4;
  static LANCELET_INLINE float between(const uint8_t* vector, const uint8_t* query,
                                       int64_t dimension) {
    float product, none;
    add_up<Plain<float>, kDot>(vector, query, dimension, &product, &none);
    return -product;
  }
};

struct ByteL2 {
  static constexpr int64_t kBytes = 1;
  static constexpr int64_t kQueryBytes = 1;
  static LANCELET_INLINE float between(const uint8_t* vector, const uint8_t* query,
                                       int64_t dimension) {
    return squared_byte_distance(vector, query, dimension);
  }
};

struct ByteDot {
  static constexpr int64_t kBytes = 1;
  static constexpr int64_t kQueryBytes = 4;
  static LANCELET_INLINE float between(const uint8_t* vector, const uint8_t* query,
                                       int64_t dimension) {
    return -weighted<uint8_t>(vector, reinterpret_cast<const float*>(query), dimension);
  }
};

struct Table {
  static constexpr int64_t kBytes = 1;
  static constexpr int64_t kQueryBytes = 1024;
  static LANCELET_INLINE float between(const uint8_t* vector, const uint8_t* query,
                                       int64_t dimension) {
    float sum = 0;
    for (int64_t k = 0; k < dimension; ++k)
      sum += load<float>(query + (k * 256 + vector[k]) * 4);
    return sum;
  }
};

struct Near {
  float distance;
  uint32_t row;
};

LANCELET_INLINE bool before(Near a, Near b) {
  return a.distance < b.distance || (a.distance == b.distance && a.row < b.row);
}

// A heap with the nearest item at the top, or the farthest if `kFarthest`.
template <bool kFarthest>
struct Heap {
  Near* items;
  int64_t size;

  static LANCELET_INLINE bool above(Near a, Near b) {
    return kFarthest ? before(b, a) : before(a, b);
  }

  LANCELET_INLINE void push(Near item) {
    int64_t at = size++;
    while (at > 0) {
      const int64_t parent = (at - 1) / 2;
      if (!above(item, items[parent])) break;
      items[at] = items[parent];
      at = parent;
    }
    items[at] = item;
  }

  LANCELET_INLINE Near pop() {
    const Near first = items[0];
    const Near item = items[--size];
    if (size > 0) sink(item);
    return first;
  }

  // Pops and pushes in one descent; the heap must not be empty.
  LANCELET_INLINE void replace(Near item) { sink(item); }

  LANCELET_INLINE void sink(Near item) {
    int64_t at = 0;
    for (;;) {
      int64_t child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && above(items[child + 1], items[child])) ++child;
      if (!above(items[child], item)) break;
      items[at] = items[child];
      at = child;
    }
    items[at] = item;
  }
};

LANCELET_INLINE void sort(Near* items, int64_t count) {
  Heap<true> heap{items, 0};
  for (int64_t k = 0; k < count; ++k) heap.push(items[k]);
  for (int64_t k = count - 1; k >= 0; --k) {
    const Near last = heap.pop();
    items[k] = last;
  }
}

// Memory of one search. Visited rows are a bitmap; the open list grows on demand.
struct Scratch {
  static constexpr int64_t kOpenRoom = 1024;

  uint64_t* seen;
  int64_t num_words;
  Heap<false> open;
  int64_t room;
  Heap<true> best;
  Near* chosen;
  bool is_out;

  bool allocate(int64_t count, int64_t candidates) {
    is_out = false;
    num_words = count / 64 + 1;
    room = smaller(count + 1, kOpenRoom);
    seen = static_cast<uint64_t*>(malloc(static_cast<size_t>(num_words) * 8));
    open = {static_cast<Near*>(malloc(static_cast<size_t>(room) * sizeof(Near))), 0};
    const size_t capacity = static_cast<size_t>(candidates) + 2;
    best = {static_cast<Near*>(malloc(capacity * sizeof(Near))), 0};
    chosen = static_cast<Near*>(malloc(capacity * sizeof(Near)));
    return seen && open.items && best.items && chosen;
  }

  void release() {
    free(seen);
    free(open.items);
    free(best.items);
    free(chosen);
  }

  LANCELET_INLINE void begin() {
    memset(seen, 0, static_cast<size_t>(num_words) * 8);
    open.size = best.size = 0;
  }

  LANCELET_INLINE bool visit(uint32_t row) {
    uint64_t& word = seen[row >> 6];
    const uint64_t bit = uint64_t{1} << (row & 63);
    if (word & bit) return false;
    word |= bit;
    return true;
  }

  LANCELET_INLINE void push_open(Near item) {
    if (LANCELET_UNLIKELY(open.size == room) && !grow()) return;
    open.push(item);
  }

  bool grow() {
    Near* more = static_cast<Near*>(realloc(open.items, static_cast<size_t>(room) * 2 * sizeof(Near)));
    if (more == nullptr) {
      is_out = true;
      return false;
    }
    open.items = more;
    room *= 2;
    return true;
  }
};

struct Links {
  const uint32_t* rows;
  int64_t count;
};

LANCELET_INLINE void prefetch(const uint8_t* from, int64_t bytes) {
#if !defined(_MSC_VER)
  for (int64_t k = 0; k < bytes; k += 64) __builtin_prefetch(from + k);
#endif
}

// Finds the best `candidates` near `start`. The vectors of a list are prefetched before the first
// is compared, so that memory accesses overlap.
template <class Distance, class Neighbors>
LANCELET_INLINE void widen(ConstBytes vectors, int64_t dimension, const uint8_t* query,
                           Scratch& scratch, int64_t candidates, const uint8_t* allowed,
                           Near start, Neighbors neighbors) {
  constexpr int64_t kGroup = 32;
  constexpr int64_t kAhead = 512;  // bytes to prefetch; hardware prefetchers continue
  const int64_t bytes = dimension * Distance::kBytes;
  scratch.begin();
  scratch.visit(start.row);
  scratch.push_open(start);
  if (!allowed || allowed[start.row]) scratch.best.push(start);
  while (scratch.open.size > 0 && !scratch.is_out) {
    const Near next = scratch.open.pop();
    if (scratch.best.size >= candidates && next.distance > scratch.best.items[0].distance) break;
    const Links links = neighbors(next.row);
    for (int64_t first = 0; first < links.count; first += kGroup) {
      const int64_t stop = smaller(first + kGroup, links.count);
      uint32_t fresh[kGroup];
      int64_t count = 0;
      for (int64_t k = first; k < stop; ++k)
        if (scratch.visit(links.rows[k])) {
          fresh[count++] = links.rows[k];
          prefetch(vectors.data + links.rows[k] * bytes, smaller(bytes, kAhead));
        }
      for (int64_t k = 0; k < count; ++k) {
        const uint32_t row = fresh[k];
        const float distance = Distance::between(vectors.data + row * bytes, query, dimension);
        const bool is_full = scratch.best.size >= candidates;
        if (is_full && !(distance < scratch.best.items[0].distance)) continue;
        const Near item{distance, row};
        scratch.push_open(item);
        if (allowed && !allowed[row]) continue;
        if (is_full)
          scratch.best.replace(item);
        else
          scratch.best.push(item);
      }
    }
  }
}

template <class Distance, class Neighbors>
LANCELET_INLINE Near descend(ConstBytes vectors, int64_t dimension, const uint8_t* query,
                             Near start, Neighbors neighbors) {
  const int64_t bytes = dimension * Distance::kBytes;
  for (bool moved = true; moved;) {
    moved = false;
    const Links links = neighbors(start.row);
    for (int64_t k = 0; k < links.count; ++k)
      prefetch(vectors.data + links.rows[k] * bytes, smaller(bytes, int64_t{512}));
    for (int64_t k = 0; k < links.count; ++k) {
      const uint32_t row = links.rows[k];
      const float distance = Distance::between(vectors.data + row * bytes, query, dimension);
      if (distance < start.distance) {
        start = {distance, row};
        moved = true;
      }
    }
  }
  return start;
}

}  // namespace
}  // namespace LANCELET_NAMESPACE

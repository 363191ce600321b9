// Graphs of near neighbours in levels: built by insertion, searched from the top.
//
// To insert a vector, descend greedily to its highest level, then on each level down look at the
// best `candidates` and connect it with some of them: one is kept if it is nearer to the vector
// than to all that were kept before, so that connections point in different directions. A vector
// with too many connections keeps some of them by the same rule.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kLanes = 32;
constexpr uint32_t kNobody = 0xffffffffu;

enum Kind : int64_t { kFloatL2 = 0, kFloatDot = 1, kByteL2 = 2, kByteDot = 3, kTable = 4 };

LANCELET_INLINE float folded(float* sums) {
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

// How far a query is from a vector, for each kind of vector.
struct FloatL2 {
  static constexpr int64_t kBytes = 4;
  static constexpr int64_t kQueryBytes = 4;
  static LANCELET_INLINE float between(const uint8_t* vector, const uint8_t* query,
                                       int64_t dimension) {
    float sums[kLanes] = {};
    int64_t k = 0;
    for (; k + kLanes <= dimension; k += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const float apart =
            load<float>(vector + (k + lane) * 4) - load<float>(query + (k + lane) * 4);
        sums[lane] += apart * apart;
      }
    for (int64_t lane = 0; k < dimension; ++k, ++lane) {
      const float apart = load<float>(vector + k * 4) - load<float>(query + k * 4);
      sums[lane] += apart * apart;
    }
    return folded(sums);
  }
};

struct FloatDot {
  static constexpr int64_t kBytes = 4;
  static constexpr int64_t kQueryBytes = 4;
  static LANCELET_INLINE float between(const uint8_t* vector, const uint8_t* query,
                                       int64_t dimension) {
    float sums[kLanes] = {};
    int64_t k = 0;
    for (; k + kLanes <= dimension; k += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane)
        sums[lane] += load<float>(vector + (k + lane) * 4) * load<float>(query + (k + lane) * 4);
    for (int64_t lane = 0; k < dimension; ++k, ++lane)
      sums[lane] += load<float>(vector + k * 4) * load<float>(query + k * 4);
    return -folded(sums);
  }
};

struct ByteL2 {
  static constexpr int64_t kBytes = 1;
  static constexpr int64_t kQueryBytes = 1;
  static LANCELET_INLINE float between(const uint8_t* vector, const uint8_t* query,
                                       int64_t dimension) {
    int32_t sum = 0;
    for (int64_t k = 0; k < dimension; ++k) {
      const int16_t apart = static_cast<int16_t>(static_cast<int16_t>(vector[k]) - query[k]);
      sum += static_cast<int32_t>(apart) * apart;
    }
    return static_cast<float>(sum);
  }
};

struct ByteDot {
  static constexpr int64_t kBytes = 1;
  static constexpr int64_t kQueryBytes = 4;
  static LANCELET_INLINE float between(const uint8_t* vector, const uint8_t* query,
                                       int64_t dimension) {
    float sums[kLanes] = {};
    int64_t k = 0;
    for (; k + kLanes <= dimension; k += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane)
        sums[lane] +=
            static_cast<float>(vector[k + lane]) * load<float>(query + (k + lane) * 4);
    for (int64_t lane = 0; k < dimension; ++k, ++lane)
      sums[lane] += static_cast<float>(vector[k]) * load<float>(query + k * 4);
    return -folded(sums);
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

// A heap whose first is the nearest, or the farthest if `kFarthest`.
template <bool kFarthest>
struct Heap {
  Near* items;
  int64_t size;

  static LANCELET_INLINE bool above(Near a, Near b) { return kFarthest ? before(b, a) : before(a, b); }

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
    int64_t at = 0;
    for (;;) {
      int64_t child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && above(items[child + 1], items[child])) ++child;
      if (!above(items[child], item)) break;
      items[at] = items[child];
      at = child;
    }
    if (size > 0) items[at] = item;
    return first;
  }
};

// Memory for one search at a time among so many vectors.
struct Scratch {
  uint32_t* seen;
  uint32_t turn;
  Heap<false> open;
  Heap<true> best;
  Near* chosen;

  bool allocate(int64_t count, int64_t candidates) {
    turn = 0;
    seen = static_cast<uint32_t*>(calloc(static_cast<size_t>(count) + 1, 4));
    open = {static_cast<Near*>(malloc((static_cast<size_t>(count) + 1) * sizeof(Near))), 0};
    const size_t room = static_cast<size_t>(candidates) + 2;
    best = {static_cast<Near*>(malloc(room * sizeof(Near))), 0};
    chosen = static_cast<Near*>(malloc(room * sizeof(Near)));
    return seen && open.items && best.items && chosen;
  }

  void release() {
    free(seen);
    free(open.items);
    free(best.items);
    free(chosen);
  }

  LANCELET_INLINE bool visit(uint32_t row) {
    if (seen[row] == turn) return false;
    seen[row] = turn;
    return true;
  }
};

struct Links {
  const uint32_t* rows;
  int64_t count;
};

// Finds the best `candidates` from `scratch.best` on, whose members are to be visited already.
template <class Distance, class Neighbors>
LANCELET_INLINE void widen(ConstBytes vectors, int64_t dimension, const uint8_t* query,
                           Scratch& scratch, int64_t candidates, const uint8_t* admitted,
                           Near start, Neighbors neighbors) {
  ++scratch.turn;
  scratch.open.size = scratch.best.size = 0;
  scratch.visit(start.row);
  scratch.open.push(start);
  if (!admitted || admitted[start.row]) scratch.best.push(start);
  while (scratch.open.size > 0) {
    const Near next = scratch.open.pop();
    if (scratch.best.size >= candidates && next.distance > scratch.best.items[0].distance) break;
    const Links links = neighbors(next.row);
    for (int64_t k = 0; k < links.count; ++k) {
      const uint32_t row = links.rows[k];
#if !defined(_MSC_VER)
      if (k + 1 < links.count)
        __builtin_prefetch(vectors.data +
                           static_cast<int64_t>(links.rows[k + 1]) * dimension * Distance::kBytes);
#endif
      if (!scratch.visit(row)) continue;
      const float distance =
          Distance::between(vectors.data + row * dimension * Distance::kBytes, query, dimension);
      const Near item{distance, row};
      if (scratch.best.size < candidates || distance < scratch.best.items[0].distance) {
        scratch.open.push(item);
        if (!admitted || admitted[row]) {
          if (scratch.best.size >= candidates) scratch.best.pop();
          scratch.best.push(item);
        }
      }
    }
  }
}

template <class Distance, class Neighbors>
LANCELET_INLINE Near descend(ConstBytes vectors, int64_t dimension, const uint8_t* query,
                             Near start, Neighbors neighbors) {
  for (bool moved = true; moved;) {
    moved = false;
    const Links links = neighbors(start.row);
    for (int64_t k = 0; k < links.count; ++k) {
      const uint32_t row = links.rows[k];
      const float distance =
          Distance::between(vectors.data + row * dimension * Distance::kBytes, query, dimension);
      if (distance < start.distance) {
        start = {distance, row};
        moved = true;
      }
    }
  }
  return start;
}

// Keeps at most `most` of `count` candidates, the nearest first, and returns how many. What the
// rule leaves out comes after what it keeps while there are fewer than `least`.
template <class Distance>
LANCELET_INLINE int64_t diverse(ConstBytes vectors, int64_t dimension, const Near* sorted,
                                int64_t count, int64_t least, int64_t most, uint32_t* kept) {
  const int64_t bytes = dimension * Distance::kBytes;
  int64_t size = 0;
  for (int64_t k = 0; k < count && size < most; ++k) {
    const uint8_t* own = vectors.data + sorted[k].row * bytes;
    bool is_kept = true;
    for (int64_t other = 0; other < size && is_kept; ++other)
      is_kept = Distance::between(vectors.data + kept[other] * bytes, own, dimension) >
                sorted[k].distance;
    if (is_kept) kept[size++] = sorted[k].row;
  }
  for (int64_t k = 0; k < count && size < least; ++k) {
    bool is_new = true;
    for (int64_t other = 0; other < size && is_new; ++other) is_new = kept[other] != sorted[k].row;
    if (is_new) kept[size++] = sorted[k].row;
  }
  return size;
}

struct Graph {
  int64_t connections;
  uint32_t* base;
  uint32_t* base_counts;
  uint32_t* upper;
  uint32_t* upper_counts;
  const int64_t* first_upper;

  LANCELET_INLINE int64_t room(int64_t level) const {
    return level == 0 ? 2 * connections : connections;
  }
  LANCELET_INLINE uint32_t* list(uint32_t row, int64_t level) const {
    return level == 0 ? base + static_cast<int64_t>(row) * 2 * connections
                      : upper + (first_upper[row] + level - 1) * connections;
  }
  LANCELET_INLINE uint32_t* count(uint32_t row, int64_t level) const {
    return level == 0 ? base_counts + row : upper_counts + first_upper[row] + level - 1;
  }
  LANCELET_INLINE Links links(uint32_t row, int64_t level) const {
    return {list(row, level), static_cast<int64_t>(*count(row, level))};
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

template <class Distance>
LANCELET_INLINE void link_back(ConstBytes vectors, int64_t dimension, const Graph& graph,
                               Scratch& scratch, uint32_t from, uint32_t to, int64_t level) {
  uint32_t* own = graph.list(from, level);
  uint32_t* count = graph.count(from, level);
  const int64_t room = graph.room(level);
  if (*count < room) {
    own[(*count)++] = to;
    return;
  }
  const int64_t bytes = dimension * Distance::kBytes;
  const uint8_t* query = vectors.data + from * bytes;
  for (int64_t k = 0; k <= room; ++k) {
    const uint32_t row = k < room ? own[k] : to;
    scratch.chosen[k] = {Distance::between(vectors.data + row * bytes, query, dimension), row};
  }
  sort(scratch.chosen, room + 1);
  *count = static_cast<uint32_t>(
      diverse<Distance>(vectors, dimension, scratch.chosen, room + 1, 0, room, own));
}

template <class Distance>
int64_t build(ConstBytes vectors, int64_t dimension, int64_t candidates, ConstBytes levels,
              const Graph& graph, Scratch& scratch) {
  const int64_t bytes = dimension * Distance::kBytes;
  uint32_t entry = 0;
  for (uint32_t row = 1; row < levels.size; ++row) {
    const uint8_t* query = vectors.data + row * bytes;
    Near near{Distance::between(vectors.data + entry * bytes, query, dimension), entry};
    const int64_t top = levels.data[entry], own = levels.data[row];
    for (int64_t level = top; level > own; --level)
      near = descend<Distance>(vectors, dimension, query, near, [&](uint32_t each) {
        return graph.links(each, level);
      });
    for (int64_t level = smaller(top, own); level >= 0; --level) {
      widen<Distance>(vectors, dimension, query, scratch, candidates, nullptr, near,
                      [&](uint32_t each) { return graph.links(each, level); });
      const int64_t found = scratch.best.size;
      sort(scratch.best.items, found);
      near = scratch.best.items[0];
      uint32_t* list = graph.list(row, level);
      const int64_t size = diverse<Distance>(vectors, dimension, scratch.best.items, found,
                                             graph.connections, graph.connections, list);
      *graph.count(row, level) = static_cast<uint32_t>(size);
      for (int64_t k = 0; k < size; ++k)
        link_back<Distance>(vectors, dimension, graph, scratch, list[k], row, level);
    }
    if (own > top) entry = row;
  }
  return entry;
}

}  // namespace

int64_t build_graph(ConstBytes vectors, int64_t dimension, int64_t kind, int64_t connections,
                    int64_t candidates, ConstBytes levels, Span<uint32_t> base,
                    Span<uint32_t> base_counts, Span<uint32_t> upper,
                    Span<uint32_t> upper_counts) {
  const int64_t count = levels.size;
  if (dimension < 1 || connections < 1 || connections > 1024 || count >= kNobody)
    return fail(kBadCount, 0);
  if (candidates < 1 || candidates > (1 << 20)) return fail(kBadCount, 1);
  const int64_t bytes = dimension * (kind == kByteL2 ? 1 : 4);
  if (vectors.size != count * bytes || base.size != count * 2 * connections ||
      base_counts.size != count || upper.size != upper_counts.size * connections)
    return fail(kBadLength, 0);
  if (count == 0) return 0;
  int64_t* first_upper = static_cast<int64_t*>(malloc(static_cast<size_t>(count) * 8));
  Scratch scratch;
  const bool has_memory =
      scratch.allocate(count, larger(candidates, 2 * connections)) && first_upper != nullptr;
  int64_t total = 0;
  if (has_memory)
    for (int64_t row = 0; row < count; ++row) {
      first_upper[row] = total;
      total += levels.data[row];
      base_counts.data[row] = 0;
    }
  int64_t result = fail(kNoMemory, 0);
  if (has_memory && total != upper_counts.size) {
    result = fail(kBadLength, 1);
  } else if (has_memory) {
    for (int64_t k = 0; k < total; ++k) upper_counts.data[k] = 0;
    const Graph graph{connections,       base.data,           base_counts.data,
                      upper.data,        upper_counts.data,   first_upper};
    switch (kind) {
      case kFloatL2:
        result = build<FloatL2>(vectors, dimension, candidates, levels, graph, scratch);
        break;
      case kFloatDot:
        result = build<FloatDot>(vectors, dimension, candidates, levels, graph, scratch);
        break;
      case kByteL2:
        result = build<ByteL2>(vectors, dimension, candidates, levels, graph, scratch);
        break;
      default:
        result = fail(kBadCode, 0);
    }
  }
  free(first_upper);
  scratch.release();
  return result;
}

namespace {

struct StoredGraph {
  Span<const uint32_t> nodes;
  ConstInts offsets;
  Span<const uint32_t> neighbors;
  ConstInts level_offsets;
  int64_t count;

  // The connections of a row on a level; rows that are not there have none.
  LANCELET_INLINE Links links(uint32_t row, int64_t level) const {
    int64_t at = row;
    if (level > 0) {
      int64_t low = level_offsets.data[level], high = level_offsets.data[level + 1];
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (nodes.data[middle] < row)
          low = middle + 1;
        else
          high = middle;
      }
      if (low >= level_offsets.data[level + 1] || nodes.data[low] != row) return {nullptr, 0};
      at = low;
    }
    return {neighbors.data + offsets.data[at], offsets.data[at + 1] - offsets.data[at]};
  }
};

template <class Distance>
int64_t search(ConstBytes vectors, int64_t dimension, ConstBytes query, const StoredGraph& graph,
               int64_t entry, int64_t candidates, ConstBytes admitted, Span<uint32_t> rows,
               Span<float> distances) {
  if (vectors.size != graph.count * dimension * Distance::kBytes ||
      query.size != dimension * Distance::kQueryBytes)
    return fail(kBadLength, 1);
  Scratch scratch;
  int64_t found = fail(kNoMemory, 0);
  if (scratch.allocate(graph.count, candidates)) {
    Near near{Distance::between(vectors.data + entry * dimension * Distance::kBytes, query.data,
                                dimension),
              static_cast<uint32_t>(entry)};
    for (int64_t level = graph.level_offsets.size - 2; level > 0; --level)
      near = descend<Distance>(
          vectors, dimension, query.data, near,
          [&](uint32_t each) { return graph.links(each, level); });
    widen<Distance>(vectors, dimension, query.data, scratch, candidates,
                    admitted.size > 0 ? admitted.data : nullptr, near,
                    [&](uint32_t each) { return graph.links(each, 0); });
    found = scratch.best.size;
    sort(scratch.best.items, found);
    found = smaller(found, rows.size);
    for (int64_t k = 0; k < found; ++k) {
      rows.data[k] = scratch.best.items[k].row;
      distances.data[k] = scratch.best.items[k].distance;
    }
  }
  scratch.release();
  return found;
}

}  // namespace

int64_t search_graph(ConstBytes vectors, int64_t dimension, int64_t kind, ConstBytes query,
                     Span<const uint32_t> nodes, ConstInts offsets,
                     Span<const uint32_t> neighbors, ConstInts level_offsets, int64_t entry,
                     int64_t candidates, ConstBytes admitted, Span<uint32_t> rows,
                     Span<float> distances) {
  if (dimension < 1 || candidates < 1 || candidates > (int64_t{1} << 31) ||
      level_offsets.size < 2 || offsets.size != nodes.size + 1 || rows.size != distances.size)
    return fail(kBadCount, 0);
  const int64_t count = level_offsets.data[1];
  if (entry < 0 || entry >= count || (admitted.size > 0 && admitted.size != count))
    return fail(kBadIndex, 0);
  // What is searched was checked when it was read: lists within `neighbors`, rows below `count`,
  // levels in order.
  const StoredGraph graph{nodes, offsets, neighbors, level_offsets, count};
  switch (kind) {
    case kFloatL2:
      return search<FloatL2>(vectors, dimension, query, graph, entry, candidates, admitted, rows,
                             distances);
    case kFloatDot:
      return search<FloatDot>(vectors, dimension, query, graph, entry, candidates, admitted, rows,
                              distances);
    case kByteL2:
      return search<ByteL2>(vectors, dimension, query, graph, entry, candidates, admitted, rows,
                            distances);
    case kByteDot:
      return search<ByteDot>(vectors, dimension, query, graph, entry, candidates, admitted, rows,
                             distances);
    case kTable:
      return search<Table>(vectors, dimension, query, graph, entry, candidates, admitted, rows,
                           distances);
    default:
      return fail(kBadCode, 0);
  }
}

namespace {

template <class Distance>
int64_t edges(ConstBytes vectors, int64_t dimension, Span<const uint32_t> nodes,
              ConstInts offsets, Span<const uint32_t> neighbors, Span<float> out) {
  const int64_t bytes = dimension * Distance::kBytes;
  const int64_t count = vectors.size / bytes;
  for (int64_t place = 0; place < nodes.size; ++place) {
    const int64_t first = offsets.data[place], stop = offsets.data[place + 1];
    if (first < 0 || stop < first || stop > neighbors.size || nodes.data[place] >= count)
      return fail(kBadIndex, place);
    const uint8_t* own = vectors.data + nodes.data[place] * bytes;
    for (int64_t k = first; k < stop; ++k) {
      if (neighbors.data[k] >= count) return fail(kBadIndex, place);
      out.data[k] = Distance::between(vectors.data + neighbors.data[k] * bytes, own, dimension);
    }
  }
  return 0;
}

}  // namespace

int64_t edge_distances(ConstBytes vectors, int64_t dimension, int64_t kind,
                       Span<const uint32_t> nodes, ConstInts offsets,
                       Span<const uint32_t> neighbors, Span<float> out) {
  if (dimension < 1 || offsets.size != nodes.size + 1 || out.size != neighbors.size)
    return fail(kBadCount, 0);
  switch (kind) {
    case kFloatL2:
      return edges<FloatL2>(vectors, dimension, nodes, offsets, neighbors, out);
    case kFloatDot:
      return edges<FloatDot>(vectors, dimension, nodes, offsets, neighbors, out);
    case kByteL2:
      return edges<ByteL2>(vectors, dimension, nodes, offsets, neighbors, out);
    default:
      return fail(kBadCode, 0);
  }
}

}  // namespace LANCELET_NAMESPACE

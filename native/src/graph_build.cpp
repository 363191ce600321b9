// Construction of HNSW graphs by inserting batches of vectors.
//
// To insert a vector, the search descends greedily to its highest level. On each level below, it
// finds the best `candidates` and connects the vector with a diverse subset: a candidate is
// selected if it is nearer to the vector than to all candidates selected before. A vector with too
// many connections is pruned by the same rule.
//
// Vectors of a batch do not see each other: each is connected to earlier vectors (insert_rows),
// then these are connected to it (link_rows). Threads partition the first step by rows and the
// second by the changed lists, so the graph is independent of the number of threads.
#include "graph_walk.hpp"

namespace LANCELET_NAMESPACE {
namespace {

// Selects at most `most` of `count` candidates, nearest first, and returns their number. Rejected
// candidates are added while there are fewer than `least`.
template <class Distance>
LANCELET_INLINE int64_t diverse(ConstBytes vectors, int64_t dimension, const Near* sorted,
                                int64_t count, int64_t least, int64_t most, uint32_t* selected) {
  const int64_t bytes = dimension * Distance::kBytes;
  int64_t size = 0;
  for (int64_t k = 0; k < count && size < most; ++k) {
    const uint8_t* own = vectors.data + sorted[k].row * bytes;
    bool is_selected = true;
    for (int64_t index = 0; index < size && is_selected; ++index)
      is_selected = Distance::between(vectors.data + selected[index] * bytes, own, dimension) >
                sorted[k].distance;
    if (is_selected) selected[size++] = sorted[k].row;
  }
  for (int64_t k = 0; k < count && size < least; ++k) {
    bool is_new = true;
    for (int64_t index = 0; index < size && is_new; ++index) is_new = selected[index] != sorted[k].row;
    if (is_new) selected[size++] = sorted[k].row;
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

// Connects rows to the existing graph, which is reachable from `entry`.
template <class Distance>
int64_t insert(ConstBytes vectors, int64_t dimension, int64_t candidates, ConstBytes levels,
               const Graph& graph, Scratch& scratch, uint32_t entry, int64_t first,
               int64_t stop) {
  const int64_t bytes = dimension * Distance::kBytes;
  for (int64_t row = first; row < stop; ++row) {
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
      if (scratch.is_out) return fail(kNoMemory, 1);
      const int64_t found = scratch.best.size;
      sort(scratch.best.items, found);
      near = scratch.best.items[0];
      const uint32_t own_row = static_cast<uint32_t>(row);
      *graph.count(own_row, level) = static_cast<uint32_t>(
          diverse<Distance>(vectors, dimension, scratch.best.items, found, graph.connections,
                            graph.connections, graph.list(own_row, level)));
    }
  }
  return 0;
}

// Connects the existing graph to rows; changes the lists of one of `stripes` stripes.
template <class Distance>
int64_t link(ConstBytes vectors, int64_t dimension, ConstBytes levels, const Graph& graph,
          Scratch& scratch, int64_t first, int64_t stop, int64_t stripe, int64_t stripes) {
  for (int64_t row = first; row < stop; ++row)
    for (int64_t level = levels.data[row]; level >= 0; --level) {
      const Links links = graph.links(static_cast<uint32_t>(row), level);
      for (int64_t k = 0; k < links.count; ++k)
        if (links.rows[k] % stripes == stripe)
          link_back<Distance>(vectors, dimension, graph, scratch, links.rows[k],
                              static_cast<uint32_t>(row), level);
    }
  return 0;
}

// Validates the arguments of both kernels and opens the graph. Rows before `first` were validated
// when they were inserted.
int64_t open_graph(ConstBytes vectors, int64_t dimension, int64_t kind, int64_t connections,
                   ConstBytes levels, ConstInts first_upper, Span<uint32_t> base,
                   Span<uint32_t> base_counts, Span<uint32_t> upper, Span<uint32_t> upper_counts,
                   int64_t first, int64_t stop, Graph* graph) {
  const int64_t count = levels.size;
  if (dimension < 1 || connections < 1 || connections > 1024 || count >= kNoRow)
    return fail(kBadCount, 0);
  const int64_t bytes = dimension * (kind == kByteL2 ? 1 : 4);
  if (vectors.size != count * bytes || base.size != count * 2 * connections ||
      base_counts.size != count || first_upper.size != count + 1 ||
      upper.size != upper_counts.size * connections)
    return fail(kBadLength, 0);
  if (first < 1 || stop < first || stop > count) return fail(kBadIndex, 0);
  for (int64_t row = first == 1 ? 0 : first; row < stop; ++row)
    if (first_upper.data[row] < 0 || first_upper.data[row + 1] > upper_counts.size ||
        first_upper.data[row + 1] != first_upper.data[row] + levels.data[row])
      return fail(kBadLength, 1);
  *graph = {connections,     base.data,           base_counts.data,
            upper.data,      upper_counts.data,   first_upper.data};
  return 0;
}

// Calls a function with the distance of a kind.
template <class Function>
LANCELET_INLINE int64_t by_kind(int64_t kind, Function function) {
  switch (kind) {
    case kFloatL2:
      return function(FloatL2{});
    case kFloatDot:
      return function(FloatDot{});
    case kByteL2:
      return function(ByteL2{});
    default:
      return fail(kBadCode, 0);
  }
}

}  // namespace

int64_t insert_rows(ConstBytes vectors, int64_t dimension, int64_t kind, int64_t connections,
                    int64_t candidates, ConstBytes levels, ConstInts first_upper,
                    Span<uint32_t> base, Span<uint32_t> base_counts, Span<uint32_t> upper,
                    Span<uint32_t> upper_counts, int64_t entry, int64_t first, int64_t stop) {
  Graph graph;
  int64_t result = open_graph(vectors, dimension, kind, connections, levels, first_upper, base,
                              base_counts, upper, upper_counts, first, stop, &graph);
  if (result != 0) return result;
  if (candidates < 1 || candidates > (1 << 20)) return fail(kBadCount, 1);
  if (entry < 0 || entry >= first) return fail(kBadIndex, 1);
  Scratch scratch;
  result = fail(kNoMemory, 0);
  if (scratch.allocate(first, larger(candidates, 2 * connections)))
    result = by_kind(kind, [&](auto distance) {
      return insert<decltype(distance)>(vectors, dimension, candidates, levels, graph, scratch,
                                        static_cast<uint32_t>(entry), first, stop);
    });
  scratch.release();
  return result;
}

int64_t link_rows(ConstBytes vectors, int64_t dimension, int64_t kind, int64_t connections,
                  ConstBytes levels, ConstInts first_upper, Span<uint32_t> base,
                  Span<uint32_t> base_counts, Span<uint32_t> upper, Span<uint32_t> upper_counts,
                  int64_t first, int64_t stop, int64_t stripe, int64_t stripes) {
  Graph graph;
  int64_t result = open_graph(vectors, dimension, kind, connections, levels, first_upper, base,
                              base_counts, upper, upper_counts, first, stop, &graph);
  if (result != 0) return result;
  if (stripes < 1) return fail(kBadCount, 2);
  Scratch scratch;
  result = fail(kNoMemory, 0);
  if (scratch.allocate(0, 2 * connections))
    result = by_kind(kind, [&](auto distance) {
      return link<decltype(distance)>(vectors, dimension, levels, graph, scratch, first, stop,
                                      stripe, stripes);
    });
  scratch.release();
  return result;
}

}  // namespace LANCELET_NAMESPACE

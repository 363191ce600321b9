// Search of HNSW graphs.
#include "graph_walk.hpp"
#include "parameters.hpp"

namespace LANCELET_NAMESPACE {
namespace {

struct StoredGraph {
  Span<const uint32_t> nodes;
  ConstInts offsets;
  Span<const uint32_t> neighbors;
  ConstInts level_offsets;
  int64_t count;

  // Returns the connections of a row on a level, empty if absent.
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
               int64_t entry, int64_t candidates, ConstBytes allowed, Span<uint32_t> rows,
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
                    allowed.size > 0 ? allowed.data : nullptr, near,
                    [&](uint32_t each) { return graph.links(each, 0); });
    found = smaller(scratch.best.size, rows.size);
    sort(scratch.best.items, scratch.best.size);
    for (int64_t k = 0; k < found; ++k) {
      rows.data[k] = scratch.best.items[k].row;
      distances.data[k] = scratch.best.items[k].distance;
    }
    if (scratch.is_out) found = fail(kNoMemory, 1);
  }
  scratch.release();
  return found;
}

}  // namespace

int64_t search_graph(args::GraphVectors rows_of, ConstBytes query, args::GraphArrays stored,
                     int64_t candidates, ConstBytes allowed, Span<uint32_t> rows,
                     Span<float> distances) {
  const ConstBytes vectors = rows_of.vectors;
  const int64_t dimension = rows_of.dimension;
  const int64_t kind = rows_of.kind;
  const Span<const uint32_t> nodes = stored.nodes;
  const ConstInts offsets = stored.offsets;
  const Span<const uint32_t> neighbors = stored.neighbors;
  const ConstInts level_offsets = stored.level_offsets;
  const int64_t entry = stored.entry;
  if (dimension < 1 || candidates < 1 || candidates > (int64_t{1} << 31) ||
      level_offsets.size < 2 || offsets.size != nodes.size + 1 || rows.size != distances.size)
    return fail(kBadCount, 0);
  const int64_t count = level_offsets.data[1];
  if (entry < 0 || entry >= count || (allowed.size > 0 && allowed.size != count))
    return fail(kBadIndex, 0);
  // The graph was validated when it was loaded: lists within `neighbors`, rows below `count`,
  // levels in order.
  const StoredGraph graph{nodes, offsets, neighbors, level_offsets, count};
  switch (kind) {
    case kFloatL2:
      return search<FloatL2>(vectors, dimension, query, graph, entry, candidates, allowed, rows,
                             distances);
    case kFloatDot:
      return search<FloatDot>(vectors, dimension, query, graph, entry, candidates, allowed, rows,
                              distances);
    case kByteL2:
      return search<ByteL2>(vectors, dimension, query, graph, entry, candidates, allowed, rows,
                            distances);
    case kByteDot:
      return search<ByteDot>(vectors, dimension, query, graph, entry, candidates, allowed, rows,
                             distances);
    case kTable:
      return search<Table>(vectors, dimension, query, graph, entry, candidates, allowed, rows,
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
  for (int64_t index = 0; index < nodes.size; ++index) {
    const int64_t first = offsets.data[index], stop = offsets.data[index + 1];
    if (first < 0 || stop < first || stop > neighbors.size || nodes.data[index] >= count)
      return fail(kBadIndex, index);
    const uint8_t* own = vectors.data + nodes.data[index] * bytes;
    for (int64_t k = first; k < stop; ++k) {
      if (neighbors.data[k] >= count) return fail(kBadIndex, index);
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

int64_t insert_rows(args::GraphVectors rows_of, args::GraphLists lists, int64_t connections,
                    int64_t candidates, int64_t entry, int64_t first, int64_t stop) {
  const ConstBytes vectors = rows_of.vectors;
  const int64_t dimension = rows_of.dimension;
  const int64_t kind = rows_of.kind;
  const ConstBytes levels = lists.levels;
  const ConstInts first_upper = lists.first_upper;
  const Span<uint32_t> base = lists.base;
  const Span<uint32_t> base_counts = lists.base_counts;
  const Span<uint32_t> upper = lists.upper;
  const Span<uint32_t> upper_counts = lists.upper_counts;
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

int64_t link_rows(args::GraphVectors rows_of, args::GraphLists lists, int64_t connections,
                  int64_t first, int64_t stop, int64_t stripe, int64_t stripes) {
  const ConstBytes vectors = rows_of.vectors;
  const int64_t dimension = rows_of.dimension;
  const int64_t kind = rows_of.kind;
  const ConstBytes levels = lists.levels;
  const ConstInts first_upper = lists.first_upper;
  const Span<uint32_t> base = lists.base;
  const Span<uint32_t> base_counts = lists.base_counts;
  const Span<uint32_t> upper = lists.upper;
  const Span<uint32_t> upper_counts = lists.upper_counts;
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

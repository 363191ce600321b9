// Search of HNSW graphs; graph_build.cpp builds them.
#include "graph_walk.hpp"

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

int64_t search_graph(ConstBytes vectors, int64_t dimension, int64_t kind, ConstBytes query,
                     Span<const uint32_t> nodes, ConstInts offsets,
                     Span<const uint32_t> neighbors, ConstInts level_offsets, int64_t entry,
                     int64_t candidates, ConstBytes allowed, Span<uint32_t> rows,
                     Span<float> distances) {
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

}  // namespace LANCELET_NAMESPACE

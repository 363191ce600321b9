// Structs of parameters of the kernels of indices; see src/parameters.hpp.
#pragma once

#include "../src/parameters.hpp"

namespace lancelet::args {

// The vectors of a graph; `kind` is a `Comparison`.
struct GraphVectors {
  using Members = List<ConstBytes, int64_t, int64_t>;
  ConstBytes vectors;
  int64_t dimension;
  int64_t kind;
};

// A graph as in `lancelet.index.kernels.Graph`.
struct GraphArrays {
  using Members = List<Span<const uint32_t>, ConstInts, Span<const uint32_t>, ConstInts, int64_t>;
  Span<const uint32_t> nodes;
  ConstInts offsets;
  Span<const uint32_t> neighbors;
  ConstInts level_offsets;
  int64_t entry;
};

// Neighbor lists of fixed size while a graph is built.
struct GraphLists {
  using Members = List<ConstBytes, ConstInts, Span<uint32_t>, Span<uint32_t>, Span<uint32_t>,
    Span<uint32_t>>;
  ConstBytes levels;
  ConstInts first_upper;
  Span<uint32_t> base;
  Span<uint32_t> base_counts;
  Span<uint32_t> upper;
  Span<uint32_t> upper_counts;
};

// Codes of a segment.
struct PackedCodes {
  using Members = List<int64_t, ConstBytes, int64_t, Span<const float>, Span<const float>,
    ConstBytes>;
  int64_t kind;
  ConstBytes codes;
  int64_t row_bytes;
  Span<const float> add;
  Span<const float> scale;
  ConstBytes row_numbers;
};

// Scoring parameters.
struct CodeQuery {
  using Members = List<ConstBytes, Span<const float>, int64_t, int64_t, int64_t, int64_t,
    Span<const float>>;
  ConstBytes query;
  Span<const float> codebook;
  int64_t num_sub_vectors;
  int64_t metric;
  int64_t element_bytes;
  int64_t dimension;
  Span<const float> numbers;
};

// The searched partitions.
struct Probes {
  using Members = List<Span<const float>, Span<const float>, ConstInts, ConstInts>;
  Span<const float> centers;
  Span<const float> bases;
  ConstInts starts;
  ConstInts lengths;
};

// Rules and dictionaries of word segmentation.
struct SegmentRules {
  using Members = List<ConstBytes, ConstBytes, Span<const uint16_t>, Span<const int32_t>,
    Span<const uint16_t>, ConstBytes>;
  ConstBytes members;
  ConstBytes classes;
  Span<const uint16_t> units;
  Span<const int32_t> children;
  Span<const uint16_t> num_children;
  ConstBytes is_word;
};

// A wavelet tree as in `lancelet.index.kernels.WaveletTree`.
struct WaveletTree {
  using Members = List<Span<const uint64_t>, Span<const uint32_t>, ConstInts, ConstInts,
    Span<const int32_t>, ConstInts>;
  Span<const uint64_t> words;
  Span<const uint32_t> ranks;
  ConstInts starts;
  ConstInts bits;
  Span<const int32_t> children;
  ConstInts counts;
};

// Posting lists of a query.
struct PostingLists {
  using Members = List<ConstBytes, ConstInts, ConstInts, Span<const uint32_t>, Span<const float>,
    ConstInts, ConstInts, ConstInts, ConstBytes, ConstInts>;
  ConstBytes source;
  ConstInts position;
  ConstInts size;
  Span<const uint32_t> last_docs;
  Span<const float> block_max;
  ConstInts first;
  ConstInts stop;
  ConstInts count;
  ConstBytes doc_weights;
  ConstInts weights_start;
};

// The format of blocks, and whether documents must have all tokens.
struct BlockFormat {
  using Members = List<int64_t, int64_t, int64_t>;
  int64_t block_docs;
  int64_t is_varint;
  int64_t needs_all;
};

// Positions per block, and the offset of each token in a phrase, if any.
struct Phrase {
  using Members = List<ConstBytes, ConstInts, ConstInts, ConstInts, int64_t>;
  ConstBytes streams;
  ConstInts stream_position;
  ConstInts stream_size;
  ConstInts phrase_offsets;
  int64_t slop;
};

// A table of tokens as in `lancelet.index.kernels.tokens`.
struct TokenTable {
  using Members = List<Span<uint32_t>, Span<uint64_t>, Ints, Bytes, Ints>;
  Span<uint32_t> slots;
  Span<uint64_t> hashes;
  Ints ends;
  Bytes text;
  Ints state;
};

// Concatenated vectors.
struct VectorRows {
  using Members = List<ConstBytes, int64_t, int64_t>;
  ConstBytes vectors;
  int64_t element_bytes;
  int64_t dimension;
};

}  // namespace lancelet::args

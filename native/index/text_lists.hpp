// Posting list cursors: blocks and positions are decoded on demand; and the top documents.
#pragma once

#include "postings.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kBlockDocs = 256;
// Slightly increases bounds, since they are sums of rounded numbers.
constexpr double kSlack = 1.000001;
constexpr double kNoThreshold = -1e300;
constexpr float kWeightStep = 2.2f / 255;

struct Index {
  ConstBytes source;
  ConstInts position, size;
  const uint32_t* last;
  const float* block_max;
  Span<const float> norm;
  ConstBytes hidden;
  int64_t block_docs;
  bool is_varint;
  ConstBytes streams;
  ConstInts stream_position, stream_size;
  ConstBytes doc_weights;
};

struct List {
  int64_t first, blocks, count;
  int64_t phrase_offset;  // of the token in the phrase
  double bound;         // maximum score of its documents
  const uint8_t* doc_weights;  // or null
  int64_t at;           // current block
  int64_t decoded;      // block of the decoded documents below
  int64_t held, next;   // number of decoded documents, and the current one
  int64_t scored;       // block of the scores below
  int64_t requested_block;        // last block with positions of one document decoded
  int64_t positions_block;       // block with all positions decoded below
  uint32_t* positions;  // deltas; document i of the block has those from ends[i] on
  uint32_t* steps;      // deltas of the current document
  int64_t room;
  float idf;
  uint32_t docs[kBlockDocs], freqs[kBlockDocs];
  float scores[kBlockDocs];
  uint8_t is_candidate[kBlockDocs];  // whether the score exceeds the threshold
  int64_t ends[kBlockDocs + 1];
};

// The top documents: a heap with the worst on top once it is full.
struct TopDocs {
  uint32_t* docs;
  float* scores;
  int64_t capacity, size;

  LANCELET_INLINE double threshold() const { return size < capacity ? kNoThreshold : scores[0]; }

  LANCELET_INLINE bool is_worse(int64_t a, int64_t b) const {
    return scores[a] < scores[b] || (scores[a] == scores[b] && docs[a] > docs[b]);
  }

  void sink(int64_t parent) {
    for (;;) {
      int64_t child = 2 * parent + 1;
      if (child >= size) return;
      if (child + 1 < size && is_worse(child + 1, child)) ++child;
      if (!is_worse(child, parent)) return;
      const float score = scores[parent];
      const uint32_t doc = docs[parent];
      scores[parent] = scores[child];
      docs[parent] = docs[child];
      scores[child] = score;
      docs[child] = doc;
      parent = child;
    }
  }

  void offer(uint32_t doc, float score) {
    if (size < capacity) {
      docs[size] = doc;
      scores[size++] = score;
      if (size == capacity)
        for (int64_t parent = size / 2 - 1; parent >= 0; --parent) sink(parent);
    } else if (score > scores[0]) {
      docs[0] = doc;
      scores[0] = score;
      sink(0);
    }
  }
};

LANCELET_INLINE float weight(uint32_t freq, float norm) {
  const float often = static_cast<float>(freq);
  return 2.2f * often / (often + norm);
}

LANCELET_INLINE double block_bound(const Index& index, const List& list, int64_t block) {
  return static_cast<double>(list.idf) * index.block_max[list.first + block];
}

LANCELET_INLINE uint32_t block_last(const Index& index, const List& list, int64_t block) {
  return index.last[list.first + block];
}

LANCELET_INLINE bool is_hidden(const Index& index, uint32_t doc) {
  return index.hidden.size && index.hidden.data[doc];
}

// Decodes the current block of a list. Returns 0 or a fault.
int64_t load_block(const Index& index, List& list) {
  if (list.decoded == list.at) return 0;
  const int64_t block = list.first + list.at;
  if (!within(index.position.data[block], index.size.data[block], index.source.size))
    return fail(kOutOfSource, block);
  const int64_t own = smaller(list.count - list.at * index.block_docs, index.block_docs);
  const uint8_t* at = index.source.data + index.position.data[block];
  const uint8_t* end = at + index.size.data[block];
  if (!get_postings(at, end, own, index.block_docs, index.is_varint, list.docs, list.freqs))
    return fail(kBadStream, block);
  bool descends = false;
  for (int64_t k = 1; k < own; ++k) descends |= list.docs[k] <= list.docs[k - 1];
  const uint32_t last = list.docs[own - 1];
  if (descends || last >= index.norm.size || last != index.last[block])
    return fail(kBadIndex, block);
  list.decoded = list.at;
  list.held = own;
  list.next = 0;
  return 0;
}

// Advances to the block that may contain a document. Returns false at the end.
LANCELET_INLINE bool seek(const Index& index, List& list, uint32_t doc) {
  const uint32_t* last = index.last + list.first;
  int64_t step = 1;
  if (list.at >= list.blocks || last[list.at] >= doc) return list.at < list.blocks;
  while (list.at + step < list.blocks && last[list.at + step] < doc) {
    list.at += step;
    step *= 2;
  }
  int64_t low = list.at + 1, high = smaller(list.at + step, list.blocks);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (last[middle] < doc)
      low = middle + 1;
    else
      high = middle;
  }
  list.at = low;
  return low < list.blocks;
}

// Advances to a document, or the next one, within the decoded block.
LANCELET_INLINE void seek_within(List& list, uint32_t doc) {
  int64_t low = list.next, left = list.held - low;
  // Branch-free binary search, since branches would be mispredicted.
  for (; left > 1; left -= left / 2) low += list.docs[low + left / 2 - 1] < doc ? left / 2 : 0;
  list.next = low + (left && list.docs[low] < doc);
}

LANCELET_INLINE double score_here(const Index& index, const List& list) {
  const uint32_t doc = list.docs[list.next];
  return list.idf * weight(list.freqs[list.next], index.norm.data[doc]);
}

// Returns an upper bound of a document's score by its weight, or `otherwise` without weights.
LANCELET_INLINE double score_bound(const List& list, uint32_t doc, double otherwise) {
  return list.doc_weights ? list.idf * (list.doc_weights[doc] * kWeightStep) : otherwise;
}

// Scores all documents of the decoded block.
LANCELET_INLINE void score_block(const Index& index, List& list) {
  if (list.scored == list.decoded) return;
  for (int64_t k = 0; k < list.held; ++k)
    list.scores[k] = list.idf * weight(list.freqs[k], index.norm.data[list.docs[k]]);
  list.scored = list.decoded;
}

// Flags the remaining documents whose score exceeds `needed`.
LANCELET_INLINE void flag_candidates(List& list, double needed) {
  // Scores are not negative, but `needed` may be.
  const float least = static_cast<float>(larger(needed, -1.0));
  for (int64_t k = 0; k < list.held; ++k) list.is_candidate[k] = list.scores[k] > least;
  memset(list.is_candidate, 0, list.next);
  memset(list.is_candidate + list.held, 0, kBlockDocs - list.held);
}

// Advances to the next flagged document. Returns false if there is none.
LANCELET_INLINE bool next_candidate(List& list) {
  int64_t at = list.next;
  for (; at < kBlockDocs; at = (at | 7) + 1) {
    const uint64_t bytes = load<uint64_t>(list.is_candidate + (at & ~int64_t{7})) >> (at & 7) * 8;
    if (bytes) {
      list.next = at + trailing_zeros(bytes) / 8;
      return true;
    }
  }
  return false;
}

int64_t hold_positions(List& list, int64_t block, int64_t count) {
  if (count <= list.room) return 0;
  free(list.positions);
  list.room = count;
  list.positions = static_cast<uint32_t*>(malloc(count * sizeof(uint32_t)));
  if (list.positions) return 0;
  list.room = 0;
  return fail(kNoMemory, block);
}

// Reads deltas [start, stop) of a stream of `total` deltas, skipping whole runs before them.
// Returns false if the stream is malformed.
bool get_some(const uint8_t* at, const uint8_t* end, int64_t total, int64_t start, int64_t stop,
              uint32_t* to) {
  uint32_t run[kStreamRun];
  int64_t done = 0;
  for (; total - done >= kStreamRun && done < stop; done += kStreamRun) {
    if (done + kStreamRun <= start) {
      if (at >= end) return false;
      at += 1 + *at * 16;
      continue;
    }
    if (at >= end || !(at = get_packed<4>(at, end, run))) return false;
    const int64_t first = larger(start, done), last = smaller(stop, done + kStreamRun);
    memcpy(to + (first - start), run + (first - done), (last - first) * sizeof(uint32_t));
  }
  uint32_t passed;
  for (; done < stop; ++done)
    if (!(at = get_varint(at, end, done < start ? &passed : to + (done - start)))) return false;
  return true;
}

// Decodes the positions of the current document: of this document alone, or of the whole block from
// its second document on.
int64_t load_positions(const Index& index, List& list) {
  if (list.positions_block == list.decoded) {
    list.steps = list.positions + list.ends[list.next];
    return 0;
  }
  const int64_t block = list.first + list.decoded;
  const int64_t bytes = index.stream_size.data[block];
  if (!within(index.stream_position.data[block], bytes, index.streams.size))
    return fail(kOutOfSource, block);
  const uint8_t* at = index.streams.data + index.stream_position.data[block];
  const uint8_t* end = at + bytes;
  uint64_t before = 0, total = 0;
  for (int64_t k = 0; k < list.next; ++k) before += list.freqs[k];
  for (int64_t k = list.next; k < list.held; ++k) total += list.freqs[k];
  total += before;
  // A run of 128 has at least one byte.
  if (total > static_cast<uint64_t>(bytes) * kStreamRun) return fail(kBadCount, block);
  const int64_t all = static_cast<int64_t>(total), start = static_cast<int64_t>(before);
  if (list.requested_block != list.decoded) {
    const int64_t count = list.freqs[list.next];
    if (const int64_t fault = hold_positions(list, block, count)) return fault;
    list.positions_block = -1;
    list.requested_block = list.decoded;
    list.steps = list.positions;
    return get_some(at, end, all, start, start + count, list.steps) ? 0 : fail(kBadStream, block);
  }
  if (const int64_t fault = hold_positions(list, block, all)) return fault;
  if (!get_some(at, end, all, 0, all, list.positions)) return fail(kBadStream, block);
  list.ends[0] = 0;
  for (int64_t k = 0; k < list.held; ++k) list.ends[k + 1] = list.ends[k] + list.freqs[k];
  list.positions_block = list.decoded;
  list.steps = list.positions + start;
  return 0;
}

// Positions matched by the tokens so far, and by the next token.
struct Reached {
  uint32_t* data;
  int64_t room;
};

// Returns 1 if the current document contains the phrase, else 0, or a fault.
int64_t has_phrase(const Index& index, List* lists, int64_t count, int64_t slop,
                   Reached& reached) {
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = larger<int64_t>(most, lists[i].freqs[lists[i].next]);
  if (most > reached.room) {
    free(reached.data);
    reached.room = most;
    reached.data = static_cast<uint32_t*>(malloc(2 * most * sizeof(uint32_t)));
    if (!reached.data) {
      reached.room = 0;
      return fail(kNoMemory, 0);
    }
  }
  uint32_t* now = reached.data;
  uint32_t* then = reached.data + reached.room;
  int64_t num_now = 0;
  for (int64_t i = 0; i < count; ++i) {
    List& list = lists[i];
    if (const int64_t fault = load_positions(index, list)) return fault;
    const uint32_t* steps = list.steps;
    const int64_t step = i ? list.phrase_offset - lists[i - 1].phrase_offset : 0;
    int64_t position = 0, nearest = -1, num_then = 0;
    for (int64_t k = 0; k < list.freqs[list.next]; ++k) {
      position += steps[k];
      // The last possible predecessor needs the least slop.
      while (nearest + 1 < num_now && now[nearest + 1] <= position - step) ++nearest;
      if (i == 0 || (nearest >= 0 && position - step - now[nearest] <= slop))
        then[num_then++] = static_cast<uint32_t>(position);
    }
    if (!num_then) return 0;
    uint32_t* swapped = now;
    now = then;
    then = swapped;
    num_now = num_then;
  }
  return 1;
}

struct Phrase {
  List* lists;  // in phrase order
  int64_t slop;
  Reached reached;
};

}  // namespace
}  // namespace LANCELET_NAMESPACE

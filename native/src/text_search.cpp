// The best documents of posting lists, decoding only blocks that may have one of them.
//
// The documents found so far are a heap with the worst on top. Once it is full its score is a
// threshold: a block is passed over if the most that its documents can score, together with what
// other lists can add, does not exceed it. Documents are met in order, so that of equal scores the
// first stay.
//
//     any     lists that together cannot reach the threshold are looked up only for documents of
//             the others (MaxScore); those are added up in windows of documents
//     all     the shortest list leads, and the others are looked up
//     phrase  all, and the positions of a document are compared last
//
// Scores are sums in 64 bits of what each list adds, so that the order of the lists is all one.
#include "postings.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kBlockDocs = 256;
constexpr int64_t kWindow = 4096;
constexpr int64_t kBlocksAhead = 16;
// Bounds are sums of rounded numbers, so they are held a little too high.
constexpr double kSlack = 1.000001;
constexpr double kNothing = -1e300;

struct Index {
  ConstBytes source;
  ConstInts position, size;
  const uint32_t* last;
  const float* best;
  Span<const float> norm;
  ConstBytes hidden;
  int64_t block_docs;
  bool is_varint;
  ConstBytes streams;
  ConstInts stream_position, stream_size;
};

struct List {
  int64_t first, blocks, count, place;
  double bound;         // the most that any of its documents can score
  int64_t at;           // the block it stands in
  int64_t decoded;      // the block whose documents are below
  int64_t held, next;   // how many they are, and the next of them
  int64_t scored;       // the block whose scores are below
  int64_t placed;       // the block whose positions are below
  uint32_t* positions;  // as steps; those of document i end at ends[i]
  int64_t room;
  float idf;
  uint32_t docs[kBlockDocs], freqs[kBlockDocs];
  float scores[kBlockDocs];
  int64_t ends[kBlockDocs + 1];
};

// The best documents so far: a heap with the worst on top once there are as many as asked for.
struct Best {
  uint32_t* docs;
  float* scores;
  int64_t capacity, size;

  LANCELET_INLINE double threshold() const { return size < capacity ? kNothing : scores[0]; }

  LANCELET_INLINE bool is_worse(int64_t a, int64_t b) const {
    return scores[a] < scores[b] || (scores[a] == scores[b] && docs[a] > docs[b]);
  }

  void sink(int64_t place) {
    for (;;) {
      int64_t child = 2 * place + 1;
      if (child >= size) return;
      if (child + 1 < size && is_worse(child + 1, child)) ++child;
      if (!is_worse(child, place)) return;
      const float score = scores[place];
      const uint32_t doc = docs[place];
      scores[place] = scores[child];
      docs[place] = docs[child];
      scores[child] = score;
      docs[child] = doc;
      place = child;
    }
  }

  void offer(uint32_t doc, float score) {
    if (size < capacity) {
      docs[size] = doc;
      scores[size++] = score;
      if (size == capacity)
        for (int64_t place = size / 2 - 1; place >= 0; --place) sink(place);
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
  return static_cast<double>(list.idf) * index.best[list.first + block];
}

LANCELET_INLINE uint32_t block_last(const Index& index, const List& list, int64_t block) {
  return index.last[list.first + block];
}

LANCELET_INLINE bool is_hidden(const Index& index, uint32_t doc) {
  return index.hidden.size && index.hidden.data[doc];
}

// Decodes the block that a list stands in. Returns nothing, or the fault.
int64_t load_block(const Index& index, List& list) {
  if (list.decoded == list.at) return 0;
  const int64_t block = list.first + list.at;
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

// Goes on to the block that may have a document; false where there is none.
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

// Goes on to a document, or the one behind where it is missing, in the block that is decoded.
LANCELET_INLINE void seek_within(List& list, uint32_t doc) {
  int64_t low = list.next, high = list.held;
  if (low < high && list.docs[low] >= doc) return;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (list.docs[middle] < doc)
      low = middle + 1;
    else
      high = middle;
  }
  list.next = low;
}

LANCELET_INLINE double score_here(const Index& index, const List& list) {
  const uint32_t doc = list.docs[list.next];
  return list.idf * weight(list.freqs[list.next], index.norm.data[doc]);
}

// Scores all documents of the decoded block at once.
LANCELET_INLINE void score_block(const Index& index, List& list) {
  if (list.scored == list.decoded) return;
  for (int64_t k = 0; k < list.held; ++k)
    list.scores[k] = list.idf * weight(list.freqs[k], index.norm.data[list.docs[k]]);
  list.scored = list.decoded;
}

int64_t search_one(const Index& index, List& list, Best& best) {
  for (list.at = 0; list.at < list.blocks; ++list.at) {
    if (block_bound(index, list, list.at) * kSlack <= best.threshold()) continue;
    if (const int64_t fault = load_block(index, list)) return fault;
    score_block(index, list);
    double threshold = best.threshold();
    for (int64_t k = 0; k < list.held; ++k) {
      if (list.scores[k] <= threshold || is_hidden(index, list.docs[k])) continue;
      best.offer(list.docs[k], list.scores[k]);
      threshold = best.threshold();
    }
  }
  return 0;
}

struct Window {
  double sums[kWindow];
  uint64_t met[kWindow / 64];
};

// Adds up what the essential lists have of a window, whose first document is `low`.
void add_up(const Index& index, List* const* lists, int64_t count, uint32_t low, uint64_t high,
            Window& window) {
  for (int64_t i = 0; i < count; ++i) {
    List& list = *lists[i];
    if (list.decoded != list.at) continue;
    score_block(index, list);
    for (; list.next < list.held && list.docs[list.next] < high; ++list.next) {
      const uint32_t place = list.docs[list.next] - low;
      window.sums[place] += list.scores[list.next];
      window.met[place / 64] |= uint64_t{1} << (place % 64);
    }
  }
}

// Offers the documents of a window; `rest` lists are looked up for those that may be good enough.
int64_t sweep(const Index& index, List* const* lists, const double* bounds, int64_t rest,
              uint32_t low, uint64_t high, Window& window, Best& best) {
  for (int64_t word = 0; low + word * 64 < static_cast<int64_t>(high); ++word) {
    for (uint64_t bits = window.met[word]; bits; bits &= bits - 1) {
      const int64_t place = word * 64 + trailing_zeros(bits);
      const uint32_t doc = low + static_cast<uint32_t>(place);
      double sum = window.sums[place];
      window.sums[place] = 0;
      int64_t i = rest - 1;
      for (; i >= 0; --i) {
        if ((sum + bounds[i]) * kSlack <= best.threshold()) break;
        List& list = *lists[i];
        if (!seek(index, list, doc)) continue;
        if (const int64_t fault = load_block(index, list)) return fault;
        seek_within(list, doc);
        if (list.next < list.held && list.docs[list.next] == doc) sum += score_here(index, list);
      }
      if (i < 0 && !is_hidden(index, doc)) best.offer(doc, static_cast<float>(sum));
    }
    window.met[word] = 0;
  }
  return 0;
}

// `lists` ascend by bound, and bounds[i] is what the first i + 1 can score together.
int64_t search_any(const Index& index, List* const* lists, const double* bounds, int64_t count,
                   Window& window, Best& best) {
  int64_t rest = 0;
  uint64_t low = 0;
  for (;;) {
    while (rest < count && bounds[rest] * kSlack <= best.threshold()) ++rest;
    uint64_t high = index.norm.size;
    double bound = rest ? bounds[rest - 1] : 0;
    bool is_any = false;
    for (int64_t i = rest; i < count; ++i) {
      List& list = *lists[i];
      if (!seek(index, list, static_cast<uint32_t>(low))) continue;
      is_any = true;
      high = smaller<uint64_t>(high, uint64_t{block_last(index, list, list.at)} + 1);
      bound += block_bound(index, list, list.at);
    }
    if (!is_any) return 0;
    if (bound * kSlack <= best.threshold()) {
      low = high;
      continue;
    }
    uint64_t start = high;
    for (int64_t i = rest; i < count; ++i) {
      List& list = *lists[i];
      if (list.at >= list.blocks) continue;
      if (const int64_t fault = load_block(index, list)) return fault;
      seek_within(list, static_cast<uint32_t>(low));
      if (list.next < list.held) start = smaller<uint64_t>(start, list.docs[list.next]);
    }
    high = smaller<uint64_t>(high, start + kWindow);
    const uint32_t first = static_cast<uint32_t>(start);
    add_up(index, lists + rest, count - rest, first, high, window);
    if (const int64_t fault = sweep(index, lists, bounds, rest, first, high, window, best)) return fault;
    low = high;
  }
}

// The most that a list can add to documents up to the last of a block of another list.
LANCELET_INLINE double bound_until(const Index& index, const List& list, uint32_t last) {
  double found = 0;
  for (int64_t block = list.at; block < list.blocks; ++block) {
    if (block - list.at >= kBlocksAhead) return list.bound;
    const double own = block_bound(index, list, block);
    found = larger(found, own);
    if (block_last(index, list, block) >= last) break;
  }
  return found;
}

// Reads where the documents of a decoded block have their token.
int64_t load_positions(const Index& index, List& list) {
  if (list.placed == list.decoded) return 0;
  const int64_t block = list.first + list.decoded;
  const int64_t bytes = index.stream_size.data[block];
  list.ends[0] = 0;
  for (int64_t k = 0; k < list.held; ++k) list.ends[k + 1] = list.ends[k] + list.freqs[k];
  int64_t left = list.ends[list.held];
  // A run of 128 takes at least a byte.
  if (left > bytes * kStreamRun) return fail(kBadCount, block);
  if (left > list.room) {
    free(list.positions);
    list.room = left;
    list.positions = static_cast<uint32_t*>(malloc(left * sizeof(uint32_t)));
    if (!list.positions) {
      list.room = 0;
      return fail(kNoMemory, block);
    }
  }
  const uint8_t* at = index.streams.data + index.stream_position.data[block];
  const uint8_t* end = at + bytes;
  uint32_t* to = list.positions;
  for (; left >= kStreamRun; left -= kStreamRun, to += kStreamRun)
    if (!(at = get_packed<4>(at, end, to))) return fail(kBadStream, block);
  for (; left > 0; --left)
    if (!(at = get_varint(at, end, to++))) return fail(kBadStream, block);
  list.placed = list.decoded;
  return 0;
}

// Positions that a phrase reaches with its words so far, and with the next one.
struct Reached {
  uint32_t* data;
  int64_t room;
};

// Whether the document at which all lists stand has the phrase: 1 or 0, or the fault.
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
    const uint32_t* steps = list.positions + list.ends[list.next];
    const int64_t step = i ? list.place - lists[i - 1].place : 0;
    int64_t position = 0, nearest = -1, num_then = 0;
    for (int64_t k = 0; k < list.freqs[list.next]; ++k) {
      position += steps[k];
      // The nearest place that comes early enough leaves the least room for others between.
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
  List* lists;  // in the order of the words
  int64_t slop;
  Reached reached;
};

// `lists` ascend by how many documents they have. A phrase, unless there is none, is looked for in
// the documents that all lists have.
int64_t search_all(const Index& index, List* const* lists, int64_t count, Phrase* phrase,
                   Best& best) {
  List& lead = *lists[0];
  for (lead.at = 0; lead.at < lead.blocks; ++lead.at) {
    const uint32_t from = lead.at ? block_last(index, lead, lead.at - 1) : 0;
    const uint32_t last = block_last(index, lead, lead.at);
    double rest = 0;
    for (int64_t i = 1; i < count; ++i) {
      if (!seek(index, *lists[i], from)) return 0;
      rest += bound_until(index, *lists[i], last);
    }
    if ((block_bound(index, lead, lead.at) + rest) * kSlack <= best.threshold()) continue;
    if (const int64_t fault = load_block(index, lead)) return fault;
    for (lead.next = 0; lead.next < lead.held; ++lead.next) {
      const uint32_t doc = lead.docs[lead.next];
      double sum = score_here(index, lead);
      if ((sum + rest) * kSlack <= best.threshold()) continue;
      int64_t i = 1;
      for (; i < count; ++i) {
        List& list = *lists[i];
        if (!seek(index, list, doc)) return 0;
        if (const int64_t fault = load_block(index, list)) return fault;
        seek_within(list, doc);
        if (list.next == list.held || list.docs[list.next] != doc) break;
        sum += score_here(index, list);
      }
      if (i < count || static_cast<float>(sum) <= best.threshold() || is_hidden(index, doc))
        continue;
      if (phrase) {
        const int64_t has = has_phrase(index, phrase->lists, count, phrase->slop, phrase->reached);
        if (has < 0) return has;
        if (!has) continue;
      }
      best.offer(doc, static_cast<float>(sum));
    }
  }
  return 0;
}

// Sorts lists so that `key` ascends.
template <class Key>
void sort_lists(List** lists, int64_t count, Key key) {
  for (int64_t i = 1; i < count; ++i) {
    List* list = lists[i];
    int64_t at = i;
    for (; at > 0 && key(*lists[at - 1]) > key(*list); --at) lists[at] = lists[at - 1];
    lists[at] = list;
  }
}

int64_t check(const Index& index, ConstInts first, ConstInts count, Span<const float> idf) {
  const int64_t blocks = index.position.size;
  if (first.size != count.size + 1 || idf.size != count.size || index.size.size != blocks)
    return fail(kBadCount, 0);
  if (index.hidden.size && index.hidden.size != index.norm.size) return fail(kBadCount, 0);
  for (int64_t i = 0; i < count.size; ++i) {
    const int64_t begin = first.data[i], end = first.data[i + 1];
    if (begin < 0 || end <= begin || end > blocks) return fail(kBadOffsets, i);
    if (count.data[i] <= (end - begin - 1) * index.block_docs ||
        count.data[i] > (end - begin) * index.block_docs)
      return fail(kBadCount, i);
  }
  for (int64_t i = 0; i < blocks; ++i)
    if (!within(index.position.data[i], index.size.data[i], index.source.size))
      return fail(kOutOfSource, i);
  for (int64_t i = 0; i < index.stream_position.size; ++i)
    if (!within(index.stream_position.data[i], index.stream_size.data[i], index.streams.size))
      return fail(kOutOfSource, i);
  return 0;
}

void open_lists(const Index& index, ConstInts first, ConstInts count, Span<const float> idf,
                List* lists, List** order) {
  for (int64_t i = 0; i < count.size; ++i) {
    List& list = lists[i];
    list.first = first.data[i];
    list.blocks = first.data[i + 1] - list.first;
    list.count = count.data[i];
    list.idf = idf.data[i];
    list.bound = 0;
    for (int64_t block = 0; block < list.blocks; ++block)
      list.bound = larger(list.bound, block_bound(index, list, block));
    list.at = list.held = list.next = list.place = list.room = 0;
    list.decoded = list.scored = list.placed = -1;
    list.positions = nullptr;
    order[i] = &list;
  }
}

}  // namespace

int64_t search_postings(ConstBytes source, ConstInts position, ConstInts size,
                        Span<const uint32_t> last, Span<const float> best_weight, ConstInts first,
                        ConstInts count, Span<const float> idf, Span<const float> norm,
                        ConstBytes hidden, int64_t block_docs, int64_t is_varint, int64_t needs_all,
                        Span<uint32_t> found, Span<float> score) {
  const Index index = {source, position, size, last.data, best_weight.data, norm, hidden,
                       block_docs, is_varint != 0, {nullptr, 0}, {nullptr, 0}, {nullptr, 0}};
  if (last.size != position.size || best_weight.size != position.size) return fail(kBadCount, 0);
  if (const int64_t fault = check(index, first, count, idf)) return fault;
  Best best = {found.data, score.data, smaller(found.size, score.size), 0};
  const int64_t num_lists = count.size;
  if (!num_lists || !best.capacity) return 0;
  List* lists = static_cast<List*>(malloc(num_lists * sizeof(List)));
  List** order = static_cast<List**>(malloc(num_lists * sizeof(List*)));
  double* bounds = static_cast<double*>(malloc(num_lists * sizeof(double)));
  Window* window = nullptr;
  int64_t status = fail(kNoMemory, 0);
  if (lists && order && bounds) {
    open_lists(index, first, count, idf, lists, order);
    if (num_lists == 1) {
      status = search_one(index, lists[0], best);
    } else if (needs_all) {
      sort_lists(order, num_lists, [](const List& list) { return list.count; });
      status = search_all(index, order, num_lists, nullptr, best);
    } else if ((window = static_cast<Window*>(calloc(1, sizeof(Window))))) {
      sort_lists(order, num_lists, [](const List& list) { return list.bound; });
      double sum = 0;
      for (int64_t i = 0; i < num_lists; ++i) bounds[i] = sum += order[i]->bound;
      status = search_any(index, order, bounds, num_lists, *window, best);
    }
  }
  free(window);
  free(bounds);
  free(order);
  free(lists);
  return status < 0 ? status : best.size;
}

int64_t search_phrase(ConstBytes source, ConstInts position, ConstInts size,
                      Span<const uint32_t> last, Span<const float> best_weight, ConstInts first,
                      ConstInts count, Span<const float> idf, Span<const float> norm,
                      ConstBytes hidden, int64_t block_docs, int64_t is_varint, ConstBytes streams,
                      ConstInts stream_position, ConstInts stream_size, ConstInts place,
                      int64_t slop, Span<uint32_t> found, Span<float> score) {
  const Index index = {source, position, size, last.data, best_weight.data, norm, hidden,
                       block_docs, is_varint != 0, streams, stream_position, stream_size};
  const int64_t blocks = position.size;
  if (last.size != blocks || best_weight.size != blocks || stream_position.size != blocks ||
      stream_size.size != blocks || place.size != count.size)
    return fail(kBadCount, 0);
  if (const int64_t fault = check(index, first, count, idf)) return fault;
  Best best = {found.data, score.data, smaller(found.size, score.size), 0};
  const int64_t num_lists = count.size;
  if (!num_lists || !best.capacity) return 0;
  List* lists = static_cast<List*>(malloc(num_lists * sizeof(List)));
  List** order = static_cast<List**>(malloc(num_lists * sizeof(List*)));
  int64_t status = fail(kNoMemory, 0);
  if (lists && order) {
    open_lists(index, first, count, idf, lists, order);
    for (int64_t i = 0; i < num_lists; ++i) lists[i].place = place.data[i];
    sort_lists(order, num_lists, [](const List& list) { return list.count; });
    Phrase phrase = {lists, slop, {nullptr, 0}};
    status = search_all(index, order, num_lists, &phrase, best);
    free(phrase.reached.data);
    for (int64_t i = 0; i < num_lists; ++i) free(lists[i].positions);
  }
  free(order);
  free(lists);
  return status < 0 ? status : best.size;
}

}  // namespace LANCELET_NAMESPACE

// Top-k search in posting lists, which decodes only blocks that may contain a result.
//
// Results are a heap with the worst document on top. Once it is full, its score is the threshold: a
// block is skipped if its maximum score plus the bounds of the other lists does not exceed it.
// Documents are visited in order, so ties keep the first documents.
//
//     any     lists whose joint bound is below the threshold are only probed for documents of the
//             others (MaxScore); several other lists are accumulated in windows of documents
//     all     the shortest list leads, and the others are probed
//     phrase  as all, then positions are compared
//
// Blocks of a leading list are scored as a whole, and only candidates that may reach the threshold
// with the bounds of the other lists are probed.
//
// A frequent token may have document weights: a byte per document, 0 if the list does not contain
// it, else its weight rounded up to 2.2 / 255. If all lists have them, only documents whose summed
// weights exceed the threshold are decoded.
//
// Scores are summed in double precision, so the order of the lists does not matter.

#include "parameters.hpp"
#include "text_lists.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kWindow = 4096;
constexpr int64_t kBlocksAhead = 16;
constexpr int64_t kCandidateWindow = 2048;

struct Window {
  double sums[kWindow];
  uint64_t met[kWindow / 64];
};

// Accumulates the scores of the essential lists in a window that starts at `low`.
void add_up(const Index& index, List* const* lists, int64_t count, uint32_t low, uint64_t high,
            Window& window) {
  for (int64_t i = 0; i < count; ++i) {
    List& list = *lists[i];
    if (list.decoded != list.at) continue;
    score_block(index, list);
    for (; list.next < list.held && list.docs[list.next] < high; ++list.next) {
      const uint32_t offset = list.docs[list.next] - low;
      window.sums[offset] += list.scores[list.next];
      window.met[offset / 64] |= uint64_t{1} << (offset % 64);
    }
  }
}

// Adds the scores of a document in lists ordered by bound, until it cannot reach the threshold, and
// offers it.
LANCELET_INLINE int64_t score_document(const Index& index, List* const* lists, const double* bounds,
                                int64_t count, uint32_t doc, double sum, TopDocs& best) {
  for (int64_t i = count - 1; i >= 0; --i) {
    if ((sum + bounds[i]) * kSlack <= best.threshold()) return 0;
    List& list = *lists[i];
    const double lower = i ? bounds[i - 1] : 0;
    const double most = score_bound(list, doc, list.bound);
    if (most == 0) continue;
    if ((sum + most + lower) * kSlack <= best.threshold()) return 0;
    if (!seek(index, list, doc)) continue;
    if (const int64_t fault = load_block(index, list)) return fault;
    seek_within(list, doc);
    if (list.next < list.held && list.docs[list.next] == doc) sum += score_here(index, list);
  }
  if (!is_hidden(index, doc)) best.offer(doc, static_cast<float>(sum));
  return 0;
}

// Offers the documents of a window.
int64_t sweep(const Index& index, List* const* lists, const double* bounds, int64_t rest,
              uint32_t low, uint64_t high, Window& window, TopDocs& best) {
  for (int64_t word = 0; low + word * 64 < static_cast<int64_t>(high); ++word) {
    for (uint64_t bits = window.met[word]; bits; bits &= bits - 1) {
      const int64_t offset = word * 64 + trailing_zeros(bits);
      const uint32_t doc = low + static_cast<uint32_t>(offset);
      const double sum = window.sums[offset];
      window.sums[offset] = 0;
      if (const int64_t fault = score_document(index, lists, bounds, rest, doc, sum, best)) return fault;
    }
    window.met[word] = 0;
  }
  return 0;
}

// Searches the documents of one list from `low` on; the other lists are probed.
int64_t search_leading(const Index& index, List& lead, List* const* lists, const double* bounds,
                   int64_t count, uint32_t low, TopDocs& best) {
  const double rest = count ? bounds[count - 1] : 0;
  for (bool is_there = seek(index, lead, low); is_there; is_there = ++lead.at < lead.blocks) {
    if ((block_bound(index, lead, lead.at) + rest) * kSlack <= best.threshold()) continue;
    if (const int64_t fault = load_block(index, lead)) return fault;
    seek_within(lead, low);
    score_block(index, lead);
    flag_candidates(lead, best.threshold() / kSlack - rest);
    for (; next_candidate(lead); ++lead.next) {
      const double sum = lead.scores[lead.next];
      const uint32_t doc = lead.docs[lead.next];
      if ((sum + rest) * kSlack <= best.threshold()) continue;
      if (const int64_t fault = score_document(index, lists, bounds, count, doc, sum, best)) return fault;
    }
  }
  return 0;
}

// `lists` are ordered by bound, and bounds[i] is the joint bound of the first i + 1.
int64_t search_any(const Index& index, List* const* lists, const double* bounds, int64_t count,
                   Window& window, TopDocs& best) {
  int64_t rest = 0;
  uint64_t low = 0;
  for (;;) {
    while (rest < count && bounds[rest] * kSlack <= best.threshold()) ++rest;
    if (rest == count - 1)
      return search_leading(index, *lists[rest], lists, bounds, rest, static_cast<uint32_t>(low), best);
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

struct CandidateWindow {
  float most[kCandidateWindow];
  uint8_t is_candidate[kCandidateWindow];
};

// Returns an upper bound of a list's scores up to document `last`.
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

// `lists` are ordered by document count. `phrase` may be null.
int64_t search_all(const Index& index, List* const* lists, int64_t count, Phrase* phrase,
                   TopDocs& best) {
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
    lead.next = 0;
    score_block(index, lead);
    flag_candidates(lead, best.threshold() / kSlack - rest);
    for (; next_candidate(lead); ++lead.next) {
      const uint32_t doc = lead.docs[lead.next];
      double sum = lead.scores[lead.next];
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

// Flags the documents in [low, high) whose summed weights, of all lists or any, exceed the
// threshold. Returns whether there are any.
bool find_candidates(List* const* lists, int64_t count, bool needs_all, int64_t low, int64_t high,
                 double threshold, CandidateWindow& seen) {
  const int64_t size = high - low;
  memset(seen.most, 0, sizeof seen.most);
  memset(seen.is_candidate, 1, sizeof seen.is_candidate);
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* from = lists[i]->doc_weights + low;
    const float step = lists[i]->idf * kWeightStep;
    for (int64_t k = 0; k < size; ++k) seen.most[k] += step * from[k];
    if (needs_all)
      for (int64_t k = 0; k < size; ++k) seen.is_candidate[k] &= from[k] != 0;
  }
  const float least = static_cast<float>(larger(threshold / kSlack, 0.0));
  uint8_t any = 0;
  for (int64_t k = 0; k < size; ++k) any |= seen.is_candidate[k] &= seen.most[k] > least;
  memset(seen.is_candidate + size, 0, kCandidateWindow - size);
  return any != 0;
}

// `lists` are ordered by bound, and all have document weights.
int64_t search_weighted(const Index& index, List* const* lists, int64_t count, bool needs_all,
                       Phrase* phrase, CandidateWindow& seen, TopDocs& best) {
  for (int64_t low = 0; low < index.norm.size; low += kCandidateWindow) {
    const int64_t high = smaller(low + kCandidateWindow, index.norm.size);
    if (!find_candidates(lists, count, needs_all, low, high, best.threshold(), seen)) continue;
    for (int64_t word = 0; word < kCandidateWindow; word += 8) {
      for (uint64_t bytes = load<uint64_t>(seen.is_candidate + word); bytes; bytes &= bytes - 1) {
        const int64_t offset = word + trailing_zeros(bytes) / 8;
        const uint32_t doc = static_cast<uint32_t>(low + offset);
        double most = seen.most[offset], sum = 0;
        if (most * kSlack <= best.threshold() || is_hidden(index, doc)) continue;
        int64_t i = count - 1;
        for (; i >= 0; --i) {
          List& list = *lists[i];
          if (!list.doc_weights[doc]) continue;
          if (!seek(index, list, doc)) break;
          if (const int64_t fault = load_block(index, list)) return fault;
          seek_within(list, doc);
          if (list.next == list.held || list.docs[list.next] != doc) break;
          const double own = score_here(index, list);
          sum += own;
          most += own - score_bound(list, doc, 0);
          if (most * kSlack <= best.threshold()) break;
        }
        if (i >= 0 || static_cast<float>(sum) <= best.threshold()) continue;
        if (phrase) {
          const int64_t has = has_phrase(index, phrase->lists, count, phrase->slop, phrase->reached);
          if (has < 0) return has;
          if (!has) continue;
        }
        best.offer(doc, static_cast<float>(sum));
      }
    }
  }
  return 0;
}

// Sorts lists by ascending `key`.
template <class Key>
void sort_lists(List** lists, int64_t count, Key key) {
  for (int64_t i = 1; i < count; ++i) {
    List* list = lists[i];
    int64_t at = i;
    for (; at > 0 && key(*lists[at - 1]) > key(*list); --at) lists[at] = lists[at - 1];
    lists[at] = list;
  }
}

// Validates the block ranges and counts of all lists.
int64_t check(const Index& index, ConstInts first, ConstInts stop, ConstInts count,
              ConstInts weights_start) {
  const int64_t blocks = index.position.size;
  for (int64_t i = 0; i < count.size; ++i) {
    const int64_t begin = first.data[i], end = stop.data[i];
    if (begin < 0 || end <= begin || end > blocks) return fail(kBadOffsets, i);
    if (count.data[i] <= (end - begin - 1) * index.block_docs ||
        count.data[i] > (end - begin) * index.block_docs)
      return fail(kBadCount, i);
    if (weights_start.data[i] >= 0 && !within(weights_start.data[i], index.norm.size, index.doc_weights.size))
      return fail(kOutOfSource, i);
  }
  return 0;
}

void open_list(const Index& index, int64_t first, int64_t stop, int64_t count, int64_t weights_start,
               float idf, List& list) {
  list.first = first;
  list.blocks = stop - first;
  list.count = count;
  list.idf = idf;
  float best = 0;
  for (int64_t block = first; block < stop; ++block) best = larger(best, index.block_max[block]);
  list.bound = static_cast<double>(idf) * best;
  list.doc_weights = weights_start < 0 ? nullptr : index.doc_weights.data + weights_start;
  list.at = list.held = list.next = list.phrase_offset = list.room = 0;
  list.decoded = list.scored = list.requested_block = list.positions_block = -1;
  list.positions = list.steps = nullptr;
}

// `order` refers to the lists and is sorted for the search.
int64_t search(const Index& index, List* lists, List** order, int64_t count, bool needs_all,
               Phrase* phrase, TopDocs& best) {
  bool all_weighted = count > 1;
  for (int64_t i = 0; i < count; ++i) all_weighted &= lists[i].doc_weights != nullptr;
  if (all_weighted) {
    sort_lists(order, count, [](const List& list) { return list.bound; });
    CandidateWindow* seen = static_cast<CandidateWindow*>(malloc(sizeof(CandidateWindow)));
    if (!seen) return fail(kNoMemory, 0);
    const int64_t status = search_weighted(index, order, count, needs_all, phrase, *seen, best);
    free(seen);
    return status;
  }
  if (needs_all) {
    sort_lists(order, count, [](const List& list) { return list.count; });
    return search_all(index, order, count, phrase, best);
  }
  if (count == 1) return search_leading(index, lists[0], nullptr, nullptr, 0, 0, best);
  sort_lists(order, count, [](const List& list) { return list.bound; });
  double* bounds = static_cast<double*>(malloc(count * sizeof(double)));
  Window* window = static_cast<Window*>(calloc(1, sizeof(Window)));
  int64_t status = fail(kNoMemory, 0);
  if (bounds && window) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) bounds[i] = sum += order[i]->bound;
    status = search_any(index, order, bounds, count, *window, best);
  }
  free(window);
  free(bounds);
  return status;
}

}  // namespace

int64_t search_postings(args::PostingLists postings, Span<const float> idf, Span<const float> norm,
                        ConstBytes hidden, args::BlockFormat format, args::Phrase phrase,
                        Span<uint32_t> found, Span<float> score) {
  const ConstBytes source = postings.source;
  const ConstInts position = postings.position;
  const ConstInts size = postings.size;
  const Span<const uint32_t> last = postings.last_docs;
  const Span<const float> block_max = postings.block_max;
  const ConstInts first = postings.first;
  const ConstInts stop = postings.stop;
  const ConstInts count = postings.count;
  const ConstBytes doc_weights = postings.doc_weights;
  const ConstInts weights_start = postings.weights_start;
  const int64_t block_docs = format.block_docs;
  const int64_t is_varint = format.is_varint;
  const int64_t needs_all = format.needs_all;
  const ConstBytes streams = phrase.streams;
  const ConstInts stream_position = phrase.stream_position;
  const ConstInts stream_size = phrase.stream_size;
  const ConstInts phrase_offsets = phrase.phrase_offsets;
  const int64_t slop = phrase.slop;
  const Index index = {source, position, size, last.data, block_max.data, norm, hidden,
                       block_docs, is_varint != 0, streams, stream_position, stream_size, doc_weights};
  const int64_t blocks = position.size, num_lists = count.size;
  if (size.size != blocks || last.size != blocks || block_max.size != blocks ||
      first.size != num_lists || stop.size != num_lists || weights_start.size != num_lists || idf.size != num_lists)
    return fail(kBadCount, 0);
  if (phrase_offsets.size && (phrase_offsets.size != num_lists || stream_position.size != blocks ||
                     stream_size.size != blocks))
    return fail(kBadCount, 0);
  if (hidden.size && hidden.size != norm.size) return fail(kBadCount, 0);
  if (const int64_t fault = check(index, first, stop, count, weights_start)) return fault;
  TopDocs best = {found.data, score.data, smaller(found.size, score.size), 0};
  if (!num_lists || !best.capacity) return 0;
  List* lists = static_cast<List*>(malloc(num_lists * sizeof(List)));
  List** order = static_cast<List**>(malloc(num_lists * sizeof(List*)));
  int64_t status = fail(kNoMemory, 0);
  if (lists && order) {
    for (int64_t i = 0; i < num_lists; ++i) {
      open_list(index, first.data[i], stop.data[i], count.data[i], weights_start.data[i], idf.data[i],
                lists[i]);
      if (phrase_offsets.size) lists[i].phrase_offset = phrase_offsets.data[i];
      order[i] = &lists[i];
    }
    Phrase phrase = {lists, slop, {nullptr, 0}};
    status = search(index, lists, order, num_lists, needs_all || phrase_offsets.size,
                    phrase_offsets.size ? &phrase : nullptr, best);
    free(phrase.reached.data);
    for (int64_t i = 0; i < num_lists; ++i) free(lists[i].positions);
  }
  free(order);
  free(lists);
  return status < 0 ? status : best.size;
}

}  // namespace LANCELET_NAMESPACE

// Nested rows: their levels, and the enclosing lists and structs.
#pragma once

#include "plan_values.hpp"

namespace LANCELET_NAMESPACE {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "levels.def"
#undef KERNEL

namespace planned {

static constexpr int64_t kEntriesMax = 1 << 28;  // larger results are left to the generic reader
static constexpr int64_t kChunkLevelsMax = 1 << 16;

// Levels of rows, and the values that they have in each chunk.
struct Entries {
  int64_t count = 0;
  int64_t values = 0;
  Grown<uint16_t> repetition, definition;  // empty without such levels
  Grown<Piece> pieces;
  Grown<Run> runs;
};

static inline bool is_same(const Nesting& a, const Nesting& b) {
  if (&a == &b) return true;
  if (a.layers != b.layers || a.rep_max != b.rep_max || a.def_max != b.def_max ||
      (a.def_bits > 0) != (b.def_bits > 0))
    return false;
  return memcmp(a.each, b.each, static_cast<size_t>(a.layers) * sizeof(Layer)) == 0;
}

// The levels of a chunk that are at most, or above, a limit.
struct Marks {
  uint64_t bits[kChunkLevelsMax / kGroup + 1];
  int32_t before[kChunkLevelsMax / kGroup + 2];  // marks before each group
  int64_t groups;

  void set(const uint16_t* levels, int64_t count, uint16_t most, bool is_above) {
    groups = 0;
    int32_t total = 0;
    for (int64_t i = 0; i < count; i += kGroup) {
      const int64_t size = smaller(kGroup, count - i);
      const uint64_t low = at_most(levels + i, size, most);
      const uint64_t found = (is_above ? ~low : low) & low_bits(size);
      before[groups] = total;
      bits[groups++] = found;
      total += static_cast<int32_t>(count_bits(found));
    }
    before[groups] = total;
    bits[groups] = 0;
  }

  int64_t total() const { return before[groups]; }

  // Returns the number of marks before level `i`.
  int64_t rank(int64_t i) const {
    return before[i / kGroup] + count_bits(bits[i / kGroup] & low_bits(i % kGroup));
  }

  // Returns the level of mark `k`, from group `*from` on, which is advanced.
  int64_t find(int64_t k, int64_t* from) const {
    int64_t group = before[*from] <= k ? *from : 0;
    for (int64_t step = 1; group + step < groups && before[group + step] <= k; step *= 2)
      group += step;
    while (before[group + 1] <= k) ++group;
    *from = group;
    uint64_t rest = bits[group];
    int64_t left = k - before[group], at = group * kGroup;
    for (int64_t width = kGroup / 2; width > 0; width /= 2) {
      const int64_t low = count_bits(rest & low_bits(width));
      if (left < low) continue;
      left -= low;
      rest >>= width;
      at += width;
    }
    return at;
  }
};

// Reads the levels of pieces. Each chunk of a piece is unpacked and validated once.
class LevelReader {
 public:
  // Receives levels instead of `entries`; definition levels may be missing. Returns 0 or a fault.
  using Sink = int64_t (*)(void* to, Levels repetition, const uint16_t* definition);

  LevelReader(const File& file, const Rows& rows, Entries* entries, Sink sink, void* to)
      : file_(file), rows_(rows), entries_(entries), sink_(sink), to_(to) {}
  LevelReader(const LevelReader&) = delete;
  ~LevelReader() { CachedMemory::of_thread().give(memory_, memory_bytes_); }

  // Adds the entries of the rows of a piece. Returns 0 or a fault.
  int64_t piece(const Piece& piece) {
    const Page& page = *piece.page;
    int64_t next = piece.start;
    const int64_t stop = piece.start + piece.count;
    for (int64_t part = piece.part; part <= piece.last; ++part) {
      int64_t status = open(page, part, piece.shift);
      if (status < 0) return status;
      const int64_t first_run = entries_->runs.count, before = entries_->values;
      const auto row = [&](int64_t i) { return row_at(rows_, i) - piece.base; };
      if (page.begun == nullptr) {
        if (rows_.numbers == nullptr) status = add(row(next), row(next) + piece.count);
        for (int64_t i = next; rows_.numbers != nullptr && i < stop && status == 0; ++i)
          status = add(row(i), row(i) + 1);
      } else {
        const int64_t first = page.ended[part];  // the row of the first entry
        const int64_t end = page.begun[part + 1];
        if (rows_.numbers == nullptr) {
          const int64_t low = larger(row(next), first), high = smaller(row(stop - 1) + 1, end);
          if (low < high) status = add(begin(low - first), begin(high - first));
        } else {
          for (int64_t i = next; i < stop && row(i) < end && status == 0; ++i)
            status = add(begin(row(i) - first), begin(row(i) - first + 1));
          while (next < stop && row(next) < page.ended[part + 1]) ++next;
        }
      }
      if (status < 0) return status;
      if (entries_->values > before &&
          !entries_->pieces.add({&page, part, part, before, entries_->values - before, 0,
                                 page.chunk_position[part] + piece.shift, page.chunk_size[part],
                                 first_run, entries_->runs.count - first_run, piece.shift}))
        return fail(kNoMemory, 0);
    }
    return 0;
  }

 private:
  // Unpacks the levels of a chunk, and finds its rows and values.
  int64_t open(const Page& page, int64_t part, int64_t shift) {
    const Nesting& nesting = *page.nesting;
    const ConstBytes bytes = {file_.bytes.data + page.chunk_position[part] + shift,
                              page.chunk_size[part]};
    Chunk chunk;
    int64_t status = open_chunk(page, part, bytes, &chunk);
    if (status < 0) return status;
    if (memory_ == nullptr) {
      void* const taken = CachedMemory::of_thread().take(sizeof(Memory), &memory_bytes_);
      memory_ = static_cast<Memory*>(taken);
      if (memory_ == nullptr) return fail(kNoMemory, 0);
    }
    group_ = 0;
    rep_ = def_ = nullptr;
    // Without levels, there is an entry per value.
    const int64_t levels = nesting.rep_bits || nesting.def_bits ? chunk.num_levels : chunk.count;
    if (levels > kChunkLevelsMax) return fail(kBadCount, part);
    levels_ = levels;
    if (nesting.rep_bits > 0) {
      status = unpack_chunk_levels(chunk.repetition, levels, nesting.rep_bits, memory_->repetition);
      if (status < 0) return status;
      rep_ = memory_->repetition;
    }
    if (nesting.def_bits > 0) {
      status = unpack_chunk_levels(chunk.definition, levels, nesting.def_bits, memory_->definition);
      if (status < 0) return status;
      def_ = memory_->definition;
    }
    int64_t slots = levels, wrong = 0;
    has_all_slots_ = def_ == nullptr || nesting.each[0].slot_def_max >= nesting.def_max;
    if (def_ != nullptr)
      for (int64_t i = 0; i < levels; ++i) wrong += def_[i] > nesting.def_max;
    if (!has_all_slots_) {
      const auto most = static_cast<uint16_t>(nesting.each[0].slot_def_max);
      memory_->slots.set(def_, levels, most, false);
      slots = memory_->slots.total();
    }
    if (page.begun != nullptr) {
      // The chunk must have the rows of the repetition index, and may continue another one.
      continued_ = page.begun[part] - page.ended[part];
      if (rep_ == nullptr || levels == 0 || (rep_[0] == nesting.rep_max) != (continued_ == 0))
        return fail(kBadLevels, part);
      for (int64_t i = 0; i < levels; ++i) wrong += rep_[i] > nesting.rep_max;
      memory_->rows.set(rep_, levels, static_cast<uint16_t>(nesting.rep_max - 1), true);
      if (memory_->rows.total() != page.begun[part + 1] - page.begun[part])
        return fail(kBadLength, part);
    }
    if (wrong > 0) return fail(kBadLevels, part);
    // There is a slot per value.
    return slots == chunk.count ? 0 : fail(kBadLength, part);
  }

  // Returns the first entry of a row of the open chunk, or the end of the last row.
  int64_t begin(int64_t row) {
    const int64_t mark = row - continued_;
    if (mark < 0) return 0;
    return mark < memory_->rows.total() ? memory_->rows.find(mark, &group_) : levels_;
  }

  // Adds entries of the open chunk, and the values that they have.
  int64_t add(int64_t start, int64_t stop) {
    Entries& all = *entries_;
    if (start < 0 || stop < start || stop > levels_) return fail(kBadIndex, start);
    if (stop - start > kEntriesMax - all.count) return fail(kTooLarge, 0);
    all.count += stop - start;
    if (sink_ != nullptr) {
      const int64_t status =
          sink_(to_, {rep_ + start, stop - start}, def_ == nullptr ? nullptr : def_ + start);
      if (status < 0) return status;
    } else {
      if (rep_ != nullptr && !all.repetition.add(rep_ + start, stop - start))
        return fail(kNoMemory, 0);
      if (def_ != nullptr && !all.definition.add(def_ + start, stop - start))
        return fail(kNoMemory, 0);
    }
    const int64_t slot = has_all_slots_ ? start : memory_->slots.rank(start);
    const int64_t count = (has_all_slots_ ? stop : memory_->slots.rank(stop)) - slot;
    if (count == 0) return 0;
    all.values += count;
    return all.runs.add({slot, count}) ? 0 : fail(kNoMemory, 0);
  }

  const File& file_;
  const Rows& rows_;
  Entries* entries_;
  Sink sink_;
  void* to_;
  struct Memory {
    uint16_t repetition[kChunkLevelsMax];
    uint16_t definition[kChunkLevelsMax];
    Marks rows;   // entries that begin a row
    Marks slots;  // entries with a value
  };

  Memory* memory_ = nullptr;
  int64_t memory_bytes_ = 0;
  const uint16_t* rep_ = nullptr;
  const uint16_t* def_ = nullptr;
  int64_t levels_ = 0;
  int64_t continued_ = 0;  // 1 if the first entry of the chunk continues a row
  int64_t group_ = 0;      // of the row found last
  bool has_all_slots_ = false;
};

// The single list layer of rows, in which only lists may be null, while its levels are read.
struct SingleList {
  int64_t layer = 0;  // 0 if there are other nulls or lists
  int64_t offsets = -1, validity = -1;
  bool is_large = false;
  ListBuilder<int32_t> narrow = {};
  ListBuilder<int64_t> wide = {};

  // Allocates the output of the rows. Returns 0 or a fault.
  int64_t begin(const Column& column, const Nesting& nesting, int64_t rows, Output* out) {
    int64_t found = 0;
    for (int64_t i = 0; i < nesting.layers; ++i) {
      const Layer& each = nesting.each[i];
      if (each.is_list && found > 0) return 0;
      if (each.is_list) found = i;
      else if (each.null_def > 0) return 0;
    }
    if (found == 0) return 0;
    const Layer& list = nesting.each[found];
    is_large = column.large >> found & 1;
    const int64_t width = is_large ? 8 : 4;
    const int64_t bits = nesting.def_bits > 0 && list.null_def > 0 ? (rows + 7) / 8 : 0;
    if (bits > 0) validity = out->take(bits);
    offsets = out->take((rows + 1) * width);
    if (offsets < 0 || (bits > 0 && validity < 0)) return fail(kOutputFull, 0);
    const args::ListLevels levels = {1, list.inner_def_max, list.slot_def_max, list.empty_def};
    uint8_t* const to = out->bytes.data + offsets;
    const BitWriter writer = {{out->bytes.data + larger<int64_t>(validity, 0), bits}};
    if (is_large) wide = {levels, {reinterpret_cast<int64_t*>(to), rows + 1}, writer, kBadLength};
    else narrow = {levels, {reinterpret_cast<int32_t*>(to), rows + 1}, writer, kBadLength};
    layer = found;
    return 0;
  }

  static int64_t add(void* self, Levels repetition, const uint16_t* definition) {
    auto* const own = static_cast<SingleList*>(self);
    return own->is_large ? own->wide.add(repetition, definition)
                         : own->narrow.add(repetition, definition);
  }

  // Writes the layers. Returns 0 or a fault.
  int64_t finish(const Nesting& nesting, int64_t rows, Output* out, ColumnOutput* output) {
    const int64_t items = is_large ? wide.items : narrow.items;
    const int64_t lists = is_large ? wide.finish() : narrow.finish();
    if (lists < 0) return lists;
    if (items != output->count || lists != rows) return fail(kBadLength, 0);
    const int64_t layers = nesting.layers - 1;
    output->layers = out->take(layers * static_cast<int64_t>(sizeof(LayerOutput)));
    if (output->layers < 0) return fail(kOutputFull, 0);
    for (int64_t i = 1; i <= layers; ++i) {
      LayerOutput found = {i < layer ? items : rows, 0, -1, -1};
      if (i == layer) {
        found.offsets = offsets;
        found.validity = validity;
        if (validity >= 0) found.nulls = rows - count_ones(out->bytes.data + validity, rows);
      }
      memcpy(out->bytes.data + output->layers + (i - 1) * static_cast<int64_t>(sizeof found),
             &found, sizeof found);
    }
    return 0;
  }
};

// Writes the enclosing layers of rows, from the values outwards.
static inline int64_t put_layers(const Column& column, const Nesting& nesting, int64_t rows,
                                 const Entries& entries, Output* out, ColumnOutput* output) {
  int64_t count = output->count;
  const int64_t layers = nesting.layers - 1;
  output->layers = out->take(layers * static_cast<int64_t>(sizeof(LayerOutput)));
  if (output->layers < 0) return fail(kOutputFull, 0);
  int64_t left = entries.count;
  const bool has_definition = nesting.def_bits > 0;
  int64_t status = 0, list_level = 0;
  for (int64_t i = 1; i <= layers && status >= 0; ++i) {
    const Layer& layer = nesting.each[i];
    uint16_t* const rep = entries.repetition.data;
    uint16_t* const def = entries.definition.data;
    const Span<const uint16_t> definition = {def, has_definition ? left : 0};
    LayerOutput found = {count, 0, -1, -1};
    const bool has_bits = has_definition && layer.null_def > 0;
    const int64_t bit_bytes = (left + 7) / 8;
    const int64_t bits = out->take(has_bits || has_definition ? bit_bytes : 0);
    if (bits < 0) status = fail(kOutputFull, 0);
    if (status < 0) break;
    const Bytes validity = {out->bytes.data + bits, has_bits || has_definition ? bit_bytes : 0};
    if (layer.is_list) {
      ++list_level;
      int64_t opened = 0;
      for (int64_t k = 0; k < left; ++k) opened += rep[k] >= list_level;
      if (count > INT32_MAX) status = fail(kTooLarge, i);
      const bool is_large = column.large >> i & 1;
      const int64_t width = is_large ? 8 : 4;
      found.offsets = out->take((opened + 1) * width);
      if (found.offsets < 0) status = fail(kOutputFull, 0);
      if (status < 0) break;
      uint8_t* const to = out->bytes.data + found.offsets;
      // Entries that open lists are compacted in place.
      const auto unravel_to = [&](auto* offsets) {
        const int64_t lists = unravel({rep, left}, definition,
                                      {list_level, layer.inner_def_max, layer.slot_def_max,
                                       layer.empty_def},
                                      Span{offsets, opened + 1},
                                      {validity.data, has_bits ? validity.size : 0}, {rep, left},
                                      {def, has_definition ? left : 0});
        if (lists < 0) return lists;
        return offsets[lists] == count ? lists : fail(kBadLength, i);
      };
      status = is_large ? unravel_to(reinterpret_cast<int64_t*>(to))
                        : unravel_to(reinterpret_cast<int32_t*>(to));
      if (status < 0) break;
      left = opened;
      found.count = status;
    } else if (has_definition) {
      const int64_t valid_max = layer.null_def > 0 ? layer.null_def - 1 : 0;
      status = pack_validity(definition, layer.slot_def_max, valid_max, validity);
      if (status >= 0 && status != count) status = fail(kBadLength, i);
      if (status < 0) break;
    }
    if (has_bits) {
      found.validity = bits;
      found.nulls = found.count - count_ones(validity.data, found.count);
    }
    memcpy(out->bytes.data + output->layers + (i - 1) * static_cast<int64_t>(sizeof found), &found,
           sizeof found);
    count = found.count;
  }
  if (status < 0) return status;
  return count == rows ? 0 : fail(kBadLength, 0);
}

}  // namespace planned
}  // namespace LANCELET_NAMESPACE

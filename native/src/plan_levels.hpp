// Nested rows: their levels, and the enclosing lists and structs.
#pragma once

#include "plan_values.hpp"

namespace LANCELET_NAMESPACE {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "levels.def"
#undef KERNEL

namespace planned {

static constexpr int64_t kEntriesMax = 1 << 20;  // larger results are left to the generic reader
static constexpr int64_t kChunkLevelsMax = 1 << 16;

// A growing array.
template <class T>
struct Grown {
  T* data = nullptr;
  int64_t count = 0, room = 0;

  Grown() = default;
  Grown(const Grown&) = delete;
  ~Grown() { free(data); }

  bool add(const T& item) {
    if (count == room) {
      const int64_t target = room == 0 ? 64 : 2 * room;
      void* const moved = realloc(data, static_cast<size_t>(target) * sizeof(T));
      if (moved == nullptr) return false;
      data = static_cast<T*>(moved);
      room = target;
    }
    data[count++] = item;
    return true;
  }
};

// Levels of rows, and locations of visible values.
struct Entries {
  Grown<uint16_t> repetition, definition;
  Grown<ValueLocation> locations;
  Grown<int64_t> position, size;
};

static inline bool is_same(const Nesting& a, const Nesting& b) {
  if (&a == &b) return true;
  if (a.layers != b.layers || a.rep_max != b.rep_max || a.def_max != b.def_max ||
      (a.def_bits > 0) != (b.def_bits > 0))
    return false;
  return memcmp(a.each, b.each, static_cast<size_t>(a.layers) * sizeof(Layer)) == 0;
}

// Reads the levels of chunks. For ascending rows, each chunk is unpacked and validated once.
class LevelReader {
 public:
  LevelReader(const File& file, Entries* entries) : file_(file), entries_(entries) {}
  ~LevelReader() { free(memory_); }

  // Adds the entries of a row. Returns 0 or a fault.
  int64_t row(const ValueLocation& location) {
    const Page& page = *location.page;
    const bool has_lists = page.begun != nullptr;
    for (int64_t part = location.part; part <= location.last; ++part) {
      if (chunk_.page != &page || chunk_.part != part) {
        const int64_t status = open(page, part);
        if (status < 0) {
          chunk_.page = nullptr;
          return status;
        }
      }
      if (!has_lists) return add(page, location.within, location.within);
      int64_t at = 0, slot = 0;
      if (part == location.part) {
        if (location.within < row_) rewind();
        seek(page, location.within);
        if (at_ >= chunk_.num_levels) return fail(kBadLevels, part);
        at = at_;
        slot = slot_;
      }
      const auto row_max = static_cast<uint16_t>(page.nesting->rep_max);
      for (bool is_first = part == location.part;
           at < chunk_.num_levels && (is_first || rep_[at] != row_max); ++at, is_first = false) {
        const int64_t status = add(page, at, slot);
        if (status < 0) return status;
        slot += is_visible(page, at);
      }
      if (part == location.part) {
        at_ = at;
        slot_ = slot;
        row_ = location.within + 1;
      }
    }
    return 0;
  }

 private:
  bool is_visible(const Page& page, int64_t at) const {
    return def_ == nullptr || def_[at] <= page.nesting->each[0].slot_def_max;
  }

  // Returns to the start of the chunk, which may continue a row of the previous one.
  void rewind() { row_ = -1, at_ = 0, slot_ = 0; }

  // Advances to the start of a row of the chunk.
  void seek(const Page& page, int64_t target) {
    const auto row_max = static_cast<uint16_t>(page.nesting->rep_max);
    if (row_ < 0) {
      for (; at_ < chunk_.num_levels && rep_[at_] != row_max; ++at_) slot_ += is_visible(page, at_);
      row_ = 0;
    }
    while (row_ < target && at_ < chunk_.num_levels) {
      slot_ += is_visible(page, at_++);
      for (; at_ < chunk_.num_levels && rep_[at_] != row_max; ++at_) slot_ += is_visible(page, at_);
      ++row_;
    }
  }

  int64_t open(const Page& page, int64_t part) {
    const Nesting& nesting = *page.nesting;
    const ConstBytes bytes = {file_.bytes.data + page.chunk_position[part], page.chunk_size[part]};
    int64_t status = open_chunk(page, part, bytes, &chunk_);
    if (status < 0) return status;
    if (memory_ == nullptr) {
      memory_ = static_cast<uint16_t*>(malloc(2 * kChunkLevelsMax * sizeof(uint16_t)));
      if (memory_ == nullptr) return fail(kNoMemory, 0);
    }
    rewind();
    rep_ = def_ = nullptr;
    // Without levels, there is an entry per value.
    if (!nesting.rep_bits && !nesting.def_bits) chunk_.num_levels = chunk_.count;
    const int64_t levels = chunk_.num_levels;
    if (levels > kChunkLevelsMax) return fail(kBadCount, part);
    if (nesting.rep_bits > 0) {
      status = unpack_chunk_levels(chunk_.repetition, levels, nesting.rep_bits, memory_);
      if (status < 0) return status;
      rep_ = memory_;
    }
    if (nesting.def_bits > 0) {
      status = unpack_chunk_levels(chunk_.definition, levels, nesting.def_bits,
                                   memory_ + kChunkLevelsMax);
      if (status < 0) return status;
      def_ = memory_ + kChunkLevelsMax;
    }
    int64_t begins = 0, slots = levels, wrong = 0;
    if (rep_ != nullptr)
      for (int64_t i = 0; i < levels; ++i) {
        begins += rep_[i] == nesting.rep_max;
        wrong += rep_[i] > nesting.rep_max;
      }
    if (def_ != nullptr) {
      slots = 0;
      for (int64_t i = 0; i < levels; ++i) {
        slots += def_[i] <= nesting.each[0].slot_def_max;
        wrong += def_[i] > nesting.def_max;
      }
    }
    if (wrong > 0) return fail(kBadLevels, part);
    // The chunk must have the rows of the repetition index and a slot per value.
    if (page.begun != nullptr && begins != page.begun[part + 1] - page.begun[part])
      return fail(kBadLength, part);
    return slots == chunk_.count ? 0 : fail(kBadLength, part);
  }

  // Adds an entry of the open chunk, and the location of its value if visible.
  int64_t add(const Page& page, int64_t at, int64_t slot) {
    if (at >= chunk_.num_levels) return fail(kBadIndex, at);
    if (entries_->repetition.count >= kEntriesMax) return fail(kTooLarge, 0);
    const uint16_t definition = def_ == nullptr ? 0 : def_[at];
    if (!entries_->repetition.add(rep_ == nullptr ? 0 : rep_[at]) ||
        !entries_->definition.add(definition))
      return fail(kNoMemory, 0);
    const Layer& item = page.nesting->each[0];
    if (definition > item.slot_def_max) return 0;
    const int64_t is_null = item.null_def > 0 && definition > 0;
    const bool is_added = entries_->locations.add({&page, chunk_.part, slot, chunk_.part, is_null}) &&
                         entries_->position.add(page.chunk_position[chunk_.part]) &&
                         entries_->size.add(page.chunk_size[chunk_.part]);
    return is_added ? 0 : fail(kNoMemory, 0);
  }

  const File& file_;
  Entries* entries_;
  Chunk chunk_;
  uint16_t* memory_ = nullptr;
  const uint16_t* rep_ = nullptr;
  const uint16_t* def_ = nullptr;
  int64_t row_ = -1, at_ = 0, slot_ = 0;
};

// Writes the enclosing layers of rows, from the values outwards.
static inline int64_t put_layers(const Column& column, const Nesting& nesting, int64_t rows,
                                 const Entries& entries, Output* out, ColumnOutput* output) {
  int64_t count = output->count;
  const int64_t layers = nesting.layers - 1;
  output->layers = out->take(layers * static_cast<int64_t>(sizeof(LayerOutput)));
  if (output->layers < 0) return fail(kOutputFull, 0);
  int64_t left = entries.repetition.count;
  const bool has_definition = nesting.def_bits > 0;
  auto* const offsets = static_cast<int64_t*>(malloc(static_cast<size_t>(left + 1) * sizeof(int64_t)));
  if (offsets == nullptr) return fail(kNoMemory, 0);
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
      // Entries that open lists are compacted in place.
      status = unravel_list({rep, left}, definition,
                            {list_level, layer.inner_def_max, layer.slot_def_max, layer.empty_def},
                            {offsets, left + 1},
                            {validity.data, has_bits ? validity.size : 0}, {rep, left},
                            {def, has_definition ? left : 0});
      if (status < 0) break;
      left = opened;
      if (offsets[status] != count) {
        status = fail(kBadLength, i);
        break;
      }
      found.count = status;
      if (count > INT32_MAX) status = fail(kTooLarge, i);
      if (status < 0) break;
      const bool is_large = column.large >> i & 1;
      const int64_t width = is_large ? 8 : 4;
      found.offsets = out->take((status + 1) * width);
      if (found.offsets < 0) {
        status = fail(kOutputFull, 0);
        break;
      }
      uint8_t* const to = out->bytes.data + found.offsets;
      for (int64_t k = 0; k <= found.count; ++k)
        if (is_large) store<int64_t>(to + 8 * k, offsets[k]);
        else store<int32_t>(to + 4 * k, static_cast<int32_t>(offsets[k]));
    } else if (has_definition) {
      const int64_t valid_max = layer.null_def > 0 ? layer.null_def - 1 : 0;
      status = pack_validity(definition, layer.slot_def_max, valid_max, validity);
      if (status >= 0 && status != count) status = fail(kBadLength, i);
      if (status < 0) break;
    }
    if (has_bits) {
      found.validity = bits;
      for (int64_t k = 0; k < found.count; ++k)
        found.nulls += !(validity.data[k / 8] >> k % 8 & 1);
    }
    memcpy(out->bytes.data + output->layers + (i - 1) * static_cast<int64_t>(sizeof found), &found,
           sizeof found);
    count = found.count;
  }
  free(offsets);
  if (status < 0) return status;
  return count == rows ? 0 : fail(kBadLength, 0);
}

}  // namespace planned
}  // namespace LANCELET_NAMESPACE

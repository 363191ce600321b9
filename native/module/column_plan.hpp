// The plan of a column: its pages, and for resolved pages everything a kernel needs to read rows.
//
// A plan is built from the stored column metadata and owns its data. A page is described when one
// of its rows is first requested. Then its head (chunk table, dictionary, repetition index) is read
// from the file once. Values from storage are untrusted: they are validated against the available
// bytes before they size memory or move a pointer. Unsupported layouts are left to the generic
// reader.
//
// Plans are thread-safe. Threads that resolve the same page compute equal results, and the first
// one is published.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "page_layout.hpp"
#include "released.hpp"
#include "utf8.hpp"

namespace lancelet::columns {

namespace nb = nanobind;

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
Span<T> span(const nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>& array) {
  if (reinterpret_cast<uintptr_t>(array.data()) % alignof(T) != 0)
    throw std::invalid_argument("an array is not aligned to its items");
  return {array.data(), static_cast<int64_t>(array.shape(0))};
}

constexpr int64_t kPageRowsMax = int64_t{1} << 48;
constexpr int64_t kChunkValuesMax = 32768;
constexpr int64_t kPackedMax = 1024;  // items of a bit-packed dictionary
constexpr int64_t kItemsMax = 1 << 16;
constexpr int64_t kItemsPerByteMax = 64;
constexpr int64_t kSlotsMax = 8192;  // as many slots fit into the cache

// A resolved page as kernels see it, and the memory it refers to.
struct ResolvedPage {
  plan::Page page;
  std::vector<int64_t> numbers;
  std::vector<int64_t> offsets;
  std::vector<uint8_t> bytes, slots;
  std::vector<uint64_t> symbols;
  std::vector<int64_t> rows;
  std::unique_ptr<plan::Nesting> nesting;

  int64_t memory_bytes() const {
    return static_cast<int64_t>(sizeof(ResolvedPage) + 8 * numbers.capacity() +
                                8 * offsets.capacity() + bytes.capacity() +
                                slots.capacity() +
                                8 * symbols.capacity() + 8 * rows.capacity() +
                                (nesting ? sizeof(plan::Nesting) : 0));
  }
};

// A page being resolved: its parsed message and the location of its head.
struct PendingPage {
  std::unique_ptr<ResolvedPage> resolved;
  PageLayout layout;
  std::vector<int64_t> position, size;  // of the page's buffers
  std::vector<size_t> heads;  // the buffers to read
};

class ColumnPlan {
 public:
  // `is_valid` is false unless the metadata describe a column of `num_rows` rows in pages only.
  ColumnPlan(Message metadata, const Form& form, int64_t num_rows, int64_t file_bytes)
      : form_(form) {
    first_row_.push_back(0);
    const bool is_valid = each_field(metadata, [&](const WireField& field, Message part) {
      if (field.number != 2) return true;
      return field.wire_type == kBytes && add_page(part, num_rows, file_bytes);
    });
    is_valid_ = is_valid && first_row_.back() == num_rows;
    if (!is_valid_) return;
    resolved_ = std::make_unique<std::atomic<const ResolvedPage*>[]>(stored_.size());
    for (size_t i = 0; i < stored_.size(); ++i) resolved_[i].store(nullptr, std::memory_order_relaxed);
    column_ = {form.kind, form.width, form.is_text, static_cast<int64_t>(stored_.size()),
               first_row_.data(), form.layers(), form.large};
    memory_bytes_ = static_cast<int64_t>(sizeof(ColumnPlan) + stored_.size() * sizeof(Stored) +
                                         8 * (first_row_.size() + positions_.size() * 2));
  }

  ColumnPlan(const ColumnPlan&) = delete;
  ColumnPlan& operator=(const ColumnPlan&) = delete;

  ~ColumnPlan() {
    if (!resolved_) return;
    for (size_t i = 0; i < stored_.size(); ++i) delete resolved_[i].load();
  }

  bool is_valid() const { return is_valid_; }
  const plan::Column* column() const { return &column_; }
  int64_t num_rows() const { return first_row_.back(); }
  int64_t first_row(int64_t page) const { return first_row_[static_cast<size_t>(page)]; }
  int64_t memory_bytes() const { return memory_bytes_.load(); }

  // Returns the size of all buffers.
  int64_t stored_bytes() const {
    int64_t total = 0;
    for (const int64_t each : sizes_) total += each;
    return total;
  }

  // Keeps the metadata alive, which page messages refer to.
  void hold_metadata(nb::object metadata) { metadata_ = std::move(metadata); }

  int64_t page_of(int64_t row) const {
    return baseline::part_of({first_row_.data(), static_cast<int64_t>(first_row_.size())}, 0, row);
  }

  const ResolvedPage* resolved(int64_t page) const {
    return resolved_[static_cast<size_t>(page)].load(std::memory_order_acquire);
  }

  // Parses the message of a page. An unsupported page has no head to read.
  PendingPage describe(int64_t page) const {
    const Stored& stored = stored_[static_cast<size_t>(page)];
    PendingPage pending;
    pending.resolved = std::make_unique<ResolvedPage>();
    const auto from = positions_.begin() + stored.first_buffer;
    pending.position.assign(from, from + stored.buffers);
    const auto sizes = sizes_.begin() + stored.first_buffer;
    pending.size.assign(sizes, sizes + stored.buffers);
    const int64_t rows = first_row_[static_cast<size_t>(page) + 1] - first_row(page);
    if (!parse_page(stored.encoding, form_, rows, pending.position, pending.size, &pending.layout))
      return pending;
    const bool has_chunks = pending.layout.page.layout == plan::kChunks;
    if (has_chunks || pending.layout.has_value_buffer) pending.heads.push_back(0);
    for (int i = 0; has_chunks && i < pending.layout.has_items + pending.layout.has_rows; ++i)
      pending.heads.push_back(2 + static_cast<size_t>(i));
    return pending;
  }

  // Completes a page whose head has been verified. Its positions are those within `file`.
  void finish(PendingPage& pending, const plan::File& file, const Kernels& kernels) const {
    ResolvedPage& resolved = *pending.resolved;
    const PageLayout& layout = pending.layout;
    if (layout.page.layout == plan::kUnknown) return;
    resolved.page = layout.page;
    if (layout.nesting.layers > 0) {
      resolved.nesting = std::make_unique<plan::Nesting>(layout.nesting);
      resolved.page.nesting = resolved.nesting.get();
    }
    const bool is_valid = read_symbols(layout, &resolved) && copy_value(layout, &resolved) &&
                          (!layout.has_value_buffer || read_string(pending, file)) &&
                          (layout.page.layout != plan::kChunks ||
                           ((locate_chunks(pending, file, kernels) &&
                            (!layout.has_items || read_dictionary(pending, file, kernels)) &&
                            (!layout.has_rows || read_row_index(pending, file)))));
    if (!is_valid) resolved.page = {};
  }

  // Publishes a page unless another thread did; adds its size to `bytes_added`.
  const ResolvedPage* publish(int64_t page, std::unique_ptr<ResolvedPage> found, int64_t* bytes_added) {
    const ResolvedPage* expected = nullptr;
    auto& slot = resolved_[static_cast<size_t>(page)];
    if (!slot.compare_exchange_strong(expected, found.get(), std::memory_order_acq_rel))
      return expected;
    memory_bytes_ += found->memory_bytes();
    *bytes_added += found->memory_bytes();
    return found.release();
  }

 private:
  struct Stored {
    int64_t first_buffer;
    int64_t buffers;
    Message encoding;
  };

  bool add_page(Message page, int64_t num_rows, int64_t file_bytes) {
    Fields fields;
    uint64_t length = 0;
    if (!fields.parse(page) || !fields.number_at(3, &length)) return false;
    const int64_t before = first_row_.back();
    if (length == 0 || length >= static_cast<uint64_t>(kPageRowsMax) ||
        static_cast<int64_t>(length) > num_rows - before)
      return false;
    Stored stored = {static_cast<int64_t>(positions_.size()), 0, {}};
    if (!fields.packed_at(1, &positions_) || !fields.packed_at(2, &sizes_) ||
        positions_.size() != sizes_.size())
      return false;
    stored.buffers = static_cast<int64_t>(positions_.size()) - stored.first_buffer;
    for (size_t i = static_cast<size_t>(stored.first_buffer); i < positions_.size(); ++i)
      if (!baseline::within(positions_[i], sizes_[i], file_bytes)) return false;
    // The encoding is stored inline as a protobuf Any.
    Fields encoding, direct;
    if (!fields.has(4, kBytes) || !encoding.parse(fields.part[4]) || !encoding.has(2, kBytes) ||
        encoding.is_present(1) || encoding.is_present(3) || !direct.parse(encoding.part[2]) ||
        !direct.has(1, kBytes))
      return false;
    stored.encoding = direct.part[1];
    stored_.push_back(stored);
    first_row_.push_back(before + static_cast<int64_t>(length));
    return true;
  }

  static bool read_symbols(const PageLayout& layout, ResolvedPage* resolved) {
    if (layout.page.codec != plan::kFsst) return true;
    constexpr uint64_t magic = 0x46535354;
    const Message table = layout.symbols;
    const int64_t size = table.size();
    if (size < 8) return false;
    const uint64_t head = baseline::load<uint64_t>(table.at);
    const int64_t count = static_cast<int64_t>(head & 0xFF);
    if (head >> 32 != magic || !(head >> 24 & 1) || size < 8 + 9 * count) return false;
    resolved->symbols.assign(plan::kCodes + plan::kCodes / 8, 0);
    auto* lengths = reinterpret_cast<uint8_t*>(resolved->symbols.data() + plan::kCodes);
    memcpy(resolved->symbols.data(), table.at + 8, static_cast<size_t>(8 * count));
    memcpy(lengths, table.at + 8 + 8 * count, static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      if (lengths[i] > 8) return false;
    resolved->page.symbols = {resolved->symbols.data(), lengths};
    return true;
  }

  static bool copy_value(const PageLayout& layout, ResolvedPage* resolved) {
    if (layout.page.layout != plan::kConstant || !layout.has_value) return true;
    resolved->bytes.assign(layout.value.at, layout.value.stop);
    resolved->page.value = resolved->bytes.data();
    resolved->page.size = layout.value.size();
    return true;
  }

  // Reads a string from its own buffer (encodings/constant/value.py).
  static bool read_string(PendingPage& pending, const plan::File& file) {
    ResolvedPage& resolved = *pending.resolved;
    const uint8_t* const at = file.bytes.data + pending.position[0];
    const int64_t size = pending.size[0];
    if (size < 12 || baseline::load<uint32_t>(at) != 2) return false;
    const int64_t offsets = baseline::load<uint32_t>(at + 4), bytes = baseline::load<uint32_t>(at + 8);
    if ((offsets != 8 && offsets != 16) || bytes > size - 12 - offsets) return false;
    const bool is_long = offsets == 16;
    const int64_t first = is_long ? baseline::load<int64_t>(at + 12) : baseline::load<int32_t>(at + 12);
    const int64_t last = is_long ? baseline::load<int64_t>(at + 20) : baseline::load<int32_t>(at + 16);
    if (first != 0 || last != bytes) return false;
    const uint8_t* const text = at + 12 + offsets;
    resolved.bytes.assign(text, text + bytes);
    resolved.bytes.push_back(0);  // an empty string differs from null
    resolved.page.value = resolved.bytes.data();
    resolved.page.size = bytes;
    return true;
  }

  static bool locate_chunks(PendingPage& pending, const plan::File& file, const Kernels& kernels) {
    ResolvedPage& resolved = *pending.resolved;
    plan::Page& page = resolved.page;
    const int64_t chunks = pending.size[0] / page.size_bytes;
    resolved.numbers.assign(static_cast<size_t>(4 * chunks + 1), 0);
    int64_t* const position = resolved.numbers.data();
    int64_t* const size = position + chunks;
    int64_t* const count = size + chunks;
    int64_t* const first = count + chunks;
    const int64_t status = kernels.locate_chunks(
        {file.bytes, {&pending.position[0], 1}, {&pending.size[0], 1}}, page.size_bytes,
        {&page.values, 1}, {{&pending.position[1], 1}, {&pending.size[1], 1}}, kChunkValuesMax,
        {position, chunks}, {size, chunks}, {count, chunks});
    if (status != chunks) return false;
    for (int64_t i = 0; i < chunks; ++i) first[i + 1] = first[i] + count[i];
    page.chunks = chunks;
    page.chunk_position = position;
    page.chunk_size = size;
    page.chunk_values = count;
    page.first_value = first;
    return true;
  }

  // Reads the rows that begin and end in each chunk (encodings/miniblock/repetition_index.py).
  static bool read_row_index(PendingPage& pending, const plan::File& file) {
    ResolvedPage& resolved = *pending.resolved;
    plan::Page& page = resolved.page;
    const size_t buffer = 2 + static_cast<size_t>(pending.layout.has_items);
    if (pending.size[buffer] % 16 || pending.size[buffer] / 16 != page.chunks) return false;
    const uint8_t* at = file.bytes.data + pending.position[buffer];
    resolved.rows.assign(static_cast<size_t>(2 * (page.chunks + 1)), 0);
    int64_t* const begun = resolved.rows.data();
    int64_t* const ended = begun + page.chunks + 1;
    for (int64_t i = 0; i < page.chunks; ++i, at += 16) {
      const uint64_t ends = baseline::load<uint64_t>(at);
      const bool is_open = baseline::load<uint64_t>(at + 8) > 0;
      if (ends > static_cast<uint64_t>(page.rows - ended[i])) return false;
      ended[i + 1] = ended[i] + static_cast<int64_t>(ends);
      begun[i + 1] = ended[i + 1] + is_open;
      if (begun[i + 1] < begun[i] || (is_open && i + 1 == page.chunks)) return false;
    }
    page.begun = begun;
    page.ended = ended;
    return ended[page.chunks] == page.rows;
  }

  // Reads a dictionary of values, or of offsets and strings.
  bool read_dictionary(PendingPage& pending, const plan::File& file,
                       const Kernels& kernels) const {
    ResolvedPage& resolved = *pending.resolved;
    const PageLayout& layout = pending.layout;
    const int64_t bytes = pending.size[2], count = layout.num_items;
    if (count <= 0 || count > kItemsMax + kItemsPerByteMax * bytes) return false;
    const ConstBytes stored = {file.bytes.data + pending.position[2], bytes};
    if (!inflate(layout.items.compression, stored, kernels, &resolved.bytes)) return false;
    if (layout.items.codec == plan::kInline && !unpack(layout.items.bits, count, kernels, &resolved))
      return false;
    plan::Items& items = resolved.page.items;
    const uint8_t* const data = resolved.bytes.data();
    const int64_t size = static_cast<int64_t>(resolved.bytes.size());
    if (layout.items.codec != plan::kVariable) {
      const int64_t width = layout.items.bits / 8;
      if (count > size / width || count * width != size) return false;
      items = {count, width, data, nullptr, nullptr, 0, nullptr, nullptr, 0};
      return true;
    }
    // Strings: offset width, start of the strings, offsets. Early writers stored the width in one
    // byte, followed by the unaligned string count.
    if (size < 4 || (data[0] != 32 && data[0] != 64)) return false;
    const int64_t width = data[0] / 8;
    const bool is_early = data[1] || data[2] || data[3];
    const int64_t offsets = is_early ? 1 + 2 * width : 2 * width;
    if (size < offsets || count >= (size - offsets) / width) return false;
    const uint8_t* const at = data + offsets - width;
    const int64_t start = width == 4 ? static_cast<int64_t>(baseline::load<uint32_t>(at))
                                     : baseline::load<int64_t>(at);
    if (start < offsets + (count + 1) * width || start > size) return false;
    resolved.offsets.resize(static_cast<size_t>(count + 1));
    for (int64_t i = 0; i <= count; ++i) {
      const uint8_t* const own = data + offsets + i * width;
      resolved.offsets[static_cast<size_t>(i)] =
          width == 4 ? baseline::load<int32_t>(own) : baseline::load<int64_t>(own);
    }
    items = {count,   0,       nullptr, resolved.offsets.data(), data + start, size - start,
             nullptr, nullptr, 0};
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = items.offsets[i], bytes = items.offsets[i + 1] - first;
      if (!baseline::within(first, bytes, items.num_bytes) ||
          (form_.is_text && !baseline::is_utf8(items.bytes + first, bytes)))
        return false;
      items.longest = std::max(items.longest, bytes);
    }
    if (items.longest > plan::kSlot || count > kSlotsMax) return true;
    resolved.slots.assign(static_cast<size_t>(count * (plan::kSlot + 1)), 0);
    items.slots = resolved.slots.data();
    items.sizes = items.slots + count * plan::kSlot;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = items.offsets[i], bytes = items.offsets[i + 1] - first;
      if (bytes > 0)
        memcpy(resolved.slots.data() + i * plan::kSlot, items.bytes + first,
               static_cast<size_t>(bytes));
      resolved.slots[static_cast<size_t>(count * plan::kSlot + i)] = static_cast<uint8_t>(bytes);
    }
    return true;
  }

  // Unpacks the items of a dictionary, which are one block.
  static bool unpack(int64_t bits, int64_t count, const Kernels& kernels, ResolvedPage* resolved) {
    const std::vector<uint8_t> packed = std::move(resolved->bytes);
    const int64_t start = 0, size = static_cast<int64_t>(packed.size());
    if (count > kPackedMax) return false;
    resolved->bytes.assign(static_cast<size_t>(count * bits / 8), 0);
    const Bytes out = {resolved->bytes.data(), static_cast<int64_t>(resolved->bytes.size())};
    return kernels.unpack_chunks({packed.data(), size}, {&start, 1}, {&size, 1}, {&count, 1}, bits,
                                 out) >= 0;
  }

  static bool inflate(int64_t compression, ConstBytes stored, const Kernels& kernels,
                      std::vector<uint8_t>* out) {
    if (compression == plan::kPlain) {
      out->assign(stored.data, stored.data + stored.size);
      return true;
    }
    const int64_t plain = baseline::inflated_bytes(compression, stored);
    if (plain < 0) return false;
    const bool is_lz4 = compression == plan::kLz4;
    const int64_t from = baseline::inflate_head(compression), size = stored.size - from;
    out->resize(static_cast<size_t>(plain + (is_lz4 ? 0 : baseline::kInflateSlack)));
    const Bytes room = {out->data(), static_cast<int64_t>(out->size())};
    const auto decompress =
        is_lz4 ? kernels.lz4_decompress_chunks : kernels.zstd_decompress_chunks;
    if (decompress(stored, {&from, 1}, {&size, 1}, {&plain, 1}, room) < 0) return false;
    out->resize(static_cast<size_t>(plain));
    return true;
  }

  Form form_;
  bool is_valid_ = false;
  nb::object metadata_;
  std::vector<int64_t> first_row_, positions_, sizes_;
  std::vector<Stored> stored_;
  std::unique_ptr<std::atomic<const ResolvedPage*>[]> resolved_;
  plan::Column column_;
  std::atomic<int64_t> memory_bytes_ = 0;
};

// The pages that hold the rows of each column: those of column c from `bounds[c]` on.
struct FoundPages {
  std::vector<plan::PageRows> each;
  std::vector<size_t> bounds;
};

// A page that must be read before its rows, and its uses.
struct Unresolved {
  ColumnPlan* plan;
  int64_t page;
  PendingPage pending;
  std::vector<size_t> uses;
};

// Finds the pages that hold the rows of each column. Returns those that are not resolved.
inline std::vector<Unresolved> find_pages(const plan::Rows& rows,
                                          const std::vector<ColumnPlan*>& plans,
                                          FoundPages* found) {
  std::vector<Unresolved> unresolved;
  const auto row_of = [&rows](int64_t i) { return rows.numbers ? rows.numbers[i] : rows.first + i; };
  for (ColumnPlan* const plan : plans) {
    found->bounds.push_back(found->each.size());
    const size_t first = unresolved.size();
    for (int64_t i = 0, count; i < rows.count; i += count) {
      const int64_t page = plan->page_of(row_of(i));
      const int64_t low = plan->first_row(page), high = plan->first_row(page + 1);
      count = 1;
      if (!rows.numbers) count = std::min(rows.count - i, high - row_of(i));
      else while (i + count < rows.count && rows.numbers[i + count] >= low &&
                  rows.numbers[i + count] < high)
        ++count;
      const ResolvedPage* const resolved = plan->resolved(page);
      found->each.push_back({resolved ? &resolved->page : nullptr, low, i, count});
      if (resolved) continue;
      size_t index = first;
      while (index < unresolved.size() && unresolved[index].page != page) ++index;
      if (index == unresolved.size())
        unresolved.push_back({plan, page, plan->describe(page), {}});
      unresolved[index].uses.push_back(found->each.size() - 1);
    }
  }
  found->bounds.push_back(found->each.size());
  return unresolved;
}

// The ranges of the heads of pages.
inline void add_heads(const std::vector<Unresolved>& unresolved, std::vector<int64_t>* position,
                      std::vector<int64_t>* size) {
  for (const Unresolved& each : unresolved)
    for (const size_t head : each.pending.heads) {
      position->push_back(each.pending.position[head]);
      size->push_back(each.pending.size[head]);
    }
}

// Resolves pages whose heads are in a file.
inline void finish_pages(std::vector<Unresolved>& unresolved, const plan::File& file,
                         const Kernels& kernels, FoundPages* found, int64_t* bytes_added) {
  for (Unresolved& each : unresolved) {
    each.plan->finish(each.pending, file, kernels);
    const plan::Page* const page =
        &each.plan->publish(each.page, std::move(each.pending.resolved), bytes_added)->page;
    for (const size_t use : each.uses) found->each[use].page = page;
  }
}

inline std::vector<plan::ColumnRows> requests_of(const std::vector<ColumnPlan*>& plans,
                                                 const FoundPages& pages) {
  std::vector<plan::ColumnRows> requests;
  for (size_t c = 0; c < plans.size(); ++c)
    requests.push_back({plans[c]->column(), pages.each.data() + pages.bounds[c],
                        static_cast<int64_t>(pages.bounds[c + 1] - pages.bounds[c])});
  return requests;
}

// The requested rows, which all columns must have.
inline plan::Rows rows_of(ConstInts numbers, bool is_range, const std::vector<ColumnPlan*>& plans) {
  plan::Rows rows = {0, numbers.size, numbers.data};
  int64_t low = 0, high = -1;
  if (is_range) {
    // The first row and the number of rows.
    if (numbers.size != 2 || numbers.data[0] < 0 || numbers.data[1] < 0 ||
        numbers.data[0] > INT64_MAX - numbers.data[1])
      throw std::invalid_argument("a range has a first row and a number of rows");
    rows = {numbers.data[0], numbers.data[1], nullptr};
    low = rows.first;
    high = rows.first + rows.count - 1;
  }
  if (rows.count < 1) throw std::invalid_argument("no row is requested");
  for (int64_t i = 0; rows.numbers && i < rows.count; ++i) {
    low = i ? std::min(low, rows.numbers[i]) : rows.numbers[i];
    high = i ? std::max(high, rows.numbers[i]) : rows.numbers[i];
  }
  for (const ColumnPlan* plan : plans) {
    if (plan == nullptr) throw std::invalid_argument("a column has no plan");
    if (low < 0 || high >= plan->num_rows())
      throw std::invalid_argument("a column does not have a row");
  }
  return rows;
}

inline int64_t take(const plan::File& file, const plan::Rows& rows,
                    const std::vector<ColumnPlan*>& plans, const Kernels& kernels, Bytes out,
                    Ints result) {
  constexpr size_t output_values = sizeof(plan::ColumnOutput) / sizeof(int64_t);
  constexpr size_t heads = sizeof(plan::Taken) / sizeof(int64_t);
  const size_t count = plans.size();
  if (result.size < static_cast<int64_t>(heads + output_values * count))
    throw std::invalid_argument("there is no room for the result");
  const Released released;
  FoundPages pages;
  plan::Taken taken = {};
  std::vector<Unresolved> unresolved = find_pages(rows, plans, &pages);
  int64_t status = 0;
  if (!unresolved.empty()) {
    if (file.fetched != nullptr) return -kOutOfSource;
    std::vector<int64_t> position, size;
    add_heads(unresolved, &position, &size);
    taken.head_ranges = static_cast<int64_t>(size.size());
    for (const int64_t each : size) taken.head_bytes += each;
    status = kernels.prepare_ranges(file, {position.data(), taken.head_ranges},
                                    {size.data(), taken.head_ranges});
    if (status < 0) return status;
    finish_pages(unresolved, file, kernels, &pages, &taken.bytes_added);
  }
  const std::vector<plan::ColumnRows> requests = requests_of(plans, pages);
  std::vector<plan::ColumnOutput> outputs(count);
  const auto all = static_cast<int64_t>(count);
  status = kernels.take_planned(file, rows, {requests.data(), all}, out, {outputs.data(), all},
                                &taken);
  memcpy(result.data, &taken, sizeof taken);
  if (status < 0) return status;
  if (count) memcpy(result.data + heads, outputs.data(), count * sizeof(plan::ColumnOutput));
  return taken.used;
}

// Returns whether the ranges are those of heads, and the positions and sizes of the ranges.
inline nb::tuple find_ranges(const plan::Rows& rows, const std::vector<ColumnPlan*>& plans,
                             const Kernels& kernels) {
  FoundPages pages;
  const std::vector<Unresolved> unresolved = find_pages(rows, plans, &pages);
  std::vector<int64_t> position, size;
  add_heads(unresolved, &position, &size);
  // Pages without heads are resolved at once.
  if (unresolved.empty()) {
    const std::vector<plan::ColumnRows> requests = requests_of(plans, pages);
    const plan::Fetched none = {};
    plan::File file = {};
    file.fetched = &none;
    plan::Ranges ranges;
    const int64_t status = kernels.planned_ranges(
        file, rows, {requests.data(), static_cast<int64_t>(requests.size())}, &ranges);
    if (status == 0) {
      position.assign(ranges.position, ranges.position + ranges.count);
      size.assign(ranges.size, ranges.size + ranges.count);
    }
    free(ranges.position);
    free(ranges.size);
    if (status < 0) throw std::bad_alloc();
  }
  const size_t bytes = size.size() * sizeof(int64_t);
  return nb::make_tuple(!unresolved.empty(), nb::bytes(position.data(), bytes),
                        nb::bytes(size.data(), bytes));
}

// Resolves pages whose heads were fetched. Returns the bytes added to the plans.
inline int64_t add_fetched_heads(const plan::File& file, const plan::Rows& rows,
                                 const std::vector<ColumnPlan*>& plans, const Kernels& kernels) {
  const plan::Fetched& fetched = *file.fetched;
  std::map<std::pair<int64_t, int64_t>, int64_t> sources;
  for (int64_t i = 0; i < fetched.position.size; ++i)
    if (baseline::within(fetched.source.data[i], fetched.size.data[i], file.bytes.size))
      sources[{fetched.position.data[i], fetched.size.data[i]}] = fetched.source.data[i];
  FoundPages pages;
  // Other threads may have resolved some of the pages; those without all heads remain unresolved.
  std::vector<Unresolved> complete;
  for (Unresolved& each : find_pages(rows, plans, &pages)) {
    bool is_complete = true;
    for (const size_t head : each.pending.heads) {
      const auto found = sources.find({each.pending.position[head], each.pending.size[head]});
      is_complete &= found != sources.end();
      if (is_complete) each.pending.position[head] = found->second;
    }
    if (is_complete) complete.push_back(std::move(each));
  }
  int64_t bytes_added = 0;
  finish_pages(complete, file, kernels, &pages, &bytes_added);
  return bytes_added;
}

// A map: source, prefetched, blocks, sums, verified.
using MappedBytes = std::tuple<Array<uint8_t>, Out<uint8_t>, Array<int64_t>, Array<uint32_t>,
                               Out<uint8_t>>;
// Fetched ranges: source, positions and sizes in the file, positions in the source.
using FetchedBytes =
    std::tuple<Array<uint8_t>, Array<int64_t>, Array<int64_t>, Array<int64_t>>;

inline plan::File mapped_file(const MappedBytes& file) {
  const auto& [source, prefetched, blocks, sums, verified] = file;
  return {span(source), span(prefetched), span(blocks), span(sums), span(verified), nullptr};
}

inline plan::Fetched fetched_ranges(const FetchedBytes& bytes) {
  const auto& [source, position, size, found] = bytes;
  if (position.shape(0) != size.shape(0) || position.shape(0) != found.shape(0))
    throw std::invalid_argument("fetched ranges differ in number");
  return {span(position), span(size), span(found)};
}

inline void define(nb::module_& module, const Kernels& kernels) {
  using nb::arg;
  nb::class_<ColumnPlan>(module, "ColumnPlan")
      .def_prop_ro("memory_bytes", &ColumnPlan::memory_bytes)
      .def_prop_ro("num_rows", &ColumnPlan::num_rows)
      .def_prop_ro("stored_bytes", &ColumnPlan::stored_bytes);
  module.def(
      "plan_columns",
      [](const Array<uint8_t>& source, const Array<int64_t>& position, const Array<int64_t>& size,
         const Array<int64_t>& forms, int64_t num_rows, int64_t file_bytes) {
        const Span<const uint8_t> data = span(source);
        const ConstInts at = span(position), sizes = span(size), form = span(forms);
        if (sizes.size != at.size || form.size != 5 * at.size)
          throw std::invalid_argument("columns differ in number");
        nb::list found;
        for (int64_t i = 0; i < at.size; ++i) {
          if (!baseline::within(at.data[i], sizes.data[i], data.size))
            throw std::invalid_argument("the metadata of a column are not within their source");
          const int64_t* const own = form.data + 5 * i;
          if (own[0] < plan::kFixed || own[0] > plan::kStrings64 || own[1] < 0 || own[1] > INT32_MAX ||
              own[3] < 2 || own[3] >> (plan::kLayersMax + 1) || own[4] < 0)
            throw std::invalid_argument("a column has an unknown form");
          const uint8_t* const start = data.data + at.data[i];
          auto plan = std::make_unique<ColumnPlan>(Message{start, start + sizes.data[i]},
                                                   Form{own[0], own[1], own[2], own[3], own[4]},
                                                   num_rows, file_bytes);
          if (!plan->is_valid()) {
            found.append(nb::none());
            continue;
          }
          plan->hold_metadata(nb::cast(source));
          found.append(nb::cast(plan.release(), nb::rv_policy::take_ownership));
        }
        return found;
      },
      arg("source").noconvert(), arg("position").noconvert(), arg("size").noconvert(),
      arg("forms").noconvert(), arg("num_rows"), arg("file_bytes"));
  module.def(
      "take_rows",
      [&kernels](const MappedBytes& mapped, const Array<int64_t>& rows, bool is_range,
                 const std::vector<ColumnPlan*>& plans, const Out<uint8_t>& out,
                 const Out<int64_t>& result) {
        const plan::Rows wanted = rows_of(span(rows), is_range, plans);
        return take(mapped_file(mapped), wanted, plans, kernels, span(out), span(result));
      },
      arg("file").noconvert(), arg("rows").noconvert(), arg("is_range"), arg("plans"),
      arg("out").noconvert(), arg("result").noconvert());
  module.def(
      "take_fetched_rows",
      [&kernels](const FetchedBytes& bytes, const Array<int64_t>& rows, bool is_range,
                 const std::vector<ColumnPlan*>& plans, const Out<uint8_t>& out,
                 const Out<int64_t>& result) {
        const plan::Rows wanted = rows_of(span(rows), is_range, plans);
        const plan::Fetched fetched = fetched_ranges(bytes);
        plan::File file = {};
        file.bytes = span(std::get<0>(bytes));
        file.fetched = &fetched;
        return take(file, wanted, plans, kernels, span(out), span(result));
      },
      arg("bytes").noconvert(), arg("rows").noconvert(), arg("is_range"), arg("plans"),
      arg("out").noconvert(), arg("result").noconvert());
  module.def(
      "find_ranges",
      [&kernels](const Array<int64_t>& rows, bool is_range, const std::vector<ColumnPlan*>& plans) {
        return find_ranges(rows_of(span(rows), is_range, plans), plans, kernels);
      },
      arg("rows").noconvert(), arg("is_range"), arg("plans"));
  module.def(
      "add_heads",
      [&kernels](const FetchedBytes& bytes, const Array<int64_t>& rows, bool is_range,
                 const std::vector<ColumnPlan*>& plans) {
        const plan::Rows wanted = rows_of(span(rows), is_range, plans);
        const plan::Fetched fetched = fetched_ranges(bytes);
        plan::File file = {};
        file.bytes = span(std::get<0>(bytes));
        file.fetched = &fetched;
        return add_fetched_heads(file, wanted, plans, kernels);
      },
      arg("bytes").noconvert(), arg("rows").noconvert(), arg("is_range"), arg("plans"));
}

}  // namespace lancelet::columns

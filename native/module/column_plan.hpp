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
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "kernels.hpp"
#include "page_layout.hpp"
#include "released.hpp"

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
constexpr int64_t kItemsMax = 1 << 16;
constexpr int64_t kItemsPerByteMax = 64;

// A resolved page as kernels see it, and the memory it refers to.
struct ResolvedPage {
  plan::Page page;
  std::vector<int64_t> numbers;
  std::vector<uint8_t> bytes;
  std::vector<uint64_t> symbols;
  std::vector<int64_t> rows;
  std::unique_ptr<plan::Nesting> nesting;

  int64_t memory_bytes() const {
    return static_cast<int64_t>(sizeof(ResolvedPage) + 8 * numbers.capacity() + bytes.capacity() +
                                8 * symbols.capacity() + 8 * rows.capacity() +
                                (nesting ? sizeof(plan::Nesting) : 0));
  }
};

// A page being resolved: its parsed message and the location of its head.
struct PendingPage {
  std::unique_ptr<ResolvedPage> resolved;
  PageLayout layout;
  std::vector<int64_t> position, size;  // of the page's buffers
  std::vector<int64_t> head_position, head_size;
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
    if (pending.layout.page.layout == plan::kChunks) {
      for (int64_t buffer = 0; buffer < 2 + pending.layout.has_items + pending.layout.has_rows;
           ++buffer) {
        if (buffer == 1) continue;
        pending.head_position.push_back(pending.position[static_cast<size_t>(buffer)]);
        pending.head_size.push_back(pending.size[static_cast<size_t>(buffer)]);
      }
    } else if (pending.layout.has_value_buffer) {
      pending.head_position.push_back(pending.position[0]);
      pending.head_size.push_back(pending.size[0]);
    }
    return pending;
  }

  // Completes a page whose head has been verified.
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

  // Reads a dictionary of values, or of offsets and strings. Offsets are validated on access.
  static bool read_dictionary(PendingPage& pending, const plan::File& file, const Kernels& kernels) {
    ResolvedPage& resolved = *pending.resolved;
    const PageLayout& layout = pending.layout;
    const int64_t bytes = pending.size[2], count = layout.num_items;
    if (count <= 0 || count > kItemsMax + kItemsPerByteMax * bytes) return false;
    const ConstBytes stored = {file.bytes.data + pending.position[2], bytes};
    if (!inflate(layout.items.compression, stored, kernels, &resolved.bytes)) return false;
    plan::Items& items = resolved.page.items;
    const uint8_t* const data = resolved.bytes.data();
    const int64_t size = static_cast<int64_t>(resolved.bytes.size());
    if (layout.items.codec == plan::kFlat) {
      const int64_t width = layout.items.bits / 8;
      if (count > size / width || count * width != size) return false;
      items = {count, width, data, nullptr, 0};
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
    items = {count, width, data + offsets, data + start, size - start};
    return true;
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

// Finds the pages that hold the rows of each column and resolves them. Returns 0 or a fault.
inline int64_t resolve_pages(const plan::File& file, ConstInts rows,
                     const std::vector<ColumnPlan*>& plans, const Kernels& kernels,
                     std::vector<const plan::Page*>* pages, std::vector<int64_t>* within,
                     plan::Taken* taken) {
  struct Found {
    ColumnPlan* plan;
    int64_t page;
    PendingPage pending;
  };
  std::vector<Found> found;
  std::vector<int64_t> position, size;
  std::vector<int64_t> owner(pages->size());
  for (size_t c = 0; c < plans.size(); ++c) {
    ColumnPlan* const plan = plans[c];
    const size_t first = found.size();
    for (int64_t i = 0; i < rows.size; ++i) {
      const size_t at = c * static_cast<size_t>(rows.size) + static_cast<size_t>(i);
      const int64_t page = plan->page_of(rows.data[i]);
      (*within)[at] = rows.data[i] - plan->first_row(page);
      if (const ResolvedPage* resolved = plan->resolved(page)) {
        (*pages)[at] = &resolved->page;
        continue;
      }
      size_t index = found.size();
      while (index > first && found[index - 1].page != page) --index;
      if (index == first) {
        index = found.size() + 1;
        found.push_back({plan, page, plan->describe(page)});
        const PendingPage& pending = found.back().pending;
        position.insert(position.end(), pending.head_position.begin(),
                        pending.head_position.end());
        size.insert(size.end(), pending.head_size.begin(), pending.head_size.end());
      }
      owner[at] = static_cast<int64_t>(index);
    }
  }
  if (found.empty()) return 0;
  const auto count = static_cast<int64_t>(position.size());
  const int64_t status = kernels.prepare_ranges(file, {position.data(), count}, {size.data(), count});
  if (status < 0) return status;
  for (int64_t i = 0; i < count; ++i) taken->head_bytes += size[static_cast<size_t>(i)];
  taken->head_ranges += count;
  std::vector<const plan::Page*> published;
  for (Found& each : found) {
    each.plan->finish(each.pending, file, kernels);
    published.push_back(
        &each.plan->publish(each.page, std::move(each.pending.resolved), &taken->bytes_added)->page);
  }
  for (size_t at = 0; at < pages->size(); ++at)
    if (owner[at]) (*pages)[at] = published[static_cast<size_t>(owner[at] - 1)];
  return 0;
}

inline int64_t take(const plan::File& file, ConstInts rows, const std::vector<ColumnPlan*>& plans,
                    const Kernels& kernels, Bytes out, Ints result) {
  constexpr size_t output_values = sizeof(plan::ColumnOutput) / sizeof(int64_t);
  constexpr size_t heads = sizeof(plan::Taken) / sizeof(int64_t);
  const size_t count = plans.size(), each = static_cast<size_t>(rows.size);
  if (result.size < static_cast<int64_t>(heads + output_values * count))
    throw std::invalid_argument("there is no room for the result");
  for (const ColumnPlan* plan : plans)
    for (int64_t i = 0; i < rows.size; ++i)
      if (rows.data[i] < 0 || rows.data[i] >= plan->num_rows())
        throw std::invalid_argument("a column does not have a row");
  const Released released;
  std::vector<const plan::Page*> pages(count * each);
  std::vector<int64_t> within(count * each);
  plan::Taken taken = {};
  int64_t status = resolve_pages(file, rows, plans, kernels, &pages, &within, &taken);
  if (status < 0) return status;
  std::vector<plan::ColumnRows> requests;
  for (size_t c = 0; c < count; ++c)
    requests.push_back({plans[c]->column(), pages.data() + c * each, within.data() + c * each});
  std::vector<plan::ColumnOutput> outputs(count);
  const auto all = static_cast<int64_t>(count);
  status = kernels.take_planned(file, rows.size, {requests.data(), all}, out, {outputs.data(), all},
                                &taken);
  memcpy(result.data, &taken, sizeof taken);
  if (status < 0) return status;
  if (count) memcpy(result.data + heads, outputs.data(), count * sizeof(plan::ColumnOutput));
  return taken.used;
}

inline void define(nb::module_& module, const Kernels& kernels) {
  using nb::arg;
  nb::class_<ColumnPlan>(module, "ColumnPlan")
      .def_prop_ro("memory_bytes", &ColumnPlan::memory_bytes);
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
      [&kernels](const Array<uint8_t>& source, const Array<int64_t>& rows,
                 const std::vector<ColumnPlan*>& plans, const Out<uint8_t>& prefetched,
                const Array<int64_t>& blocks, const Array<uint32_t>& sums,
                const Out<uint8_t>& verified, const Out<uint8_t>& out,
                const Out<int64_t>& result) {
        for (const ColumnPlan* plan : plans)
          if (plan == nullptr) throw std::invalid_argument("a column has no plan");
        const plan::File file = {span(source), span(prefetched), span(blocks), span(sums),
                                 span(verified)};
        return take(file, span(rows), plans, kernels, span(out), span(result));
      },
      arg("source").noconvert(), arg("rows").noconvert(), arg("plans"), arg("prefetched").noconvert(),
      arg("blocks").noconvert(), arg("sums").noconvert(), arg("verified").noconvert(),
      arg("out").noconvert(), arg("result").noconvert());
}

}  // namespace lancelet::columns

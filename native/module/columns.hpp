// The columns that `take_few` reads, as objects of Python that own what a kernel looks at.
//
// Runs and columns are made of numbers and arrays by name, and keep the arrays alive. That arrays
// are as long as the numbers say is checked here, once, so a kernel never leaves them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

#include "few_rows.hpp"

namespace lancelet::columns {

namespace nb = nanobind;
namespace few = LANCELET_NAMESPACE::few;

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Longs = Array<int64_t>;
using Octets = Array<uint8_t>;
using Codes = Array<uint64_t>;

inline void require(bool fits, const char* what) {
  if (!fits) throw std::invalid_argument(what);
}

// Whether an array has `count` items; counts are claims until then.
template <class T>
bool has(const Array<T>& array, int64_t count) {
  return count >= 0 && static_cast<uint64_t>(count) <= array.shape(0) &&
         reinterpret_cast<uintptr_t>(array.data()) % alignof(T) == 0;
}

template <class T>
few::Address<T> address(const Array<T>& array) {
  return {static_cast<int64_t>(reinterpret_cast<uintptr_t>(array.data()))};
}

// The words of a struct of few_rows.hpp, which begins with its layout, and the arrays they are in.
class Run {
 public:
  template <class Struct>
  explicit Run(const Struct& run) : words_(sizeof(Struct) / sizeof(int64_t)) {
    static_assert(sizeof(Struct) % sizeof(int64_t) == 0);
    memcpy(words_.data(), &run, sizeof(Struct));
  }

  void keep(const Longs& array) { longs_.push_back(array); }
  void keep(const Octets& array) { octets_.push_back(array); }
  void keep(const Codes& array) { codes_.push_back(array); }

  const int64_t* words() const { return words_.data(); }

 private:
  std::vector<int64_t> words_;
  std::vector<Longs> longs_;
  std::vector<Octets> octets_;
  std::vector<Codes> codes_;
};

constexpr int64_t kCodes = 256;  // symbols of a table

struct Symbols {
  Codes symbols;
  Octets lengths;
  Longs first_chunk;

  few::Symbols words() const {
    const int64_t tables = static_cast<int64_t>(lengths.shape(0)) / kCodes;
    require(tables > 0 && has(symbols, tables * kCodes) && has(first_chunk, tables + 1),
            "tables of symbols do not have all their codes");
    for (int64_t i = 0; i < tables * kCodes; ++i)
      require(lengths.data()[i] <= 8, "a symbol has eight bytes at most");
    return {tables, address(symbols), address(lengths), address(first_chunk)};
  }
};

struct Items {
  int64_t count;
  int64_t width;
  Octets values;
  std::optional<Octets> bytes;

  few::Items words() const {
    require(count >= 0 && width > 0 && width <= INT32_MAX && count <= INT64_MAX / width - 1,
            "a dictionary has impossible numbers");
    require(has(values, (count + (bytes ? 1 : 0)) * width) &&
                (!bytes || width == 4 || width == 8),
            "a dictionary does not have its items");
    if (!bytes) return {count, width, address(values), {0}, 0};
    return {count, width, address(values), address(*bytes),
            static_cast<int64_t>(bytes->shape(0))};
  }
};

inline Run chunk_run(const Longs& first_value, const std::optional<Octets>& known,
                     const Longs& position, const Longs& size, const Longs& count,
                     bool has_definition, int64_t size_bytes, int64_t compression, int64_t codec,
                     int64_t bits, const std::optional<Symbols>& symbols,
                     const std::optional<Items>& items) {
  const int64_t chunks = static_cast<int64_t>(position.shape(0));
  require(has(first_value, chunks + 1) && has(position, chunks) && has(size, chunks) &&
              has(count, chunks) && (!known || has(*known, chunks)),
          "the chunks of a run differ in number");
  require(size_bytes == 2 || size_bytes == 4, "a size in a chunk has two bytes or four");
  require(codec != few::kFsst || symbols, "there are no symbols");
  few::ChunkRun words = {few::kChunks, chunks, address(first_value), {0}, address(position),
                         address(size), address(count), has_definition, size_bytes, compression,
                         codec, bits, {}, {-1, 0, {0}, {0}, 0}};
  if (known) words.known = address(*known);
  if (symbols) words.symbols = symbols->words();
  if (items) words.items = items->words();
  Run run(words);
  run.keep(first_value);
  run.keep(position);
  run.keep(size);
  run.keep(count);
  if (known) run.keep(*known);
  if (symbols) {
    run.keep(symbols->symbols);
    run.keep(symbols->lengths);
    run.keep(symbols->first_chunk);
  }
  if (items) {
    run.keep(items->values);
    if (items->bytes) run.keep(*items->bytes);
  }
  return run;
}

inline Run item_run(const Longs& first_row, const Longs& position, bool has_definition,
                    int64_t item_bytes) {
  const int64_t pages = static_cast<int64_t>(position.shape(0));
  require(has(first_row, pages + 1) && has(position, pages), "the pages of a run differ in number");
  require(item_bytes >= has_definition, "an item has no bytes for its definition");
  Run run(few::ItemRun{few::kItems, pages, address(first_row), address(position), has_definition,
                       item_bytes});
  run.keep(first_row);
  run.keep(position);
  return run;
}

inline Run zipped_run(int64_t rows, int64_t index_position, int64_t index_width, int64_t position,
                      int64_t size, bool has_definition, int64_t length_bytes, int64_t codec,
                      const std::optional<Symbols>& symbols) {
  constexpr int64_t most = int64_t{1} << 61;
  const auto is_power = [](int64_t width) {
    return width == 1 || width == 2 || width == 4 || width == 8;
  };
  require(rows >= 0 && rows < most / 16 && index_position >= 0 && index_position <= most &&
              position >= 0 && position <= most && size >= 0 && size <= most,
          "a page of strings has impossible numbers");
  require(is_power(index_width) && is_power(length_bytes), "a number has 1, 2, 4 or 8 bytes");
  require(codec != few::kFsst || symbols, "there are no symbols");
  few::ZippedRun words = {few::kZippedStrings, rows,         index_position, index_width, position,
                          size,                has_definition, length_bytes,  codec,       {}};
  if (symbols) words.symbols = symbols->words();
  Run run(words);
  if (symbols) {
    run.keep(symbols->symbols);
    run.keep(symbols->lengths);
    run.keep(symbols->first_chunk);
  }
  return run;
}

inline Run constant_run(const std::optional<Octets>& value) {
  few::ConstantRun words = {few::kConstant, !value, {0}, 0};
  if (value) {
    words.value = address(*value);
    words.size = static_cast<int64_t>(value->shape(0));
  }
  Run run(words);
  if (value) run.keep(*value);
  return run;
}

// A column of runs, of which those are none that are not known.
class Column {
 public:
  Column(int64_t form, int64_t width, bool is_text, const Longs& first_row,
         const std::vector<nb::object>& runs)
      : first_row_(first_row), runs_(runs) {
    require(form >= few::kFixed && form <= few::kStrings64 && width >= 0,
            "a column has an unknown form");
    require(!runs.empty() && has(first_row, static_cast<int64_t>(runs.size()) + 1),
            "the runs of a column differ in number");
    for (const nb::object& run : runs) {
      const int64_t* words = run.is_none() ? nullptr : nb::cast<const Run&>(run).words();
      addresses_.push_back(static_cast<int64_t>(reinterpret_cast<uintptr_t>(words)));
    }
    column_ = {form, width, is_text, static_cast<int64_t>(runs.size()), address(first_row_),
               {static_cast<int64_t>(reinterpret_cast<uintptr_t>(addresses_.data()))}};
  }

  const few::Column* get() const { return &column_; }

 private:
  Longs first_row_;
  std::vector<nb::object> runs_;
  std::vector<int64_t> addresses_;
  few::Column column_;
};

// Columns that are read together.
class Columns {
 public:
  explicit Columns(const std::vector<nb::object>& columns) : columns_(columns) {
    for (const nb::object& column : columns) {
      const few::Column* found = nb::cast<const Column&>(column).get();
      addresses_.push_back(static_cast<int64_t>(reinterpret_cast<uintptr_t>(found)));
    }
  }

  KnownColumns get() const {
    return {addresses_.data(), static_cast<int64_t>(addresses_.size())};
  }

 private:
  std::vector<nb::object> columns_;
  std::vector<int64_t> addresses_;
};

inline void define(nb::module_& module) {
  using nb::arg;
  nb::class_<Symbols>(module, "Symbols")
      .def("__init__",
           [](Symbols* self, const Codes& symbols, const Octets& lengths,
              const Longs& first_chunk) { new (self) Symbols{symbols, lengths, first_chunk}; },
           arg("symbols").noconvert(), arg("lengths").noconvert(), arg("first_chunk").noconvert());
  nb::class_<Items>(module, "Items")
      .def("__init__",
           [](Items* self, int64_t count, int64_t width, const Octets& values,
              const std::optional<Octets>& bytes) {
             new (self) Items{count, width, values, bytes};
           },
           arg("count"), arg("width"), arg("values").noconvert(),
           arg("bytes").noconvert().none());
  nb::class_<Run>(module, "Run");
  module.def("chunk_run", &chunk_run, nb::kw_only(), arg("first_value").noconvert(),
             arg("known").noconvert().none(), arg("position").noconvert(),
             arg("size").noconvert(), arg("count").noconvert(), arg("has_definition"),
             arg("size_bytes"), arg("compression"), arg("codec"), arg("bits"),
             arg("symbols").none(), arg("items").none());
  module.def("item_run", &item_run, nb::kw_only(), arg("first_row").noconvert(),
             arg("position").noconvert(), arg("has_definition"), arg("item_bytes"));
  module.def("zipped_run", &zipped_run, nb::kw_only(), arg("rows"), arg("index_position"),
             arg("index_width"), arg("position"), arg("size"), arg("has_definition"),
             arg("length_bytes"), arg("codec"), arg("symbols").none());
  module.def("constant_run", &constant_run, nb::kw_only(), arg("value").noconvert().none());
  nb::class_<Column>(module, "Column")
      .def(nb::init<int64_t, int64_t, bool, const Longs&, const std::vector<nb::object>&>(),
           nb::kw_only(), arg("form"), arg("width"), arg("is_text"),
           arg("first_row").noconvert(), arg("runs"));
  nb::class_<Columns>(module, "Columns")
      .def(nb::init<const std::vector<nb::object>&>(), arg("columns"));
}

}  // namespace lancelet::columns

// The Python module: one function per kernel, which calls the function table in use.
//
// A kernel is listed once, in the .def file of its topic:
//
//     KERNEL(unpack_blocks, ConstBytes data, int64_t width, int64_t word_bits, Bytes out)
//
// The line is expanded to a declaration per instruction set, a slot of the function table, and a
// Python function. Spans are one-dimensional contiguous arrays of exactly that type; nothing is
// converted or copied. The result is the kernel's return value: negative values are faults (see
// kernel.hpp).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "column_plan.hpp"
#include "cpu.hpp"
#include "kernels.hpp"
#include "released.hpp"

namespace nb = nanobind;

namespace {
using namespace lancelet;

const Kernels kTables[] = {
#include "tables.inc"
};

// The function table in use. Only tests change it.
Kernels in_use = kTables[0];

std::vector<std::string> supported_sets() {
  std::vector<std::string> names;
  for (const Kernels& table : kTables)
    if (cpu_can_run(table.instruction_set)) names.emplace_back(table.instruction_set);
  return names;
}

void use_set(const std::string& name) {
  for (const Kernels& table : kTables) {
    if (name == table.instruction_set && cpu_can_run(table.instruction_set)) {
      in_use = table;
      return;
    }
  }
  throw std::invalid_argument("this machine cannot run the instruction set " + name);
}

// Conversion of a kernel parameter from Python.
template <class T>
struct Parameter {
  using Type = T;
  static T pass(T value) { return value; }
};

template <class T>
struct Parameter<Span<T>> {
  using Type = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
  static Span<T> pass(const Type& array) {
    if (reinterpret_cast<uintptr_t>(array.data()) % alignof(T) != 0)
      throw std::invalid_argument("an array is not aligned to its items");
    return {array.data(), static_cast<int64_t>(array.shape(0))};
  }
};

// A struct of parameters (src/parameters.hpp) is passed as a tuple of its members.
template <class T, class Members>
struct TupleParameter;

template <class T, class... Members>
struct TupleParameter<T, args::List<Members...>> {
  using Type = std::tuple<typename Parameter<Members>::Type...>;
  static T pass(const Type& values) {
    return std::apply([](const auto&... each) { return T{Parameter<Members>::pass(each)...}; },
                      values);
  }
};

template <class T>
  requires requires { typename T::Members; }
struct Parameter<T> : TupleParameter<T, typename T::Members> {};

// Kernels with these parameters are called by column plans only (column_plan.hpp).
template <class T>
constexpr bool kIsOfPlans = false;
template <>
constexpr bool kIsOfPlans<const plan::File&> = true;

// Calls a kernel without the global interpreter lock.
template <class... Spans>
int64_t call(int64_t (*function)(Spans...), Spans... spans) {
  const Released released;
  return function(spans...);
}

template <class... P>
void define(nb::module_& module, const char* name, int64_t (*const* slot)(P...)) {
  if constexpr (!(kIsOfPlans<P> || ...))
    module.def(
        name,
        [slot](typename Parameter<P>::Type... arguments) {
          return call<P...>(*slot, Parameter<P>::pass(arguments)...);
        },
        ((void)sizeof(Parameter<P>), nb::arg().noconvert())...);
}

template <class... P>
void define_baseline(nb::module_& module, const char* name, int64_t (*function)(P...)) {
  module.def(
      name,
      [function](typename Parameter<P>::Type... arguments) {
        return call<P...>(function, Parameter<P>::pass(arguments)...);
      },
      ((void)sizeof(Parameter<P>), nb::arg().noconvert())...);
}

}  // namespace

NB_MODULE(_native, module) {
  // Python-side caches hold objects until the process exits, which nanobind would report as leaks.
  nb::set_leak_warnings(false);
  module.doc() = "Native kernels of lancelet; call them through lancelet.kernels.";
  module.def("supported_sets", &supported_sets, "The instruction sets of this machine, worst first.");
  module.def("set_in_use", [] { return std::string(in_use.instruction_set); });
  module.def("use_set", &use_set, "Call the code of another instruction set from now on.");
  columns::define(module, in_use);
#define KERNEL(name, ...) define(module, #name, &in_use.name);
#include "topics.inc"
#undef KERNEL
#define KERNEL(name, ...) define_baseline(module, #name, &lancelet::baseline::name);
#include "baseline.inc"
#undef KERNEL
}

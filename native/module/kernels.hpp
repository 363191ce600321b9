// Function table of the kernels of one instruction set.
#pragma once

#include "../index/parameters.hpp"
#include "kernel.hpp"
#include "plan.hpp"

#include "declarations.inc"

namespace lancelet {

struct Kernels {
  const char* instruction_set;
#define KERNEL(name, ...) int64_t (*name)(__VA_ARGS__);
#include "topics.inc"
#undef KERNEL
};

}  // namespace lancelet

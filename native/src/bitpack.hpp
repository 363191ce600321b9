// Single values of an inline block, for column plans.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {

// Writes values `indices[i] - shift` of a block of up to 1024 values. Returns 0 or a fault.
int64_t pick_from_block(ConstBytes block, int64_t word_bits, ConstInts indices, int64_t shift,
                        Bytes out);

}  // namespace LANCELET_NAMESPACE

// Instruction set detection.
#pragma once

namespace lancelet {

// Returns whether the processor and the system support all features of an instruction set.
bool cpu_can_run(const char* instruction_set);

}  // namespace lancelet

// Which instruction sets this machine can run.
#pragma once

namespace lancelet {

// Whether every feature that the set's code may use is there, and enabled by the system.
bool cpu_can_run(const char* instruction_set);

}  // namespace lancelet

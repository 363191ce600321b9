// Temporary memory that a thread caches for its next calls.
//
// Allocators return large blocks to the system, and a page fault per 4 KiB takes longer than
// decoding into the page.
#pragma once

#include <stdint.h>
#include <stdlib.h>

namespace LANCELET_NAMESPACE {
namespace planned {

class CachedMemory {
 public:
  CachedMemory() = default;
  CachedMemory(const CachedMemory&) = delete;
  ~CachedMemory() {
    for (const Block& each : blocks_) free(each.data);
  }

  static CachedMemory& of_thread() {
    static thread_local CachedMemory memory;
    return memory;
  }

  // Returns the largest block, or a new one if it is too small, or null. Writes the size.
  void* take(int64_t bytes, int64_t* size) {
    Block* largest = blocks_;
    for (Block& each : blocks_)
      if (each.size > largest->size) largest = &each;
    if (largest->size < bytes) {
      *size = bytes;
      return malloc(static_cast<size_t>(bytes));
    }
    void* const data = largest->data;
    *size = largest->size;
    *largest = {};
    return data;
  }

  // Caches a block instead of a smaller one, or frees it.
  void give(void* data, int64_t size) {
    Block* smallest = blocks_;
    for (Block& each : blocks_)
      if (each.size < smallest->size) smallest = &each;
    if (data == nullptr || size > kBytesMax || size <= smallest->size) {
      free(data);
      return;
    }
    free(smallest->data);
    *smallest = {data, size};
  }

 private:
  static constexpr int64_t kBlocks = 6;
  static constexpr int64_t kBytesMax = 4 << 20;  // of a cached block

  struct Block {
    void* data = nullptr;
    int64_t size = 0;
  };

  Block blocks_[kBlocks];
};

}  // namespace planned
}  // namespace LANCELET_NAMESPACE

// Blocks of memory that are kept for reuse.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "base/block_pool.h"
#include "base/limits.h"

using slime::give_pooled;
using slime::take_pooled;

TEST_CASE("blocks in use do not overlap, and are aligned as those of operator new") {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{128}, std::size_t{129}, std::size_t{2048},
                                  std::size_t{2049}, std::size_t{100'000}}) {
    std::vector<void*> blocks;
    for (int i = 0; i < 300; ++i) {
      blocks.push_back(take_pooled(bytes));
      CHECK(reinterpret_cast<std::uintptr_t>(blocks.back()) % __STDCPP_DEFAULT_NEW_ALIGNMENT__ == 0);
      std::memset(blocks.back(), i % 251, bytes);
    }
    CHECK(std::set<void*>(blocks.begin(), blocks.end()).size() == blocks.size());
    for (int i = 0; i < 300; ++i) {
      const auto* const begin = static_cast<const unsigned char*>(blocks[static_cast<std::size_t>(i)]);
      CHECK(std::all_of(begin, begin + bytes, [&](unsigned char byte) { return byte == i % 251; }));
      give_pooled(blocks[static_cast<std::size_t>(i)], bytes);
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
TEST_CASE("a thread takes the block that it gave last, for every size that shares its steps") {
  void* const block = take_pooled(900);
  give_pooled(block, 900);
  CHECK(take_pooled(1000) == block);
  give_pooled(block, 1000);
}

TEST_CASE("blocks that one thread gives serve another thread") {
  constexpr std::size_t kBytes = 1100;
  constexpr std::size_t kBlocks = 4 * slime::limits::kBlocksOfThread;
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < kBlocks; ++i) blocks.push_back(take_pooled(kBytes));
  std::thread([&] {
    for (void* const block : blocks) give_pooled(block, kBytes);
  }).join();
  const std::set<void*> given(blocks.begin(), blocks.end());
  std::size_t again = 0;
  for (void*& block : blocks) again += given.contains(block = take_pooled(kBytes)) ? 1 : 0;
  CHECK(again == kBlocks);
  for (void* const block : blocks) give_pooled(block, kBytes);
}
#endif

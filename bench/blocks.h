#pragma once

#include <vector>

#include "bench/options.h"
#include "bench/raw_copy.h"

namespace slime::bench {

// The blocks that one client moves, in its order: what Slime moves and what the bare loop of the limit moves.
// Hot: count x inflight blocks, which are moved again and again. Cold: all blocks of both pools, shuffled on
// each side; a whole number of operations.
std::vector<Block> block_list(const Options& options);

}  // namespace slime::bench

#pragma once

#include <string>

#include "base/status.h"

namespace slime::bench {

// Files that `slime bench all --json`, `bench/compare/peers.py --json` or `slime bench ctrl --json` wrote,
// for people.

// Markdown tables to stdout. With a page in `into`: in that file, in place of what stands between the lines
// "<!-- tables: begin -->" and "<!-- tables: end -->" (or "peers", or "ctrl"); kNotFound when it has none.
Status print_tables(const std::string& file, const std::string& into);

// SVG plots into the folder `out`, and their names to stdout: what calls take, throughput by size beside the
// limit for each provider, and ratios to the limits; of ctrl: CPU, memory and p99 over the number of agents.
Status write_plots(const std::string& file, const std::string& out);

}  // namespace slime::bench

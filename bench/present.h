#pragma once

#include <string>

#include "base/status.h"

namespace slime::bench {

// Files that `slime bench all --json` or `bench/compare/peers.py --json` wrote, for people.

// Markdown tables to stdout. With a page in `into`: in that file, in place of what stands between the lines
// "<!-- tables: begin -->" and "<!-- tables: end -->"; kNotFound when it has none.
Status print_tables(const std::string& file, const std::string& into);

// SVG plots into the folder `out`, and their names to stdout: what calls take, throughput by size beside the
// limit for each provider, and ratios to the limits.
Status write_plots(const std::string& file, const std::string& out);

}  // namespace slime::bench

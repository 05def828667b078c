#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace slime::bench {

struct AllOptions {
  std::string file;
  bool quick = false;
  std::uint32_t rounds = 5;
  double seconds = 1;
  std::vector<std::string> providers;  // empty: tcp and shm, as far as they work here
  std::vector<std::string> only;       // parts of names of lines; empty: all
  std::string commit;                  // told in the file; empty: unknown
};

// Runs every measurement of the table, each as a process of its own, and writes `file` anew after each: it is
// always one whole JSON object. What fails is told there, and the others go on; then the status is kInternal.
// kCancelled on Ctrl-C. Progress goes to stderr.
Status measure_all(const AllOptions& options);

// One measurement of the table.
struct Line {
  std::string name;   // "shm/rpc-64-caller"
  std::string group;  // "calls"
  std::string title;
  std::vector<std::string> arguments;  // of `slime bench`
};
std::vector<Line> lines_of(const std::string& provider, const AllOptions& options);

}  // namespace slime::bench

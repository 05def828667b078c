#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/child.h"
#include "base/status.h"

namespace slime::bench {

// Reads a line from stdin; nothing at the end of stdin. Blocks.
std::optional<std::string> read_command();
// Writes a line to stdout, and flushes it.
void answer(std::string_view line);
// Replaces the line of progress on stderr if stderr is a terminal.
void show(std::string_view what);
// Returns the exit status of a child. Answers an error as Child::expect() reads it.
int exit_status_of(const Status& status);

// Returns the user and system CPU seconds of this process so far.
double cpu_seconds();
// Returns the pages that the kernel gave to this process so far without a disk.
std::uint64_t page_faults();

// Returns the number after the word `key` in a file of /proc, 0 if there is none.
double number_in(const std::string& path, std::string_view key);

}  // namespace slime::bench

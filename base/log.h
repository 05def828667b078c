#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "base/str.h"

namespace slime {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

// Only the edges log (programs, the agent's connection states); libraries return a Status instead. Thread:
// any. Lines go to stderr, or to the file given to log_to_file. A full disk drops lines, never the
// process. Control characters are printed as \xNN, long lines are cut.
void log(LogLevel level, std::string_view component, std::string_view text);
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);

// "debug", "info", "warning", "error", "off".
Status set_log_level(std::string_view name);
// Appends to `path` from now on, rotated at 16 MiB with 3 files kept.
Status log_to_file(const std::string& path);

}  // namespace slime

// Builds the text only when the level is on.
#define SLIME_LOG(level, component, ...)                                                        \
  do {                                                                                          \
    if (::slime::log_enabled(level)) ::slime::log(level, component, ::slime::str(__VA_ARGS__)); \
  } while (false)

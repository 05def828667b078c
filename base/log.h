#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "base/str.h"

namespace slime {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

// Writes one line to stderr, or to the file given to log_to_file(). Code of a library logs only
// what it cannot return as a Status. A full disk drops lines and never stops the process. Prints
// control characters as \xNN and cuts long lines. Thread: any.
void log(LogLevel level, std::string_view component, std::string_view text);
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);

// `name`: "debug", "info", "warning", "error" or "off".
Status set_log_level(std::string_view name);
// Appends log lines to the file `path` from now on. Rotates the file at 16 MiB, and keeps 3 old
// files.
Status log_to_file(const std::string& path);

}  // namespace slime

// Logs a line. Builds its text only if the level is enabled.
#define SLIME_LOG(level, component, ...)                                                        \
  do {                                                                                          \
    if (::slime::log_enabled(level)) ::slime::log(level, component, ::slime::str(__VA_ARGS__)); \
  } while (false)

#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

// Output and exit status of the commands of a program with `start`, `status` and `stop`
// (base/daemon.h). `Json` is the JSON library's object type, which our headers do not include.
namespace slime::daemon {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotRunning = 3;
// The end of the program's --help.
inline constexpr const char* kFooter =
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 not running.\n"
    "Pid files and logs are in $SLIME_RUNTIME_DIR, else $XDG_RUNTIME_DIR/slime, else /tmp/slime-<uid>.";

// Prints a line to stdout; but to stderr if it is text (not JSON) and `exit_status` is not kExitOk.
void print_outcome(bool as_json, int exit_status, std::string_view line);

// Prints the outcome as text or as one JSON object, and returns `exit_status`. JSON replaces
// invalid UTF-8, since a name from the command line may hold any bytes.
template <class Json>
int say(bool as_json, int exit_status, const std::string& text, const Json& json) {
  print_outcome(as_json, exit_status,
                as_json ? json.dump(-1, ' ', false, Json::error_handler_t::replace) : text);
  return exit_status;
}

// Prints an error, and returns kExitFailed.
template <class Json>
int fail(bool as_json, std::string_view program, const Status& status) {
  const Json json = {{"state", "failed"}, {"code", code_name(status.code())}, {"message", status.text()}};
  return say(as_json, kExitFailed, std::string(program) + ": " + status.text(), json);
}

}  // namespace slime::daemon

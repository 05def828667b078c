#pragma once

namespace slime {

// Prints "<file>:<line>: check failed: <text>" to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* text) noexcept;

}  // namespace slime

// Aborts the process if `condition` is false. Use it only for conditions that a bug of Slime alone
// can break, never for conditions that depend on a peer, a user or the machine.
#define SLIME_CHECK(condition)                         \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::slime::check_failed(__FILE__, __LINE__, #condition))

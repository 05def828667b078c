#pragma once

#include <csignal>
#include <string>

#include "base/status.h"

namespace slime {

// Describes every agent of this process in lines for people: its state, the registry, the port and
// the adapter's counters, every peer with its connection and counters, and the operations in flight
// with their age. Leaves out zeros and empty values. Works while things hang: if the loop of an
// agent does not answer within a second, the values that only the loop knows are missing. Thread:
// any.
std::string dump();

// Makes this process write dump() to stderr at each signal `number`, without stopping. Further
// calls do nothing. Errors: kAlreadyExists if the process has a handler for that signal; the
// handler stays. A child of fork() ignores the signal until it calls this function itself. Thread:
// any.
Status dump_on_signal(int number = SIGUSR1);

}  // namespace slime

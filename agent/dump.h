#pragma once

#include <csignal>
#include <string>

#include "base/status.h"

namespace slime {

// What every agent of this process is doing, in lines for people: its state, the registry, the port and what
// the adapter counts, every peer with its connection and its counters, and the operations that have not ended
// with their age. What is 0 or empty is left out. Works while things hang: an agent whose loop does not
// answer within a second is told without what only the loop knows. Thread: any.
std::string dump();

// From now on this process writes dump() to stderr when it gets the signal; it goes on meanwhile. Asked again
// it does nothing. kAlreadyExists: the process has a handler of its own for that signal, which stays. A child
// of fork() ignores the signal until it asks for itself. Thread: any.
Status dump_on_signal(int number = SIGUSR1);

}  // namespace slime

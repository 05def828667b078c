#pragma once

#include <string>

#include "base/result.h"
#include "bench/options.h"

namespace slime::command_line {
class Command;
}

namespace slime::bench {

// Runs one measurement between this machine's processes: one server, options.clients clients, and the limit
// in turns with it. The report as one JSON object on one line. kCancelled on Ctrl-C.
Result<std::string> measure(const Options& options);

// A report of any measurement for people: a line, its limit, and what else it has.
std::string format_report(const std::string& report);

// Adds the command `bench` and the hidden roles of its processes.
void add_commands(command_line::Command& program);

}  // namespace slime::bench

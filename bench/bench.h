#pragma once

#include <string>

#include "base/result.h"
#include "bench/options.h"

namespace CLI {
class App;
}

namespace slime::bench {

// Runs one measurement between this machine's processes: one server, options.clients clients, and the limit
// in turns with it. The report as one JSON object on one line. kCancelled on Ctrl-C.
Result<std::string> measure(const Options& options);

// A report of any measurement for people: a line, its limit, and what else it has.
std::string format_report(const std::string& report);

// Adds the subcommand `bench` and the hidden roles of its processes. Their exit code goes to `exit_code`.
void add_commands(CLI::App& app, int& exit_code);

}  // namespace slime::bench

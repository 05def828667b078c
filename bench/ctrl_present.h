#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace slime::bench {

// A report of `slime bench ctrl`. Each throws nlohmann's exceptions for what is none.

// For a terminal.
std::string format_ctrl(const nlohmann::json& report);
// Markdown: a line for each number of agents.
std::string tables_of_ctrl(const nlohmann::json& report);
// ctrl.svg into the folder `out`: CPU, memory and p99 over the number of agents. Its name to stdout.
Status write_ctrl_plot(const nlohmann::json& report, const std::string& out);

}  // namespace slime::bench

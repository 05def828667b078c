#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slime::cli {

enum class Verdict {
  kOk,
  kInfo,    // a fact; nothing to do
  kAdvice,  // works, and would work better
  kBroken,  // Slime cannot work, or not as asked
};
std::string_view verdict_name(Verdict verdict);  // "ok", "info", "advice", "broken"

// One thing about this machine.
struct Finding {
  std::string name;
  Verdict verdict = Verdict::kInfo;
  std::string value;
  std::string advice;  // what to change; empty when there is nothing
};

std::string bytes_text(std::uint64_t bytes);  // "16 MiB"

// Each looks at one part of the machine. None changes anything.
std::vector<Finding> check_providers();
std::vector<Finding> check_processor();
std::vector<Finding> check_memory();     // huge pages
std::vector<Finding> check_limits();     // file descriptors
std::vector<Finding> check_isolation();  // whether local peers may copy from each other
std::vector<Finding> check_network();    // TCP buffers, loopback
std::vector<Finding> check_verbs();      // library, locked memory, devices, ports, GIDs, and what is chosen
std::vector<Finding> check_runtime_dir();
std::vector<Finding> check_ctrl(const std::string& url);  // empty: not asked for

}  // namespace slime::cli

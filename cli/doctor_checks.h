#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slime::cli {

enum class Verdict {
  kOk,
  kInfo,    // a fact; nothing to do
  kAdvice,  // works, but a change of the machine would improve it
  kBroken,  // Slime does not work, or cannot do what the settings require
};
std::string_view verdict_name(Verdict verdict);  // "ok", "info", "advice", "broken"

// One result of a check.
struct Finding {
  std::string name;
  Verdict verdict = Verdict::kInfo;
  std::string value;
  std::string advice;  // change that would help; empty: none
};

std::string bytes_text(std::uint64_t bytes);  // "16 MiB"

// Each check_...() function examines one part of the machine, changes nothing and returns the
// findings.
std::vector<Finding> check_providers();
std::vector<Finding> check_processor();
std::vector<Finding> check_memory();     // huge pages
std::vector<Finding> check_limits();     // file descriptors
std::vector<Finding> check_isolation();  // checks whether local peers may copy each other's memory
std::vector<Finding> check_network();    // TCP buffers, loopback
// checks RDMA: the library, the limit of locked memory, devices, ports, GIDs and the chosen port
std::vector<Finding> check_verbs();
std::vector<Finding> check_runtime_dir();
std::vector<Finding> check_ctrl(const std::string& url);  // an empty `url`: no check

}  // namespace slime::cli

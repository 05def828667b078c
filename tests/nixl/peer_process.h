#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/str.h"
#include "tests/nixl/host.h"
#include "tests/support/process.h"
#include "tests/support/settings.h"

namespace slime::test::nixl {

// nixl_peer, with one region. Killed with this object. Thread: one.
class PeerProcess {
 public:
  PeerProcess(const std::string& name, std::size_t region_bytes, const std::vector<std::string>& params = {})
      : process_(start(name, region_bytes, params)) {
    const auto ready = process_.read_line(patient(std::chrono::seconds(30)));
    REQUIRE_MESSAGE(ready.has_value(), ready.status().to_string());
    REQUIRE(ready->rfind("READY ", 0) == 0);
    const auto decoded = Metadata::decode(ready->substr(6));
    REQUIRE(decoded.has_value());
    metadata_ = *decoded;
  }
  std::string ask(const std::string& line) {
    REQUIRE(process_.write_line(line).ok());
    const auto answer = process_.read_line(patient(std::chrono::seconds(60)));
    REQUIRE_MESSAGE(answer.has_value(), answer.status().to_string());
    return *answer;
  }
  void kill() {
    REQUIRE(process_.kill().ok());
    REQUIRE(process_.wait(patient(std::chrono::seconds(30))).has_value());
  }
  Process& process() { return process_; }
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }
  [[nodiscard]] std::uintptr_t address() const { return metadata_.sections.at(0).address; }

 private:
  static Process start(const std::string& name, std::size_t region_bytes,
                       const std::vector<std::string>& params) {
    std::vector<std::string> command = {program_beside_this("nixl_peer"), name, str(region_bytes),
                                        str("provider=", provider())};
    command.insert(command.end(), params.begin(), params.end());
    auto process = Process::spawn(command);
    REQUIRE_MESSAGE(process.has_value(), process.status().to_string());
    return std::move(*process);
  }
  Process process_;
  Metadata metadata_;
};

}  // namespace slime::test::nixl

#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "tests/support/eventually.h"
#include "tests/support/process.h"
#include "tests/support/settings.h"

namespace slime::test {

// A process may start under a sanitizer on a busy machine.
inline const Nanos kReady = patient(std::chrono::seconds(60));

// A real nanoctrl in a process of its own; kill() and start() again give an empty one at the same
// URL.
class Nanoctrl {
 public:
  explicit Nanoctrl(std::vector<std::string> flags = {});
  void start();
  void kill();
  [[nodiscard]] std::string url() const;

 private:
  const std::vector<std::string> flags_;
  std::uint16_t port_ = 0;
  std::unique_ptr<Process> process_;
};

// An e2e_peer, ready.
Process start_peer(const std::string& name, const std::string& ctrl_url, std::uint64_t region_bytes);

std::unique_ptr<PeerAgent> start_agent(const std::string& name, const std::string& ctrl_url,
                                       Progress progress = Progress::kThread);
}  // namespace slime::test

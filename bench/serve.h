#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace slime::bench {

struct ServeOptions {
  std::string listen = "127.0.0.1:4480";
  bool insecure = false;  // listen off loopback without a token
  std::uint64_t memory_bytes = std::uint64_t{8} << 30;
  std::uint32_t ends = 64;
  bool as_json = false;
};

// Runs servers of measurements for the clients of `--to`, until Ctrl-C: each client has a process
// like that of run_server(), which ends with the client's connection. Prints one line with the
// address. Returns kCancelled after Ctrl-C.
Status serve_measurements(const ServeOptions& options);

}  // namespace slime::bench

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "bench/options.h"
#include "rpc/msgpack_types.h"

namespace slime::bench {

// The service of `slime bench serve`. A client opens one end for each connection.
inline constexpr const char* kServeService = "bench.serve";

// Answer of the method "open".
struct OpenedEnd {
  std::string address;  // of the end, as the server knows it
  std::string machine;  // facts about the server's machine, JSON
  MSGPACK_DEFINE(address, machine)
};

// Returns the version of both programs, which must be equal: the flags of a measurement and the
// commands of its server belong to one version.
std::string serve_version();

// The server of a measurement: a process that run_server() runs, on this host or on that of a
// `slime bench serve`. Destroying this ends it. Thread: one.
class ServerEnd {
 public:
  virtual ~ServerEnd() = default;
  // Address that the clients connect to.
  [[nodiscard]] virtual const std::string& address() const = 0;
  // Facts about the machine of the server, as JSON; empty on this host.
  [[nodiscard]] virtual std::string machine() const { return {}; }
  // Sends a command of run_server(), and returns the rest of its answer behind `word`. kCancelled
  // on Ctrl-C.
  virtual Result<std::string> ask(std::string_view command, std::string_view word, Nanos timeout) = 0;
};

// Starts the server in a child process.
Result<std::unique_ptr<ServerEnd>> start_child_end(const Options& options);
// Opens the server at options.to. Sets options.host to the numeric host of that server.
Result<std::unique_ptr<ServerEnd>> open_remote_end(Options& options);

}  // namespace slime::bench

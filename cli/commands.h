#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

// The subcommands of `slime`. Each prints its result to stdout and its errors to stderr, and
// returns the exit code: 0 success, 1 failure, 2 the command line is wrong, 130 after Ctrl-C.
namespace slime::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

// Prints "slime <command>: <code>: <text>" to stderr and returns the exit code of that status.
int fail(std::string_view command, const Status& status);

struct DoctorOptions {
  std::string ctrl_url;
  bool json = false;
};
// Prints what this machine can do. Returns exit code 1 if a finding is Verdict::kBroken, else 0.
// Advice does not change the exit code.
int doctor(const DoctorOptions& options);

struct PeersOptions {
  std::string ctrl_url;
  std::string scope = "default";
  std::string kind;
  bool json = false;
};
int peers(const PeersOptions& options);

// Options that name the target of a command and how to reach it. The target is a peer, or any live
// server of a service.
struct PeerOptions {
  std::string peer;  // a name, or "host:port"
  // with an empty `peer`: the service whose servers are the target; else selects one service of the
  // peer
  std::string service;
  std::string ctrl_url;
  std::string scope = "default";
  // path of the file with the token that all peers share; empty: the token is in $SLIME_TOKEN
  std::string token_file;
  std::string provider = "auto";
  double timeout_seconds = 30;
};

struct CallOptions {
  PeerOptions at;
  std::string method;                  // "service.method"; without a peer only the method
  std::vector<std::string> arguments;  // JSON values
  // true: the method takes and returns raw bytes; sends stdin unchanged, writes the reply to stdout
  bool raw = false;
};
int call(const CallOptions& options);

struct ServicesOptions {
  PeerOptions at;
  std::string service;  // empty: all
  bool json = false;
};
int services(const ServicesOptions& options);
// Prints all services of the scope, each with the peers that serve the service.
int all_services(const ServicesOptions& options);

struct StubsOptions {
  PeerOptions at;
  std::string language = "python";  // or "cpp"
  std::string name_space = "stubs";
  std::string out;  // a file; empty: stdout
};
int stubs(const StubsOptions& options);

struct NixlPluginDirOptions {
  // path of the Python interpreter that can import nixl; empty: find_nixl() chooses an interpreter
  std::string python;
  bool json = false;
};
int nixl_plugin_dir(const NixlPluginDirOptions& options);

}  // namespace slime::cli

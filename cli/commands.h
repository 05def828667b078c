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
// Returns 1 if something that Slime needs does not work here; advice alone returns 0.
int doctor(const DoctorOptions& options);

struct PeersOptions {
  std::string ctrl_url;
  std::string scope = "default";
  std::string kind;
  bool json = false;
};
int peers(const PeersOptions& options);

// The peer of a command, or a service of any live server, and how to reach it.
struct PeerOptions {
  std::string peer;     // a name, or "host:port"
  std::string service;  // instead of a peer; or limits the command to this service of the peer
  std::string ctrl_url;
  std::string scope = "default";
  std::string token_file;  // file of the token that the peers share; empty: $SLIME_TOKEN
  std::string provider = "auto";
  double timeout_seconds = 30;
};

struct CallOptions {
  PeerOptions at;
  std::string method;                  // "service.method"; without a peer only the method
  std::vector<std::string> arguments;  // JSON values
  // for a method of bytes: sends stdin unchanged, and writes the answer to stdout
  bool raw = false;
};
int call(const CallOptions& options);

struct ServicesOptions {
  PeerOptions at;
  std::string service;  // empty: all
  bool json = false;
};
int services(const ServicesOptions& options);
// Lists the services of the whole scope, with their servers.
int all_services(const ServicesOptions& options);

struct StubsOptions {
  PeerOptions at;
  std::string language = "python";  // or "cpp"
  std::string name_space = "stubs";
  std::string out;  // a file; empty: stdout
};
int stubs(const StubsOptions& options);

struct NixlPluginDirOptions {
  std::string python;  // the interpreter that can import nixl; empty: find_nixl() chooses
  bool json = false;
};
int nixl_plugin_dir(const NixlPluginDirOptions& options);

}  // namespace slime::cli

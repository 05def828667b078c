#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

// The subcommands of `slime`. Each prints its result to stdout and its errors to stderr, and returns the exit
// code: 0 it worked, 1 it did not, 2 the command line is wrong,
// 130 after Ctrl-C.
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
// 1 when something that Slime needs is broken here; advice alone is 0.
int doctor(const DoctorOptions& options);

struct PeersOptions {
  std::string ctrl_url;
  std::string scope = "default";
  std::string kind;
  bool json = false;
};
int peers(const PeersOptions& options);

// The peer that a command is about, or a service of any live server, and how it is reached.
struct PeerOptions {
  std::string peer;     // a name, or "host:port"
  std::string service;  // instead of a peer, or the only one of the peer's that matters
  std::string ctrl_url;
  std::string scope = "default";
  std::string token_file;  // of the peers' shared token; empty: $SLIME_TOKEN
  std::string provider = "auto";
  double timeout_seconds = 30;
};

struct CallOptions {
  PeerOptions at;
  std::string method;                  // "service.method"; without a peer the method alone
  std::vector<std::string> arguments;  // JSON values
  bool raw = false;  // of a method of bytes: stdin goes there as it is, the answer to stdout
};
int call(const CallOptions& options);

struct ServicesOptions {
  PeerOptions at;
  std::string service;  // empty: all
  bool json = false;
};
int services(const ServicesOptions& options);
// Those of the whole scope, with their servers.
int all_services(const ServicesOptions& options);

struct StubsOptions {
  PeerOptions at;
  std::string language = "python";  // or "cpp"
  std::string name_space = "stubs";
  std::string out;  // a file; empty: stdout
};
int stubs(const StubsOptions& options);

struct NixlPluginDirOptions {
  std::string python;  // the interpreter that has nixl; empty: find_nixl() chooses
  bool json = false;
};
int nixl_plugin_dir(const NixlPluginDirOptions& options);

}  // namespace slime::cli

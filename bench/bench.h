#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/options.h"

namespace slime::command_line {
class Command;
}

// The measurements of `slime bench`. Each returns its report as one JSON object on one line, and
// kCancelled on Ctrl-C.
namespace slime::bench {

// Adds the command `bench` and the hidden commands of its processes.
void add_commands(command_line::Command& program);

// Returns a report as text for people: a name and a value in each row.
std::string format_report(const std::string& report);
// Returns a report as CSV: a line of names, and a line of values for each row of a sweep, or one.
std::string format_csv(const std::string& report);

// ------------------------------------ rpc, bulk, blocks, notify, connect, cache

// Measures between one server and options.clients clients, with the limit in turns.
Result<std::string> measure(const Options& options);
Result<nlohmann::json> measure_one(const Options& options);

// Measurements one after the other, each of which is a row of one table.
struct Sweep {
  std::string bench;
  std::vector<std::string> columns;  // of the rows, in order
  std::vector<Options> options{};
};
// Returns a report with "columns", "rows", and "verified" of all rows. `row` makes a row of the
// options and the report of a measurement.
Result<std::string> measure_sweep(
    const Sweep& sweep,
    const std::function<Result<nlohmann::json>(const Options&, const nlohmann::json&)>& row);

// The server: serves echo calls, a region, or a cache. Writes "READY <address>", then answers the
// commands "CPU" and "RAW <limit>" until its stdin ends. Returns the exit status.
int run_server(const Options& options);

// A client of the server at `address`, "host:port#index". Writes "READY <provider>" once it is
// warm. "GO" measures, and writes "RESULT <json>"; "LIMIT <limit>" measures the limit, and writes
// "LIMIT <json>". Returns the exit status.
int run_client(const Options& options, const std::string& address);

// ------------------------------------------------------------------------- idle

struct IdleOptions {
  std::uint32_t peers = 50;
  std::uint32_t calls = 100;  // to each peer, before the agent is idle
  std::uint64_t up_to = 0;    // bytes: then a few calls of each size up to this follow
  double seconds = 5;         // of idling
  std::string provider = "auto";
  std::string ctrl_url;  // empty: neither registry nor heartbeats
};

// Measures an agent that is connected to many peers, has called them, and does nothing: cpu_percent
// of one core, connect_ms of all peers one after the other, and per peer pss_kib_per_peer and
// fds_per_peer of this process.
Result<std::string> measure_idle(const IdleOptions& options);

// The peers, in one process: writes "READY <address> <address> ...", ends with its stdin. Returns
// the exit status.
int run_peers(std::uint32_t count, const std::string& provider);

// ------------------------------------------------------------------------- null

struct NullOptions {
  std::string face = "peer";    // peer: writes of an agent; endpoint: writes below it; channel: calls
  std::string mode = "caller";  // of the agent: thread: waits block; caller: waits drive the loop
  std::uint64_t size = 64;      // bytes of a write, or of a call there and back
  std::uint32_t inflight = 16;
  double seconds = 1;
  std::string library;  // file; empty: the one of the build tree of this program
};

// Measures what the software costs by itself: on verbs, with a library that carries out each work
// request at once, between two ends in this process. Reports ns_per_op and, where the kernel lets
// this user count them, instructions_per_op of the thread that waits. For calls, both ends are in
// this thread.
Result<std::string> measure_null(const NullOptions& options);

// ------------------------------------------------------------------------- ctrl

struct CtrlOptions {
  std::vector<std::uint32_t> agents = {10'000};  // one measurement for each number
  std::optional<std::uint32_t> scopes;           // default: one for each hundred agents
  double heartbeat_s = 5;
  double ttl_s = 60;
  // deaths, and registrations, per second; default: a hundredth of the agents
  std::optional<double> rate;
  double seconds = 60;
  std::optional<double> warmup_s;  // of deaths; default: until as many leases end as agents die
  std::string connections = "kept";
  std::vector<std::string> stores;  // of child servers, one measurement for each; empty: sqlite
  // of running servers; empty: starts a child for each measurement
  std::vector<std::string> urls;
  std::vector<int> pids;     // the processes of the running servers, to measure their use
  std::string program;       // the nanoctrl to start; empty: the one beside this program
  std::string server_flags;  // for the child, separated by spaces
  bool hostile = false;      // measures heartbeats beside a hostile tenant
  std::string token_file;    // of the token to send; empty: taken from the environment
  [[nodiscard]] Status validate() const;
};

// Measures simulated agents against a nanoctrl: latencies, the server's processor time and memory,
// and whether each agent heard of each death in time. "runs" has an entry for each store and number
// of agents; "verified" is false when an agent was lost or a death was heard of late.
Result<std::string> measure_ctrl(const CtrlOptions& options);

// Measures heartbeats alone, and beside a tenant that fills its share of the registry, floods the
// server with and without its token, and reads lists over 200 connections. Returns one run: "idle",
// "hostile", and "verified", which says whether the heartbeats' p99 kept its bar.
Result<nlohmann::json> measure_hostile(const CtrlOptions& options, const std::string& store,
                                       std::uint32_t agents);

// The hostile tenant. Reads its token from stdin, fills its share of the server at `url`, writes
// "READY <json>", then floods and scans until its stdin ends; answers "COUNT" with "COUNT <json>".
// Returns the exit status.
int run_hostile(const std::string& url, const std::string& scope);

// -------------------------------------------------------------------------- all

struct AllOptions {
  std::string file;
  bool quick = false;
  std::uint32_t rounds = 5;
  double seconds = 1;
  std::vector<std::string> providers;  // empty: tcp and shm, if they work here
  std::vector<std::string> only;       // parts of names of lines; empty: all lines
  std::string commit;                  // for the file; empty: unknown
};

// Runs every measurement of the table, each in a process of its own, and writes `file` after each;
// the file is one whole JSON object at any moment. A failure is in the file, the other measurements
// go on, and the status is kInternal. Writes progress to stderr.
Status measure_all(const AllOptions& options);

// One measurement of the table.
struct Line {
  std::string name;   // "shm/rpc-64-caller"
  std::string group;  // "calls"
  std::string title;
  std::vector<std::string> arguments;  // of `slime bench`
};
std::vector<Line> lines_of(const std::string& provider, const AllOptions& options);

}  // namespace slime::bench

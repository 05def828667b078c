// The table of `slime bench all`.
#include <algorithm>
#include <array>
#include <string>

#include "base/str.h"
#include "bench/bench.h"

namespace slime::bench {
namespace {

using Words = std::vector<std::string>;

// Collects the lines of one provider.
class Table {
 public:
  Table(std::string provider, const AllOptions& options)
      : provider_(std::move(provider)), options_(options) {}

  // Adds a line. Its times and rounds are the table's, unless `words` has others.
  void add(std::string group, const std::string& name, std::string title, Words words) {
    const std::string bench = words.front();
    const auto use = [&](const char* flag, const char* quick, const std::string& value) {
      if (std::find(words.begin(), words.end(), flag) == words.end())
        words.insert(words.end(), {flag, options_.quick ? quick : value});
    };
    if (bench != "idle" && bench != "connect" && bench != "cache") use("--warmup", "0.05", "0.3");
    if (bench != "idle" && bench != "connect") use("--seconds", "0.1", str(options_.seconds));
    if (bench != "idle") use("--rounds", "1", str(options_.rounds));
    words.insert(words.end(), {"--provider", provider_});
    lines_.push_back({provider_ + "/" + name, std::move(group), std::move(title), std::move(words)});
  }
  [[nodiscard]] bool quick() const { return options_.quick; }
  [[nodiscard]] std::vector<Line> take() { return std::move(lines_); }

 private:
  const std::string provider_;
  const AllOptions& options_;
  std::vector<Line> lines_;
};

// Faces: calls below agents, where callers drive the loop; and calls through agents.
constexpr std::array kFaces = {"channel", "peer"};

std::string way(const std::string& face) { return face == "peer" ? ", through agents" : ""; }
std::string name_of(const std::string& name, const std::string& face) {
  return face == "peer" ? name + "-agents" : name;
}

void add_calls(Table& table) {
  for (const char* face : kFaces) {
    table.add("calls", name_of("rpc-64-caller", face), "64 B, one in flight, spinning" + way(face),
              {"rpc", "--mode", "caller", "--face", face});
    table.add("calls", name_of("rpc-64-caller-64", face), "64 B, 64 in flight, spinning" + way(face),
              {"rpc", "--mode", "caller", "--face", face, "--inflight", "64"});
    // The scheduler needs seconds to share two processors evenly among nine processes.
    table.add("calls", name_of("rpc-64-caller-8x16", face),
              "64 B, 8 client processes, 16 in flight each, spinning" + way(face),
              {"rpc", "--mode", "caller", "--face", face, "--inflight", "16", "--clients", "8", "--warmup",
               table.quick() ? "0.05" : "0.5", "--seconds", table.quick() ? "0.1" : "4"});
  }
  table.add("calls", "rpc-64-thread", "64 B, one in flight, with threads, through agents",
            {"rpc", "--mode", "thread"});
  table.add("calls", "rpc-64-thread-64", "64 B, 64 in flight, with threads, through agents",
            {"rpc", "--mode", "thread", "--inflight", "64"});
  for (const char* size : {"1K", "4K", "16K", "64K", "256K"}) {
    table.add("sizes", str("rpc-", size), str(size, "iB there and back, one in flight, spinning"),
              {"rpc", "--mode", "caller", "--face", "channel", "--size", size});
  }
  table.add("calls", "notify", "64 B with an immediate, half a round trip, spinning", {"notify"});
}

void add_blocks(Table& table, bool shared_memory) {
  for (const char* operation : {"write", "read"}) {
    for (const char* face : kFaces) {
      for (const char* size : {"4K", "64K", "1M", "16M"}) {
        if (size == std::string("16M") && (table.quick() || face == std::string("peer"))) continue;
        table.add("hot", name_of(str("bulk-", operation, "-", size), face),
                  str(operation, ", ", size, "iB, 16 in flight", way(face)),
                  {"bulk", "--mode", "caller", "--face", face, "--op", operation, "--size", size});
      }
    }
    table.add("hot", str("bulk-", operation, "-1M-thread"),
              str(operation, ", 1MiB, 16 in flight, with threads, through agents"),
              {"bulk", "--mode", "thread", "--op", operation, "--size", "1M"});
    for (const char* size : {"64K", "1M", "16M"}) {
      if (!shared_memory || (table.quick() && size == std::string("16M"))) continue;
      table.add("foreign", str("foreign-", operation, "-", size),
                str(operation, ", ", size, "iB, 16 in flight, memory of the program's own"),
                {"bulk", "--mode", "caller", "--face", "channel", "--op", operation, "--size", size,
                 "--memory", "foreign"});
    }
    for (const char* size : {"16K", "64K", "1M"}) {
      if (!shared_memory) continue;
      table.add("cold", str("cold-", operation, "-", size),
                str(operation, ", ", size, "iB, batches of 16, through agents"),
                {"bulk", "--mode", "caller", "--op", operation, "--size", size, "--cold", "--pool-size",
                 table.quick() ? "64M" : "512M"});
    }
    table.add("batches", str("blocks-", operation), str(operation, ", 1,538 scattered blocks of 1 KiB"),
              {"blocks", "--op", operation});
  }
  table.add("batches", "blocks-adjacent", "write, 1,538 adjacent blocks of 1 KiB", {"blocks", "--adjacent"});
}

void add_rest(Table& table) {
  for (const char* mode : {"thread", "caller"}) {
    table.add("connect", str("connect-", mode), str("connect and first call, ", mode, " mode"),
              {"connect", "--mode", mode, "--count", table.quick() ? "10" : "200"});
  }
  for (const char* operation : {"get", "put"}) {
    for (const char* size : {"64", "4K", "64K", "256K", "1M"}) {
      table.add("cache", str("cache-", operation, "-", size),
                str(operation, ", ", size, " B, one at a time, spinning"),
                {"cache", "--mode", "caller", "--op", operation, "--size", size});
    }
    table.add("cache", str("cache-", operation, "-64K-thread"),
              str(operation, ", 64K B, one at a time, with threads"),
              {"cache", "--mode", "thread", "--op", operation, "--size", "64K"});
    table.add("cache", str("cache-", operation, "-64K-x16"),
              str(operation, ", 64K B, 16 with one call, spinning"),
              {"cache", "--mode", "caller", "--op", operation, "--size", "64K", "--batch", "16"});
  }
  const bool quick = table.quick();
  table.add("idle", "idle-50", "50 idle peers",
            {"idle", "--peers", quick ? "4" : "50", "--calls", quick ? "10" : "100", "--seconds",
             quick ? "0.2" : "10"});
  if (quick) return;
  table.add("idle", "idle-200", "200 idle peers, after 1,000 calls each",
            {"idle", "--peers", "200", "--calls", "1000", "--seconds", "10"});
}

}  // namespace

std::vector<Line> lines_of(const std::string& provider, const AllOptions& options) {
  Table table(provider, options);
  const bool shared_memory = provider == "shm";
  add_calls(table);
  add_blocks(table, shared_memory);
  add_rest(table);
  std::vector<Line> out;
  for (Line& line : table.take()) {
    bool wanted = options.only.empty();
    for (const std::string& part : options.only) wanted = wanted || line.name.find(part) != std::string::npos;
    if (wanted) out.push_back(std::move(line));
  }
  return out;
}

}  // namespace slime::bench

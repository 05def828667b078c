// The table of `slime bench all`.
#include <string>

#include "base/str.h"
#include "bench/all.h"

namespace slime::bench {
namespace {

using Words = std::vector<std::string>;

// Collects the lines of one provider.
class Table {
 public:
  Table(std::string provider, const AllOptions& options)
      : provider_(std::move(provider)), options_(options) {}

  // With --seconds and --rounds.
  void add(std::string group, const std::string& name, std::string title, Words words) {
    words.insert(words.end(), {"--seconds", options_.quick ? "0.1" : str(options_.seconds)});
    add_rounds(std::move(group), name, std::move(title), std::move(words));
  }
  // The same, with time to get warm.
  void add_warm(std::string group, const std::string& name, std::string title, Words words) {
    words.insert(words.end(), {"--warmup", options_.quick ? "0.05" : "0.3"});
    add(std::move(group), name, std::move(title), std::move(words));
  }
  void add_rounds(std::string group, const std::string& name, std::string title, Words words) {
    words.insert(words.end(), {"--rounds", options_.quick ? "1" : str(options_.rounds)});
    add_bare(std::move(group), name, std::move(title), std::move(words));
  }
  void add_bare(std::string group, const std::string& name, std::string title, Words words) {
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

void add_calls(Table& table) {
  for (const char* mode : {"caller", "thread"}) {
    const std::string waits = mode == std::string("caller") ? "spinning" : "blocking";
    table.add_warm("calls", str("rpc-64-", mode), str("64 B, one in flight, ", waits),
                   {"rpc", "--mode", mode});
    table.add_warm("calls", str("rpc-64-", mode, "-64"), str("64 B, 64 in flight, ", waits),
                   {"rpc", "--mode", mode, "--inflight", "64"});
  }
  table.add_warm("calls", "rpc-64-caller-8x16", "64 B, 8 client processes, 16 in flight each, spinning",
                 {"rpc", "--mode", "caller", "--inflight", "16", "--clients", "8"});
  for (const char* size : {"1K", "4K", "16K", "64K", "256K"}) {
    table.add_warm("sizes", str("rpc-", size), str(size, "iB there and back, one in flight, spinning"),
                   {"rpc", "--mode", "caller", "--size", size});
  }
  table.add_warm("calls", "notify", "64 B with an immediate, half a round trip, spinning", {"notify"});
}

void add_blocks(Table& table, bool shared_memory) {
  for (const char* operation : {"write", "read"}) {
    for (const char* size : {"4K", "64K", "1M", "16M"}) {
      if (table.quick() && size == std::string("16M")) continue;
      table.add_warm("hot", str("bulk-", operation, "-", size),
                     str(operation, ", ", size, "iB, 16 in flight"),
                     {"bulk", "--mode", "caller", "--op", operation, "--size", size});
    }
    table.add_warm("hot", str("bulk-", operation, "-1M-thread"),
                   str(operation, ", 1MiB, 16 in flight, blocking"),
                   {"bulk", "--mode", "thread", "--op", operation, "--size", "1M"});
    for (const char* size : {"64K", "1M", "16M"}) {
      if (!shared_memory || (table.quick() && size == std::string("16M"))) continue;
      table.add_warm("foreign", str("foreign-", operation, "-", size),
                     str(operation, ", ", size, "iB, 16 in flight, memory of the program's own"),
                     {"bulk", "--mode", "caller", "--op", operation, "--size", size, "--memory", "foreign"});
    }
    for (const char* size : {"16K", "64K", "1M"}) {
      if (!shared_memory) continue;
      table.add_warm("cold", str("cold-", operation, "-", size),
                     str(operation, ", ", size, "iB, batches of 16"),
                     {"bulk", "--mode", "caller", "--op", operation, "--size", size, "--cold", "--pool-size",
                      table.quick() ? "64M" : "512M"});
    }
    table.add_warm("batches", str("blocks-", operation), str(operation, ", 1,538 scattered blocks of 1 KiB"),
                   {"blocks", "--op", operation});
  }
  table.add_warm("batches", "blocks-adjacent", "write, 1,538 adjacent blocks of 1 KiB",
                 {"blocks", "--adjacent"});
}

void add_rest(Table& table) {
  for (const char* mode : {"thread", "caller"}) {
    table.add_rounds("connect", str("connect-", mode), str("connect and first call, ", mode, " mode"),
                     {"connect", "--mode", mode, "--count", table.quick() ? "10" : "200"});
  }
  for (const char* operation : {"get", "put"}) {
    for (const char* size : {"64", "4K", "64K", "256K", "1M"}) {
      table.add("cache", str("cache-", operation, "-", size),
                str(operation, ", ", size, " B, one at a time, spinning"),
                {"cache", "--mode", "caller", "--op", operation, "--size", size});
    }
    table.add("cache", str("cache-", operation, "-64K-thread"),
              str(operation, ", 64K B, one at a time, blocking"),
              {"cache", "--mode", "thread", "--op", operation, "--size", "64K"});
    table.add("cache", str("cache-", operation, "-64K-x16"),
              str(operation, ", 64K B, 16 with one call, spinning"),
              {"cache", "--mode", "caller", "--op", operation, "--size", "64K", "--batch", "16"});
  }
  const bool quick = table.quick();
  table.add_bare("idle", "idle-50", "50 idle peers",
                 {"idle", "--peers", quick ? "4" : "50", "--calls", quick ? "10" : "100", "--seconds",
                  quick ? "0.2" : "10"});
  if (quick) return;
  table.add_bare("idle", "idle-200", "200 idle peers, after 1,000 calls each",
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

// Weights from one owner to several readers: in a tree (kv/broadcast.h), and each reader from the
// owner, in turns.
#include "bench/broadcast.h"

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "base/str.h"
#include "bench/bench.h"
#include "bench/figures.h"
#include "bench/process.h"
#include "bench/shared.h"
#include "bench/sweep_commands.h"
#include "kv/broadcast.h"
#include "kv/replica.h"

namespace slime::bench {
namespace {

using command_line::Command;
using nlohmann::json;

constexpr std::uint64_t kChunk = 4 << 20;
constexpr std::size_t kWindow = 4;  // reads at a time, as a fetch has
constexpr Nanos kOneRound = std::chrono::minutes(5);

struct BroadcastSettings {
  std::string provider = "auto";
  std::uint64_t size = 1 << 30;
  std::uint32_t readers = 4;
  std::uint32_t fan_out = 2;
  std::uint32_t rounds = 3;
};

// The bytes of a round: numbers of 64 bits that depend on place and version.
void fill_weights(MutableBytes memory, std::uint64_t version) {
  auto* const numbers = reinterpret_cast<std::uint64_t*>(memory.data());
  const std::size_t count = memory.size() / sizeof *numbers;
  for (std::size_t i = 0; i < count; ++i) numbers[i] = (i + version) * 0x9E3779B97F4A7C15ULL;
}
bool right_weights(Bytes memory, std::uint64_t version) {
  const auto* const numbers = reinterpret_cast<const std::uint64_t*>(memory.data());
  const std::size_t count = memory.size() / sizeof *numbers;
  for (std::size_t i = 0; i < count; ++i)
    if (numbers[i] != (i + version) * 0x9E3779B97F4A7C15ULL) return false;
  return true;
}

Result<std::unique_ptr<PeerAgent>> start_agent(const std::string& provider) {
  return PeerAgent::start({.provider = provider, .token = shared_token()});
}

// The owner's process. Commands: "next" offers other bytes, "out" tells what has left it.
Status offer_weights(const std::string& provider, std::uint64_t size, std::uint32_t fan_out) {
  auto agent = start_agent(provider);
  if (!agent) return std::move(agent).error();
  auto memory = (*agent)->allocate(size, Rights::kLocal);
  if (!memory) return std::move(memory).error();
  std::uint64_t version = 1;
  fill_weights(memory->bytes(), version);
  const std::vector<kv::NamedMemory> parts{{"weights", memory->bytes()}};
  auto broadcast = kv::Broadcast::over(**agent, parts, {.fan_out = fan_out, .chunk_bytes = kChunk});
  if (!broadcast) return std::move(broadcast).error();
  answer("READY " + (*agent)->address());
  while (const auto command = read_command()) {
    if (*command == "next") {
      SLIME_TRY(broadcast->begin_update());
      fill_weights(memory->bytes(), ++version);
      const auto published = broadcast->publish();
      if (!published) return published.error();
      answer(str("VERSION ", *published));
    } else {
      answer(str("OUT ", broadcast->info().bytes_out));
    }
  }
  return {};
}

// Reads all bytes from the owner, as a program without a tree does: several large reads at a time.
Status read_directly(Peer& owner, const MemoryRegion& memory, const RemoteRegion& remote) {
  std::deque<Future<None>> reads;
  for (std::uint64_t at = 0; at < memory.length_bytes() || !reads.empty();) {
    if (at < memory.length_bytes() && reads.size() < kWindow) {
      const std::uint64_t bytes = std::min(kChunk, memory.length_bytes() - at);
      const Copy copy[] = {{memory, at, remote, at, bytes}};
      reads.push_back(owner.read(copy));
      at += bytes;
      continue;
    }
    const auto read = reads.front().wait();
    if (!read) return read.status();
    reads.pop_front();
  }
  return {};
}

// A reader's process. Commands: "tree" and "direct" copy the bytes, "check VERSION" compares them.
Status copy_weights(const std::string& provider, std::uint64_t size, const std::string& address) {
  auto agent = start_agent(provider);
  if (!agent) return std::move(agent).error();
  auto memory = (*agent)->allocate(size, Rights::kLocal);
  if (!memory) return std::move(memory).error();
  const std::vector<kv::NamedMemory> parts{{"weights", memory->bytes()}};
  auto replica = kv::Replica::over(**agent, parts);
  if (!replica) return std::move(replica).error();
  Peer owner = (*agent)->peer(address);
  const auto remote = owner.region("kv/broadcast/weights/0");
  if (!remote) return remote.error();
  answer("READY");
  while (const auto command = read_command()) {
    std::istringstream words(*command);
    std::string word;
    std::uint64_t version = 0;
    words >> word >> version;
    if (word == "tree") {
      SLIME_TRY(replica->fetch(owner, kOneRound).wait().status());
      answer("DONE");
    } else if (word == "direct") {
      SLIME_TRY(replica->retire());
      SLIME_TRY(read_directly(owner, *memory, *remote));
      answer("DONE");
    } else if (word == "check") {
      answer(right_weights(memory->bytes(), version) ? "CHECKED 1" : "CHECKED 0");
    } else {
      return {Code::kInvalidArgument, "unknown command " + word};
    }
  }
  return {};
}

// All processes of a measurement.
class World {
 public:
  static Result<World> start(const BroadcastSettings& settings) {
    World out;
    auto owner = Child::start({"bench-broadcast-owner", "--provider", settings.provider, str(settings.size),
                               str(settings.fan_out)});
    if (!owner) return std::move(owner).error();
    out.owner_.push_back(std::move(*owner));
    const auto address = out.owner_[0].expect("READY", kOneRound);
    if (!address) return address.error();
    for (std::uint32_t i = 0; i < settings.readers; ++i) {
      auto reader = Child::start(
          {"bench-broadcast-reader", "--provider", settings.provider, str(settings.size), *address});
      if (!reader) return std::move(reader).error();
      out.readers_.push_back(std::move(*reader));
    }
    for (Child& reader : out.readers_) SLIME_TRY(out.answered(reader, "READY"));
    return out;
  }

  // Offers other bytes.
  Status next() {
    const auto version = owner_[0].ask("next", "VERSION", kOneRound);
    if (!version) return version.error();
    version_ = std::stoull(*version);
    return {};
  }
  // Returns the bytes that readers have read from the owner, by the owner's counter.
  Result<double> bytes_out() {
    const auto out = owner_[0].ask("out", "OUT", kOneRound);
    if (!out) return out.error();
    return std::stod(*out);
  }
  // Has all readers carry out a command at the same time. Returns the seconds until the last is
  // done.
  Result<double> all(const std::string& command) {
    const TimePoint begin = steady_clock().now();
    for (Child& reader : readers_) SLIME_TRY(reader.write_line(command));
    for (Child& reader : readers_) SLIME_TRY(answered(reader, "DONE"));
    return std::chrono::duration<double>(steady_clock().now() - begin).count();
  }
  // Returns whether all readers have the newest bytes.
  Result<bool> right() {
    bool out = true;
    for (Child& reader : readers_) {
      const auto checked = reader.ask(str("check ", version_), "CHECKED", kOneRound);
      if (!checked) return checked.error();
      out = out && *checked == "1";
    }
    return out;
  }

 private:
  static Status answered(Child& child, const std::string& word) {
    const auto line = child.read_line(kOneRound);
    if (!line) return line.error();
    if (*line == word) return {};
    return Status(Code::kInternal, "a process of the measurement said: " + *line);
  }
  std::vector<Child> owner_;  // one
  std::vector<Child> readers_;
  std::uint64_t version_ = 1;
};

struct Round {
  double tree_s = 0;
  double direct_s = 0;
  double copies_out = 0;  // that left the owner in the tree
  bool right = true;
};

Result<Round> measure_round(World& world, const BroadcastSettings& settings, bool tree_first) {
  Round out;
  for (const bool tree : {tree_first, !tree_first}) {
    SLIME_TRY(world.next());
    const auto before = world.bytes_out();
    if (!before) return before.error();
    const auto seconds = world.all(tree ? "tree" : "direct");
    if (!seconds) return seconds.error();
    (tree ? out.tree_s : out.direct_s) = *seconds;
    const auto after = world.bytes_out();
    if (!after) return after.error();
    if (tree) out.copies_out = (*after - *before) / static_cast<double>(settings.size);
    const auto right = world.right();
    if (!right) return right.error();
    out.right = out.right && *right;
  }
  return out;
}

Result<std::string> measure_broadcast(const BroadcastSettings& settings) {
  install_interrupt_flag();
  const json machine = machine_facts();
  auto world = World::start(settings);
  if (!world) return std::move(world).error();
  auto warm_up = measure_round(*world, settings, true);  // touches all pages, opens all connections
  if (!warm_up) return std::move(warm_up).error();
  bool right = warm_up->right;
  Figures figures;
  double most_copies = 0;
  for (std::uint32_t i = 0; i < settings.rounds; ++i) {
    if (interrupted()) return Status(Code::kCancelled, "interrupted");
    show(str("broadcast: round ", i + 1, " of ", settings.rounds));
    const auto round = measure_round(*world, settings, i % 2 == 0);
    if (!round) return round.error();
    right = right && round->right;
    most_copies = std::max(most_copies, round->copies_out);
    const double gb = 1e-9 * static_cast<double>(settings.size) * settings.readers;
    figures.add("tree_s", round->tree_s);
    figures.add("direct_s", round->direct_s);
    figures.add("tree_gb_per_s", gb / round->tree_s);
    figures.add("direct_gb_per_s", gb / round->direct_s);
    figures.add("ratio", round->direct_s / round->tree_s);
    figures.add("tree_copies_from_owner", round->copies_out);
  }
  show("");
  json out = {{"bench", "broadcast"},
              {"provider", settings.provider},
              {"size", settings.size},
              {"readers", settings.readers},
              {"fan_out", settings.fan_out},
              {"rounds", settings.rounds},
              {"cores", std::thread::hardware_concurrency()},
              {"direct_copies_from_owner", settings.readers},
              {"verified", right}};
  figures.put(out, {});
  out["tree_bytes_from_owner"] = most_copies * static_cast<double>(settings.size);
  // The bar: faster by half, or few bytes from the owner where the cores are the limit.
  out["bar_ratio"] = out["ratio"].get<double>() >= 1.5;
  out["bar_copies"] = most_copies <= 2;
  out["bar"] = out["bar_ratio"].get<bool>() || out["bar_copies"].get<bool>();
  out["machine"] = machine;
  return out.dump();
}

}  // namespace

void add_broadcast(Command& bench) {
  auto settings = std::make_shared<BroadcastSettings>();
  Command command = bench.add_command(
      "broadcast", "Weights to several readers: in a tree, and each from the owner, in turns");
  add_provider(command, settings->provider);
  command.option("--size", settings->size, "bytes of one copy, a multiple of 8 (1G, ...)")
      .as_size()
      .show_default();
  command.option("--readers", settings->readers, "reader processes").in_range(1, 64).show_default();
  command.option("--fan-out", settings->fan_out, "children of the owner, and of each reader")
      .in_range(1, 64)
      .show_default();
  command.option("--rounds", settings->rounds, "tree and direct in turns; medians count")
      .in_range(1, 1000)
      .show_default();
  command.refused_option("--to", "broadcast measures processes of this host");
  add_report(command, [settings] { return measure_broadcast(*settings); });
}

void add_broadcast_roles(Command& program) {
  auto settings = std::make_shared<BroadcastSettings>();
  Command owner = program.add_command("bench-broadcast-owner", "").hide();
  owner.option("size", settings->size).required();
  owner.option("fan-out", settings->fan_out).required();
  add_provider(owner, settings->provider);
  owner.action([settings] {
    return exit_status_of(offer_weights(settings->provider, settings->size, settings->fan_out));
  });
  auto address = std::make_shared<std::string>();
  Command reader = program.add_command("bench-broadcast-reader", "").hide();
  reader.option("size", settings->size).required();
  reader.option("address", *address).required();
  add_provider(reader, settings->provider);
  reader.action([settings, address] {
    return exit_status_of(copy_weights(settings->provider, settings->size, *address));
  });
}

}  // namespace slime::bench

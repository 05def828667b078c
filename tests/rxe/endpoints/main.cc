// What one verbs port costs with many endpoints: memory of each, time to make one, beside a program
// that calls libibverbs and nothing else, in the same run.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/command_line.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/figures.h"
#include "bench/process.h"
#include "tests/rxe/endpoints/bare.h"
#include "tests/rxe/endpoints/node.h"
#include "tests/rxe/endpoints/watched.h"

namespace slime::bench {
namespace {

using nlohmann::json;

constexpr double kLimitKib = 64;
constexpr double kLimitMs = 5;

struct Settings {
  std::uint32_t endpoints = 200;
  std::uint32_t rounds = 5;
  std::uint32_t per_round = 20;
  bool as_json = false;
};

// -------------------------------------------------------------------------------------------------
// memory

struct Memory {
  double rss_kib = 0;
  double private_dirty_kib = 0;
};
Memory operator-(const Memory& a, const Memory& b) {
  return {a.rss_kib - b.rss_kib, a.private_dirty_kib - b.private_dirty_kib};
}

Result<Memory> memory_now() {
  std::ifstream in("/proc/self/smaps_rollup");
  Memory out;
  int found = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    double kib = 0;
    if (!(words >> name >> kib)) continue;
    if (name == "Rss:") out.rss_kib = kib, ++found;
    if (name == "Private_Dirty:") out.private_dirty_kib = kib, ++found;
  }
  if (found != 2) return Status(Code::kUnimplemented, "/proc/self/smaps_rollup cannot be read");
  return out;
}

json to_json(const Memory& memory, double count) {
  return {{"rss", memory.rss_kib / count}, {"private_dirty", memory.private_dirty_kib / count}};
}

// A process that makes nothing but the queue pairs of `count` endpoints, and says what it has grown
// by.
int run_rings(std::uint32_t count, const std::string& text) {
  const auto measure = [&]() -> Result<Memory> {
    const auto shapes = decode_shapes(text);
    if (!shapes) return shapes.error();
    const auto functions = transport::verbs::load_functions();
    if (!functions) return functions.error();
    auto device = BareDevice::open(**functions);
    if (!device) return std::move(device).error();
    const auto before = memory_now();
    if (!before) return before.error();
    for (std::uint32_t i = 0; i < count; ++i) {
      for (const ibv_qp_cap& shape : *shapes) {
        if (auto made = (*device)->create(shape); !made) return std::move(made).error();
      }
    }
    const auto after = memory_now();
    if (!after) return after.error();
    answer(str("RINGS ", (*after - *before).rss_kib, " ", (*after - *before).private_dirty_kib));
    std::_Exit(0);  // the kernel destroys the queue pairs
  };
  answer(str("ERROR ", measure().status().to_string()));
  return 1;
}

Result<Memory> rings_of(std::uint32_t count, const Shapes& shapes) {
  auto child = Child::start({"rings", str(count), encode(shapes)});
  if (!child) return std::move(child).error();
  const auto line = child->read_line(kPatience);
  if (!line) return line.error();
  Memory out;
  if (std::sscanf(line->c_str(), "RINGS %lf %lf", &out.rss_kib, &out.private_dirty_kib) != 2)
    return Status(Code::kInternal, *line);
  return out;
}

// -------------------------------------------------------------------------------------------------
// time

double ms(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }

// The other process, and where it listens.
struct Peer {
  Child process;
  std::string address;
  std::uint16_t bare_port = 0;

  static Result<Peer> start() {
    auto child = Child::start({"server"});
    if (!child) return std::move(child).error();
    const auto line = child->read_line(kPatience);
    if (!line) return line.error();
    std::istringstream words(*line);
    std::string ready;
    std::string address;
    std::uint16_t port = 0;
    if (!(words >> ready >> address >> port) || ready != "READY")
      return Status(Code::kInternal, str("the server said: ", *line));
    return Peer{std::move(*child), address, port};
  }
  Result<std::uint64_t> ask(const char* what) {
    const auto number = process.ask(what, what, kPatience);
    if (!number) return number.error();
    return std::strtoull(number->c_str(), nullptr, 10);
  }
  // Its endpoints end when ours have said goodbye.
  Status wait_until_empty(Node& node) {
    const TimePoint end = steady_clock().now() + kPatience;
    for (;;) {
      const auto left = ask("ENDPOINTS");
      if (!left) return left.error();
      if (*left == 0) return {};
      if (steady_clock().now() >= end)
        return {Code::kDeadlineExceeded, str("the server still has ", *left, " endpoints")};
      node.loop->poll(std::chrono::milliseconds(1));
    }
  }
};

Status close_all(std::deque<Client>& clients, Node& node, Peer& peer) {
  for (Client& client : clients) SLIME_TRY(client.close());
  clients.clear();
  return peer.wait_until_empty(node);
}

// The queue pairs of one endpoint, once all have been made.
Shapes shapes_of_one(const Settings& settings) {
  const Shapes& all = watched().shapes;
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / settings.endpoints)};
}

// All endpoints at once: what they take, and that each of them works.
Result<json> measure_memory(const Settings& settings, Node& node, Peer& peer) {
  std::deque<Client> clients;
  // Connects one client before measuring: the first client loads code and takes a slab of send
  // buffers, which are no cost of the others.
  SLIME_TRY(clients.emplace_back(node).connect(peer.address));
  SLIME_TRY(clients.back().use());
  SLIME_TRY(close_all(clients, node, peer));
  watched().shapes.clear();
  const auto before = memory_now();
  if (!before) return before.error();
  std::vector<double> connects;
  for (std::uint32_t i = 0; i < settings.endpoints; ++i) {
    SLIME_TRY(clients.emplace_back(node).connect(peer.address));
    connects.push_back(ms(clients.back().connect_ns()));
  }
  const auto connected = memory_now();
  if (!connected) return connected.error();
  for (Client& client : clients) SLIME_TRY(client.use());
  const auto used = memory_now();
  if (!used) return used.error();
  std::uint64_t errors = 0;
  for (const Client& client : clients) errors += client.endpoint().counters().error_completions;
  const auto at_peer = peer.ask("ENDPOINTS");
  if (!at_peer) return at_peer.error();
  if (*at_peer != settings.endpoints || node.port->endpoints() != settings.endpoints)
    return Status(Code::kInternal, str("the two ports have ", node.port->endpoints(), " and ", *at_peer,
                                       " endpoints, not ", settings.endpoints));
  const double first = median({connects.begin(), connects.begin() + std::ssize(connects) / 10 + 1});
  const double last = median({connects.end() - std::ssize(connects) / 10 - 1, connects.end()});

  SLIME_TRY(close_all(clients, node, peer));

  const Shapes shapes = shapes_of_one(settings);
  const auto rings = rings_of(settings.endpoints, shapes);
  if (!rings) return rings.error();
  const double count = settings.endpoints;
  const Memory beyond = *used - *before - *rings;
  json out = {{"endpoints", settings.endpoints},
              {"queue_pairs_each", shapes.size()},
              {"queue_pairs", encode(shapes)},
              {"kib_each_connected", to_json(*connected - *before, count)},
              {"kib_each_used", to_json(*used - *before, count)},
              {"kib_each_rings", to_json(*rings, count)},
              {"kib_each_beyond_rings", to_json(beyond, count)},
              {"limit_kib", kLimitKib},
              {"within_limit", std::max(beyond.rss_kib, beyond.private_dirty_kib) / count <= kLimitKib},
              {"error_completions", errors},
              {"connect_ms_of_the_first_tenth", first},
              {"connect_ms_of_the_last_tenth", last}};
  return out;
}

// One connection of each kind after the other, so that whatever slows the machine slows all.
Result<json> measure_time(const Settings& settings, Node& node, Peer& peer) {
  auto device = BareDevice::open(**transport::verbs::load_functions());
  if (!device) return std::move(device).error();
  const Shapes same = shapes_of_one(settings);
  // The message queue pair, which is the smaller kind: the harder comparison.
  const Shapes one(same.begin(), same.begin() + 1);
  json rounds = json::array();
  std::vector<double> ours, answers, verbs, bare_one, bare_same;
  for (std::uint32_t round = 0; round < settings.rounds; ++round) {
    std::deque<Client> clients;
    std::vector<double> round_ours, round_one, round_same;
    for (std::uint32_t i = 0; i < settings.per_round; ++i) {
      const auto first = connect_bare(**device, one, peer.bare_port);
      if (!first) return first.error();
      round_one.push_back(ms(*first));
      const auto second = connect_bare(**device, same, peer.bare_port);
      if (!second) return second.error();
      round_same.push_back(ms(*second));
      const std::int64_t calls = watched().calls_ns;
      Client& client = clients.emplace_back(node);
      SLIME_TRY(client.connect(peer.address));
      verbs.push_back(ms(watched().calls_ns - calls));
      SLIME_TRY(client.use());
      round_ours.push_back(ms(client.connect_ns()));
      answers.push_back(ms(client.answer_ns()));
    }
    SLIME_TRY(close_all(clients, node, peer));
    rounds.push_back({{"slime_ms", median(round_ours)},
                      {"bare_one_ms", median(round_one)},
                      {"bare_same_ms", median(round_same)}});
    ours.insert(ours.end(), round_ours.begin(), round_ours.end());
    bare_one.insert(bare_one.end(), round_one.begin(), round_one.end());
    bare_same.insert(bare_same.end(), round_same.begin(), round_same.end());
  }
  const double over = median(ours) - median(bare_one);
  return json{{"rounds", std::move(rounds)},
              {"per_round", settings.per_round},
              {"slime_ms", median(ours)},
              {"slime_in_libibverbs_ms", median(verbs)},
              {"slime_first_answer_ms", median(answers)},
              {"bare_one_ms", median(bare_one)},
              {"bare_same_ms", median(bare_same)},
              {"over_bare_one_ms", over},
              {"over_bare_same_ms", median(ours) - median(bare_same)},
              {"limit_ms", kLimitMs},
              {"within_limit", over <= kLimitMs}};
}

Result<json> measure(const Settings& settings) {
  if (settings.endpoints < 1 || settings.endpoints > 4096)
    return Status(Code::kInvalidArgument, "--endpoints: 1 to 4096");
  if (settings.rounds < 1 || settings.rounds > 1000)
    return Status(Code::kInvalidArgument, "--rounds: 1 to 1000");
  if (settings.per_round < 1 || settings.per_round > 400)
    return Status(Code::kInvalidArgument, "--per-round: 1 to 400");
  install_interrupt_flag();
  auto peer = Peer::start();
  if (!peer) return std::move(peer).error();
  const auto empty = memory_now();
  if (!empty) return empty.error();
  auto node = Node::open();
  if (!node) return std::move(node).error();
  const auto open = memory_now();
  if (!open) return open.error();
  auto memory = measure_memory(settings, **node, *peer);
  if (!memory) return memory;
  auto time = measure_time(settings, **node, *peer);
  if (!time) return time;
  const auto errors = peer->ask("ERRORS");
  if (!errors) return errors.error();
  return json{{"bench", "endpoints"},
              {"kib_of_the_port", to_json(*open - *empty, 1)},
              {"memory", std::move(*memory)},
              {"connect", std::move(*time)},
              {"async_errors", watched().async_events.load() + *errors}};
}

int run(const Settings& settings) {
  const auto report = measure(settings);
  if (!report) {
    std::fprintf(stderr, "bench_endpoints: %s\n", report.error().to_string().c_str());
    return report.error().code() == Code::kInvalidArgument ? 2 : 1;
  }
  std::printf("%s\n", settings.as_json ? report->dump().c_str() : format_report(report->dump()).c_str());
  return report->at("async_errors") == 0 && report->at("memory").at("error_completions") == 0 ? 0 : 1;
}

}  // namespace
}  // namespace slime::bench

int main(int argc, char** argv) {
  using namespace slime::bench;
  Settings settings;
  slime::command_line::Program program(
      "bench_endpoints",
      "Memory and connection time of many endpoints on one verbs port, beside bare libibverbs in the same "
      "run. The device is chosen by SLIME_VERBS_*. Fails if an endpoint does or the device reports an error; "
      "a missed limit is said, not a failure.");
  program.option("--endpoints", settings.endpoints, "connected at once").show_default();
  program.option("--rounds", settings.rounds, "of the comparison of times").show_default();
  program.option("--per-round", settings.per_round, "connections of each kind in a round").show_default();
  program.flag("--json", settings.as_json, "one JSON object on one line");
  program.action([&] { return run(settings); });
  // Roles of the other processes of a measurement, which the driver starts. Hidden from --help.
  program.add_command("server", "").hide().action([] { return run_server(); });
  slime::command_line::Command rings = program.add_command("rings", "").hide();
  std::uint32_t count = 0;
  std::string shapes;
  rings.option("count", count).required();
  rings.option("shapes", shapes).required();
  rings.action([&] { return run_rings(count, shapes); });
  return program.run(argc, argv);
}

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/str.h"
#include "bench/bench.h"
#include "bench/figures.h"
#include "bench/histogram.h"
#include "bench/machine_limits.h"
#include "bench/process.h"
#include "bench/server_end.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

using nlohmann::json;

constexpr Nanos kLongAnswer = std::chrono::minutes(10);  // of a limit; of connecting

// The sums over the clients of one run.
struct Totals {
  Histogram latency;
  std::map<std::string, double> sums;  // of the results, by their names
  double seconds = 0;                  // of the slowest client
  double ops_per_s = 0;
  double least_ops_per_s = 0;  // of the slowest client
  double server_cpu = 0;
  double server_faults = 0;
  bool verified = true;
};

Status add_result(const std::string& text, Totals& totals) {
  const json result = json::parse(text, nullptr, false);
  if (result.is_discarded()) return {Code::kInternal, "a client's result does not parse"};
  totals.latency.add_buckets(result.at("latency").get<Histogram::Buckets>());
  const json& sums = result.at("sums");
  const double ops_per_s = sums.at("operations").get<double>() / result.at("seconds").get<double>();
  totals.least_ops_per_s = totals.sums.empty() ? ops_per_s : std::min(totals.least_ops_per_s, ops_per_s);
  totals.ops_per_s += ops_per_s;
  totals.seconds = std::max(totals.seconds, result.at("seconds").get<double>());
  for (const auto& [name, value] : sums.items()) totals.sums[name] += value.get<double>();
  totals.verified = totals.verified && result.at("verified").get<bool>();
  return {};
}

struct Usage {
  double cpu_seconds = 0;
  double faults = 0;
};

Result<Usage> server_usage(ServerEnd& server) {
  auto text = server.ask("CPU", "CPU", kAnswer);
  if (!text) return std::move(text).error();
  Usage out;
  std::istringstream(*text) >> out.cpu_seconds >> out.faults;
  return out;
}

// The processes of one measurement, for all of its rounds.
class Measurement {
 public:
  explicit Measurement(const Options& options) : options_(options) {}
  Status start();
  Result<json> run();

 private:
  Status why(Status of_client);
  Result<Totals> run_clients(std::size_t count);
  Status run_round();
  Status add_limit();
  Status add_limit_of_all();
  void add_figures(const Totals& totals);
  [[nodiscard]] double bytes_of_operation() const {
    return static_cast<double>(options_.size) * options_.count * (options_.is_calls() ? 2 : 1);
  }

  Options options_;
  std::unique_ptr<ServerEnd> server_;
  std::vector<Child> clients_;
  const json machine_ = machine_facts();  // before the measurement loads the machine
  std::string provider_;                  // of the connections
  Limit limit_;
  Figures figures_;
  std::vector<double> alone_;  // with several clients: ops/s of the first client alone
  std::vector<double>
      limit_of_all_;  // with several clients that block: ops/s of their limits at the same time
  bool verified_ = true;
};

Status Measurement::start() {
  show(options_.to.empty() ? "starting the server" : str("opening the server at ", options_.to));
  auto server = options_.to.empty() ? start_child_end(options_) : open_remote_end(options_);
  if (!server) return std::move(server).error();
  server_ = std::move(*server);
  const std::string options = options_.to_text();
  for (std::uint32_t i = 0; i < options_.clients; ++i) {
    auto client = Child::start({"bench-client", options, str(server_->address(), "#", i)});
    if (!client) return std::move(client).error();
    clients_.push_back(std::move(*client));
  }
  show("connecting and warming up");
  for (Child& client : clients_) {
    auto provider = client.expect("READY", to_nanos(options_.warmup_seconds) + 2 * kAnswer);
    if (!provider) return why(std::move(provider).error());
    provider_ = std::move(*provider);
  }
  limit_ = choose_limit(limit_options(options_), provider_);
  return {};
}

// Returns the reason for a client's failure: that the server on the other host is gone, if so.
Status Measurement::why(Status of_client) {
  if (options_.to.empty() || of_client.code() != Code::kUnavailable) return of_client;
  const auto usage = server_usage(*server_);
  return usage || usage.error().code() != Code::kUnavailable ? of_client : usage.error();
}

// Runs the first `count` clients at the same time.
Result<Totals> Measurement::run_clients(std::size_t count) {
  const Nanos longest = options_.bench == "connect" || options_.iterations > 0
                            ? kLongAnswer
                            : to_nanos(options_.seconds) + kAnswer;
  auto before = server_usage(*server_);
  if (!before) return std::move(before).error();
  for (std::size_t i = 0; i < count; ++i) SLIME_TRY(clients_[i].write_line("GO"));
  Totals totals;
  for (std::size_t i = 0; i < count; ++i) {
    auto result = clients_[i].expect("RESULT", longest);
    if (!result) return why(std::move(result).error());
    SLIME_TRY(add_result(*result, totals));
  }
  auto after = server_usage(*server_);
  if (!after) return std::move(after).error();
  totals.server_cpu = after->cpu_seconds - before->cpu_seconds;
  totals.server_faults = after->faults - before->faults;
  return totals;
}

void Measurement::add_figures(const Totals& totals) {
  const double bytes = bytes_of_operation();
  const double operations = totals.sums.at("operations");
  const double gib = operations * bytes / static_cast<double>(1 << 30);
  const auto each = [&](const char* name) { return totals.sums.at(name) / operations; };
  const double nanos_per_us = options_.bench == "notify" ? 2000 : 1000;  // half of a round trip
  figures_.add("p50_us", totals.latency.quantile(0.5) / nanos_per_us);
  figures_.add("p99_us", totals.latency.quantile(0.99) / nanos_per_us);
  figures_.add("p999_us", totals.latency.quantile(0.999) / nanos_per_us);
  figures_.add("operations", operations);
  figures_.add("measured_seconds", totals.seconds);
  figures_.add("ops_per_s", totals.ops_per_s * (options_.bench == "cache" ? options_.count : 1));
  figures_.add("client_cpu_s_per_million", each("cpu") * 1e6);
  figures_.add("server_cpu_s_per_million", totals.server_cpu / operations * 1e6);
  if (options_.bench == "connect") return;
  figures_.add("gb_per_s", totals.ops_per_s * bytes / 1e9);
  figures_.add("cpu_s_per_gib", (totals.sums.at("cpu") + totals.server_cpu) / gib);
  if (!options_.is_calls()) {
    figures_.add("faults_per_operation", each("faults"));
    figures_.add("server_faults_per_operation", totals.server_faults / operations);
  }
  if (options_.beside_bytes > 0)
    figures_.add("beside_gb_per_s", totals.sums.at("beside_bytes") / totals.sums.at("beside_seconds") / 1e9);
  if (options_.cold) {
    figures_.add("blocks_moved", totals.sums.at("blocks"));
    figures_.add("distinct_blocks", totals.sums.at("distinct"));
  }
  if (options_.clients > 1) {
    figures_.add("least_share", totals.least_ops_per_s * options_.clients / totals.ops_per_s);
  }
  if (totals.sums.at("work_requests") > 0) {
    for (const char* name : {"work_requests", "doorbells", "completions"}) figures_.add(name, each(name));
    figures_.add("work_requests_per_s", each("work_requests") * totals.ops_per_s);
  }
}

Status Measurement::add_limit() {
  show(str("measuring the limit: ", limit_.name));
  const auto values = measure_limit(
      limit_, limit_options(options_), *server_, [this](const std::string& command) -> Result<double> {
        auto text = clients_[0].ask(str("LIMIT ", command), "LIMIT", kLongAnswer);
        if (!text) return std::move(text).error();
        return json::parse(*text).get<double>();
      });
  if (!values) return values.error();
  for (const LimitValue& value : *values) figures_.add_limit(value.value, value.variant);
  const bool echoes = limit_.kind == LimitKind::kRing || limit_.kind == LimitKind::kTcpEcho;
  return clients_.size() > 1 && echoes && options_.mode == "thread" ? add_limit_of_all() : Status();
}

// Measures the limit of each client, all at the same time, as the clients were.
Status Measurement::add_limit_of_all() {
  const std::string what = str(limit_word(limit_.kind), " ", limit_variants(limit_.kind, options_).front());
  std::vector<std::string> words;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    auto word = server_->ask(str("RAW ", what), "RAW", kAnswer);
    if (!word) return std::move(word).error();
    words.push_back(std::move(*word));
  }
  for (std::size_t i = 0; i < clients_.size(); ++i)
    SLIME_TRY(clients_[i].write_line(str("LIMIT ", what, " ", words[i])));
  double sum = 0;
  for (Child& client : clients_) {
    auto text = client.expect("LIMIT", kLongAnswer);
    if (!text) return std::move(text).error();
    sum += json::parse(*text).get<double>();
  }
  limit_of_all_.push_back(sum);
  return {};
}

Status Measurement::run_round() {
  auto totals = run_clients(clients_.size());
  if (!totals) return std::move(totals).error();
  add_figures(*totals);
  verified_ = verified_ && totals->verified;
  if (clients_.size() > 1) {
    auto alone = run_clients(1);
    if (!alone) return std::move(alone).error();
    alone_.push_back(alone->ops_per_s);
    verified_ = verified_ && alone->verified;
  }
  return options_.limits ? add_limit() : Status();
}

Result<json> Measurement::run() {
  for (std::uint32_t round = 0; round < options_.rounds; ++round) {
    show(str("measuring, round ", round + 1, " of ", options_.rounds));
    SLIME_TRY(run_round());
  }
  json out = {{"bench", options_.bench},     {"provider", provider_},       {"mode", options_.mode},
              {"face", options_.face},       {"size", options_.size},       {"inflight", options_.inflight},
              {"threads", options_.threads}, {"clients", options_.clients}, {"seconds", options_.seconds},
              {"rounds", options_.rounds},   {"verified", verified_},       {"machine", machine_}};
  figures_.put(out, limit_);
  if (!options_.to.empty()) {
    out["to"] = options_.to;
    out["server_machine"] = json::parse(server_->machine(), nullptr, false);
  }
  if (options_.moves_blocks()) {
    out["operation"] = options_.operation;
    out["count"] = options_.count;
    out["memory"] = options_.memory;
    out["cold"] = options_.cold;
  }
  if (options_.cold) out["pool_bytes"] = options_.pool_bytes;
  if (options_.beside_bytes > 0) out["beside_bytes"] = options_.beside_bytes;
  if (options_.bench == "connect") {
    out["count"] = options_.count;
    out.erase("seconds");
  }
  if (options_.bench == "cache") {
    out["operation"] = options_.operation;
    out["batch"] = options_.count;
    out["objects"] = object_count(options_);
  }
  if (!alone_.empty()) {
    const double alone = median(alone_);
    out["one_client"] = {{"ops_per_s", alone}, {"ratio", out["ops_per_s"].get<double>() / alone}};
    if (!limit_of_all_.empty())
      out["one_client"]["limit_ratio"] = median(limit_of_all_) / out["limit"]["value"].get<double>();
  }
  if (out.contains("work_requests")) {
    for (const char* key : {"work_requests", "doorbells", "completions"}) {
      out["per_operation"][key] = out[key];
      out.erase(key);
    }
  }
  return out;
}

}  // namespace

Result<json> measure_one(const Options& options) {
  SLIME_TRY(options.validate());
  install_interrupt_flag();
  Measurement measurement(options);
  const Status started = measurement.start();
  auto report = started.ok() ? measurement.run() : Result<json>(started);
  show("");
  return report;
}

Result<std::string> measure(const Options& options) {
  auto report = measure_one(options);
  if (!report) return std::move(report).error();
  return report->dump();
}

}  // namespace slime::bench

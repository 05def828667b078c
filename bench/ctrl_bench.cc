#include "bench/ctrl_bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/str.h"
#include "bench/ctrl_load.h"
#include "bench/ctrl_server.h"
#include "bench/figures.h"
#include "bench/process.h"

namespace slime::bench {
namespace {

using nlohmann::json;

constexpr double kRampPerSecond = 1000;
constexpr Nanos kRampSpare = std::chrono::seconds(60);
constexpr Nanos kSlack = std::chrono::seconds(1);  // nanoctrl looks for ended leases once a second at least
constexpr Nanos kLastAnswers = std::chrono::seconds(6);  // more than a request may take
constexpr std::uint32_t kAgentsPerScope = 100;
constexpr double kRatePart = 0.01;        // of the agents that die each second
constexpr rlim_t kOtherDescriptors = 64;  // beside a socket for each agent
constexpr double kBusyCores = 0.9;        // of this thread: it was the bottleneck
constexpr Nanos kLagMost = std::chrono::milliseconds(20);

double seconds_of(Nanos span) { return std::chrono::duration<double>(span).count(); }
double ms_of(double nanos) { return nanos / 1e6; }

// One measurement with everything said.
struct Run {
  LoadOptions load;
  double rate = 0;
  Nanos warmup{};
};

Run run_of(const CtrlOptions& options, std::uint32_t agents) {
  Run out;
  out.load.agents = agents;
  out.load.scopes = std::min(agents, options.scopes.value_or(std::max(1U, agents / kAgentsPerScope)));
  out.load.heartbeat = to_nanos(options.heartbeat_s);
  out.load.ttl = to_nanos(options.ttl_s);
  out.load.slack = kSlack;
  out.load.kept = options.connections == "kept";
  out.load.token = options.token;
  out.rate = options.rate.value_or(kRatePart * agents);
  out.warmup = to_nanos(options.warmup_s.value_or(options.ttl_s + options.heartbeat_s + 1));
  return out;
}

// A socket for each agent, here and in the server, which inherits the limit.
Status allow_descriptors(std::uint32_t agents) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return from_errno("RLIMIT_NOFILE", errno);
  const rlim_t needed = agents + kOtherDescriptors;
  if (files.rlim_cur >= needed) return {};
  if (files.rlim_max < needed)
    return {Code::kResourceExhausted, str(agents, " agents need ", needed, " open files, the hard limit is ",
                                          files.rlim_max, ": raise it (ulimit -Hn), or take fewer agents")};
  files.rlim_cur = files.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) return from_errno("RLIMIT_NOFILE", errno);
  return {};
}

json latency_of(const Latency& latency) {
  const auto max = static_cast<double>(latency.max.count());
  // The middle of a bucket may lie above all that is in it.
  const auto part = [&](double q) { return ms_of(std::min(latency.values.quantile(q), max)); };
  return {{"p50", part(0.5)}, {"p99", part(0.99)}, {"p999", part(0.999)}, {"max", ms_of(max)}};
}

// What was used in the measured time.
struct Used {
  double seconds = 0;
  double own_cpu = 0;
  struct Span {
    std::optional<ProcessUse> before;
    std::optional<ProcessUse> after;
  };
  Span server;
  Span store;
};

json processes_of(const Used::Span& span, std::size_t processes, double seconds, double answers) {
  if (!span.before || !span.after) return nullptr;
  const double cpu = span.after->cpu_seconds - span.before->cpu_seconds;
  return {{"processes", processes},
          {"cpu_cores", cpu / seconds},
          {"cpu_us_per_request", answers > 0 ? cpu * 1e6 / answers : 0},
          {"resident_mib", span.after->resident_mib},
          {"resident_peak_mib", span.after->resident_peak_mib}};
}

json generator_of(const Used& used, const CtrlLoad::Figures& figures) {
  const auto answers = static_cast<double>(figures.answers);
  const double cores = used.own_cpu / used.seconds;
  // Also of what is not measured but judged: the deaths that are heard of at the end.
  const double lag_p99 = std::max(figures.lag.values.quantile(0.99), figures.lag_ever.values.quantile(0.99));
  return {{"cpu_cores", cores},
          {"cpu_us_per_request", answers > 0 ? used.own_cpu * 1e6 / answers : 0},
          {"lag_ms", latency_of(figures.lag)},
          {"lag_ever_ms", latency_of(figures.lag_ever)},
          {"bottleneck", cores > kBusyCores || lag_p99 > static_cast<double>(kLagMost.count())}};
}

json deaths_of(const Deaths::Figures& deaths) {
  return {{"count", deaths.deaths},
          {"pairs", deaths.pairs},
          {"late", deaths.late},
          {"never", deaths.never},
          {"early", deaths.early},
          {"slack_s", seconds_of(kSlack)},
          {"delay_s",
           {{"p50", deaths.delay.quantile(0.5) / 1e9},
            {"p99", deaths.delay.quantile(0.99) / 1e9},
            {"max", seconds_of(deaths.delay_max)}}}};
}

json report_of(const Run& run, CtrlLoad& load, const Used& used, const CtrlServer& server) {
  const CtrlLoad::Figures& figures = load.figures();
  const auto answers = static_cast<double>(figures.answers);
  const Deaths::Figures deaths = load.deaths().finish();
  const bool verified = figures.lost == 0 && deaths.late == 0 && deaths.early == 0;
  return {{"agents", run.load.agents},
          {"scopes", run.load.scopes},
          {"connections", run.load.kept ? "kept" : "new"},
          {"heartbeat_s", seconds_of(run.load.heartbeat)},
          {"ttl_s", seconds_of(run.load.ttl)},
          {"rate_per_s", run.rate},
          {"rate_reached_per_s", static_cast<double>(figures.churned) / used.seconds},
          {"seconds", used.seconds},
          {"requests_per_s", answers / used.seconds},
          {"events_per_s", static_cast<double>(figures.events) / used.seconds},
          {"heartbeats",
           {{"count", figures.heartbeat.values.count()},
            {"from_due_ms", latency_of(figures.heartbeat)},
            {"from_sent_ms", latency_of(figures.heartbeat_sent)}}},
          {"registrations",
           {{"count", figures.registration.values.count()},
            {"from_due_ms", latency_of(figures.registration)},
            {"from_sent_ms", latency_of(figures.registration_sent)}}},
          {"errors", figures.errors},
          {"lost", figures.lost},
          {"unknown", figures.unknown},
          {"skipped", figures.skipped},
          {"follow_ups", figures.follow_ups},
          {"resyncs", figures.resyncs},
          {"reconnects", figures.reconnects},
          {"timeouts", figures.timeouts},
          {"idle_closed", figures.idle_closed},
          {"deaths", deaths_of(deaths)},
          {"server", processes_of(used.server, server.processes().size(), used.seconds, answers)},
          {"store_server", processes_of(used.store, server.store_processes().size(), used.seconds, answers)},
          {"generator", generator_of(used, figures)},
          {"verified", verified}};
}

// The phases of one measurement, each told on stderr: they take minutes. Thread: one.
class Measurement {
 public:
  Measurement(const Run& run, const CtrlServer& server, CtrlLoad& load)
      : run_(run), server_(server), load_(load) {}

  Result<Used> measure(double seconds) {
    SLIME_TRY(ramp());
    say(str("registered; ", run_.rate, " deaths a second from now on, measuring in ", seconds_of(run_.warmup),
            " s"));
    load_.set_churn(run_.rate);
    SLIME_TRY(pass(run_.warmup));
    say(str("measuring for ", seconds, " s"));
    const TimePoint begin = steady_clock().now();
    load_.count_between(begin, begin + to_nanos(seconds));
    Used used;
    SLIME_TRY(look(server_.processes(), used.server.before));
    SLIME_TRY(look(server_.store_processes(), used.store.before));
    const double cpu_before = cpu_seconds();
    SLIME_TRY(pass(to_nanos(seconds)));
    used.own_cpu = cpu_seconds() - cpu_before;
    SLIME_TRY(look(server_.processes(), used.server.after));
    SLIME_TRY(look(server_.store_processes(), used.store.after));
    used.seconds = seconds_of(steady_clock().now() - begin);
    SLIME_TRY(hear_of_the_last());
    return used;
  }

 private:
  void say(const std::string& text) const {
    std::fprintf(stderr, "%u agents: %s\n", run_.load.agents, text.c_str());
  }
  [[nodiscard]] bool gone() const { return !server_.alive().ok(); }

  static Status look(const std::vector<pid_t>& processes, std::optional<ProcessUse>& out) {
    if (processes.empty()) return {};
    auto use = use_of(processes);
    if (!use) return use.error();
    out = *use;
    return {};
  }

  Status pass(Nanos span) {
    SLIME_TRY(load_.run(steady_clock().now() + span, [this] { return gone(); }));
    return server_.alive();
  }

  Status ramp() {
    load_.register_all(kRampPerSecond);
    const TimePoint end = steady_clock().now() + to_nanos(run_.load.agents / kRampPerSecond) + kRampSpare;
    SLIME_TRY(load_.run(end, [this] { return load_.registered() == run_.load.agents || gone(); }));
    SLIME_TRY(server_.alive());
    if (load_.registered() == run_.load.agents) return check_ttl();
    return {Code::kDeadlineExceeded,
            str("only ", load_.registered(), " of ", run_.load.agents, " agents could register at ",
                server_.urls()[0], "; errors: ", json(load_.figures().errors).dump(),
                ", broken connections: ", load_.figures().reconnects)};
  }

  // What must be heard by when goes by it.
  [[nodiscard]] Status check_ttl() const {
    const Nanos ttl = std::chrono::milliseconds(load_.figures().ttl_ms);
    if (ttl == std::chrono::floor<std::chrono::milliseconds>(run_.load.ttl)) return {};
    return {Code::kInvalidArgument,
            str("the server's leases are of ", seconds_of(ttl), " s: say --ttl ", seconds_of(ttl))};
  }

  // Nobody dies any more, and who lives hears of those that did.
  Status hear_of_the_last() {
    load_.set_churn(0);
    const Nanos most = run_.load.ttl + kSlack + run_.load.heartbeat + kLastAnswers;
    say(str("waiting until the last deaths must be known, ", seconds_of(most), " s at most"));
    SLIME_TRY(load_.run(steady_clock().now() + most, [this] { return load_.deaths().settled() || gone(); }));
    return server_.alive();
  }

  const Run& run_;
  const CtrlServer& server_;
  CtrlLoad& load_;
};

Result<json> measure_one(const CtrlOptions& options, const std::string& store, std::uint32_t agents) {
  SLIME_TRY(allow_descriptors(agents));
  auto server = CtrlServer::start(options, store);
  if (!server) return server.error();
  Run run = run_of(options, agents);
  run.load.urls = server->urls();
  auto load = CtrlLoad::create(run.load);
  if (!load) return load.error();
  const auto used = Measurement(run, *server, **load).measure(options.seconds);
  if (!used) return used.error();
  json out = report_of(run, **load, *used, *server);
  out["store"] = options.urls.empty() ? json(store) : json(nullptr);
  load->reset();  // closes the connections, which the server would wait for
  return out;
}

}  // namespace

Status CtrlOptions::validate() const {
  const auto wrong = [](const char* text) { return Status(Code::kInvalidArgument, text); };
  for (const std::uint32_t number : agents) {
    if (number == 0 || number > 100'000) return wrong("--agents: 1 to 100,000");
  }
  if (scopes && (*scopes == 0 || *scopes > 100'000)) return wrong("--scopes: 1 to 100,000");
  if (!(heartbeat_s >= 0.01) || heartbeat_s > 3600) return wrong("--heartbeat: 0.01 to 3600 s");
  // A death is due after its agent's lease only if the lease is longer than what lies between heartbeats.
  if (!(ttl_s > heartbeat_s) || ttl_s > 86400) return wrong("--ttl: more than --heartbeat, at most 86400 s");
  if (rate && (!(*rate >= 0) || *rate > 100'000)) return wrong("--rate: 0 to 100,000 per second");
  if (!(seconds > 0) || seconds > 86400) return wrong("--seconds: more than 0, at most 86400");
  if (warmup_s && (!(*warmup_s >= 0) || *warmup_s > 86400)) return wrong("--warmup: 0 to 86400 s");
  if (!pids.empty() && urls.empty()) return wrong("--server-pid belongs to --ctrl");
  if (!urls.empty() && !server_flags.empty())
    return wrong("--server-flags are for a nanoctrl without --ctrl");
  if (!urls.empty() && !stores.empty()) return wrong("--store is for a nanoctrl without --ctrl");
  return {};
}

Result<std::string> measure_ctrl(const CtrlOptions& options) {
  SLIME_TRY(options.validate());
  install_interrupt_flag();
  json out = {{"bench", "ctrl"}, {"machine", machine_facts()}, {"runs", json::array()}, {"verified", true}};
  if (!options.server_flags.empty()) out["server_flags"] = options.server_flags;
  const auto stores = options.stores.empty() ? std::vector<std::string>{"sqlite"} : options.stores;
  for (const std::string& store : stores) {
    for (const std::uint32_t agents : options.agents) {
      auto run = measure_one(options, store, agents);
      if (!run) return std::move(run).error();
      if (!run->at("verified").get<bool>()) out["verified"] = false;
      out["runs"].push_back(std::move(*run));
    }
  }
  return out.dump();
}

}  // namespace slime::bench

#include "bench/ctrl_measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "base/str.h"
#include "bench/process.h"

namespace slime::bench {
namespace {

using nlohmann::json;

constexpr double kRampPerSecond = 1000;
constexpr Nanos kRampSpare = std::chrono::seconds(60);
constexpr Nanos kLastAnswers = std::chrono::seconds(6);  // longer than a request may take
constexpr std::uint32_t kAgentsPerScope = 100;
constexpr double kRatePart = 0.01;        // share of the agents that die each second
constexpr rlim_t kOtherDescriptors = 64;  // descriptors beside the socket of each agent
// of this process; above this, the process itself is the bottleneck
constexpr double kBusyCores = 0.9;
constexpr Nanos kLagMost = std::chrono::milliseconds(20);

double ms_of(double nanos) { return nanos / 1e6; }

Status look(const std::vector<pid_t>& processes, std::optional<ProcessUse>& out) {
  if (processes.empty()) return {};
  auto use = use_of(processes);
  if (!use) return use.error();
  out = *use;
  return {};
}

}  // namespace

CtrlRun run_of(const CtrlOptions& options, std::uint32_t agents) {
  CtrlRun out;
  out.load.agents = agents;
  out.load.scopes = std::min(agents, options.scopes.value_or(std::max(1U, agents / kAgentsPerScope)));
  out.load.heartbeat = to_nanos(options.heartbeat_s);
  out.load.ttl = to_nanos(options.ttl_s);
  out.load.slack = kDeathSlack;
  out.load.kept = options.connections == "kept";
  out.rate = options.rate.value_or(kRatePart * agents);
  out.warmup = to_nanos(options.warmup_s.value_or(options.ttl_s + options.heartbeat_s + 1));
  return out;
}

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
  // The middle of a bucket may be larger than every value in it.
  const auto part = [&](double q) { return ms_of(std::min(latency.values.quantile(q), max)); };
  return {{"p50", part(0.5)}, {"p99", part(0.99)}, {"p999", part(0.999)}, {"max", ms_of(max)}};
}

json requests_of(const Latency& from_due, const Latency& from_sent) {
  return {{"count", from_due.values.count()},
          {"from_due_ms", latency_of(from_due)},
          {"from_sent_ms", latency_of(from_sent)}};
}

json processes_of(const CtrlUsed::Span& span, std::size_t processes, double seconds, double answers) {
  if (!span.before || !span.after) return nullptr;
  const double cpu = span.after->cpu_seconds - span.before->cpu_seconds;
  return {{"processes", processes},
          {"cpu_cores", cpu / seconds},
          {"cpu_us_per_request", answers > 0 ? cpu * 1e6 / answers : 0},
          {"resident_mib", span.after->resident_mib},
          {"resident_peak_mib", span.after->resident_peak_mib}};
}

json generator_of(const CtrlUsed& used, const CtrlLoad::Figures& figures) {
  const auto answers = static_cast<double>(figures.answers);
  const double cores = used.own_cpu / used.seconds;
  // The lag of the whole run counts, not only that of the measured time, because deaths are counted
  // until the end of the run.
  const double lag_p99 = std::max(figures.lag.values.quantile(0.99), figures.lag_ever.values.quantile(0.99));
  return {{"cpu_cores", cores},
          {"cpu_us_per_request", answers > 0 ? used.own_cpu * 1e6 / answers : 0},
          {"lag_ms", latency_of(figures.lag)},
          {"lag_ever_ms", latency_of(figures.lag_ever)},
          {"bottleneck", cores > kBusyCores || lag_p99 > static_cast<double>(kLagMost.count())}};
}

void CtrlMeasurement::say(const std::string& text) const {
  std::fprintf(stderr, "%u agents: %s\n", run_.load.agents, text.c_str());
}

Status CtrlMeasurement::pass(Nanos span) {
  SLIME_TRY(load_.run(steady_clock().now() + span, [this] { return gone(); }));
  return server_.alive();
}

Result<CtrlUsed> CtrlMeasurement::window(double seconds, const std::string& what) {
  say(str("measuring ", what, " for ", seconds, " s"));
  const TimePoint begin = steady_clock().now();
  load_.count_between(begin, begin + to_nanos(seconds));
  CtrlUsed used;
  SLIME_TRY(look(server_.processes(), used.server.before));
  SLIME_TRY(look(server_.store_processes(), used.store.before));
  const double cpu_before = cpu_seconds();
  SLIME_TRY(pass(to_nanos(seconds)));
  used.own_cpu = cpu_seconds() - cpu_before;
  SLIME_TRY(look(server_.processes(), used.server.after));
  SLIME_TRY(look(server_.store_processes(), used.store.after));
  used.seconds = seconds_of(steady_clock().now() - begin);
  return used;
}

Status CtrlMeasurement::ramp() {
  load_.register_all(kRampPerSecond);
  const TimePoint end = steady_clock().now() + to_nanos(run_.load.agents / kRampPerSecond) + kRampSpare;
  SLIME_TRY(load_.run(end, [this] { return load_.registered() == run_.load.agents || gone(); }));
  SLIME_TRY(server_.alive());
  if (load_.registered() == run_.load.agents) return check_ttl();
  const CtrlLoad::Figures& figures = load_.figures();
  return {Code::kDeadlineExceeded,
          str("only ", load_.registered(), " of ", run_.load.agents, " agents could register at ",
              server_.urls()[0], "; errors: ", json(figures.errors).dump(),
              ", broken connections: ", figures.reconnects)};
}

// Deaths are judged by the TTL of the options, so the server must use it, too.
Status CtrlMeasurement::check_ttl() const {
  const Nanos ttl = std::chrono::milliseconds(load_.figures().ttl_ms);
  if (ttl == std::chrono::floor<std::chrono::milliseconds>(run_.load.ttl)) return {};
  return {Code::kInvalidArgument,
          str("the server's leases are of ", seconds_of(ttl), " s: say --ttl ", seconds_of(ttl))};
}

Status CtrlMeasurement::hear_of_the_last() {
  load_.set_churn(0);
  const Nanos most = run_.load.ttl + kDeathSlack + run_.load.heartbeat + kLastAnswers;
  say(str("waiting until the last deaths must be known, ", seconds_of(most), " s at most"));
  SLIME_TRY(load_.run(steady_clock().now() + most, [this] { return load_.deaths().settled() || gone(); }));
  return server_.alive();
}

}  // namespace slime::bench

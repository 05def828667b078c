#include "ctrl/api/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "base/mutex.h"

namespace slime::ctrl {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;

// The providers that agents' reports may name. Any other name counts as "other": each name becomes
// a label, and one agent could otherwise create any number of series.
constexpr std::array<std::string_view, 3> kProviders = {"tcp", "shm", "verbs"};
constexpr std::array<std::string_view, 7> kStates = {"idle",     "resolving", "handshaking", "ready",
                                                     "draining", "broken",    "backoff"};
constexpr std::size_t kCounterNames = 64;

template <std::size_t N>
std::string one_of(const std::array<std::string_view, N>& known, std::string_view value) {
  return std::string(std::find(known.begin(), known.end(), value) == known.end() ? "other" : value);
}

double seconds_of(Nanos span) { return std::chrono::duration<double>(span).count(); }
double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double cpu_seconds() {
  rusage used{};
  if (::getrusage(RUSAGE_SELF, &used) != 0) return 0;
  return seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
}

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

class Metrics::Impl {
 public:
  Impl() {
    // Creates the counters of all event kinds at 0: Prometheus sees no increase in a counter that
    // first appears with the value 1.
    for (const EventKind kind : {EventKind::kRegistered, EventKind::kUpdated, EventKind::kDeregistered,
                                 EventKind::kExpired, EventKind::kLinks})
      events_.Add({{"event", std::string(event_kind_name(kind))}});
  }

  void observe(std::string_view method, std::string_view route, int status, Nanos took) {
    const std::string on(route);
    requests_.Add({{"method", std::string(method)}, {"route", on}, {"status", std::to_string(status)}})
        .Increment();
    // Add() returns the existing histogram if the labels are known.
    durations_.Add({{"route", on}}, bounds()).Observe(seconds_of(took));
  }
  void observe_store(Nanos took) { store_.Observe(seconds_of(took)); }
  void count_event(std::string_view event) { events_.Add({{"event", std::string(event)}}).Increment(); }

  std::string text(const Gauges& g) {
    // Serializes scrapes: each scrape removes the gauges of scopes and adds them again, and a
    // concurrent scrape would see only some of them.
    const MutexLock lock(mutex_);
    for (prometheus::Gauge* gauge : scope_peers_) peers_.Remove(gauge);
    for (prometheus::Gauge* gauge : scope_services_) services_.Remove(gauge);
    for (prometheus::Gauge* gauge : scope_bytes_) scope_record_bytes_.Remove(gauge);
    scope_peers_.clear();
    scope_services_.clear();
    scope_bytes_.clear();
    for (const ScopeGauges& scope : g.scopes) {
      scope_peers_.push_back(&peers_.Add({{"scope", scope.scope}}));
      scope_peers_.back()->Set(static_cast<double>(scope.peers));
      scope_services_.push_back(&services_.Add({{"scope", scope.scope}}));
      scope_services_.back()->Set(static_cast<double>(scope.services));
      scope_bytes_.push_back(&scope_record_bytes_.Add({{"scope", scope.scope}}));
      scope_bytes_.back()->Set(static_cast<double>(scope.record_bytes));
    }
    record_bytes_.Set(static_cast<double>(g.record_bytes));
    scope_peers_max_.Set(static_cast<double>(g.scope_peers_max));
    scope_record_bytes_max_.Set(static_cast<double>(g.scope_record_bytes_max));
    visited_.Increment(static_cast<double>(g.records_visited) - visited_.Value());
    slices_.Increment(static_cast<double>(g.record_slices) - slices_.Value());
    watchers_.Set(static_cast<double>(g.watchers));
    connections_.Set(static_cast<double>(g.connections));
    refused_.Increment(static_cast<double>(g.refused) - refused_.Value());
    store_waiting_.Set(static_cast<double>(g.store_waiting));
    writable_.Set(g.store_writable ? 1 : 0);
    ready_.Set(g.ready ? 1 : 0);
    uptime_.Set(seconds_of(g.uptime));
    cpu_.Set(cpu_seconds());
    resident_.Set(resident_bytes());
    return prometheus::TextSerializer().Serialize(registry_.Collect()) + agents_text(g.agents);
  }

 private:
  static const prometheus::Histogram::BucketBoundaries& bounds() {
    static const prometheus::Histogram::BucketBoundaries kBounds{.0005, .001, .0025, .005, .01, .025,
                                                                 .05,   .1,   .25,   .5,   1,   5};
    return kBounds;
  }

  // Returns the metrics that agents report. Uses a temporary prometheus::Registry, so that no
  // series of a removed agent remains.
  static std::string agents_text(const std::vector<AgentReport>& agents) {
    prometheus::Registry registry;
    add_links(agents, registry);
    std::map<std::string, prometheus::Family<prometheus::Counter>*> families;
    for (const AgentReport& agent : agents) {
      for (const auto& [name, value] : agent.report->counters) {
        if (families.size() == kCounterNames && !families.contains(name)) continue;
        auto*& family = families[name];
        if (family == nullptr)
          family = &BuildCounter()
                        .Name("slime_agent_" + name + "_total")
                        .Help("What agents report of themselves with their heartbeats")
                        .Register(registry);
        family->Add({{"scope", agent.scope}, {"peer", agent.peer}}).Increment(static_cast<double>(value));
      }
    }
    return prometheus::TextSerializer().Serialize(registry.Collect());
  }

  // Adds the sums over each agent's links, per provider: a series per link would be too many. Uses
  // gauges instead of counters, because a sum drops when a connection closes.
  static void add_links(const std::vector<AgentReport>& agents, prometheus::Registry& registry) {
    const auto family = [&](const char* name, const char* help) -> auto& {
      return BuildGauge().Name(name).Help(help).Register(registry);
    };
    auto& links = family("slime_agent_links", "Connections that agents report with their heartbeats");
    auto& sent = family("slime_agent_link_sent_bytes", "What these connections have sent");
    auto& received = family("slime_agent_link_received_bytes", "What these connections have received");
    auto& direct = family("slime_agent_link_direct_bytes", "What was copied in memory that both ends have");
    auto& calls = family("slime_agent_link_calls", "Calls that these agents made over these connections");
    for (const AgentReport& agent : agents) {
      for (const LinkReport& link : agent.report->links) {
        const prometheus::Labels of{
            {"scope", agent.scope}, {"peer", agent.peer}, {"provider", one_of(kProviders, link.provider)}};
        prometheus::Labels with_state = of;
        with_state.emplace("state", one_of(kStates, link.state));
        links.Add(with_state).Increment();
        sent.Add(of).Increment(static_cast<double>(link.sent_bytes));
        received.Add(of).Increment(static_cast<double>(link.received_bytes));
        direct.Add(of).Increment(static_cast<double>(link.direct_bytes));
        calls.Add(of).Increment(static_cast<double>(link.calls));
      }
    }
  }

  prometheus::Gauge& gauge(const char* name, const char* help) {
    return BuildGauge().Name(name).Help(help).Register(registry_).Add({});
  }

  prometheus::Counter& counter(const char* name, const char* help) {
    return BuildCounter().Name(name).Help(help).Register(registry_).Add({});
  }

  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_ =
      BuildCounter().Name("nanoctrl_requests_total").Help("Requests that were answered").Register(registry_);
  prometheus::Family<prometheus::Histogram>& durations_ =
      BuildHistogram()
          .Name("nanoctrl_request_seconds")
          .Help("From a whole request to its answer; what waits for a change is not counted while it waits")
          .Register(registry_);
  prometheus::Histogram& store_ =
      BuildHistogram()
          .Name("nanoctrl_store_seconds")
          .Help("From a command that changes the registry to its outcome, with the change kept")
          .Register(registry_)
          .Add({}, bounds());
  prometheus::Gauge& store_waiting_ = gauge("nanoctrl_store_waiting", "Commands that wait for the store");
  prometheus::Family<prometheus::Counter>& events_ =
      BuildCounter()
          .Name("nanoctrl_events_total")
          .Help("Changes of peers: registered, updated, deregistered, expired, links")
          .Register(registry_);
  prometheus::Counter& refused_ =
      BuildCounter()
          .Name("nanoctrl_refused_total")
          .Help("Requests and connections that were refused before any route: too many, too large, malformed")
          .Register(registry_)
          .Add({});
  prometheus::Family<prometheus::Gauge>& peers_ =
      BuildGauge().Name("nanoctrl_peers").Help("Registered peers").Register(registry_);
  prometheus::Family<prometheus::Gauge>& services_ =
      BuildGauge().Name("nanoctrl_services").Help("Services of registered peers").Register(registry_);
  prometheus::Gauge& record_bytes_ =
      gauge("nanoctrl_record_bytes", "What the records take, of the most that they may");
  prometheus::Family<prometheus::Gauge>& scope_record_bytes_ =
      BuildGauge()
          .Name("nanoctrl_scope_record_bytes")
          .Help("What the records of a scope take, of nanoctrl_scope_record_bytes_max")
          .Register(registry_);
  prometheus::Gauge& scope_peers_max_ =
      gauge("nanoctrl_scope_peers_max", "Peers that one scope may have (--scope-peers)");
  prometheus::Gauge& scope_record_bytes_max_ =
      gauge("nanoctrl_scope_record_bytes_max", "What the records of one scope may take (--scope-bytes)");
  prometheus::Counter& visited_ =
      counter("nanoctrl_records_visited_total", "Records that lists looked at, matching or not");
  prometheus::Counter& slices_ =
      counter("nanoctrl_record_slices_total", "Times that the registry was held for such records");
  prometheus::Gauge& watchers_ = gauge("nanoctrl_watchers", "Requests that wait for a change");
  prometheus::Gauge& connections_ = gauge("nanoctrl_connections", "Open HTTP connections");
  prometheus::Gauge& writable_ = gauge("nanoctrl_store_writable", "1: changes are kept; 0: they are refused");
  prometheus::Gauge& ready_ = gauge("nanoctrl_ready", "What GET /readyz answers: 1 is 200, 0 is 503");
  prometheus::Gauge& uptime_ = gauge("nanoctrl_uptime_seconds", "Since this process began to serve");
  // Process metrics under the names that all Prometheus client libraries use.
  prometheus::Gauge& cpu_ = gauge("process_cpu_seconds_total", "User and system time");
  prometheus::Gauge& resident_ = gauge("process_resident_memory_bytes", "Resident memory");
  Mutex mutex_;
  std::vector<prometheus::Gauge*> scope_peers_ SLIME_GUARDED_BY(mutex_);
  std::vector<prometheus::Gauge*> scope_services_ SLIME_GUARDED_BY(mutex_);
  std::vector<prometheus::Gauge*> scope_bytes_ SLIME_GUARDED_BY(mutex_);
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::observe(std::string_view method, std::string_view route, int status, Nanos took) {
  impl_->observe(method, route, status, took);
}

void Metrics::observe_store(Nanos took) { impl_->observe_store(took); }
void Metrics::count_event(std::string_view event) { impl_->count_event(event); }

std::string Metrics::text(const Gauges& gauges) { return impl_->text(gauges); }

}  // namespace slime::ctrl

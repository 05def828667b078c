#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/str.h"
#include "bench/bench.h"
#include "bench/ctrl_load.h"
#include "bench/ctrl_measure.h"
#include "bench/ctrl_server.h"
#include "bench/figures.h"
#include "bench/process.h"
#include "ctrl/client/token_file.h"

namespace slime::bench {
namespace {

using nlohmann::json;

json deaths_of(const Deaths::Figures& deaths) {
  return {{"count", deaths.deaths},
          {"pairs", deaths.pairs},
          {"late", deaths.late},
          {"never", deaths.never},
          {"early", deaths.early},
          {"slack_s", seconds_of(kDeathSlack)},
          {"delay_s",
           {{"p50", deaths.delay.quantile(0.5) / 1e9},
            {"p99", deaths.delay.quantile(0.99) / 1e9},
            {"max", seconds_of(deaths.delay_max)}}}};
}

json report_of(const CtrlRun& run, CtrlLoad& load, const CtrlUsed& used, const CtrlServer& server) {
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
          {"heartbeats", requests_of(figures.heartbeat, figures.heartbeat_sent)},
          {"registrations", requests_of(figures.registration, figures.registration_sent)},
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

Result<json> measure_one(const CtrlOptions& options, const std::string& store, std::uint32_t agents) {
  SLIME_TRY(allow_descriptors(agents));
  auto server = CtrlServer::start(options, store);
  if (!server) return server.error();
  CtrlRun run = run_of(options, agents);
  Result<std::string> token = ctrl::find_token(options.token_file);
  if (!token) return std::move(token).error();
  run.load.token = std::move(*token);
  run.load.urls = server->urls();
  auto load = CtrlLoad::create(run.load);
  if (!load) return load.error();
  CtrlMeasurement measurement(run, *server, **load);
  SLIME_TRY(measurement.ramp());
  measurement.say(str("registered; ", run.rate, " deaths a second from now on, measuring in ",
                      seconds_of(run.warmup), " s"));
  (*load)->set_churn(run.rate);
  SLIME_TRY(measurement.pass(run.warmup));
  const auto used = measurement.window(options.seconds, "with deaths");
  if (!used) return used.error();
  SLIME_TRY(measurement.hear_of_the_last());
  json out = report_of(run, **load, *used, *server);
  out["store"] = options.urls.empty() ? json(store) : json(nullptr);
  load->reset();  // closes the connections, because the server would wait for them
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
  // A death is due after its agent's lease only if the lease is longer than the heartbeat's period.
  if (!(ttl_s > heartbeat_s) || ttl_s > 86400) return wrong("--ttl: more than --heartbeat, at most 86400 s");
  if (rate && (!(*rate >= 0) || *rate > 100'000)) return wrong("--rate: 0 to 100,000 per second");
  if (!(seconds > 0) || seconds > 86400) return wrong("--seconds: more than 0, at most 86400");
  if (warmup_s && (!(*warmup_s >= 0) || *warmup_s > 86400)) return wrong("--warmup: 0 to 86400 s");
  if (!pids.empty() && urls.empty()) return wrong("--server-pid belongs to --ctrl");
  if (!urls.empty() && !server_flags.empty())
    return wrong("--server-flags are for a nanoctrl without --ctrl");
  if (!urls.empty() && !stores.empty()) return wrong("--store is for a nanoctrl without --ctrl");
  if (!urls.empty() && hostile) return wrong("--hostile is for a nanoctrl without --ctrl");
  return {};
}

Result<std::string> measure_ctrl(const CtrlOptions& options) {
  SLIME_TRY(options.validate());
  install_interrupt_flag();
  json out = {{"bench", "ctrl"}, {"machine", machine_facts()}, {"runs", json::array()}, {"verified", true}};
  if (options.hostile) out["hostile"] = true;
  if (!options.server_flags.empty()) out["server_flags"] = options.server_flags;
  const auto stores = options.stores.empty() ? std::vector<std::string>{"sqlite"} : options.stores;
  for (const std::string& store : stores) {
    for (const std::uint32_t agents : options.agents) {
      auto run =
          options.hostile ? measure_hostile(options, store, agents) : measure_one(options, store, agents);
      if (!run) return std::move(run).error();
      if (!run->at("verified").get<bool>()) out["verified"] = false;
      out["runs"].push_back(std::move(*run));
    }
  }
  return out.dump();
}

}  // namespace slime::bench

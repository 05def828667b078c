#include <sched.h>
#include <sys/stat.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"
#include "base/random.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/ctrl_load.h"
#include "bench/ctrl_measure.h"
#include "bench/ctrl_server.h"
#include "bench/process.h"
#include "ctrl/client.h"

namespace slime::bench {
namespace {

using nlohmann::json;

constexpr Nanos kTenantReady = std::chrono::seconds(120);  // time to fill a share
// the tenant runs only when no other process wants to run
constexpr Nanos kTenantAnswer = std::chrono::seconds(60);
constexpr double kRatioMost = 3;
constexpr double kP99MostMs = 20;

// A new administrator's token, in a file for --admin-token-file.
struct AdminToken {
  TempFolder folder;
  std::string text;
  [[nodiscard]] std::string path() const { return folder.path() / "token"; }
};

Result<AdminToken> make_admin_token() {
  AdminToken out;
  auto folder = TempFolder::create();
  if (!folder) return std::move(folder).error();
  out.folder = std::move(*folder);
  std::array<std::byte, 40> bits{};
  random_bytes(bits);
  const std::string hex = to_hex(bits);
  out.text = str("slime-", hex.substr(0, 16), "-", hex.substr(16));
  std::ofstream(out.path()) << out.text << "\n";
  ::chmod(out.path().c_str(), S_IRUSR | S_IWUSR);
  return out;
}

Result<std::string> make_token(const std::string& url, const std::string& admin, const std::string& scope) {
  auto client = ctrl::Client::create({.url = url, .token = admin});
  if (!client) return client.error();
  auto made = (*client)->create_token({.role = ctrl::Role::kJoin, .scope = scope});
  if (!made) return made.error();
  return std::move(made->token);
}

// Returns the JSON of one window: the heartbeats and failed requests, the processor time and memory
// of the server, and the processor time and lag of this process.
json window_of(CtrlLoad& load, const CtrlUsed& used, const CtrlServer& server) {
  const CtrlLoad::Figures& figures = load.figures();
  const auto answers = static_cast<double>(figures.answers);
  return {{"seconds", used.seconds},
          {"heartbeats", requests_of(figures.heartbeat, figures.heartbeat_sent)},
          {"errors", figures.errors},
          {"lost", figures.lost},
          {"timeouts", figures.timeouts},
          {"server", processes_of(used.server, server.processes().size(), used.seconds, answers)},
          {"generator", generator_of(used, figures)}};
}

}  // namespace

Result<json> measure_hostile(const CtrlOptions& options, const std::string& store, std::uint32_t agents) {
  SLIME_TRY(allow_descriptors(agents));
  const auto admin = make_admin_token();
  if (!admin) return admin.error();
  CtrlOptions with_tokens = options;
  with_tokens.server_flags += " --admin-token-file " + admin->path();
  auto server = CtrlServer::start(with_tokens, store);
  if (!server) return server.error();
  const std::string url = server->urls()[0];
  const auto good = make_token(url, admin->text, "*");
  if (!good) return good.error();
  const std::string scope = "hostile";
  const auto bad = make_token(url, admin->text, scope);
  if (!bad) return bad.error();

  // This thread runs before all others, if permitted; a late request shows as lag.
  const sched_param first{.sched_priority = 1};
  (void)::sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first);
  CtrlRun run = run_of(options, agents);
  run.rate = 0;  // no deaths
  run.load.urls = server->urls();
  run.load.token = *good;
  auto load = CtrlLoad::create(run.load);
  if (!load) return load.error();
  CtrlMeasurement measurement(run, *server, **load);
  SLIME_TRY(measurement.ramp());
  SLIME_TRY(measurement.pass(run.warmup));
  const auto idle = measurement.window(options.seconds, "without the hostile tenant");
  if (!idle) return idle.error();
  const json before = window_of(**load, *idle, *server);
  (*load)->forget_latencies();

  auto child = Child::start({"bench-hostile", url, scope});
  if (!child) return child.error();
  SLIME_TRY(child->write_line(*bad));
  std::optional<Result<std::string>> filled;
  measurement.say("the hostile tenant fills its share");
  SLIME_TRY((*load)->run(steady_clock().now() + kTenantReady, [&] {
    if (child->readable()) filled = child->expect("READY", kTenantAnswer);
    return filled.has_value();
  }));
  if (!filled) return Status(Code::kDeadlineExceeded, "the hostile tenant could not fill its share in time");
  if (!*filled) return filled->error();
  SLIME_TRY(measurement.pass(run.warmup));
  const auto hostile = measurement.window(options.seconds, "beside the hostile tenant");
  if (!hostile) return hostile.error();
  json after = window_of(**load, *hostile, *server);
  const auto count = child->ask("COUNT", "COUNT", kTenantAnswer);
  if (!count) return count.error();
  after["attack"] = json::parse(*count);
  after["attack"]["filled"] = json::parse(**filled);

  const auto p99 = [](const json& window) {
    return window.at("heartbeats").at("from_due_ms").at("p99").get<double>();
  };
  const double ratio = p99(after) / p99(before);
  const bool verified = ratio <= kRatioMost && p99(after) <= kP99MostMs && (*load)->figures().lost == 0;
  return json{{"agents", agents},
              {"scopes", run.load.scopes},
              {"store", store},
              {"idle", before},
              {"hostile", after},
              {"p99_ratio", ratio},
              {"p99_ratio_most", kRatioMost},
              {"p99_most_ms", kP99MostMs},
              {"verified", verified}};
}

}  // namespace slime::bench

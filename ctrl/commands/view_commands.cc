#include "ctrl/commands/view_commands.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "base/command_line.h"
#include "base/daemon.h"
#include "base/program.h"
#include "base/str.h"
#include "base/table.h"
#include "ctrl/wire/json_bodies.h"

namespace slime::ctrl {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;
using std::chrono::seconds;

constexpr Nanos kAgain = seconds(1);  // wait after a failed request

std::string dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string joined(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out.append(out.empty() ? "" : ",").append(item);
  return dash(std::move(out));
}

std::string joined(const Labels& labels) {
  std::string out;
  for (const auto& [key, value] : labels) out += str(out.empty() ? "" : ",", key, "=", value);
  return dash(std::move(out));
}

std::string bytes(std::uint64_t count) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(count);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

// Uses the same JSON as nanoctrl's replies.
template <class T>
Json to_json(const T& item) {
  return Json::parse(wire::encode(item));
}

void print_json(const Json& json) {
  std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 16> text{};
  if (::localtime_r(&now, &parts) != nullptr) std::strftime(text.data(), text.size(), "%H:%M:%S", &parts);
  return text.data();
}

void print_event(bool json, const Event& event) {
  if (json) {
    print_json({{"revision", event.revision},
                {"event", event_kind_name(event.kind)},
                {"name", event.name},
                {"kind", event.peer_kind},
                {"address", event.address},
                {"instance", event.instance.to_string()},
                {"incarnation", event.incarnation}});
  } else {
    std::printf("%s  %-12s  %s  %s\n", time_of_day().c_str(),
                std::string(event_kind_name(event.kind)).c_str(), event.name.c_str(),
                dash(event.address).c_str());
  }
  std::fflush(stdout);
}

bool worth_another_try(const Status& status) {
  return status.code() == Code::kUnavailable || status.code() == Code::kDeadlineExceeded ||
         status.code() == Code::kResourceExhausted;
}

}  // namespace

ViewCommands::ViewCommands(command_line::Command& program) {
  command_line::Command peers = add(program, "peers", "the peers of a scope", &ViewCommands::peers);
  command_line::Command services =
      add(program, "services", "the services of a scope, and their peers", &ViewCommands::services);
  command_line::Command links =
      add(program, "links", "the links of a scope: wanted links, and links that agents report",
          &ViewCommands::links);
  command_line::Command watch =
      add(program, "watch", "print changes of a scope as they happen, until Ctrl-C", &ViewCommands::watch);
  command_line::Command top =
      add(program, "top", "show all scopes, refreshed until Ctrl-C", &ViewCommands::top);
  for (command_line::Command command : {peers, services, links, watch})
    command.option("--scope", scope_, "scope to show").env("SLIME_SCOPE").show_default();
  for (command_line::Command command : {peers, services}) {
    command.option("--kind", kind_, "only entries of this kind");
    command.option("--label", labels_,
                   "only entries with this label, KEY=VALUE; may be repeated, then all must match");
  }
  services.option("--health", health_, "only services with this health")
      .one_of({"serving", "draining", "not_serving"});
  watch.option("--since", since_, "print changes after this revision (default: from now)");
  watch.option("--count", count_, "end after this many changes; 0: never").show_default();
  top.option("--interval", interval_s_, "seconds between refreshes").show_default().in_range(0.1, 3600.0);
  top.flag("--once", once_, "print once and end; the default when the output is not a terminal");
}

command_line::Command ViewCommands::add(command_line::Command& program, const char* name,
                                        const char* description, int (ViewCommands::*run)(Client&)) {
  command_line::Command command = program.add_command(name, description);
  asking_.add_options(command);
  command.action([this, run] {
    const Result<std::unique_ptr<Client>> client = asking_.client();
    return client ? (this->*run)(**client) : fail(client.error());
  });
  return command;
}

int ViewCommands::fail(const Status& status) const {
  return daemon::fail<Json>(asking_.json, "nanoctrl", status);
}

namespace {

Result<Labels> parse_labels(const std::vector<std::string>& texts) {
  Labels out;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || text.find(',') != std::string::npos)
      return Status(Code::kInvalidArgument, str("--label ", text, " is not KEY=VALUE, without commas"));
    out.insert_or_assign(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

}  // namespace

int ViewCommands::peers(Client& client) {
  const Result<Labels> labels = parse_labels(labels_);
  if (!labels) return fail(labels.error());
  const Result<PeerList> list = client.list_peers({scope_, kind_, *labels});
  if (!list) return fail(list.error());
  if (asking_.json) {
    Json out = {{"scope", scope_}, {"revision", list->revision}, {"peers", Json::array()}};
    for (const PeerInfo& peer : list->peers) out["peers"].push_back(to_json(peer));
    print_json(out);
    return daemon::kExitOk;
  }
  Rows rows{{"NAME", "KIND", "ADDRESS", "PROVIDERS", "LEASE", "SERVICES", "REGIONS", "METADATA"}};
  for (const PeerInfo& peer : list->peers) {
    std::vector<std::string> names;
    for (const ServiceInfo& service : peer.services) names.push_back(service.name);
    rows.push_back({peer.name, dash(peer.kind), peer.address, joined(peer.providers),
                    str(std::chrono::ceil<seconds>(peer.expires_in).count(), " s"), joined(names),
                    str(peer.regions.size()), joined(peer.metadata)});
  }
  if (rows.size() == 1)
    return daemon::say(false, daemon::kExitOk, str("no such peers in scope ", scope_), Json());
  print_table(rows);
  return daemon::kExitOk;
}

int ViewCommands::services(Client& client) {
  const Result<Labels> labels = parse_labels(labels_);
  if (!labels) return fail(labels.error());
  ServiceFilter filter{scope_, kind_, {}, *labels, parse_health(health_)};
  const Result<ServiceList> list = client.list_services(filter);
  if (!list) return fail(list.error());
  if (asking_.json) {
    Json out = {{"scope", scope_}, {"revision", list->revision}, {"services", Json::array()}};
    for (const ServiceEntry& entry : list->services) out["services"].push_back(to_json(entry));
    print_json(out);
    return daemon::kExitOk;
  }
  Rows rows{{"SERVICE", "KIND", "HEALTH", "PEER", "ADDRESS", "METHODS", "LABELS"}};
  for (const ServiceEntry& entry : list->services)
    rows.push_back({entry.service.name, dash(entry.service.kind),
                    std::string(health_name(entry.service.health)), entry.peer, entry.address,
                    str(entry.service.methods.size()), joined(entry.service.labels)});
  if (rows.size() == 1)
    return daemon::say(false, daemon::kExitOk, str("no such services in scope ", scope_), Json());
  print_table(rows);
  return daemon::kExitOk;
}

int ViewCommands::links(Client& client) {
  const Result<std::vector<LinkInfo>> list = client.list_links(scope_);
  if (!list) return fail(list.error());
  if (asking_.json) {
    Json out = {{"scope", scope_}, {"links", Json::array()}};
    for (const LinkInfo& link : *list) out["links"].push_back(to_json(link));
    print_json(out);
    return daemon::kExitOk;
  }
  Rows rows{
      {"FROM", "TO", "WANTED", "BOTH THERE", "STATE", "PROVIDER", "SENT", "RECEIVED", "DIRECT", "CALLS"}};
  for (const LinkInfo& link : *list) {
    const LinkReport told = link.report.value_or(LinkReport{});
    rows.push_back({link.from, link.to, link.wanted ? "yes" : "no", link.both_there ? "yes" : "no",
                    dash(told.state), dash(told.provider), link.report ? bytes(told.sent_bytes) : "-",
                    link.report ? bytes(told.received_bytes) : "-",
                    link.report ? bytes(told.direct_bytes) : "-", link.report ? str(told.calls) : "-"});
  }
  if (rows.size() == 1) return daemon::say(false, daemon::kExitOk, str("no links in scope ", scope_), Json());
  print_table(rows);
  return daemon::kExitOk;
}

int ViewCommands::watch(Client& client) {
  std::uint64_t since = since_;
  std::uint64_t told = 0;
  bool away = false;
  while (true) {
    Status status;
    if (since == 0) {
      const Result<PeerList> list = client.list_peers({.scope = scope_});
      if (list) since = list->revision;
      status = list.status();
    } else {
      const Result<Changes> changes = client.watch(scope_, since, seconds(30));
      status = changes.status();
      if (changes) {
        for (const Event& event : changes->events) {
          print_event(asking_.json, event);
          if (++told == count_) return daemon::kExitOk;
        }
        if (changes->resync)
          std::fprintf(stderr,
                       "nanoctrl watch: some changes were missed; list the peers to see what is there now\n");
        since = changes->resync ? 0 : changes->revision;
      }
    }
    if (status.ok()) {
      if (std::exchange(away, false)) std::fprintf(stderr, "nanoctrl watch: it answers again\n");
      continue;
    }
    if (!worth_another_try(status)) return fail(status);
    if (!std::exchange(away, true))
      std::fprintf(stderr, "nanoctrl watch: %s; trying again\n", status.text().c_str());
    std::this_thread::sleep_for(kAgain);
  }
}

namespace {

// Returns how much of its quota a scope uses, such as "40 %": its share of bytes or its share of
// peers, the larger of the two. "-" if the quota is unknown.
std::string of_quota(const ScopeInfo& scope) {
  if (scope.record_bytes_max == 0 || scope.peers_max == 0) return "-";
  const double used =
      std::max(static_cast<double>(scope.record_bytes) / static_cast<double>(scope.record_bytes_max),
               static_cast<double>(scope.peers) / static_cast<double>(scope.peers_max));
  return str(static_cast<int>(100 * used), " %");
}

}  // namespace

int ViewCommands::top(Client& client) {
  const bool once = once_ || asking_.json || ::isatty(STDOUT_FILENO) == 0;
  std::map<std::string, std::uint64_t> before;
  TimePoint last = steady_clock().now();
  while (true) {
    const Result<ServerStatus> server = client.server_status();
    const Result<std::vector<ScopeInfo>> scopes =
        server ? client.list_scopes() : Result<std::vector<ScopeInfo>>(server.error());
    if (!scopes && (once || !worth_another_try(scopes.error()))) return fail(scopes.error());
    const TimePoint now = steady_clock().now();
    if (!once) std::printf("\033[H\033[J");
    if (!scopes) {
      std::printf("%s  %s\n", time_of_day().c_str(), scopes.error().text().c_str());
    } else if (asking_.json) {
      Json out = to_json(*scopes);
      out["version"] = server->version;
      out["uptime_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(server->uptime).count();
      out["watchers"] = server->watchers;
      print_json(out);
    } else {
      std::printf("%s  nanoctrl %s at %s, up %lld s, %llu watch\n\n", time_of_day().c_str(),
                  server->version.c_str(), client.url().c_str(),
                  static_cast<long long>(std::chrono::floor<seconds>(server->uptime).count()),
                  static_cast<unsigned long long>(server->watchers));
      Rows rows{{"SCOPE", "PEERS", "SERVICES", "REGIONS", "LINKS", "QUOTA", "CHANGES/S"}};
      const double elapsed = std::chrono::duration<double>(now - last).count();
      for (const ScopeInfo& scope : *scopes) {
        const auto known = before.find(scope.scope);
        std::array<char, 32> rate{"-"};
        if (known != before.end() && elapsed > 0)
          std::snprintf(rate.data(), rate.size(), "%.1f",
                        static_cast<double>(scope.revision - known->second) / elapsed);
        rows.push_back({scope.scope, str(scope.peers), str(scope.services), str(scope.regions),
                        str(scope.links), of_quota(scope), rate.data()});
        before[scope.scope] = scope.revision;
      }
      print_table(rows);
    }
    std::fflush(stdout);
    if (once) return daemon::kExitOk;
    last = now;
    std::this_thread::sleep_for(to_nanos(interval_s_));
  }
}

}  // namespace slime::ctrl

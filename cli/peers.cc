#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/str.h"
#include "base/table.h"
#include "cli/commands.h"
#include "cli/values.h"
#include "ctrl/client.h"
#include "ctrl/client/token_file.h"

namespace slime::cli {
namespace {

constexpr std::string_view kPeers = "peers";

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out.append(out.empty() ? "" : ",").append(name);
  return out.empty() ? "-" : out;
}

nlohmann::ordered_json to_json(const ctrl::PeerInfo& peer) {
  nlohmann::ordered_json out;
  out["name"] = peer.name;
  out["scope"] = peer.scope;
  out["kind"] = peer.kind;
  out["address"] = peer.address;
  out["instance"] = peer.instance.to_string();
  out["incarnation"] = peer.incarnation;
  out["expires_in_ms"] = std::chrono::ceil<std::chrono::milliseconds>(peer.expires_in).count();
  out["providers"] = peer.providers;
  out["metadata"] = peer.metadata;
  out["services"] = nlohmann::ordered_json::array();
  for (const ctrl::ServiceInfo& service : peer.services) {
    out["services"].push_back({{"name", service.name}, {"kind", service.kind}, {"methods", service.methods}});
  }
  out["regions"] = nlohmann::ordered_json::array();
  for (const ctrl::RegionInfo& region : peer.regions) {
    out["regions"].push_back({{"name", region.name},
                              {"length_bytes", region.length_bytes},
                              {"rights", ctrl::rights_name(region.rights)}});
  }
  return out;
}

std::vector<std::string> to_row(const ctrl::PeerInfo& peer) {
  std::vector<std::string> services;
  for (const ctrl::ServiceInfo& service : peer.services) services.push_back(service.name);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(peer.expires_in).count();
  return {peer.name,
          peer.kind.empty() ? "-" : peer.kind,
          peer.address,
          joined(peer.providers),
          str(seconds, " s"),
          joined(services),
          str(peer.regions.size())};
}

}  // namespace

int peers(const PeersOptions& options) {
  auto client_options = ctrl::client_options(options.ctrl_url);
  if (!client_options) return fail(kPeers, client_options.error());
  auto client = ctrl::Client::create(std::move(*client_options));
  if (!client) return fail(kPeers, client.error());
  ctrl::PeerFilter filter;
  filter.scope = options.scope;
  filter.kind = options.kind;
  auto list = (*client)->list_peers(filter);
  if (!list) return fail(kPeers, list.error());
  if (options.json) {
    nlohmann::ordered_json out;
    out["scope"] = options.scope;
    out["revision"] = list->revision;
    out["peers"] = nlohmann::ordered_json::array();
    for (const ctrl::PeerInfo& peer : list->peers) out["peers"].push_back(to_json(peer));
    std::printf("%s\n", print(out, 2).c_str());
  } else if (list->peers.empty()) {
    std::printf("no peers in scope %s\n", options.scope.c_str());
  } else {
    std::vector<std::vector<std::string>> rows{
        {"NAME", "KIND", "ADDRESS", "PROVIDERS", "LEASE", "SERVICES", "REGIONS"}};
    for (const ctrl::PeerInfo& peer : list->peers) rows.push_back(to_row(peer));
    print_table(rows);
  }
  return kExitOk;
}

}  // namespace slime::cli

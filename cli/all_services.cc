#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/table.h"
#include "cli/commands.h"
#include "cli/values.h"
#include "ctrl/client.h"
#include "ctrl/client/token_file.h"

namespace slime::cli {
namespace {

constexpr std::string_view kAllServices = "services";

using ByName = std::map<std::string, std::vector<ctrl::ServiceEntry>>;

void print_json(const std::string& scope, std::uint64_t revision, const ByName& services) {
  nlohmann::ordered_json out;
  out["scope"] = scope;
  out["revision"] = revision;
  out["services"] = nlohmann::ordered_json::array();
  for (const auto& [name, servers] : services) {
    nlohmann::ordered_json each;
    each["name"] = name;
    each["servers"] = nlohmann::ordered_json::array();
    for (const ctrl::ServiceEntry& server : servers) {
      each["servers"].push_back({{"peer", server.peer},
                                 {"address", server.address},
                                 {"instance", server.instance.to_string()},
                                 {"kind", server.service.kind},
                                 {"methods", server.service.methods}});
    }
    out["services"].push_back(std::move(each));
  }
  std::printf("%s\n", print(out, 2).c_str());
}

template <class Names>
std::string joined(const Names& names) {
  std::string out;
  for (const std::string& name : names) out.append(out.empty() ? "" : ",").append(name);
  return out.empty() ? "-" : out;
}

void print_text(const ByName& services) {
  std::vector<std::vector<std::string>> rows{{"SERVICE", "SERVERS", "METHODS"}};
  for (const auto& [name, servers] : services) {
    std::vector<std::string> peers;
    std::set<std::string> methods;
    for (const ctrl::ServiceEntry& server : servers) {
      peers.push_back(server.peer);
      methods.insert(server.service.methods.begin(), server.service.methods.end());
    }
    rows.push_back({name, joined(peers), joined(methods)});
  }
  print_table(rows);
}

}  // namespace

int all_services(const ServicesOptions& options) {
  auto client_options = ctrl::client_options(options.at.ctrl_url);
  if (!client_options) return fail(kAllServices, client_options.error());
  auto client = ctrl::Client::create(std::move(*client_options));
  if (!client) return fail(kAllServices, client.error());
  const auto list = (*client)->list_services({.scope = options.at.scope});
  if (!list) return fail(kAllServices, list.error());
  ByName services;
  for (const ctrl::ServiceEntry& entry : list->services) services[entry.service.name].push_back(entry);
  if (options.json) {
    print_json(options.at.scope, list->revision, services);
  } else if (services.empty()) {
    std::printf("no services in scope %s\n", options.at.scope.c_str());
  } else {
    print_text(services);
  }
  return kExitOk;
}

}  // namespace slime::cli

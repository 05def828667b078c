#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/table.h"
#include "cli/commands.h"
#include "cli/one_peer.h"
#include "cli/signatures.h"
#include "cli/values.h"

namespace slime::cli {
namespace {

constexpr std::string_view kServices = "services";

nlohmann::ordered_json to_json(const rpc::MethodInfo& method) {
  nlohmann::ordered_json out;
  out["name"] = method.name;
  out["parameters"] = nlohmann::ordered_json::array();
  for (const rpc::ParameterInfo& parameter : method.parameters) {
    nlohmann::ordered_json each;
    each["name"] = parameter.name;
    each["type"] = parameter.type;
    each["optional"] = parameter.optional;
    each["rest"] = parameter.rest;
    out["parameters"].push_back(std::move(each));
  }
  out["result"] = method.result;
  out["doc"] = method.doc;
  if (!method.reads.empty()) out["reads"] = method.reads;
  if (!method.writes.empty()) out["writes"] = method.writes;
  return out;
}

void print_json(const std::string& peer, const std::vector<rpc::ServiceInfo>& services) {
  nlohmann::ordered_json out;
  if (!peer.empty()) out["peer"] = peer;
  out["services"] = nlohmann::ordered_json::array();
  for (const rpc::ServiceInfo& service : services) {
    nlohmann::ordered_json each;
    each["name"] = service.name;
    each["methods"] = nlohmann::ordered_json::array();
    for (const rpc::MethodInfo& method : service.methods) each["methods"].push_back(to_json(method));
    out["services"].push_back(std::move(each));
  }
  std::printf("%s\n", print(out, 2).c_str());
}

void print_text(const std::vector<rpc::ServiceInfo>& services) {
  std::vector<std::vector<std::string>> rows{{"SERVICE", "METHOD", "PARAMETERS", "RESULT", "DOC"}};
  for (const rpc::ServiceInfo& service : services) {
    for (const rpc::MethodInfo& method : service.methods) {
      // The first line is a summary.
      const std::string_view doc(method.doc);
      rows.push_back({printable(service.name), printable(method.name), parameters_text(method),
                      result_text(method), printable(doc.substr(0, doc.find('\n')))});
    }
  }
  print_table(rows);
}

}  // namespace

int services(const ServicesOptions& options) {
  auto peer = OnePeer::open(options.at);
  if (!peer) return fail(kServices, peer.error());
  const auto list = options.service.empty() ? (*peer)->services() : (*peer)->service(options.service);
  if (!list) {
    const int exit_code = fail(kServices, list.error());
    if (list.error().code() == Code::kNotFound && !options.service.empty())
      (*peer)->suggest(options.service, "");
    return OnePeer::interrupted() ? kExitInterrupted : exit_code;
  }
  if (options.json) {
    print_json(options.at.peer, *list);
  } else {
    print_text(*list);
  }
  return kExitOk;
}

}  // namespace slime::cli

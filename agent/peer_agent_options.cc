#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "agent/agent_impl.h"
#include "agent/connecting/target.h"
#include "agent/limits.h"
#include "base/str.h"
#include "ctrl/client.h"
#include "ctrl/client/token_file.h"
#include "transport/outage.h"

namespace slime {
namespace {

// provider between endpoints of one process; provider_names() leaves it out
constexpr std::string_view kOneProcess = "sim";

}  // namespace

std::vector<std::string> PeerAgentImpl::provider_names() {
  std::vector<std::string> out = transport::provider_names();
  std::erase(out, kOneProcess);
  out.emplace(out.begin(), agent::kAuto);
  return out;
}

Status PeerAgentOptions::validate() const {
  const std::vector<std::string> providers = PeerAgent::provider_names();
  if (provider != kOneProcess && std::find(providers.begin(), providers.end(), provider) == providers.end()) {
    std::string all;
    for (const std::string& each : providers) all.append(all.empty() ? "" : ", ").append(each);
    return Status(Code::kNotFound, str("no provider is called \"", provider, "\"; there are: ", all));
  }
  if (!name.empty()) SLIME_TRY(agent::check_agent_name("name", name));
  SLIME_TRY(ctrl::check_name("scope", scope));
  if (!kind.empty()) SLIME_TRY(ctrl::check_name("kind", kind));
  const auto address = Address::parse(listen);
  if (!address) return address.status().with_context("listen");
  if (!advertise.empty()) {
    const auto shown = Address::parse(advertise);
    if (!shown) return shown.status().with_context("advertise");
    if (agent::is_wildcard(*shown))
      return Status(Code::kInvalidArgument, str("advertise: nobody can connect to \"", advertise, "\""));
  } else if ((!ctrl_url.empty() || accepts) && agent::is_wildcard(*address)) {
    return Status(Code::kInvalidArgument, str("listen is \"", listen,
                                              "\", every address of this host: set advertise to the one that "
                                              "others should connect to"));
  }
  if (!ctrl_url.empty()) {
    const auto client = ctrl::client_options(ctrl_url, ctrl_token, ctrl_ca_file);
    if (!client) return client.status().with_context("ctrl_token");
    SLIME_TRY(client->validate().with_context("ctrl_url"));
  }
  if (provider.empty()) return Status(Code::kInvalidArgument, "provider is empty; \"auto\" picks one");
  if (verbs) SLIME_TRY(verbs->validate().with_context("verbs"));
  if (token.size() > limits::kTokenBytes)
    return Status(Code::kInvalidArgument, str("token is longer than ", limits::kTokenBytes, " bytes"));
  if (timeout <= Nanos::zero()) return Status(Code::kInvalidArgument, "timeout must be positive");
  if (heartbeat < Nanos::zero()) return Status(Code::kInvalidArgument, "heartbeat must not be negative");
  if (max_connections == 0) return Status(Code::kInvalidArgument, "max_connections must be at least 1");
  if (streams.window == 0) return Status(Code::kInvalidArgument, "streams.window must be at least 1");
  if (streams.idle_timeout <= Nanos::zero())
    return Status(Code::kInvalidArgument, "streams.idle_timeout must be above 0; Nanos::max() for none");
  if (memory_bytes < agent::limits::kMemoryBytesMin)
    return Status(Code::kInvalidArgument,
                  str("memory_bytes must be at least ", agent::limits::kMemoryBytesMin));
  if (outage_tolerated != Nanos::zero())
    SLIME_TRY(transport::check_outage("outage_tolerated", outage_tolerated));
  if (max_payload_bytes == 0) return Status(Code::kInvalidArgument, "max_payload_bytes must be at least 1");
  if (server.workers == 0) return Status(Code::kInvalidArgument, "server.workers must be at least 1");
  return {};
}

}  // namespace slime

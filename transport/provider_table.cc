#include "transport/provider.h"
#include "transport/shm/shm_provider.h"
#include "transport/sim/provider.h"
#include "transport/tcp/tcp_provider.h"
#include "transport/verbs/verbs_provider.h"

namespace slime::transport {

ProviderTable provider_table() {
  // One line for each provider.
  static const ProviderEntry table[] = {
      {"shm", [](const auto&) { return shm::make_shm_provider(); }},
      {"verbs", [](const ProviderSettings& settings) { return verbs::make_verbs_provider(settings.verbs); }},
      {"tcp", [](const auto&) { return tcp::make_tcp_provider(); }},
      {"sim", [](const auto&) { return sim::make_sim_provider(); }},
  };
  return table;
}

}  // namespace slime::transport

#include "ctrl/api/services.h"

#include <optional>
#include <string>
#include <utility>

#include "ctrl/api/peer_pages.h"
#include "ctrl/api/record_update.h"

namespace slime::ctrl {

ApiReply ServiceRoutes::list(const Call& call) {
  Query& query = call.query;
  const std::string kind = query.text("kind");
  const std::string name = query.text("name");
  const Labels labels = query.labels("labels");
  const std::string health_text = query.text("health");
  const std::optional<Health> health = parse_health(health_text);
  if (!health && query.has("health"))
    query.problem("query parameter 'health' is not serving, draining or not_serving");
  return peer_page(context_, query, "services", [&](const PeerView& view, std::vector<std::string>& out) {
    const PeerInfo& peer = *view.info;
    for (const ServiceInfo& service : peer.services) {
      if ((!kind.empty() && service.kind != kind) || (!name.empty() && service.name != name)) continue;
      if ((health && service.health != *health) || !has_labels(service.labels, labels)) continue;
      out.push_back(
          wire::encode(ServiceEntry{peer.name, peer.address, peer.instance, peer.incarnation, service}));
    }
  });
}

ApiReply ServiceRoutes::update(const Call& call) {
  return update_record<UpdateServicesCommand>(context_, call, wire::decode_services, check_services);
}

}  // namespace slime::ctrl

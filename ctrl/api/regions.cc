#include "ctrl/api/regions.h"

#include <string>

#include "ctrl/api/peer_pages.h"
#include "ctrl/api/record_update.h"

namespace slime::ctrl {

ApiReply RegionRoutes::list(const Call& call) {
  const std::string owner = call.query.text("peer");
  const std::string name = call.query.text("name");
  const auto encode = [&](const PeerView& view, std::vector<std::string>& out) {
    const PeerInfo& peer = *view.info;
    for (const RegionInfo& region : peer.regions) {
      if (!name.empty() && region.name != name) continue;
      out.push_back(
          wire::encode(RegionEntry{peer.name, peer.address, peer.instance, peer.incarnation, region}));
    }
  };
  return peer_page(context_, call.query, "regions", encode, owner);
}

ApiReply RegionRoutes::update(const Call& call) {
  return update_record<UpdateRegionsCommand>(context_, call, wire::decode_regions, check_regions);
}

}  // namespace slime::ctrl

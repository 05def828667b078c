#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ctrl/wire.h"

// What a client makes of a server's answers, whoever the server is.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace slime::ctrl;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  (void)wire::decode_error(body);
  (void)wire::decode_lease(body);
  (void)wire::decode_changes(body);
  (void)wire::decode_keys(body);
  (void)wire::decode_peer(body);
  (void)wire::decode_status(body);
  std::vector<PeerInfo> peers;
  (void)wire::decode_peer_page(body, peers);
  std::vector<ServiceEntry> services;
  (void)wire::decode_service_page(body, services);
  std::vector<RegionEntry> regions;
  (void)wire::decode_region_page(body, regions);
  return 0;
}

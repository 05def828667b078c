#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "ctrl/store/backup.h"
#include "ctrl/wire/json_bodies.h"

// The client decodes the input as a server's replies.
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
  // A backup that can be decoded, as a page or as a stream, is encoded to the same bytes.
  if (const auto page = decode_backup_page(body)) {
    const auto again = decode_backup_page(encode_backup_page(page->records, page->next));
    SLIME_CHECK(again && again->records.size() == page->records.size() && again->next == page->next);
  }
  std::istringstream in{std::string(body)};
  if (const auto state = decode_backup(in)) {
    std::istringstream written(encode_backup(encode_records(*state)));
    const auto again = decode_backup(written);
    SLIME_CHECK(again && record_count(*again) == record_count(*state));
  }
  return 0;
}

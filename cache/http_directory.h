#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "cache/client.h"
#include "ctrl/http/http.h"

namespace slime::cache {

// Answers the routes of DLSlime's cache that take a body. A manifest says at which of the cache's
// offsets the bytes of a version are. store() plans one and gives it its version; the writer puts
// the bytes as the object "VERSION" and then the manifest as the object "VERSION.manifest", by
// one-sided writes. So a version is there as soon as its manifest is whole, never before. Bodies
// come from strangers, and manifests from any peer. Thread: any.
class HttpDirectory {
 public:
  // `client` must outlive this.
  HttpDirectory(CacheClient& client, std::uint64_t memory_bytes, std::uint64_t slab_bytes);
  ctrl::ApiReply store(std::string_view body);
  ctrl::ApiReply query(std::string_view body);
  ctrl::ApiReply remove(std::string_view body);

 private:
  std::uint64_t next_version();

  CacheClient& client_;
  const std::uint64_t memory_bytes_;
  const std::uint64_t slab_bytes_;
  std::atomic<std::uint32_t> last_version_;
};

// An error as JSON: {"error": text}.
ctrl::ApiReply http_error(int status, std::string_view text);
ctrl::ApiReply http_error(const Status& status);

}  // namespace slime::cache

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "ctrl/http/http.h"

namespace slime::cache {

class CacheClient;

// The objects of the cache that the routes of DLSlime's cache read and remove, by key. Thread: any.
class HttpObjects {
 public:
  virtual ~HttpObjects() = default;
  virtual Result<std::uint64_t> length(std::string_view key) = 0;
  virtual Result<ByteVector> get(std::string_view key) = 0;
  virtual Result<bool> exists(std::string_view key) = 0;
  virtual Status remove(std::string_view key) = 0;
};

// Returns those of a cache, in the namespace "dlslime". `client` must outlive them.
std::unique_ptr<HttpObjects> http_objects(CacheClient& client);

// Answers the routes of DLSlime's cache that take a body. A manifest says at which of the cache's
// offsets the bytes of a version are. store() plans one and gives it its version; the writer puts
// the bytes as the object "VERSION" and then the manifest as the object "VERSION.manifest", by
// one-sided writes. So a version is there as soon as its manifest is whole, never before. Bodies
// come from strangers, and manifests from any peer. Thread: any.
class HttpDirectory {
 public:
  // `objects` must outlive this.
  HttpDirectory(HttpObjects& objects, std::uint64_t memory_bytes, std::uint64_t slab_bytes);
  ctrl::ApiReply store(std::string_view body);
  ctrl::ApiReply query(std::string_view body);
  ctrl::ApiReply remove(std::string_view body);

 private:
  std::uint64_t next_version();

  HttpObjects& objects_;
  const std::uint64_t memory_bytes_;
  const std::uint64_t slab_bytes_;
  std::atomic<std::uint32_t> last_version_;
};

// An error as JSON: {"error": text}.
ctrl::ApiReply http_error(int status, std::string_view text);
ctrl::ApiReply http_error(const Status& status);

}  // namespace slime::cache

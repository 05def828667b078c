#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace slime {
class PeerAgent;
}  // namespace slime

namespace slime::cache {

class CacheServer;

struct HttpOptions {
  std::string listen;  // "host:port"; port 0: any free port
  // The token of the cache's agents. Requests but /healthz must carry it: Authorization: Bearer.
  std::string token = {};
  bool insecure = false;                           // listen beyond loopback without TLS and without a token
  std::string tls_certificate = {}, tls_key = {};  // PEM files; both empty: no TLS

  // GET /peer-agent answers with these.
  std::string name = {}, scope = {}, ctrl_url = {}, address = {};
  std::uint64_t memory_bytes = 0, slab_bytes = 0;
};

// The HTTP side of a cache: health, metrics, and the routes of DLSlime's cache (README.md). Objects
// of those routes are in the namespace "dlslime". Thread: any.
class HttpServer {
 public:
  // `agent` runs `server`; it also serves "cache.http", whose method "url" returns url(). Both must
  // outlive this. Errors: kInvalidArgument for wrong options, kPermissionDenied for a
  // listening address beyond loopback without TLS and a token, kUnavailable for an address in use.
  static Result<std::unique_ptr<HttpServer>> start(PeerAgent& agent, const CacheServer& server,
                                                   HttpOptions options);
  ~HttpServer();  // stops
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] std::string url() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::cache

#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "cache/http_server.h"
#include "cache/stats.h"
#include "ctrl/http/http.h"

namespace slime::cache {

class HttpDirectory;

// Answers one request of a cache's HTTP side: whether it may ask, and by which route. Requests come
// from strangers. Thread: any.
class HttpRoutes {
 public:
  // loopback: the server listens on loopback only. stats: those of the cache, now. `directory` must
  // outlive this.
  HttpRoutes(HttpOptions options, bool loopback, std::function<StoreStats()> stats, HttpDirectory& directory);
  ctrl::ApiReply answer(const ctrl::ApiRequest& request);

 private:
  [[nodiscard]] Status check(const ctrl::ApiRequest& request) const;

  const HttpOptions options_;
  const bool loopback_;
  const std::function<StoreStats()> stats_;
  HttpDirectory& directory_;
};

}  // namespace slime::cache

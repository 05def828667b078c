#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/client.h"

namespace slime::ctrl {

// Sends requests to one of several servers. Keeps one connection open between requests. Thread:
// any; concurrent calls open further connections.
class HttpClient {
 public:
  // `options` are valid.
  explicit HttpClient(ClientOptions options);
  ~HttpClient();  // call stop() first
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Sends one request, and returns the body of a reply with status 200. Waits for
  // ClientOptions::timeout plus `extra`. May send the request twice, so the request must be
  // idempotent. Sends `session` in a header.
  Result<std::string> call(const char* method, const std::string& target, const std::string& body = {},
                           Nanos extra = {}, const Secret& session = {});
  // Like call(), for a request that is not idempotent: sends it once, on a new connection.
  Result<std::string> call_once(const char* method, const std::string& target, const std::string& body = {});
  // Cancels the calls under way. Later calls return kCancelled. Idempotent.
  void stop();
  [[nodiscard]] const ClientOptions& options() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::ctrl

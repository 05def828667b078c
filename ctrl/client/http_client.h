#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/client.h"

namespace slime::ctrl {

// Sends requests to one of several servers over a connection that is kept open between them.
// Thread: any; concurrent calls open connections of their own.
class HttpClient {
 public:
  // `options` are valid.
  explicit HttpClient(ClientOptions options);
  ~HttpClient();  // call stop() first
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Sends one request; returns the body of a 200 reply. Waits for the timeout plus `extra`. The
  // request may be executed more than once, so it must be idempotent. `session` goes into a header.
  Result<std::string> call(const char* method, const std::string& target, const std::string& body = {},
                           Nanos extra = {}, const Secret& session = {});
  // For a request that is not idempotent: executed at most once, on a new connection.
  Result<std::string> call_once(const char* method, const std::string& target, const std::string& body = {});
  // Cancels the calls under way and refuses later calls (kCancelled). Idempotent.
  void stop();
  [[nodiscard]] const ClientOptions& options() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::ctrl

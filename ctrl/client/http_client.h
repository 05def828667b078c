#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/client.h"

namespace slime::ctrl {

// Requests to one of several servers, over a connection that is kept between them. Thread: any, several at
// once: then all but one open a connection of their own.
class HttpClient {
 public:
  // `options` are valid.
  explicit HttpClient(ClientOptions options);
  ~HttpClient();  // after stop()
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // One request; the body of a 200 answer. `extra` is waited for in addition to the timeout. The request may
  // be executed more than once, so it must be idempotent. `session` goes into a header.
  Result<std::string> call(const char* method, const std::string& target, const std::string& body = {},
                           Nanos extra = {}, const Secret& session = {});
  // The same for one that is not: executed at most once, on a connection of its own.
  Result<std::string> call_once(const char* method, const std::string& target, const std::string& body = {});
  // Ends the calls under way and refuses later ones (kCancelled). Idempotent.
  void stop();
  [[nodiscard]] const ClientOptions& options() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::ctrl

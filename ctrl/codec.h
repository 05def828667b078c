#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ctrl/framing.h"
#include "ctrl/http.h"

namespace slime::ctrl {

using ApiHandler = std::function<ApiReply(const ApiRequest&)>;

// What became of one request.
struct Handled {
  std::string reply;  // ready to send
  bool close = false;
  std::optional<Parked> parked = {};  // then there is no reply yet
};

// Turns one whole request into its reply, by the HTTP library and a handler. Thread: one at a time.
class Codec {
 public:
  explicit Codec(ApiHandler handler);
  ~Codec();
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  Handled handle(const RawRequest& request, std::string_view client, bool answer_now);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A reply without the library, for what is refused before or after it. `head`: without the body.
std::string render(const ApiReply& reply, bool head, bool close);

}  // namespace slime::ctrl

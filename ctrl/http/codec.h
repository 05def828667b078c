#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ctrl/http/framing.h"
#include "ctrl/http/http.h"

namespace slime::ctrl {

using ApiHandler = std::function<ApiReply(const ApiRequest&)>;

// What became of one request.
struct Handled {
  std::string reply;  // ready to send
  int status = 0;
  bool close = false;
  std::string token_id = {};          // of who has proved to be its bearer; empty: of nobody
  std::optional<Parked> parked = {};  // then there is no reply yet
};

struct AnswerOptions {
  std::string_view client;
  bool answer_now = false;
  bool again = false;         // as in ApiRequest
  bool last_refusal = false;  // a 429 ends the connection
};
// What a handler makes of one whole request.
Handled answer(const ApiHandler& handler, const RawRequest& request, const AnswerOptions& options);

// A reply ready to send. `head`: without the body.
enum class After { kOpen, kOldOpen, kClose };  // kOldOpen: to HTTP/1.0, which wants to be told
std::string render(const ApiReply& reply, bool head, After after);

}  // namespace slime::ctrl

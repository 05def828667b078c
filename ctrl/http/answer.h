#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ctrl/http/framing.h"
#include "ctrl/http/http.h"

namespace slime::ctrl {

using ApiHandler = std::function<ApiReply(const ApiRequest&)>;

// The result of one request.
struct Handled {
  std::string reply;  // ready to send
  int status = 0;
  bool close = false;
  std::string token_id = {};          // authenticated token; empty: none
  std::optional<Parked> parked = {};  // if set, there is no reply yet
};

struct AnswerOptions {
  std::string_view client;
  bool answer_now = false;
  bool again = false;         // ApiRequest::again
  bool last_refusal = false;  // a 429 closes the connection
};
// Runs the handler for one complete request.
Handled answer(const ApiHandler& handler, const RawRequest& request, const AnswerOptions& options);

// State of the connection after a reply. kOldOpen: the connection stays open and the client speaks
// HTTP/1.0, which needs a keep-alive header for that.
enum class After { kOpen, kOldOpen, kClose };
// Returns a reply as bytes to send. `head`: for a HEAD request, so without the body.
std::string render(const ApiReply& reply, bool head, After after);

}  // namespace slime::ctrl

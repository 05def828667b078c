#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "ctrl/http/http.h"

// Makes replies with JSON bodies, for the routes and the HTTP front. Thread: any.
namespace slime::ctrl {

// Returns 200 with `body`.
ApiReply reply_ok(std::string body);
// Returns an error reply with the HTTP status `status`. Its body has `code`, `message` and `hint`.
ApiReply reply_error(int status, Code code, std::string message, std::string hint);
// Returns an error reply. The status' code determines the HTTP status, and also the hint if none is
// passed.
ApiReply reply_error(Status status);
ApiReply reply_error(Status status, std::string_view hint);
// Returns the 404 reply for a path that no route has.
ApiReply reply_no_route();

}  // namespace slime::ctrl

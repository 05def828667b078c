#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "ctrl/http/http.h"

// Replies with JSON bodies, used by the routes and the front. Thread: any.
namespace slime::ctrl {

// Returns 200 with `body`.
ApiReply reply_ok(std::string body);
// Returns an error body of `code`, `message` and `hint` with that HTTP status.
ApiReply reply_error(int status, Code code, std::string message, std::string hint);
// Returns an error body. The code decides the HTTP status, and the hint where none is given.
ApiReply reply_error(Status status);
ApiReply reply_error(Status status, std::string_view hint);
// Returns 404 for a path without a route.
ApiReply reply_no_route();

}  // namespace slime::ctrl

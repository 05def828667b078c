#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "ctrl/http/http.h"

// Replies with JSON bodies, as every route and the front send them. Thread: any.
namespace slime::ctrl {

// 200 with that body.
ApiReply reply_ok(std::string body);
// An error body of `code`, `message` and `hint` with that HTTP status.
ApiReply reply_error(int status, Code code, std::string message, std::string hint);
// An error body of the status. The code decides the HTTP status, and the hint where none is given.
ApiReply reply_error(Status status);
ApiReply reply_error(Status status, std::string_view hint);
// 404 for a path that no route has.
ApiReply reply_no_route();

}  // namespace slime::ctrl

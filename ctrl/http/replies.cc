#include "ctrl/http/replies.h"

#include <utility>

#include "ctrl/wire/json_bodies.h"

namespace slime::ctrl {
namespace {

int http_status(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
    case Code::kUnimplemented:
      return 404;
    case Code::kAlreadyExists:
      return 409;
    case Code::kAborted:
      return 410;
    case Code::kResourceExhausted:
      return 429;
    case Code::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

std::string_view hint_for(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "fix the request; docs/nanoctrl-api.md has an example of each";
    case Code::kUnauthenticated:
      return "programs send ctrl_token, else the one in $SLIME_CTRL_TOKEN_FILE, as the header "
             "Authorization: Bearer TOKEN; nanoctrl token create makes one";
    case Code::kNotFound:
      return "register again: the lease ran out, or nanoctrl restarted";
    case Code::kAborted:
      return "another instance owns the name now; use a different name";
    case Code::kResourceExhausted:
      return "a limit of this nanoctrl; remove what is not needed or use another one";
    default:
      return "";
  }
}

}  // namespace

ApiReply reply_ok(std::string body) { return {.status = 200, .body = std::move(body)}; }

ApiReply reply_error(int status, Code code, std::string message, std::string hint) {
  return {.status = status, .body = wire::encode(wire::Error{code, std::move(message), std::move(hint)})};
}

ApiReply reply_error(Status status, std::string_view hint) {
  return reply_error(http_status(status.code()), status.code(), status.text(), std::string(hint));
}

ApiReply reply_error(Status status) {
  const std::string_view hint = hint_for(status.code());
  return reply_error(std::move(status), hint);
}

ApiReply reply_no_route() {
  return reply_error(404, Code::kUnimplemented, "there is no such route",
                     "docs/nanoctrl-api.md lists them; a '/' inside a name is written %2F");
}

}  // namespace slime::ctrl

#include "ctrl/http/answer.h"

#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/str.h"

namespace slime::ctrl {
namespace {

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

std::int64_t whole_seconds(Nanos span) { return std::chrono::ceil<std::chrono::seconds>(span).count(); }

}  // namespace

std::string render(const ApiReply& reply, bool head, After after) {
  std::string out = str("HTTP/1.1 ", reply.status, " ", reason(reply.status),
                        "\r\nContent-Type: ", reply.content_type, "\r\nContent-Length: ", reply.body.size());
  if (reply.retry_after > Nanos::zero()) out += str("\r\nRetry-After: ", whole_seconds(reply.retry_after));
  if (!reply.allow.empty()) out += str("\r\nAllow: ", reply.allow);
  for (const auto& [name, value] : reply.headers) out += str("\r\n", name, ": ", value);
  if (after == After::kClose) out += "\r\nConnection: close";
  if (after == After::kOldOpen) out += "\r\nConnection: keep-alive";
  out += "\r\n\r\n";
  if (!head) out += reply.body;
  return out;
}

Handled answer(const ApiHandler& handler, const RawRequest& request, const AnswerOptions& options) {
  const std::string_view method = request.part(request.method);
  const std::string_view target = request.part(request.target);
  ApiReply reply = handler({.method = method,
                            .target = target,
                            .content_type = request.value(Header::kContentType),
                            .body = request.body(),
                            .authorization = request.value(Header::kAuthorization),
                            .client = options.client,
                            .answer_now = options.answer_now,
                            .again = options.again,
                            .accept = request.value(Header::kAccept),
                            .if_none_match = request.value(Header::kIfNoneMatch),
                            .host = request.value(Header::kHost),
                            .origin = request.value(Header::kOrigin),
                            .session = request.value(Header::kSession)});
  Handled out;
  out.token_id = std::move(reply.token_id);
  out.parked = std::move(reply.parked);
  if (out.parked) return out;
  SLIME_LOG(LogLevel::kDebug, "nanoctrl", method, " ", target, " ", reply.status);
  out.status = reply.status;
  out.close = !request.keeps_open || (options.last_refusal && reply.status == 429);
  const After open = request.old ? After::kOldOpen : After::kOpen;
  out.reply = render(reply, request.head, out.close ? After::kClose : open);
  return out;
}

}  // namespace slime::ctrl

#include "ctrl/codec.h"

#include <httplib.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/str.h"
#include "ctrl/api.h"
#include "ctrl/limits.h"

namespace slime::ctrl {
namespace {

constexpr std::size_t kRequestsPerConnection = 1'000'000;  // nobody counts; senders want a number

// The library's connection, over memory: it never waits. Without `override`: of these functions, some are
// there in one version of the library and some in another.
class MemoryStream : public httplib::Stream {
 public:
  MemoryStream(std::string_view input, const std::string& client) : input_(input), client_(client) {}

  virtual bool is_readable() const { return !input_.empty(); }
  virtual bool is_writable() const { return true; }
  virtual bool wait_readable() const { return !input_.empty(); }
  virtual bool wait_writable() const { return true; }
  virtual time_t duration() const { return 0; }
  virtual ssize_t read(char* out, std::size_t size) {
    const std::size_t n = std::min(size, input_.size());
    std::memcpy(out, input_.data(), n);
    input_.remove_prefix(n);
    return static_cast<ssize_t>(n);
  }
  virtual ssize_t write(const char* data, std::size_t size) {
    output.append(data, size);
    return static_cast<ssize_t>(size);
  }
  virtual void get_remote_ip_and_port(std::string& ip, int& port) const {
    ip = client_;
    port = 0;
  }
  virtual void get_local_ip_and_port(std::string& ip, int& port) const {
    ip.clear();
    port = 0;
  }
  virtual socket_t socket() const { return INVALID_SOCKET; }

  std::string output;

 private:
  std::string_view input_;
  const std::string& client_;
};

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
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

// What the library refuses without asking anybody: whether a path has a method is for the routes to say.
bool is_method_of_library(std::string_view method) {
  constexpr std::string_view kMethods[] = {"GET",     "HEAD",    "POST",  "PUT",   "DELETE",
                                           "CONNECT", "OPTIONS", "TRACE", "PATCH", "PRI"};
  return std::find(std::begin(kMethods), std::end(kMethods), method) != std::end(kMethods);
}

std::int64_t whole_seconds(Nanos span) { return std::chrono::ceil<std::chrono::seconds>(span).count(); }

}  // namespace

std::string render(const ApiReply& reply, bool head, bool close) {
  std::string out = str("HTTP/1.1 ", reply.status, " ", reason(reply.status),
                        "\r\nContent-Type: ", reply.content_type, "\r\nContent-Length: ", reply.body.size());
  if (reply.retry_after > Nanos::zero()) out += str("\r\nRetry-After: ", whole_seconds(reply.retry_after));
  if (!reply.allow.empty()) out += str("\r\nAllow: ", reply.allow);
  for (const auto& [name, value] : reply.headers) out += str("\r\n", name, ": ", value);
  out += close ? "\r\nConnection: close\r\n\r\n" : "\r\n\r\n";
  if (!head) out += reply.body;
  return out;
}

class Codec::Impl final : public httplib::Server {
 public:
  explicit Impl(ApiHandler handler) : handler_(std::move(handler)) {
    // Everything is answered here: the library neither reads bodies nor matches paths with regular
    // expressions, whose recursion grows with their length.
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response);
      return httplib::Server::HandlerResponse::Handled;
    });
    // Also called for errors of the handler's, which are complete.
    set_error_handler([this](const httplib::Request&, httplib::Response& response) {
      if (!answered_) refused_ = response.status;
    });
    // What replies say of their connection.
    set_keep_alive_max_count(kRequestsPerConnection);
    set_keep_alive_timeout(std::chrono::duration_cast<std::chrono::seconds>(limits::kIdleTime).count());
  }

  Handled handle(const RawRequest& request, std::string_view client, bool answer_now) {
    const std::string_view header = request.header();
    const std::size_t method_end = header.find(' ');
    if (!is_method_of_library(header.substr(0, method_end))) {
      const std::string_view rest = header.substr(method_end + 1);
      const ApiReply reply = handler_({.method = header.substr(0, method_end),
                                       .target = rest.substr(0, rest.find(' ')),
                                       .content_type = request.part(request.content_type),
                                       .body = request.body(),
                                       .authorization = request.part(request.authorization),
                                       .client = client});
      return {render(reply, false, true), true};
    }
    raw_ = &request;
    client_ = client;
    answer_now_ = answer_now;
    answered_ = false;
    refused_ = 0;
    parked_.reset();
    MemoryStream stream(request.bytes, client_);
    bool closed = false;
    const bool written = process(*this, stream, closed);
    if (parked_) return {.reply = {}, .close = false, .parked = std::move(parked_)};
    if (refused_ != 0 || !written || stream.output.empty()) {
      const int status = refused_ != 0 ? refused_ : 400;
      return {
          render(Api::error(status, Code::kInvalidArgument, "this is not a request that nanoctrl reads", ""),
                 request.head, true),
          true};
    }
    // The front has told the sender to go on already, if it had to.
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    if (stream.output.starts_with(kContinue)) stream.output.erase(0, kContinue.size());
    return {std::move(stream.output), closed};
  }

 private:
  // Newer versions of the library want the addresses. A template, so that the call that this version lacks is
  // not looked at.
  template <class Self>
  static bool process(Self& self, httplib::Stream& stream, bool& closed) {
    const std::function<void(httplib::Request&)> setup = [](httplib::Request& request) {
      request.ranges.clear();  // half of a JSON text is of use to nobody
      // The library compresses for whoever can read it, with brotli at its slowest: two seconds for a page of
      // a list, which any browser would ask for again and again.
      request.headers.erase("Accept-Encoding");
    };
    if constexpr (requires { self.process_request(stream, false, closed, setup); }) {
      return self.process_request(stream, false, closed, setup);
    } else {
      return self.process_request(stream, self.client_, 0, std::string(), 0, false, closed, setup);
    }
  }

  void answer(const httplib::Request& request, httplib::Response& response) {
    answered_ = true;
    ApiReply reply;
    if (request.path.size() > limits::kPathBytes) {
      reply = Api::error(414, Code::kInvalidArgument, "the request is too large", "");
    } else {
      // The library decodes escapes in the values of headers: the first two are taken as they came.
      const std::string accept = request.get_header_value("Accept");
      const std::string if_none_match = request.get_header_value("If-None-Match");
      reply = handler_({.method = request.method,
                        .target = request.target,
                        .content_type = raw_->part(raw_->content_type),
                        .body = raw_->body(),
                        .authorization = raw_->part(raw_->authorization),
                        .client = client_,
                        .answer_now = answer_now_,
                        .accept = accept,
                        .if_none_match = if_none_match});
    }
    parked_ = std::move(reply.parked);
    if (parked_) return;
    response.status = reply.status;
    if (!reply.allow.empty()) response.set_header("Allow", reply.allow);
    if (reply.retry_after > Nanos::zero())
      response.set_header("Retry-After", std::to_string(whole_seconds(reply.retry_after)));
    for (const auto& [name, value] : reply.headers) response.set_header(name.c_str(), value);
    response.set_content(reply.body, reply.content_type.c_str());
    SLIME_LOG(LogLevel::kDebug, "nanoctrl", request.method, " ", request.target, " ", response.status);
  }

  const ApiHandler handler_;
  // Of the request under way.
  const RawRequest* raw_ = nullptr;
  std::string client_;
  bool answer_now_ = false;
  bool answered_ = false;
  int refused_ = 0;
  std::optional<Parked> parked_;
};

Codec::Codec(ApiHandler handler) : impl_(std::make_unique<Impl>(std::move(handler))) {}
Codec::~Codec() = default;

Handled Codec::handle(const RawRequest& request, std::string_view client, bool answer_now) {
  return impl_->handle(request, client, answer_now);
}

}  // namespace slime::ctrl

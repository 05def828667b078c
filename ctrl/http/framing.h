#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace slime::ctrl {

// The headers whose values Framing keeps, because nanoctrl reads them.
enum class Header : std::uint8_t {
  kHost,
  kOrigin,
  kContentType,
  kAuthorization,
  kSession,
  kAccept,
  kIfNoneMatch,
};
inline constexpr std::size_t kHeaders = 7;

// The bytes of one complete HTTP request, with the positions of its parts, so that it need not be
// parsed again.
struct RawRequest {
  struct Part {
    std::size_t begin = 0;
    std::size_t size = 0;
  };

  std::string bytes;
  std::size_t header_bytes = 0;
  Part method;
  Part target;
  std::array<Part, kHeaders> headers = {};
  // true: a HEAD request, whose reply has no body
  bool head = false;
  bool old = false;  // HTTP/1.0
  // true: the client may send another request on this connection
  bool keeps_open = false;

  [[nodiscard]] std::string_view part(Part at) const {
    return std::string_view(bytes).substr(at.begin, at.size);
  }
  // Empty when the header is absent.
  [[nodiscard]] std::string_view value(Header of) const {
    return part(headers[static_cast<std::size_t>(of)]);
  }
  [[nodiscard]] std::string_view header() const { return std::string_view(bytes).substr(0, header_bytes); }
  [[nodiscard]] std::string_view body() const { return std::string_view(bytes).substr(header_bytes); }
};

// Parses the requests of one connection. An empty line ends a header; Content-Length is the size of
// the body. Strict, so that nanoctrl and a proxy in front agree on where each request ends (no
// request smuggling): lines end in CR LF, have no control characters and are not folded; important
// headers must not be repeated. The result does not depend on how reads split the bytes. Thread:
// one.
class Framing {
 public:
  enum class State { kIncomplete, kComplete, kRefused };

  // Parses `input`, which begins with the current request. The caller only appends to `input` until
  // take().
  State look(std::string_view input);
  // Only after look() has returned kComplete: removes the request from the front of `input` and
  // returns it. Then look() parses the next request.
  RawRequest take(std::string& input);
  // Returns true, once per request, if the client waits for "100 Continue" before it sends the
  // body.
  bool takes_continue();

  // The HTTP status of the refusal. Valid after kRefused, which is final: the beginning of the next
  // request is unknown.
  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] std::string_view message() const { return message_; }
  // Returns whether the current request is a HEAD request; false until its method is known.
  [[nodiscard]] bool head() const { return head_; }

 private:
  enum class At { kRequestLine, kHeaders, kBody };

  State refuse(int status, std::string_view message);
  State take_line(std::string_view line, std::size_t begin);
  State take_request_line(std::string_view line, std::size_t begin);
  State take_header(std::string_view line, std::size_t begin);
  void take_connection(std::string_view value);
  State take_length(std::string_view digits);
  State end_header(std::size_t header_end);

  State state_ = State::kIncomplete;
  At at_ = At::kRequestLine;
  std::size_t request_begin_ = 0;  // after leading empty lines
  std::size_t line_begin_ = 0;
  std::size_t scanned_ = 0;  // no line end before this offset
  std::size_t header_end_ = 0;
  std::uint64_t body_bytes_ = 0;
  RawRequest::Part method_;
  RawRequest::Part target_;
  std::array<RawRequest::Part, kHeaders> headers_ = {};
  std::array<bool, kHeaders> has_ = {};
  bool has_length_ = false;
  bool has_encoding_ = false;
  bool expects_ = false;
  bool head_ = false;
  bool old_ = false;
  bool says_close_ = false;
  bool says_keep_alive_ = false;
  int status_ = 0;
  std::string_view message_;
};

}  // namespace slime::ctrl

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace slime::ctrl {

// The headers that nanoctrl reads. Framing keeps nothing of other headers.
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

// One complete HTTP request: its bytes, and the positions of its parts, so that it is parsed only
// once.
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
  bool head = false;        // a HEAD request: the reply has no body
  bool old = false;         // HTTP/1.0
  bool keeps_open = false;  // the client may send another request on this connection

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

// Parses the requests of one connection: a header ends with its empty line, the body's size is
// Content-Length. Strict, so that a proxy in front cannot see other requests than nanoctrl does
// (request smuggling): lines end in CR LF, are not folded and have no control characters, and
// headers that decide something appear once. The result depends on the bytes alone, not on how they
// are split into reads. Thread: one.
class Framing {
 public:
  enum class State { kIncomplete, kComplete, kRefused };

  // Parses `input`, which begins at the request and only grows until take().
  State look(std::string_view input);
  // After kComplete: removes the request from the front of the input, and begins with the next
  // request.
  RawRequest take(std::string& input);
  // Returns true once per request whose client waits for "100 Continue" before it sends the body.
  bool takes_continue();

  // Valid after kRefused, which is final: the start of the next request is unknown.
  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] std::string_view message() const { return message_; }
  // Returns whether the request is a HEAD request, as far as known.
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

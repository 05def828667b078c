#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace slime::ctrl {

// The headers that something reads; of the others the framing keeps nothing.
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

// One whole HTTP request: its bytes, and where in them is what is read of it. Nothing parses it again.
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
  bool head = false;        // its answer has no body
  bool old = false;         // HTTP/1.0
  bool keeps_open = false;  // the sender wants to send another one on this connection

  [[nodiscard]] std::string_view part(Part at) const {
    return std::string_view(bytes).substr(at.begin, at.size);
  }
  // Empty: there is none.
  [[nodiscard]] std::string_view value(Header of) const {
    return part(headers[static_cast<std::size_t>(of)]);
  }
  [[nodiscard]] std::string_view header() const { return std::string_view(bytes).substr(0, header_bytes); }
  [[nodiscard]] std::string_view body() const { return std::string_view(bytes).substr(header_bytes); }
};

// Parses the requests of one connection: a header ends with its empty line, a body by Content-Length. Strict,
// so that no proxy in front of it sees other requests than it does: lines end in CR LF, are not folded and
// have no control characters, and what decides something is there once. What it finds depends on the bytes
// alone, not on the pieces in which they came. Thread: one.
class Framing {
 public:
  enum class State { kIncomplete, kComplete, kRefused };

  // `input` begins where the request does, and only grows until take().
  State look(std::string_view input);
  // After kComplete: cuts the request off the front of what look() saw, and begins with the next one.
  RawRequest take(std::string& input);
  // True once for a request whose sender waits for a word before it sends the body.
  bool takes_continue();

  // After kRefused, which is for ever: the next request's beginning cannot be known.
  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] std::string_view message() const { return message_; }
  // As far as it is known.
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
  std::size_t request_begin_ = 0;  // after empty lines
  std::size_t line_begin_ = 0;
  std::size_t scanned_ = 0;  // no end of line before it
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

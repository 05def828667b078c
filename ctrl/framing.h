#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace slime::ctrl {

// The bytes of one whole HTTP request, and where in them is what is read before anything parses the rest.
struct RawRequest {
  struct Part {
    std::size_t begin = 0;
    std::size_t size = 0;
  };

  std::string bytes;
  std::size_t header_bytes = 0;
  Part content_type;
  Part authorization;
  bool head = false;  // its answer has no body

  [[nodiscard]] std::string_view part(Part at) const {
    return std::string_view(bytes).substr(at.begin, at.size);
  }
  [[nodiscard]] std::string_view header() const { return std::string_view(bytes).substr(0, header_bytes); }
  [[nodiscard]] std::string_view body() const { return std::string_view(bytes).substr(header_bytes); }
};

// Finds where the requests of one connection end: a header by its empty line, a body by Content-Length.
// Strict, so that what parses the request after it cannot see another one: lines end in CR LF, are not
// folded and have no control characters. What it finds depends on the bytes alone, not on the pieces in which
// they came. Thread: one.
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
  State take_request_line(std::string_view line);
  State take_header(std::string_view line, std::size_t begin);
  State take_length(std::string_view digits);
  State end_header(std::size_t header_end);

  State state_ = State::kIncomplete;
  At at_ = At::kRequestLine;
  std::size_t request_begin_ = 0;  // after empty lines
  std::size_t line_begin_ = 0;
  std::size_t scanned_ = 0;  // no end of line before it
  std::size_t header_end_ = 0;
  std::uint64_t body_bytes_ = 0;
  RawRequest::Part content_type_;
  RawRequest::Part authorization_;
  bool has_length_ = false;
  bool has_encoding_ = false;
  bool has_authorization_ = false;
  bool expects_ = false;
  bool head_ = false;
  int status_ = 0;
  std::string_view message_;
};

}  // namespace slime::ctrl

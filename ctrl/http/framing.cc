#include "ctrl/http/framing.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "ctrl/limits.h"

namespace slime::ctrl {
namespace {

// Most bytes of a request line: the longest target, with room for the method and the HTTP version.
constexpr std::size_t kRequestLineBytes = limits::kTargetBytes + 64;
// Most digits of Content-Length; a number of 18 digits always fits into 64 bits.
constexpr std::size_t kNumberDigits = 18;

bool is_token(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kMarks.find(c) != std::string_view::npos;
}
bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return is_token(c); });
}
bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool same(std::string_view text, std::string_view lower_case) {
  return std::equal(text.begin(), text.end(), lower_case.begin(), lower_case.end(),
                    [](char a, char b) { return lower(a) == b; });
}
std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

struct HeaderName {
  std::string_view name;  // in lower case
  Header header;
  // true: the header may be repeated, and only its first value is used
  bool list = false;
};
constexpr HeaderName kNames[] = {
    {"host", Header::kHost},
    {"origin", Header::kOrigin},
    {"content-type", Header::kContentType},
    {"authorization", Header::kAuthorization},
    {"slime-session", Header::kSession},
    {"accept", Header::kAccept, true},
    {"if-none-match", Header::kIfNoneMatch, true},
};
static_assert(std::size(kNames) == kHeaders);

// Error messages for a repeated header, in the order of kNames.
constexpr std::string_view kTwice[] = {
    "there are two Host headers",          "there are two Origin headers",
    "there are two Content-Types",         "there are two Authorization headers",
    "there are two Slime-Session headers",
};

// Returns whether bytes that begin with `start` may be an HTTP request, or an empty line before a
// request. Another protocol is refused at its first bytes, because its client may wait for an
// answer to them.
bool may_be_request(std::string_view start) {
  constexpr std::size_t kMethodBytes = 32;
  const std::string_view begin = start.substr(0, kMethodBytes);
  for (const char c : begin) {
    if (c == ' ' || c == '\r' || c == '\n') return true;  // the complete line is checked later
    if (!is_token(c)) return false;
  }
  return begin.size() < kMethodBytes;
}

}  // namespace

Framing::State Framing::refuse(int status, std::string_view message) {
  status_ = status;
  message_ = message;
  return state_ = State::kRefused;
}

Framing::State Framing::look(std::string_view input) {
  if (state_ != State::kIncomplete) return state_;
  while (at_ != At::kBody) {
    if (at_ == At::kRequestLine && !may_be_request(input.substr(std::min(line_begin_, input.size()))))
      return refuse(400, "this is not an HTTP request");
    const std::size_t newline = input.find('\n', scanned_);
    const bool whole = newline != std::string_view::npos;
    const std::size_t end = whole ? newline + 1 : input.size();
    if (at_ == At::kRequestLine && end - line_begin_ > kRequestLineBytes)
      return refuse(414, "the URL is too long");
    if (end > limits::kHeaderBytes || end - line_begin_ > limits::kHeaderLineBytes)
      return refuse(431, "the header is too large");
    scanned_ = end;
    if (!whole) return State::kIncomplete;
    if (take_line(input.substr(line_begin_, newline - line_begin_), line_begin_) == State::kRefused)
      return state_;
    line_begin_ = end;
  }
  if (input.size() - header_end_ < body_bytes_) return State::kIncomplete;
  return state_ = State::kComplete;
}

Framing::State Framing::take_line(std::string_view line, std::size_t begin) {
  if (!line.ends_with('\r')) return refuse(400, "a line of the header does not end in CR LF");
  line.remove_suffix(1);
  if (std::any_of(line.begin(), line.end(), is_control))
    return refuse(400, "the header has a control character");
  const std::size_t next = begin + line.size() + 2;
  if (at_ == At::kHeaders) return line.empty() ? end_header(next) : take_header(line, begin);
  if (!line.empty()) return take_request_line(line, begin);
  // Skips an empty line before the request: some clients send an empty line after a body.
  request_begin_ = next;
  return request_begin_ > 4 ? refuse(400, "the request begins with empty lines") : state_;
}

Framing::State Framing::take_request_line(std::string_view line, std::size_t begin) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || !is_token(line.substr(0, first)))
    return refuse(400, "the request does not begin like one");
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (target.empty() || target.find_first_of(" \t") != std::string_view::npos)
    return refuse(400, "the request does not begin like one");
  if (target.size() > limits::kTargetBytes) return refuse(414, "the URL is too long");
  if (version != "HTTP/1.1" && version != "HTTP/1.0")
    return refuse(400, "nanoctrl speaks HTTP/1.1 and HTTP/1.0");
  head_ = line.substr(0, first) == "HEAD";
  old_ = version == "HTTP/1.0";
  method_ = {begin, first};
  target_ = {begin + first + 1, target.size()};
  at_ = At::kHeaders;
  return state_;
}

Framing::State Framing::take_header(std::string_view line, std::size_t begin) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    return refuse(400, "a line of the header has no name");
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (same(name, "content-length")) return take_length(value);
  if (same(name, "transfer-encoding")) has_encoding_ = true;
  if (same(name, "expect") && same(value, "100-continue")) expects_ = true;
  if (same(name, "connection")) take_connection(value);
  for (const HeaderName& known : kNames) {
    if (!same(name, known.name)) continue;
    const auto offset = value.empty() ? 0 : static_cast<std::size_t>(value.data() - line.data());
    const auto index = static_cast<std::size_t>(known.header);
    if (!std::exchange(has_[index], true)) {
      headers_[index] = {begin + offset, value.size()};
    } else if (!known.list) {
      return refuse(400, kTwice[index]);
    }
    break;
  }
  return state_;
}

// Parses the Connection header, a list of words. Ignores all words except "close" and "keep-alive".
void Framing::take_connection(std::string_view value) {
  while (!value.empty()) {
    const std::size_t comma = std::min(value.find(','), value.size());
    const std::string_view word = trimmed(value.substr(0, comma));
    if (same(word, "close")) says_close_ = true;
    if (same(word, "keep-alive")) says_keep_alive_ = true;
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
}

Framing::State Framing::take_length(std::string_view digits) {
  const bool number = !digits.empty() &&
                      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!number) return refuse(400, "Content-Length is not a number");
  const std::size_t zeros = std::min(digits.find_first_not_of('0'), digits.size());
  digits.remove_prefix(zeros);
  std::uint64_t bytes = 0;
  if (digits.size() > kNumberDigits) return refuse(413, "the body is too large");
  std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  if (has_length_ && bytes != body_bytes_) return refuse(400, "there are two Content-Lengths");
  has_length_ = true;
  body_bytes_ = bytes;
  return state_;
}

Framing::State Framing::end_header(std::size_t header_end) {
  if (has_encoding_ && has_length_)
    return refuse(400, "the request has both Content-Length and Transfer-Encoding");
  if (has_encoding_) return refuse(411, "the body must come with a Content-Length, not in chunks");
  if (body_bytes_ > limits::kBodyBytes) return refuse(413, "the body is too large");
  if (!old_ && !has_[static_cast<std::size_t>(Header::kHost)]) return refuse(400, "there is no Host header");
  header_end_ = header_end;
  at_ = At::kBody;
  return state_;
}

bool Framing::takes_continue() {
  return at_ == At::kBody && state_ == State::kIncomplete && std::exchange(expects_, false);
}

RawRequest Framing::take(std::string& input) {
  const std::size_t end = header_end_ + static_cast<std::size_t>(body_bytes_);
  std::string rest = input.substr(end);
  RawRequest out;
  out.bytes = std::move(input);
  out.bytes.resize(end);
  out.bytes.erase(0, request_begin_);
  out.header_bytes = header_end_ - request_begin_;
  const auto moved = [this](RawRequest::Part at) {
    return RawRequest::Part{at.size > 0 ? at.begin - request_begin_ : 0, at.size};
  };
  out.method = moved(method_);
  out.target = moved(target_);
  std::transform(headers_.begin(), headers_.end(), out.headers.begin(), moved);
  out.head = head_;
  out.old = old_;
  out.keeps_open = !says_close_ && (!old_ || says_keep_alive_);
  input = std::move(rest);
  *this = Framing();
  return out;
}

}  // namespace slime::ctrl

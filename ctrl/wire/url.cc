#include "ctrl/wire/url.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/utf8.h"

namespace slime::ctrl {

std::string percent_encode(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    std::byte byte;
    if (text.size() - i < 3 || !from_hex(text.substr(i + 1, 2), {&byte, 1})) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

namespace {

std::optional<std::string> decode_text(std::string_view text) {
  std::optional<std::string> out = percent_decode(text);
  if (out && !is_utf8(*out)) return std::nullopt;
  return out;
}

// Calls `fn` for each piece of `text` between separators. Stops and returns false when `fn` returns
// false.
template <class F>
bool split(std::string_view text, char separator, F fn) {
  while (true) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (!fn(text.substr(0, end))) return false;
    if (end == text.size()) return true;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::optional<Target> parse_target(std::string_view target) {
  if (target.empty() || target.front() != '/') return std::nullopt;
  target = target.substr(0, target.find('#'));
  const std::size_t mark = target.find('?');
  Target out;
  const bool path_ok = split(target.substr(1, mark == std::string_view::npos ? mark : mark - 1), '/',
                             [&out](std::string_view part) {
                               std::optional<std::string> decoded = decode_text(part);
                               if (decoded) out.path.push_back(std::move(*decoded));
                               return decoded.has_value();
                             });
  if (!path_ok) return std::nullopt;
  if (mark == std::string_view::npos || mark + 1 == target.size()) return out;
  const bool query_ok = split(target.substr(mark + 1), '&', [&out](std::string_view pair) {
    const std::size_t equals = pair.find('=');
    std::optional<std::string> key = decode_text(pair.substr(0, equals));
    std::optional<std::string> value =
        decode_text(equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1));
    if (!key || !value) return false;
    out.query.emplace_back(std::move(*key), std::move(*value));
    return true;
  });
  if (!query_ok) return std::nullopt;
  return out;
}

bool is_loopback(const std::string& host) {
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

}  // namespace slime::ctrl

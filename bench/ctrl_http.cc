#include "bench/ctrl_http.h"

#include <charconv>
#include <nlohmann/json.hpp>

namespace slime::bench {
namespace {

using nlohmann::json;

constexpr std::size_t kHeadMost = 16384;

void put_common(std::string& out, const RequestHead& head) {
  out.append(" HTTP/1.1\r\nHost: ").append(head.host).append("\r\n");
  if (!head.authorization.empty()) out.append("Authorization: ").append(head.authorization).append("\r\n");
  if (head.close) out.append("Connection: close\r\n");
}

bool same_letters(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + 32) : text[i];
    if (c != lower[i]) return false;
  }
  return true;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

template <class Number>
bool read_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

bool contains(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

// Returns the number after `key`; `key` includes its quotes and colon.
std::optional<std::uint64_t> number_after(std::string_view text, std::string_view key) {
  const auto at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::uint64_t out = 0;
  const char* const from = text.data() + at + key.size();
  if (std::from_chars(from, text.data() + text.size(), out).ec != std::errc{}) return std::nullopt;
  return out;
}

// nlohmann throws for missing fields; here that means a body that is not nanoctrl's.
template <class T, class Read>
std::optional<T> read_json_body(std::string_view body, Read read) {
  const json parsed = json::parse(body, nullptr, false);
  if (!parsed.is_object()) return std::nullopt;
  try {
    return read(parsed);
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

News news_of(const json& body) {
  News out;
  out.revision = body.at("revision").get<std::uint64_t>();
  out.resync = body.at("resync").get<bool>();
  out.more = body.at("more").get<bool>();
  const json& events = body.at("events");
  out.events = events.size();
  for (const json& event : events) {
    if (event.at("event").get_ref<const std::string&>() == "expired")
      out.expired.push_back(event.at("incarnation").get<std::uint64_t>());
  }
  return out;
}

}  // namespace

std::string post_text(const RequestHead& head, std::string_view target, std::string_view body) {
  std::string out;
  out.reserve(256 + target.size() + body.size());
  out.append("POST ").append(target);
  put_common(out, head);
  out.append("Content-Type: application/json\r\nContent-Length: ").append(std::to_string(body.size()));
  return out.append("\r\n\r\n").append(body);
}

std::string get_text(const RequestHead& head, std::string_view target) {
  std::string out("GET ");
  out.append(target);
  put_common(out, head);
  return out.append("\r\n");
}

Parsed parse_answer(std::string_view in, HttpAnswer& out) {
  const auto head_end = in.find("\r\n\r\n");
  if (head_end == std::string_view::npos) return in.size() > kHeadMost ? Parsed::kBad : Parsed::kPart;
  std::string_view head = in.substr(0, head_end + 2);
  const auto line_end = head.find("\r\n");
  const std::string_view first = head.substr(0, line_end);
  if (first.size() < 12 || first.substr(0, 7) != "HTTP/1." || !read_number(first.substr(9, 3), out.status))
    return Parsed::kBad;
  out.close = first[7] == '0';
  std::optional<std::size_t> length;
  head.remove_prefix(line_end + 2);
  while (!head.empty()) {
    const auto end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) return Parsed::kBad;
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (same_letters(line.substr(0, colon), "content-length")) {
      if (std::size_t number = 0; read_number(value, number)) length = number;
    } else if (same_letters(line.substr(0, colon), "connection")) {
      out.close = same_letters(value, "close");
    }
  }
  if (!length) return Parsed::kBad;
  out.bytes = head_end + 4 + *length;
  if (in.size() < out.bytes) return Parsed::kPart;
  out.body = in.substr(head_end + 4, *length);
  return Parsed::kWhole;
}

std::optional<Grant> parse_grant(std::string_view body) {
  const auto incarnation = number_after(body, "\"incarnation\":");
  const auto revision = number_after(body, "\"revision\":");
  const auto ttl_ms = number_after(body, "\"ttl_ms\":");
  if (!incarnation || !revision || !ttl_ms) return std::nullopt;
  return Grant{*incarnation, *revision, *ttl_ms};
}

std::optional<News> parse_news(std::string_view body) {
  if (contains(body, "\"events\":[]") && contains(body, "\"resync\":false") &&
      contains(body, "\"more\":false")) {
    if (const auto revision = number_after(body, "\"revision\":")) return News{.revision = *revision};
  }
  return read_json_body<News>(body, news_of);
}

std::optional<PeerPage> parse_peers(std::string_view body) {
  return read_json_body<PeerPage>(body, [](const json& page) {
    PeerPage out{page.at("revision").get<std::uint64_t>(), {}, page.value("next", "")};
    for (const json& peer : page.at("peers"))
      out.incarnations.push_back(peer.at("incarnation").get<std::uint64_t>());
    return out;
  });
}

}  // namespace slime::bench

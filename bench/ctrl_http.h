#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slime::bench {

// The part of HTTP that a simulated agent needs for nanoctrl, as text: thousands of requests a
// second must cost this process little compared with the server. The names are chosen here and need
// no escapes.

// The parts that all requests to one server share.
struct RequestHead {
  std::string host;           // "127.0.0.1:4479"
  std::string authorization;  // empty: none
  bool close = false;         // the server closes the connection after its answer
};
std::string post_text(const RequestHead& head, std::string_view target, std::string_view body);
std::string get_text(const RequestHead& head, std::string_view target);

struct HttpAnswer {
  int status = 0;
  bool close = false;       // the server closes the connection after it
  std::size_t bytes = 0;    // length of the whole answer
  std::string_view body{};  // points into the parsed bytes
};
enum class Parsed : std::uint8_t { kPart, kWhole, kBad };
// The answer at the start of `in`. Bodies have a Content-Length, as nanoctrl's do.
Parsed parse_answer(std::string_view in, HttpAnswer& out);

// The fields of bodies that an agent uses. Parsing returns nothing for bodies that are not
// nanoctrl's.
struct Grant {
  std::uint64_t incarnation = 0;
  std::uint64_t revision = 0;
  std::uint64_t ttl_ms = 0;
};
std::optional<Grant> parse_grant(std::string_view body);

struct News {
  std::uint64_t revision = 0;
  bool resync = false;
  bool more = false;
  std::size_t events = 0;
  std::vector<std::uint64_t> expired{};  // incarnations
};
// Parses the answer to a heartbeat. Without events that takes a few searches, with events a JSON
// parser.
std::optional<News> parse_news(std::string_view body);

struct PeerPage {
  std::uint64_t revision = 0;
  std::vector<std::uint64_t> incarnations;
  std::string next;  // empty: the last page
};
std::optional<PeerPage> parse_peers(std::string_view body);

}  // namespace slime::bench

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slime::ctrl {

// Encodes all characters except letters, digits and "-._~" as %XX. A name with slashes thus becomes
// one part of a path.
std::string percent_encode(std::string_view text);
// Decodes %XX. Returns nullopt when a '%' is not followed by two hexadecimal digits. Keeps '+' as
// '+'.
std::optional<std::string> percent_decode(std::string_view text);

// A request's target, split and decoded.
struct Target {
  std::vector<std::string> path;  // "/v1/peers/a%2Fb" is v1, peers, a/b
  std::vector<std::pair<std::string, std::string>> query;
};
// Splits and decodes a request's target. Returns nullopt if the target does not begin with '/', has
// an invalid escape, or is not UTF-8.
std::optional<Target> parse_target(std::string_view target);

// Returns true for 127.0.0.0/8, "::1" and "localhost".
bool is_loopback(const std::string& host);

}  // namespace slime::ctrl

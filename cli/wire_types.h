#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slime::cli {

// A type parsed from its wire name (rpc/type_names.h), such as "map[str, list[int]]". `of` has the
// types in the brackets.
struct WireType {
  std::string name = "any";
  std::vector<WireType> of{};
  // Returns whether this type, or a part of it, is "any".
  [[nodiscard]] bool has_any() const;
};

// Parses the wire name of a type. Returns "any" if `text` is invalid or nested too deeply, because
// `text` comes from a peer.
WireType parse_wire_type(std::string_view text);

}  // namespace slime::cli

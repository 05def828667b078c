#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slime::cli {

// A type by its wire name (rpc/type_names.h): "map[str, list[int]]".
struct WireType {
  std::string name = "any";
  std::vector<WireType> of{};
  // Returns whether this type, or a part of it, is "any".
  [[nodiscard]] bool has_any() const;
};

// Parses a wire type name. Returns "any" for other texts and for absurdly deep nesting, since a
// peer may send anything.
WireType parse_wire_type(std::string_view text);

}  // namespace slime::cli

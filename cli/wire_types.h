#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slime::cli {

// A type as reflection names it (rpc/type_names.h): "map[str, list[int]]".
struct WireType {
  std::string name = "any";
  std::vector<WireType> of{};
  // Whether it, or a part of it, is not known.
  [[nodiscard]] bool has_any() const;
};

// What is not such a name, or is nested absurdly deep, is "any": a peer may say what it likes.
WireType parse_wire_type(std::string_view text);

}  // namespace slime::cli

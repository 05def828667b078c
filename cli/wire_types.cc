#include "cli/wire_types.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace slime::cli {
namespace {

constexpr int kDepth = 16;

// Returns the number of type parameters of the type `name`: 2 for "map", 0 for "int". -1: any
// number; nullopt: unknown type.
std::optional<int> arity(std::string_view name) {
  for (const std::string_view plain : {"any", "bool", "int", "float", "str", "bytes", "none"}) {
    if (name == plain) return 0;
  }
  if (name == "list" || name == "optional") return 1;
  if (name == "map") return 2;
  if (name == "tuple") return -1;
  return std::nullopt;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<WireType> whole() {
    auto out = type(kDepth);
    return at_ == text_.size() ? out : std::nullopt;
  }

 private:
  std::optional<WireType> type(int depth) {
    if (depth == 0) return std::nullopt;
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= 'a' && text_[at_] <= 'z') ++at_;
    WireType out{std::string(text_.substr(begin, at_ - begin))};
    const std::optional<int> wanted = arity(out.name);
    if (!wanted) return std::nullopt;
    if (*wanted == 0) return out;
    if (!take("[")) return std::nullopt;
    while (!take("]")) {
      if (!out.of.empty() && !take(", ")) return std::nullopt;
      auto part = type(depth - 1);
      if (!part) return std::nullopt;
      out.of.push_back(std::move(*part));
    }
    if (*wanted >= 0 && static_cast<int>(out.of.size()) != *wanted) return std::nullopt;
    return out;
  }
  bool take(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

bool WireType::has_any() const {
  return name == "any" || std::any_of(of.begin(), of.end(), [](const WireType& t) { return t.has_any(); });
}

WireType parse_wire_type(std::string_view text) { return Parser(text).whole().value_or(WireType()); }

}  // namespace slime::cli

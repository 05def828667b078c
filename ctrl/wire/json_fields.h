#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/str.h"
#include "ctrl/limits.h"

// Field-by-field access to JSON objects. Private to ctrl's .cc files: it includes the JSON library.
namespace slime::ctrl {

using Json = nlohmann::json;

// Serializes JSON. Replaces invalid UTF-8 inside quoted texts instead of throwing.
inline std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Parses a body of bounded size and depth. `what` names the body in errors.
Result<Json> parse_json(std::string_view body, Code code, std::string_view what);

// Returns an integer from 0 to `max`. Accepts 7 and, as JSON Schema does, 7.0, the latter up to
// 2^53 - 1.
std::optional<std::uint64_t> integer_of(const Json& value, std::uint64_t max);

// The fields of one object. Keeps the first problem: read all fields, then check finish(). In
// strict mode, each field that was not read is a problem too.
class Fields {
 public:
  enum class Mode { kStrict, kLenient };
  // `object` outlives this. `where` prefixes field names in errors: "services[2].".
  Fields(const Json& object, Mode mode, std::string where = {});

  std::string text(const char* key, bool required);
  std::uint64_t integer(const char* key, bool required);  // 0 to 2^53 - 1
  bool boolean(const char* key);
  std::vector<std::string> texts(const char* key);
  // Null when absent; another type is a problem.
  const Json* array(const char* key, bool required = false);
  const Json* object(const char* key);
  [[nodiscard]] bool has(const char* key) const;
  void problem(std::string text);
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] Mode mode() const { return mode_; }
  Status finish();

 private:
  const Json* find(const char* key, bool required);

  const Json& object_;
  Mode mode_;
  std::string where_;
  std::vector<std::string_view> known_;
  Status status_;
};

}  // namespace slime::ctrl

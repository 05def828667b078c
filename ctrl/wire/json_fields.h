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

// Reads JSON objects field by field. Only for .cc files of ctrl, because it includes the JSON
// library.
namespace slime::ctrl {

using Json = nlohmann::json;

// Returns JSON as text. Replaces invalid UTF-8 in strings, for which the library would throw.
inline std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Parses `body` as a JSON object. Returns an error with `code` if the body is no object or nested
// too deeply; the error calls the body `what`.
Result<Json> parse_json(std::string_view body, Code code, std::string_view what);

// Returns the value as an integer; nullopt if it is not an integer from 0 to `max`. As in JSON
// Schema, 7.0 counts as an integer, up to 2^53 - 1.
std::optional<std::uint64_t> integer_of(const Json& value, std::uint64_t max);

// Reads the fields of one JSON object. Keeps the first problem: the caller reads all fields, then
// checks finish(). In strict mode, a field that was not read is a problem too.
class Fields {
 public:
  enum class Mode { kStrict, kLenient };
  // `object` outlives this. Errors put `where` before a field's name, such as "services[2].".
  Fields(const Json& object, Mode mode, std::string where = {});

  std::string text(const char* key, bool required);
  std::uint64_t integer(const char* key, bool required);  // 0 to 2^53 - 1
  bool boolean(const char* key);
  std::vector<std::string> texts(const char* key);
  // Returns the array in the field `key`; null when the field is absent. Another type is a problem.
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

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

// Reading JSON objects field by field. Private to ctrl's .cc files: it brings the JSON library.
namespace slime::ctrl {

using Json = nlohmann::json;

// Invalid UTF-8 inside texts that we quote back is replaced, never an exception.
inline std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The value of a body of bounded size and depth. `what` is for the error text.
Result<Json> parse_json(std::string_view body, Code code, std::string_view what);

// The integer of 0 to `max` that a value is: 7 and, as JSON Schema has it, 7.0; of these up to 2^53 - 1.
std::optional<std::uint64_t> integer_of(const Json& value, std::uint64_t max);

// The fields of one object. The first problem sticks; read everything, then look at finish(). With strict
// reading every field that nobody asked for is a problem too.
class Fields {
 public:
  enum class Mode { kStrict, kLenient };
  // `object` outlives this. `where` prefixes field names in texts: "services[2].".
  Fields(const Json& object, Mode mode, std::string where = {});

  std::string text(const char* key, bool required);
  std::uint64_t integer(const char* key, bool required);  // 0 to 2^53 - 1
  bool boolean(const char* key);
  std::vector<std::string> texts(const char* key);
  // Null when absent; a problem when it has another type.
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

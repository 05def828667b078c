#include "ctrl/wire/json_fields.h"

#include <algorithm>

namespace slime::ctrl {
namespace {

const Json& empty_object() {
  static const Json kEmpty = Json::object();
  return kEmpty;
}

// Returns whether a JSON text is nested too deeply. Called before parsing, so that neither the
// parser nor the destructor of the result recurses too deeply.
bool too_deep(std::string_view body) {
  std::size_t depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limits::kJsonDepth) return true;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<Json> parse_json(std::string_view body, Code code, std::string_view what) {
  if (too_deep(body)) return Status(code, str(what, " nests deeper than ", limits::kJsonDepth, " levels"));
  Json value = Json::parse(body.begin(), body.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return Status(code, str(what, " is not JSON"));
  if (!value.is_object()) return Status(code, str(what, " is not a JSON object"));
  return value;
}

std::optional<std::uint64_t> integer_of(const Json& value, std::uint64_t max) {
  // get_ptr() returns null for negative numbers and for numbers with a decimal point.
  if (const auto* number = value.get_ptr<const Json::number_unsigned_t*>())
    return *number <= max ? std::optional(*number) : std::nullopt;
  const auto* real = value.get_ptr<const Json::number_float_t*>();
  if (real == nullptr || !(*real >= 0 && *real <= static_cast<double>(limits::kIntegerMax)))
    return std::nullopt;
  const auto number = static_cast<std::uint64_t>(*real);
  return static_cast<double>(number) == *real && number <= max ? std::optional(number) : std::nullopt;
}

Fields::Fields(const Json& object, Mode mode, std::string where)
    : object_(object.is_object() ? object : empty_object()), mode_(mode), where_(std::move(where)) {
  if (!object.is_object()) problem(str(where_.empty() ? "the body" : where_, " is not an object"));
}

const Json* Fields::find(const char* key, bool required) {
  known_.push_back(key);
  const auto it = object_.find(key);
  if (it != object_.end()) return &*it;
  if (required) problem(str("\"", where_, key, "\" is missing"));
  return nullptr;
}

std::string Fields::text(const char* key, bool required) {
  const Json* value = find(key, required);
  if (value == nullptr) return {};
  if (const auto* text = value->get_ptr<const std::string*>()) return *text;
  problem(str("\"", where_, key, "\" is not a string"));
  return {};
}

std::uint64_t Fields::integer(const char* key, bool required) {
  const Json* value = find(key, required);
  if (value == nullptr) return 0;
  if (const auto number = integer_of(*value, limits::kIntegerMax)) return *number;
  problem(str("\"", where_, key, "\" is not an integer from 0 to ", limits::kIntegerMax));
  return 0;
}

bool Fields::boolean(const char* key) {
  const Json* value = find(key, false);
  if (value == nullptr) return false;
  if (const auto* flag = value->get_ptr<const Json::boolean_t*>()) return *flag;
  problem(str("\"", where_, key, "\" is not true or false"));
  return false;
}

std::vector<std::string> Fields::texts(const char* key) {
  std::vector<std::string> out;
  const Json* list = array(key);
  if (list == nullptr) return out;
  for (const Json& item : *list) {
    const auto* text = item.get_ptr<const std::string*>();
    if (text == nullptr) {
      problem(str("\"", where_, key, "\" has an entry that is not a string"));
      return {};
    }
    out.push_back(*text);
  }
  return out;
}

const Json* Fields::array(const char* key, bool required) {
  const Json* value = find(key, required);
  if (value == nullptr || value->is_array()) return value;
  problem(str("\"", where_, key, "\" is not an array"));
  return nullptr;
}

const Json* Fields::object(const char* key) {
  const Json* value = find(key, false);
  if (value == nullptr || value->is_object()) return value;
  problem(str("\"", where_, key, "\" is not an object"));
  return nullptr;
}

bool Fields::has(const char* key) const { return object_.contains(key); }

void Fields::problem(std::string text) {
  if (status_.ok())
    status_ = Status(mode_ == Mode::kStrict ? Code::kInvalidArgument : Code::kCorrupt, std::move(text));
}

Status Fields::finish() {
  if (mode_ == Mode::kStrict && status_.ok()) {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      std::string expected;
      for (const std::string_view name : known_) expected += str(expected.empty() ? "" : ", ", name);
      problem(str("unknown field \"", where_, key.substr(0, limits::kNameBytes), "\"; known are ", expected));
    }
  }
  return std::move(status_);
}

}  // namespace slime::ctrl

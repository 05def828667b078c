#pragma once

#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace slime::bench {

// As printf, but for a text of at most 1023 bytes.
[[gnu::format(printf, 1, 2)]] inline std::string print(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

inline double number(const nlohmann::json& in, const char* key) { return in.at(key).get<double>(); }

}  // namespace slime::bench

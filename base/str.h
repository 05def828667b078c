#pragma once

#include <sstream>
#include <string>

namespace slime {

// Joins its arguments as operator<< prints them. For cold paths: error texts, logs.
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

}  // namespace slime

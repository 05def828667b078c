#pragma once

#include <locale>
#include <sstream>
#include <string>

namespace slime {

// Joins its arguments as operator<< prints them in the "C" locale. For cold paths: error texts,
// logs.
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << args);
  return std::move(out).str();
}

}  // namespace slime

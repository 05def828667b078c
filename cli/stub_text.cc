#include "cli/stub_text.h"

#include <nlohmann/json.hpp>

#include "base/str.h"
#include "cli/signatures.h"
#include "cli/values.h"

namespace slime::cli {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool is_identifier(std::string_view name) {
  if (name.empty() || is_digit(name[0])) return false;
  for (const char c : name) {
    if (!is_letter(c) && !is_digit(c) && c != '_') return false;
  }
  return true;
}

std::string Names::take(std::string_view name) {
  std::string base;
  for (const char c : name) {
    if (is_letter(c) || is_digit(c) || c == '_')
      base.push_back(c);
    else if (base.empty() || base.back() != '_')
      base.push_back('_');
  }
  // Avoids a leading '_' or digit: names with a leading '_' are reserved in C++ and Python.
  if (base.empty() || !is_letter(base[0])) base.insert(0, "x");
  const std::string_view separator = base.back() == '_' ? "" : "_";
  std::string out = base;
  if (taken_.contains(out)) out.append(separator);
  for (int i = 2; taken_.contains(out); ++i) out = str(base, separator, i);
  taken_.insert(out);
  return out;
}

std::vector<std::string> lines_of(std::string_view raw) {
  // Replaces invalid UTF-8, because the generated source file must be UTF-8 and a peer's text may
  // not be.
  const auto valid = nlohmann::json::parse(print(nlohmann::json(raw), -1)).get<std::string>();
  std::string_view text = valid;
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string line = printable(text.substr(0, end));
    line.erase(line.find_last_not_of(' ') + 1);
    out.push_back(std::move(line));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  while (!out.empty() && out.back().empty()) out.pop_back();
  return out;
}

}  // namespace slime::cli

#include "cli/signatures.h"

#include <algorithm>

#include "base/str.h"

namespace slime::cli {
namespace {

// The most names that a suggestion prints; the further names are only counted.
constexpr std::size_t kMaxSuggested = 20;

std::string parameter_text(const rpc::ParameterInfo& parameter) {
  if (parameter.rest && parameter.name.empty() && parameter.type == "any") return "...";
  const std::string type = printable(parameter.type);
  if (!parameter.rest && parameter.name.empty()) return parameter.optional ? type + "?" : type;
  return str(parameter.rest ? "*" : "", printable(parameter.name), parameter.optional ? "?: " : ": ", type);
}

template <class List, class Text>
std::string joined(const List& list, const Text& text) {
  std::string out;
  for (std::size_t i = 0; i < std::min(list.size(), kMaxSuggested); ++i)
    out.append(out.empty() ? "" : ", ").append(text(list[i]));
  if (list.size() > kMaxSuggested) out.append(str(" and ", list.size() - kMaxSuggested, " more"));
  return out;
}

}  // namespace

std::string parameters_text(const rpc::MethodInfo& method) {
  std::string out;
  for (const rpc::ParameterInfo& parameter : method.parameters)
    out.append(out.empty() ? "" : ", ").append(parameter_text(parameter));
  return "(" + out + ")";
}

std::string result_text(const rpc::MethodInfo& method) {
  std::string out = printable(method.result);
  if (!method.reads.empty()) out += ", reads " + printable(method.reads);
  if (!method.writes.empty()) out += ", writes " + printable(method.writes);
  return out;
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

std::string suggestion(const std::vector<rpc::ServiceInfo>& services, std::string_view service,
                       std::string_view method) {
  const auto named = [](std::string_view name) {
    return [name](const auto& each) { return each.name == name; };
  };
  const auto found = std::find_if(services.begin(), services.end(), named(service));
  if (found == services.end())
    return "services there: " + joined(services, [](const auto& each) { return printable(each.name); });
  const auto& methods = found->methods;
  const auto known = std::find_if(methods.begin(), methods.end(), named(method));
  if (known == methods.end()) {
    return str("methods of ", printable(service), ": ", joined(methods, [](const auto& each) {
                 return printable(each.name) + parameters_text(each);
               }));
  }
  return str("it is ", printable(service), ".", printable(method), parameters_text(*known), " -> ",
             result_text(*known), known->raw() ? ": called with --raw" : "");
}

}  // namespace slime::cli

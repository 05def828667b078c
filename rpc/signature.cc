#include "rpc/signature.h"

#include <xxhash.h>

#include <array>
#include <cstdio>

#include "base/str.h"

namespace slime::rpc {
namespace {

std::string text_of(const MethodInfo& method) {
  std::string out = "(";
  for (const ParameterInfo& parameter : method.parameters) {
    if (out.size() > 1) out += ", ";
    out.append(parameter.type).append(parameter.optional ? "?" : "").append(parameter.rest ? "*" : "");
  }
  out.append(") -> ").append(method.result);
  if (!method.reads.empty()) out.append(" reads ").append(method.reads);
  if (!method.writes.empty()) out.append(" writes ").append(method.writes);
  return out;
}

// Returns whether the text has "any" as a whole word. Names of types are lower-case letters.
bool has_any(std::string_view text) {
  constexpr std::string_view kAny = "any";
  const auto letter = [&](std::size_t at) { return at < text.size() && text[at] >= 'a' && text[at] <= 'z'; };
  for (std::size_t at = text.find(kAny); at != std::string_view::npos; at = text.find(kAny, at + 1)) {
    if ((at == 0 || !letter(at - 1)) && !letter(at + kAny.size())) return true;
  }
  return false;
}

std::string hex(std::uint64_t number) {
  std::array<char, 17> out{};
  std::snprintf(out.data(), out.size(), "%016llx", static_cast<unsigned long long>(number));
  return out.data();
}

std::uint64_t hash_of(std::string_view text) {
  if (has_any(text)) return 0;
  const std::uint64_t hash = XXH3_64bits(text.data(), text.size());
  return hash != 0 ? hash : 1;
}

}  // namespace

Signature::Signature(std::string_view text) {
  if (!text.empty()) known_ = std::make_shared<const Known>(Known{std::string(text), hash_of(text)});
}

Signature::Signature(const MethodInfo& method) : Signature(text_of(method)) {}

Status Signature::explain(Status failure) const {
  if (hash() == 0 || failure.code() != Code::kUnimplemented || failure.maybe_executed()) return failure;
  return std::move(failure).with_context(str("called as ", text()));
}

Status Signature::check(std::string_view service, std::string_view method, std::uint64_t expected) const {
  if (hash() == 0 || expected == 0 || hash() == expected) return {};
  return Status(Code::kUnimplemented,
                str(service, ".", method, " is ", text(), " here (signature ", hex(hash()),
                    "), and its caller takes it for another one (signature ", hex(expected), ")"));
}

}  // namespace slime::rpc

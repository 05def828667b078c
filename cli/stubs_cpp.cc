#include <algorithm>
#include <array>
#include <cstddef>

#include "base/str.h"
#include "cli/stub_text.h"
#include "cli/wire_types.h"
#include "rpc/signature.h"

namespace slime::cli {
namespace {

constexpr std::string_view kHead = R"(// Made by `slime stubs`. Make it again rather than change it.
//
//   Calc calc(agent->peer("worker:0"));  // one peer's, or of any live server: Calc calc(agent->proxy("Calc"));
//   auto sum = calc.add(1, 2).wait();
//
// What has no type on the wire ("any") is taken as it is and given as msgpack: rpc/codec.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/stub.h"
)";

constexpr std::array kKeywords{
    "alignas",     "alignof",  "and",        "and_eq",    "asm",       "auto",         "bitand",
    "bitor",       "bool",     "break",      "case",      "catch",     "char",         "char16_t",
    "char32_t",    "char8_t",  "class",      "co_await",  "co_return", "co_yield",     "compl",
    "concept",     "const",    "const_cast", "consteval", "constexpr", "constinit",    "continue",
    "decltype",    "default",  "delete",     "do",        "double",    "dynamic_cast", "else",
    "enum",        "explicit", "export",     "extern",    "false",     "float",        "for",
    "friend",      "goto",     "if",         "inline",    "int",       "long",         "mutable",
    "namespace",   "new",      "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
    "or",          "or_eq",    "private",    "protected", "public",    "register",     "reinterpret_cast",
    "requires",    "return",   "short",      "signed",    "sizeof",    "static",       "static_assert",
    "static_cast", "struct",   "switch",     "template",  "this",      "thread_local", "throw",
    "true",        "try",      "typedef",    "typeid",    "typename",  "union",        "unsigned",
    "using",       "virtual",  "void",       "volatile",  "wchar_t",   "while",        "xor",
    "xor_eq"};
// Reserved besides the keywords: names that the generated code uses, and common macros.
constexpr std::array kUsed{"slime", "std",  "stub_", "signature_", "at",    "errno", "assert",
                           "linux", "unix", "EOF",   "NULL",       "major", "minor"};

std::set<std::string, std::less<>> reserved() {
  std::set<std::string, std::less<>> out(kKeywords.begin(), kKeywords.end());
  out.insert(kUsed.begin(), kUsed.end());
  return out;
}

std::string literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || c == '?') {  // avoids trigraphs
      out.append({'\\', c});
    } else if (byte >= 0x20 && byte < 0x7f) {
      out.push_back(c);
    } else {
      for (const int shift : {6, 3, 0}) {
        if (shift == 6) out.push_back('\\');
        out.push_back(static_cast<char>('0' + ((byte >> shift) & 7)));
      }
    }
  }
  return out + "\"";
}

// Call only for types without "any".
std::string type_name(const WireType& type) {
  if (type.name == "bool") return "bool";
  if (type.name == "int") return "std::int64_t";
  if (type.name == "float") return "double";
  if (type.name == "str") return "std::string";
  if (type.name == "bytes") return "slime::ByteVector";
  if (type.name == "none") return "std::optional<bool>";  // none as a part of another type
  std::string parts;
  for (const WireType& part : type.of) parts.append(parts.empty() ? "" : ", ").append(type_name(part));
  if (type.name == "list") return "std::vector<" + parts + ">";
  if (type.name == "map") return "std::map<" + parts + ">";
  if (type.name == "optional") return "std::optional<" + parts + ">";
  return "std::tuple<" + parts + ">";
}

std::string parameter_type(const WireType& type) {
  if (type.has_any()) return "const auto&";
  const bool small = type.name == "bool" || type.name == "int" || type.name == "float";
  return small ? type_name(type) : "const " + type_name(type) + "&";
}

// Returns `doc` as // comment lines. Removes backslashes at line ends, which would continue the
// comment on the next line of code.
std::string comment(const std::string& doc, const std::string& indent) {
  std::string out;
  for (std::string line : lines_of(doc)) {
    while (!line.empty() && line.back() == '\\') line.pop_back();
    // Avoids the trigraph "??/", which stands for a backslash.
    std::replace(line.begin(), line.end(), '?', '.');
    out.append(indent).append(line.empty() ? "//" : "// ").append(line).append("\n");
  }
  return out;
}

struct Parameter {
  std::string name;
  WireType type;
  bool rest = false;
};

// Returns the start of a generated method body, up to the call. Includes the method's signature if
// all its types are known, so that the server can check it.
std::string call_of(const rpc::MethodInfo& info) {
  const rpc::Signature signature(info);
  if (signature.hash() == 0) return "    return stub_.";
  return str("    static const slime::rpc::Signature signature_(", literal(signature.text()),
             ");\n    return stub_.with_signature(signature_).");
}

// Returns code that encodes the arguments of a raw call. `passed` has their names: ", a, b".
std::string encoded(const std::string& passed) {
  return str(", slime::rpc::encode_attached_arguments(", passed.empty() ? passed : passed.substr(2), ")");
}

// Returns the code of a streaming method. `taken` is its parameter list; `passed` has the names of
// its parameters: ", a, b".
std::string stream_overload(const rpc::MethodInfo& info, const std::string& name, const std::string& taken,
                            const std::string& passed) {
  const auto messages = [](const std::string& type) {
    return type.empty() ? "slime::None" : type_name(parse_wire_type(type));
  };
  const auto any = [](const std::string& type) { return !type.empty() && parse_wire_type(type).has_any(); };
  if (any(info.reads) || any(info.writes) || any(info.result))
    return str("  auto ", name, "(", taken, ") {\n", call_of(info), "raw().stream_attached(",
               literal(info.name), encoded(passed), ", true);\n  }\n");
  const WireType result = parse_wire_type(info.result);
  const std::string types = str(messages(info.reads), ", ", messages(info.writes), ", ",
                                result.name == "none" ? "slime::None" : type_name(result));
  return str("  slime::rpc::Stream<", types, "> ", name, "(", taken, ") {\n", call_of(info), "stream<", types,
             ">(", literal(info.name), passed, ");\n  }\n");
}

// Returns the code of a method that takes one body of raw bytes, encoded by the caller.
std::string bytes_method(const rpc::MethodInfo& info, const std::string& name) {
  return str("  slime::Future<slime::Payload> ", name,
             "(slime::ByteVector body) {\n    return stub_.call_bytes(", literal(info.name),
             ", std::move(body));\n  }\n");
}

// Returns the code of one overload of the method: the overload with the first `count` parameters.
std::string overload(const rpc::MethodInfo& info, const std::string& name,
                     const std::vector<Parameter>& parameters, std::size_t count) {
  std::string taken;
  std::string passed;
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& each = parameters[i];
    taken.append(i == 0 ? "" : ", ");
    taken.append(each.rest ? "const auto&... " : parameter_type(each.type) + " ").append(each.name);
    passed.append(", ").append(each.name).append(each.rest ? "..." : "");
  }
  if (!info.reads.empty() || !info.writes.empty()) return stream_overload(info, name, taken, passed);
  const WireType result = parse_wire_type(info.result);
  const std::string value = result.name == "none" ? "void" : type_name(result);
  const std::string future = result.name == "none" ? "slime::None" : value;
  if (result.has_any())
    return str("  slime::Future<slime::Payload> ", name, "(", taken, ") {\n", call_of(info),
               "raw().call_attached(", literal(info.name), encoded(passed), ");\n  }\n");
  return str("  slime::Future<", future, "> ", name, "(", taken, ") {\n", call_of(info), "call<", value, ">(",
             literal(info.name), passed, ");\n  }\n");
}

std::string method(const rpc::MethodInfo& info, const std::string& name) {
  Names names(reserved());
  std::vector<Parameter> parameters;
  std::size_t needed = 0;
  bool omits = false;
  for (const rpc::ParameterInfo& each : info.parameters) {
    const std::string said = !each.name.empty() ? each.name : each.rest ? "arguments" : "argument";
    parameters.push_back({names.take(said), parse_wire_type(each.type), each.rest});
    omits = omits || each.optional;
    if (!omits) needed = parameters.size();
    if (each.rest) {
      // A variadic parameter after required parameters is in every overload. After an optional
      // parameter, it is only in the longest overload.
      needed = omits ? needed : parameters.size();
      break;
    }
  }
  std::string out = "\n" + comment(info.doc, "  ");
  if (info.raw()) return out.append(bytes_method(info, name));
  for (std::size_t count = needed; count <= parameters.size(); ++count)
    out.append(overload(info, name, parameters, count));
  return out;
}

}  // namespace

std::string cpp_stubs(const std::vector<rpc::ServiceInfo>& services, const StubOptions& options) {
  std::string out(kHead);
  out.append("\nnamespace ").append(options.name_space).append(" {\n");
  Names classes(reserved());
  for (const rpc::ServiceInfo& each : services) {
    const std::string name = classes.take(each.name);
    const std::string service = literal(each.name);
    out.append(str("\nstruct ", name, " {\n  explicit ", name, "(slime::Peer at) : stub_(", service,
                   ", std::move(at)) {}\n  explicit ", name,
                   "(slime::ServiceProxy at) : stub_(std::move(at)) {}\n"));
    auto used = reserved();
    used.insert(name);
    Names methods(std::move(used));
    for (const rpc::MethodInfo& one : each.methods) out.append(method(one, methods.take(one.name)));
    out.append("\n private:\n  slime::Stub stub_;\n};\n");
  }
  out.append("\n}  // namespace ").append(options.name_space).append("\n");
  return out;
}

}  // namespace slime::cli

#include <array>

#include "base/str.h"
#include "cli/stub_text.h"
#include "cli/values.h"
#include "cli/wire_types.h"
#include "rpc/signature.h"

namespace slime::cli {
namespace {

constexpr std::string_view kHead = R"(# Made by `slime stubs`. Make it again rather than change it.
# ruff: noqa
"""Typed clients of services.

    calc = Calc(agent.peer("worker:0"))         # one peer's, or with a PeerAgent that of any live server:
    calc = Calc(agent, balance="round-robin")   # options are those of peer.proxy() and agent.proxy()
    calc.add(1, 2)
    await AsyncCalc(agent).add(1, 2)
"""

from __future__ import annotations

import builtins
from typing import Any, Dict, List, Optional, Tuple, Union

import slime

_OMITTED: Any = object()


def _given(*arguments: Any) -> builtins.tuple:
    """Arguments travel by position: what is left out is left out from the end."""
    count = len(arguments)
    while count and arguments[count - 1] is _OMITTED:
        count -= 1
    if any(argument is _OMITTED for argument in arguments[:count]):
        raise TypeError("an argument was left out before one that was given")
    return arguments[:count]
)";

constexpr std::array kKeywords{"False",  "None",   "True",    "and",      "as",       "assert", "async",
                               "await",  "break",  "class",   "continue", "def",      "del",    "elif",
                               "else",   "except", "finally", "for",      "from",     "global", "if",
                               "import", "in",     "is",      "lambda",   "nonlocal", "not",    "or",
                               "pass",   "raise",  "return",  "try",      "while",    "with",   "yield"};
// Names that the generated code uses.
constexpr std::array kUsed{"self", "slime", "builtins", "Any", "Dict", "List", "Optional", "Tuple", "Union"};

std::set<std::string, std::less<>> reserved() {
  std::set<std::string, std::less<>> out(kKeywords.begin(), kKeywords.end());
  out.insert(kUsed.begin(), kUsed.end());
  return out;
}

// Returns `text` as a Python string literal. Uses JSON syntax: a JSON string is a valid Python
// literal.
std::string literal(std::string_view text) { return print(nlohmann::json(text), -1); }

// Returns the Python annotation of a wire type. `result`: the value is received, not passed; tuples
// are received as lists.
std::string type_name(const WireType& type, bool result) {
  if (type.name == "none") return "None";
  if (type.name == "any") return "Any";
  if (type.name == "list") return "List[" + type_name(type.of[0], result) + "]";
  if (type.name == "optional") return "Optional[" + type_name(type.of[0], result) + "]";
  if (type.name == "map")
    return "Dict[" + type_name(type.of[0], result) + ", " + type_name(type.of[1], result) + "]";
  if (type.name == "tuple") {
    if (result) return "List[Any]";
    std::string parts;
    for (const WireType& part : type.of)
      parts.append(parts.empty() ? "" : ", ").append(type_name(part, result));
    return "Tuple[" + (parts.empty() ? "()" : parts) + "]";
  }
  return "builtins." + type.name;  // prefix: a method of the class may be named "int"
}

std::string docstring(const std::string& doc, const std::string& indent) {
  const std::vector<std::string> lines = lines_of(doc);
  if (lines.empty()) return "";
  std::string text;
  for (const std::string& line : lines) {
    if (!text.empty()) text.append(line.empty() ? "\n" : "\n" + indent);
    for (const char c : line) {
      if (c == '"' || c == '\\') text.push_back('\\');
      text.push_back(c);
    }
  }
  return indent + "\"\"\"" + text + (lines.size() > 1 ? "\n" + indent : "") + "\"\"\"\n";
}

// Returns the code of a method that takes one body of raw bytes, encoded by the caller.
std::string bytes_method(const rpc::MethodInfo& info, const std::string& name, bool async) {
  return str("\n    ", async ? "async def " : "def ", name, "(self, body: Any) -> builtins.memoryview:\n",
             docstring(info.doc, "        "), "        return ", async ? "await " : "", "self._proxy[",
             literal(info.name), "].call_bytes(body)\n");
}

std::string method(const rpc::MethodInfo& info, const std::string& name, bool async) {
  if (info.raw()) return bytes_method(info, name, async);
  Names names(reserved());
  std::string parameters;
  std::string passed;
  bool omits = false;
  for (const rpc::ParameterInfo& each : info.parameters) {
    const std::string parameter = names.take(!each.name.empty() ? each.name
                                             : each.rest        ? "arguments"
                                                                : "argument");
    omits = omits || (each.optional && !each.rest);
    parameters.append(each.rest ? ", *" : ", ").append(parameter);
    parameters.append(": " + type_name(parse_wire_type(each.type), false));
    // Python requires a default value for every parameter after an optional parameter.
    if (omits && !each.rest) parameters.append(" = _OMITTED");
    passed.append(passed.empty() ? "" : ", ").append(each.rest ? "*" : "").append(parameter);
    if (each.rest) break;
  }
  const std::string result = type_name(parse_wire_type(info.result), true);
  const rpc::Signature signature(info);
  const std::string item =
      literal(info.name) + (signature.hash() == 0 ? "" : ", " + literal(signature.text()));
  const std::string arguments = omits ? "*_given(" + passed + ")" : passed;
  if (!info.reads.empty() || !info.writes.empty()) {
    const auto messages = [](const std::string& type, bool arrives) {
      return type.empty() ? "None" : type_name(parse_wire_type(type), arrives);
    };
    return str("\n    def ", name, "(self", parameters, ") -> slime.", async ? "AsyncStream[" : "Stream[",
               messages(info.reads, false), ", ", messages(info.writes, true), ", ", result, "]:\n",
               docstring(info.doc, "        "), "        return self._proxy[", item, "].stream(", arguments,
               ")\n");
  }
  return str("\n    ", async ? "async def " : "def ", name, "(self", parameters, ") -> ", result, ":\n",
             docstring(info.doc, "        "), "        return ", async ? "await " : "", "self._proxy[", item,
             "](", arguments, ")\n");
}

std::string service(const rpc::ServiceInfo& info, const std::string& name, bool async) {
  std::string out =
      str("\n\nclass ", name, ":\n", docstring("The service " + info.name + ".", "    "), "\n",
          "    def __init__(self, at: Union[slime.Peer, slime.PeerAgent], **options: Any) -> None:\n",
          "        self._proxy: Any = at.", async ? "async_proxy" : "proxy", "(", literal(info.name),
          ", **options)\n");
  Names names(reserved());
  for (const rpc::MethodInfo& each : info.methods) out.append(method(each, names.take(each.name), async));
  return out;
}

}  // namespace

std::string python_stubs(const std::vector<rpc::ServiceInfo>& services) {
  std::string out(kHead);
  Names names(reserved());
  for (const rpc::ServiceInfo& each : services) {
    const std::string name = names.take(each.name);
    out.append(service(each, name, false));
    out.append(service(each, names.take("Async" + name), true));
  }
  return out;
}

}  // namespace slime::cli

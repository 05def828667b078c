#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rpc/reflection.h"

// Generates stubs: classes that call a peer's services through typed methods. Texts from the peer
// become only names, string literals and comments of the stubs, never code.
namespace slime::cli {

struct StubOptions {
  std::string name_space = "stubs";  // of C++
};
std::string python_stubs(const std::vector<rpc::ServiceInfo>& services);
std::string cpp_stubs(const std::vector<rpc::ServiceInfo>& services, const StubOptions& options);

// Returns whether `name` is a valid identifier in C++ and Python. Keywords count as valid.
bool is_identifier(std::string_view name);

// Converts names to identifiers that are unique in this object and not reserved: "other.name"
// becomes other_name, "class" becomes class_, a second "add" becomes add_2.
class Names {
 public:
  explicit Names(std::set<std::string, std::less<>> reserved) : taken_(std::move(reserved)) {}
  std::string take(std::string_view name);

 private:
  std::set<std::string, std::less<>> taken_;
};

// Splits a text into lines. Replaces control characters, and removes empty lines at the end.
std::vector<std::string> lines_of(std::string_view text);

}  // namespace slime::cli

#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rpc/reflection.h"

// Stubs: code that calls a service with its own names and types, generated from a peer's
// description. Every text of a peer becomes names, strings and comments, never code.
namespace slime::cli {

struct StubOptions {
  std::string name_space = "stubs";  // of C++
};
std::string python_stubs(const std::vector<rpc::ServiceInfo>& services);
std::string cpp_stubs(const std::vector<rpc::ServiceInfo>& services, const StubOptions& options);

// Returns whether `name` is an identifier in C++ and Python; does not check keywords.
bool is_identifier(std::string_view name);

// Makes identifiers that are unique and not reserved: "other.name" becomes other_name, "class"
// becomes class_, a second `add` becomes add_2.
class Names {
 public:
  explicit Names(std::set<std::string, std::less<>> reserved) : taken_(std::move(reserved)) {}
  std::string take(std::string_view name);

 private:
  std::set<std::string, std::less<>> taken_;
};

// Returns the lines of a text, without control characters and without empty lines at the end.
std::vector<std::string> lines_of(std::string_view text);

}  // namespace slime::cli

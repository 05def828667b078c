#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rpc/reflection.h"

// Stubs: code that calls a service with its own names and types, made from what a peer says of it. Whatever a
// peer says, it becomes names, texts and comments, never code.
namespace slime::cli {

struct StubOptions {
  std::string name_space = "stubs";  // of C++
};
std::string python_stubs(const std::vector<rpc::ServiceInfo>& services);
std::string cpp_stubs(const std::vector<rpc::ServiceInfo>& services, const StubOptions& options);

// Whether it can be used as a name in C++ and Python, keywords aside.
bool is_identifier(std::string_view name);

// Names that are unique among themselves and none of the reserved ones: "other.name" is other_name, "class"
// is class_, a second one of the same name has _2 behind it.
class Names {
 public:
  explicit Names(std::set<std::string, std::less<>> reserved) : taken_(std::move(reserved)) {}
  std::string take(std::string_view name);

 private:
  std::set<std::string, std::less<>> taken_;
};

// The lines of a text, without control characters, and empty ones at its end.
std::vector<std::string> lines_of(std::string_view text);

}  // namespace slime::cli

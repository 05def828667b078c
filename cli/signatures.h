#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rpc/reflection.h"

// What a peer says of its services, for people.
namespace slime::cli {

// "(count: int, name?: str, *rest: any)". An argument that may be left out has a "?"; "(...)" takes anything.
std::string parameters_text(const rpc::MethodInfo& method);

// "int", or of a method that streams "int, reads str, writes bytes".
std::string result_text(const rpc::MethodInfo& method);

// A peer's text as it can go to a terminal: control characters, which might steer it, become "?".
std::string printable(std::string_view text);

// What there is instead of `service`.`method`, which was not found or got wrong arguments: the services, the
// methods of the service, or how the method is called.
std::string suggestion(const std::vector<rpc::ServiceInfo>& services, std::string_view service,
                       std::string_view method);

}  // namespace slime::cli

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rpc/reflection.h"

// Formats a peer's description of its services as text for people.
namespace slime::cli {

// Returns a method's parameter list, such as "(count: int, name?: str, *rest: any)". A "?" marks an
// optional parameter. "(...)" means that the method does not declare its parameters.
std::string parameters_text(const rpc::MethodInfo& method);

// Returns a method's result type, such as "int". For a streaming method also the types of the
// messages: "int, reads str, writes bytes".
std::string result_text(const rpc::MethodInfo& method);

// Makes a peer's text safe for a terminal: replaces each control character with "?".
std::string printable(std::string_view text);

// Returns help for a call of `service`.`method` that failed because the method does not exist or
// the arguments are wrong: the services, the methods of the service, or the parameters of the
// method.
std::string suggestion(const std::vector<rpc::ServiceInfo>& services, std::string_view service,
                       std::string_view method);

}  // namespace slime::cli

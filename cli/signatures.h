#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rpc/reflection.h"

// Shows a peer's description of its services to people.
namespace slime::cli {

// Returns "(count: int, name?: str, *rest: any)". A "?" marks an optional argument; "(...)" takes
// anything.
std::string parameters_text(const rpc::MethodInfo& method);

// Returns "int", or for a streaming method "int, reads str, writes bytes".
std::string result_text(const rpc::MethodInfo& method);

// Makes a peer's text safe for a terminal: control characters become "?".
std::string printable(std::string_view text);

// Returns help for a call of `service`.`method` that failed because the method does not exist or
// the arguments are wrong: the services, the methods of the service, or the parameters of the
// method.
std::string suggestion(const std::vector<rpc::ServiceInfo>& services, std::string_view service,
                       std::string_view method);

}  // namespace slime::cli

#include "base/program.h"

#include <iostream>

namespace slime::daemon {

void print_outcome(bool as_json, int exit_status, std::string_view line) {
  (as_json || exit_status == kExitOk ? std::cout : std::cerr) << line << std::endl;
}

}  // namespace slime::daemon

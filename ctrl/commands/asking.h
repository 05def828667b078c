#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "ctrl/client.h"

namespace slime::command_line {
class Command;
}

namespace slime::ctrl {

// The options of nanoctrl's commands that query a running nanoctrl: its URL, the token, the timeout
// of one request, and --json.
struct Asking {
  std::string url;
  std::string token_file;
  double timeout_s = 5;
  bool json = false;

  // Adds --ctrl, --token-file, --timeout and --json to `command`. This object must outlive the
  // command.
  void add_options(command_line::Command& command);
  [[nodiscard]] Result<std::unique_ptr<Client>> client() const;
};

}  // namespace slime::ctrl

#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "ctrl/client.h"

namespace slime::command_line {
class Command;
}

namespace slime::ctrl {

// Options shared by nanoctrl's commands that query a running nanoctrl: its URL and the token.
struct Asking {
  std::string url;
  std::string token_file;
  bool json = false;

  // Adds --ctrl, --token-file and --json. This object outlives the command.
  void add_options(command_line::Command& command);
  [[nodiscard]] Result<std::unique_ptr<Client>> client() const;
};

}  // namespace slime::ctrl

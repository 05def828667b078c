#pragma once

#include <string>

#include "ctrl/asking.h"

namespace slime::ctrl {

// `nanoctrl backup` and `restore`.
class BackupCommands {
 public:
  // Adds the commands to `program`. This object must live until the program's run() has returned.
  explicit BackupCommands(command_line::Command& program);

 private:
  int backup();
  int restore();

  std::string file_;
  std::string store_;
  double ttl_s_ = 0;
  Asking asking_;
};

}  // namespace slime::ctrl

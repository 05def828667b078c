#pragma once

#include <string>

#include "ctrl/commands/asking.h"
#include "ctrl/commands/rule_flags.h"

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
  // flags of restore; their values must equal those of the nanoctrl that will open the store
  RuleFlags rules_;
  Asking asking_;
};

}  // namespace slime::ctrl

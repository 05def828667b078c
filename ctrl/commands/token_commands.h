#pragma once

#include <string>

#include "ctrl/commands/asking.h"
#include "ctrl/commands/rule_flags.h"

namespace slime::ctrl {

// `nanoctrl token new|create|list|revoke`. `create`, `list` and `revoke` send requests to a running
// nanoctrl; `create --store` instead writes the first token to a store that no nanoctrl has open.
// `new` only prints a new administrator's token, and stores nothing.
class TokenCommands {
 public:
  // Adds the commands to `program`. This object must live until the program's run() has returned.
  explicit TokenCommands(command_line::Command& program);

 private:
  int create();
  int create_first();
  int list();
  int revoke();
  int print_new();

  std::string role_ = "join";
  std::string scope_ = "default";
  std::string note_;
  double expires_days_ = 0;
  // for `create --store`; must equal the flags of the nanoctrl that will open the store
  RuleFlags rules_;
  std::string id_;
  std::string store_;
  Asking asking_;
};

}  // namespace slime::ctrl

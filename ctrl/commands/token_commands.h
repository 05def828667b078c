#pragma once

#include <string>

#include "ctrl/commands/asking.h"
#include "ctrl/commands/rule_flags.h"

namespace slime::ctrl {

// `nanoctrl token new|create|list|revoke`. The commands query a running nanoctrl over HTTP.
// `create` can also write the first token to a store that no nanoctrl has open. `new` prints an
// administrator's token that is in no store.
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
  RuleFlags rules_;  // must match the nanoctrl that will use the store
  std::string id_;
  std::string store_;
  Asking asking_;
};

}  // namespace slime::ctrl

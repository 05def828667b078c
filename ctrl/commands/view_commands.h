#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctrl/commands/asking.h"

namespace slime::ctrl {

// `nanoctrl peers|services|links|watch|top`: print the registry of a running nanoctrl, or follow
// its events.
class ViewCommands {
 public:
  // Adds the commands to `program`. This object must live until the program's run() has returned.
  explicit ViewCommands(command_line::Command& program);

 private:
  // Adds a command that queries nanoctrl.
  command_line::Command add(command_line::Command& program, const char* name, const char* description,
                            int (ViewCommands::*run)(Client&));
  int peers(Client& client);
  int services(Client& client);
  int links(Client& client);
  int watch(Client& client);
  int top(Client& client);
  int fail(const Status& status) const;

  std::string scope_ = "default";
  std::string kind_;
  std::vector<std::string> labels_;
  std::string health_;
  std::uint64_t since_ = 0;
  std::uint64_t count_ = 0;
  double interval_s_ = 2;
  bool once_ = false;
  Asking asking_;
};

}  // namespace slime::ctrl

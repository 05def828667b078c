#pragma once

#include <string>

#include "ctrl/asking.h"

namespace slime::ctrl {

// `nanoctrl backup` and `restore`.
class BackupCommands {
 public:
  // Adds them to `app`, which outlives this.
  explicit BackupCommands(CLI::App& app);
  [[nodiscard]] bool parsed() const;
  int run();

 private:
  int backup();
  int restore();

  CLI::App* backup_;
  CLI::App* restore_;
  std::string file_;
  std::string store_;
  double ttl_s_ = 0;
  Asking asking_;
};

}  // namespace slime::ctrl

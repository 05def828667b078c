#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctrl/asking.h"

namespace slime::ctrl {

// `nanoctrl peers|services|links|watch|top`: what a running one has, and how it changes.
class ViewCommands {
 public:
  // Adds them to `app`, which outlives this.
  explicit ViewCommands(CLI::App& app);
  [[nodiscard]] bool parsed() const;
  int run();

 private:
  int peers(Client& client);
  int services(Client& client);
  int links(Client& client);
  int watch(Client& client);
  int top(Client& client);
  int fail(const Status& status) const;

  CLI::App* peers_;
  CLI::App* services_;
  CLI::App* links_;
  CLI::App* watch_;
  CLI::App* top_;
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

#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rpc/service.h"

namespace slime::matrix {

// State of a server's handlers under keys that clients choose: counts, notes, and gates at which
// handlers wait. Clients wait for a count with a call, so neither side polls. Thread: any.
class Board {
 public:
  std::int64_t bump(std::string_view key);
  [[nodiscard]] std::int64_t count(std::string_view key) const;
  // Waits until the count is at least `least`; kDeadlineExceeded after a time that only a failing
  // test reaches.
  Result<std::int64_t> await_count(std::string_view key, std::int64_t least);

  void note(std::string_view key, std::string text);
  [[nodiscard]] std::vector<std::string> notes(std::string_view key) const;

  // Counts "entered:KEY" and waits until the gate is opened.
  Status enter(std::string_view key);
  void open(std::string_view key);
  void open_all();  // opens all gates, also those used later

  // Keeps the request unanswered and counts "waiting:KEY"; counts "cancelled:KEY" when the caller
  // cancels it.
  void hold(std::string_view key, rpc::Request request);
  void drop_held();

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::int64_t, std::less<>> counts_;
  std::map<std::string, std::vector<std::string>, std::less<>> notes_;
  std::set<std::string, std::less<>> open_;
  bool all_open_ = false;
  std::vector<rpc::Request> held_;
};

}  // namespace slime::matrix

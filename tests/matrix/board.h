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

// What the handlers of a server did, by keys that its clients choose: counts, notes, and gates that handlers
// wait at. Clients wait for a count with a call, so neither side looks again and again. Thread: any.
class Board {
 public:
  std::int64_t bump(std::string_view key);
  [[nodiscard]] std::int64_t count(std::string_view key) const;
  // Waits for it to be `least`; kDeadlineExceeded after a time that only a failure reaches.
  Result<std::int64_t> await_count(std::string_view key, std::int64_t least);

  void note(std::string_view key, std::string text);
  [[nodiscard]] std::vector<std::string> notes(std::string_view key) const;

  // Counts "entered:KEY" and waits until somebody opens the gate.
  Status enter(std::string_view key);
  void open(std::string_view key);
  void open_all();  // also those that handlers come to later

  // Keeps the request unanswered, counts "waiting:KEY", and "cancelled:KEY" when its caller gives it up.
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

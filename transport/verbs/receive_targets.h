#pragma once

#include <cstdint>
#include <unordered_map>

namespace slime::transport::verbs {

class PairGroup;
class VerbsEndpoint;

// Finds the endpoint of a receive by the number of the queue pair that received. Thread: the loop.
class ReceiveTargets {
 public:
  struct Target {
    // null: the endpoint has ended, and bytes that arrive for it are dropped
    VerbsEndpoint* endpoint = nullptr;
    PairGroup* group = nullptr;
    std::uint32_t queue_pair = 0;  // of the group
  };

  // Adds the target of queue pair `number`, or replaces it: the device may use the number of a
  // destroyed queue pair again.
  void add(std::uint32_t number, const Target& target) {
    by_number_[number] = target;
    last_ = nullptr;
  }
  // Returns the target of queue pair `number`; null if there is none. The pointer is valid until a
  // target is added or removed.
  const Target* find(std::uint32_t number) {
    if (last_ != nullptr && last_number_ == number) return last_;
    const auto found = by_number_.find(number);
    if (found == by_number_.end()) return nullptr;
    last_number_ = number;
    last_ = &found->second;
    return last_;
  }
  // Removes the endpoint from the targets of `group`. Call when the endpoint has ended before its
  // queue pairs.
  void drop_endpoint(const PairGroup& group) {
    for (auto& [number, target] : by_number_) {
      if (target.group == &group) target.endpoint = nullptr;
    }
  }
  void remove(const PairGroup& group) {
    std::erase_if(by_number_, [&](const auto& entry) { return entry.second.group == &group; });
    last_ = nullptr;
  }
  void clear() {
    by_number_.clear();
    last_ = nullptr;
  }

 private:
  std::unordered_map<std::uint32_t, Target> by_number_;
  std::uint32_t last_number_ = 0;
  // target of last_number_: the next receive is often for this target, too
  const Target* last_ = nullptr;
};

}  // namespace slime::transport::verbs

#pragma once

#include <cstdint>
#include <unordered_map>

namespace slime::transport::verbs {

class PairGroup;
class VerbsEndpoint;

// Finds the endpoint of a receive by the number of its queue pair. Thread: the loop.
class ReceiveTargets {
 public:
  struct Target {
    VerbsEndpoint* endpoint = nullptr;  // null: gone, and what comes is dropped
    PairGroup* group = nullptr;
    std::uint32_t queue_pair = 0;  // of the group
  };

  // A number may name a new queue pair once the device has destroyed the old one.
  void add(std::uint32_t number, const Target& target) {
    by_number_[number] = target;
    last_ = nullptr;
  }
  // Null for a number that names none. Valid until the next change.
  const Target* find(std::uint32_t number) {
    if (last_ != nullptr && last_number_ == number) return last_;
    const auto found = by_number_.find(number);
    if (found == by_number_.end()) return nullptr;
    last_number_ = number;
    last_ = &found->second;
    return last_;
  }
  // The endpoint of the group is gone before its queue pairs are.
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
  const Target* last_ = nullptr;  // of last_number_, which mostly comes again
};

}  // namespace slime::transport::verbs

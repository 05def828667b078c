#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "transport/limits.h"

namespace slime::transport::verbs {

// Members that wait for a turn. After hurry() the turns come after the current poll. Otherwise they
// wait until a poll finds nothing, or for a few polls, because arrivals go first. Thread: the loop.
template <class Member>
class TurnQueue {
 public:
  // Adds a member, which must not be in the queue. A member may add itself again during its own
  // turn.
  void add(Member& member) { waiting_.push_back(&member); }
  void hurry() { urgent_ = true; }
  [[nodiscard]] bool empty() const { return waiting_.empty(); }

  // Returns whether to run the turns now. `found`: the last poll found completions.
  bool due(bool found) { return !found || urgent_ || ++patient_polls_ >= limits::kPatientPolls; }
  // Calls run() of each waiting member. Members that are added meanwhile have their turn in the
  // next call.
  void run() {
    urgent_ = false;
    patient_polls_ = 0;
    running_.swap(waiting_);
    // A turn may destroy another member: forget() then sets that member's entry to null.
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (running_[i] != nullptr) running_[i]->run();
    }
    running_.clear();
  }
  // Call when the member is being destroyed.
  void forget(Member& member) {
    for (auto* list : {&waiting_, &running_})
      std::replace(list->begin(), list->end(), &member, static_cast<Member*>(nullptr));
  }

 private:
  std::vector<Member*> waiting_;
  std::vector<Member*> running_;
  bool urgent_ = false;    // a waiting member has something to post
  int patient_polls_ = 0;  // polls since the last turns
};

}  // namespace slime::transport::verbs

#pragma once

#include <vector>

#include "transport/verbs/link.h"
#include "transport/verbs/side_talk.h"

namespace slime::transport::verbs {

// Handles the completions of this side's work requests: gives back room and send buffers, completes
// one-sided operations, and breaks the link at the first error. Thread: the loop.
class WorkCompletions {
 public:
  WorkCompletions(Link& link, const SideTalk& side) : link_(link), side_(side) {}

  // Handles one completion. Returns false if no work request in flight has this id.
  bool take(const WorkId& id, const ibv_wc& completion);

 private:
  void finish_one(const QueuePair::Owner& owner);
  void complete_finished(bool all);
  void fail(const WorkId& id, const ibv_wc& completion);

  Link& link_;
  const SideTalk& side_;
  std::vector<Handle> finished_;  // the operations that the current completion ends
};

}  // namespace slime::transport::verbs

#include "transport/verbs/work_completions.h"

#include <array>
#include <string_view>

#include "transport/verbs/errors.h"

namespace slime::transport::verbs {

bool WorkCompletions::take(const WorkId& id, const ibv_wc& completion) {
  QueuePair* const pair = link_.queues.find(id);
  if (pair == nullptr) return false;
  ++link_.counters.completions;
  const bool good = completion.status == IBV_WC_SUCCESS;
  if (QueuePair::Owner one; good && pair->reap_one(id.place, one)) {
    link_.prompt = link_.port->found_one_end();
    finish_one(one);
    return true;
  }
  finished_.clear();
  const std::uint32_t count = pair->reap(id.place, [&](const QueuePair::Owner& owner, bool) {
    if (owner.buffer != QueuePair::Owner::kNone) link_.port->give_buffer(owner.buffer);
    OneSided* operation = link_.operations.find(owner.operation);
    if (operation == nullptr) return;
    operation->in_flight -= owner.work_requests;
    finished_.push_back(owner.operation);
  });
  link_.queues.gave_back(count);
  if (good && !finished_.empty()) link_.stalls.note_progress(link_.loop->now());
  // What follows several operations shares a doorbell.
  link_.prompt = finished_.size() <= 1 && link_.port->found_one_end();
  if (!good) fail(id, completion);
  // The requests of a queue pair complete in order: if one has an error, all earlier ones have
  // succeeded.
  if (completion.status != IBV_WC_WR_FLUSH_ERR) complete_finished(good);
  return true;
}

// The usual completion: of one work request.
void WorkCompletions::finish_one(const QueuePair::Owner& owner) {
  link_.queues.gave_back(1);
  if (owner.buffer != QueuePair::Owner::kNone) link_.port->give_buffer(owner.buffer);
  OneSided* const operation = link_.operations.find(owner.operation);
  if (operation == nullptr) return;
  link_.stalls.note_progress(link_.loop->now());
  --operation->in_flight;
  if (operation->succeeded()) link_.complete_one_sided(*operation, Status());
}

// Completes the operations of finished_ whose last work request has ended. If not `all`, the last
// operation of finished_ has failed and is left out. A callback may post, but does not poll.
void WorkCompletions::complete_finished(bool all) {
  const std::size_t failed = all || finished_.empty() ? 0 : 1;
  for (std::size_t i = 0; i + failed < finished_.size(); ++i) {
    OneSided* operation = link_.operations.find(finished_[i]);
    if (operation != nullptr && operation->succeeded()) link_.complete_one_sided(*operation, Status());
  }
}

// Handles an error completion. The first error breaks the link and becomes the result of its
// operation. Errors of requests that were flushed after it are only a consequence.
void WorkCompletions::fail(const WorkId& id, const ibv_wc& completion) {
  count_error(link_.counters, completion.status);
  if (!link_.working()) return;
  if (completion.status == IBV_WC_WR_FLUSH_ERR) return link_.break_now(link_.path.lost(side_.flushed()));
  OneSided* failed = finished_.empty() ? nullptr : link_.operations.find(finished_.back());
  if (id.queue_pair == 0) failed = nullptr;
  std::string_view what = "message";
  if (failed != nullptr) {
    constexpr std::array<std::string_view, 4> kNames{"read", "write", "fetch_add", "compare_swap"};
    what = kNames[static_cast<std::size_t>(failed->kind)];
  }
  const Status error = link_.path.explain(what, completion);
  if (failed != nullptr) failed->failure = error;
  link_.break_fabric(link_.path.unavailable(error));
}

}  // namespace slime::transport::verbs

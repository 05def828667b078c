#include "transport/verbs/send_queues.h"

#include <utility>

namespace slime::transport::verbs {

Status SendQueues::post(std::uint32_t number, ibv_send_wr& request, bool signaled, Handle operation,
                        bool& accepted) {
  ++counters_.doorbells;
  return post_counted(number, request, signaled, operation, accepted);
}

Status SendQueues::post_counted(std::uint32_t number, ibv_send_wr& request, bool signaled, Handle operation,
                                bool& accepted) {
  QueuePair& queue_pair = pair(number);
  request.wr_id = WorkId{place_.index, place_.generation, number, queue_pair.next_place()}.pack();
  if (signaled) request.send_flags |= IBV_SEND_SIGNALED;
  std::uint32_t taken = 0;
  Status posted = queue_pair.post(&request, 1, signaled ? 1 : 0, taken);
  if (taken > 0) queue_pair.own({operation, taken, QueuePair::Owner::kNone});
  count(taken);
  accepted = taken == 1;
  return posted;
}

Status SendQueues::post_chain(std::uint32_t number, Chain& chain, std::uint32_t& accepted) {
  QueuePair& queue_pair = pair(number);
  std::uint32_t signaled_end = 0;
  WorkId id{place_.index, place_.generation, number, queue_pair.next_place()};
  for (std::uint32_t i = 0; i < chain.count; ++i, ++id.place) {
    ibv_send_wr& request = chain.requests[i];
    request.wr_id = id.pack();
    request.next = &request + 1;
    if ((request.send_flags & IBV_SEND_SIGNALED) != 0) signaled_end = i + 1;
  }
  chain.requests[chain.count - 1].next = nullptr;
  Status posted = queue_pair.post(chain.requests.data(), chain.count, signaled_end, accepted);
  ++counters_.doorbells;
  std::uint32_t left = accepted;
  for (std::uint32_t i = 0; i < chain.owner_count; ++i) {
    QueuePair::Owner owner = chain.owners[i];
    owner.work_requests = std::min(owner.work_requests, left);
    left -= owner.work_requests;
    if (owner.work_requests > 0) queue_pair.own(owner);
  }
  count(accepted);
  return posted;
}

// Counts work requests that the device took.
void SendQueues::count(std::uint32_t work_requests) {
  port_.took(in_flight_, work_requests);
  in_flight_ += work_requests;
  counters_.work_requests += work_requests;
}

void SendQueues::mark_ends() {
  for (std::uint32_t number = 0; number < pairs_.size(); ++number) {
    if (pair(number).unsignaled() == 0 || room(number, 1) == 0) continue;
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    bool accepted = false;
    // If this request fails, the flush ends by its time bound.
    post_counted(number, request, true, Handle{}, accepted).ignore();
  }
}

std::uint32_t SendQueues::leave(std::vector<std::uint32_t>& buffers) {
  if (pairs_.empty()) return 0;
  // Only messages have buffers.
  pair(0).abandon([&](const QueuePair::Owner& owner) {
    if (owner.buffer != QueuePair::Owner::kNone) buffers.push_back(owner.buffer);
  });
  pairs_.clear();
  return std::exchange(in_flight_, 0);
}

}  // namespace slime::transport::verbs

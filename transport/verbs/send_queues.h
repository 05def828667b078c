#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/counters.h"
#include "transport/verbs/chain.h"
#include "transport/verbs/port.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/work_id.h"

namespace slime::transport::verbs {

// The send queues of one endpoint. Hands work requests to the device, within the endpoint's share
// of the port's completion queue, and counts those in flight. Queue pair 0 is for messages, the
// others for data. Thread: the loop.
class SendQueues {
 public:
  // `endpoint`: the port runs it when there is room again. `port` and `counters` outlive this
  // object.
  SendQueues(PortState& port, VerbsEndpoint& endpoint, Handle place, EndpointCounters& counters,
             std::vector<std::shared_ptr<QueuePair>> pairs)
      : port_(port), endpoint_(endpoint), place_(place), counters_(counters), pairs_(std::move(pairs)) {}

  // Returns the queue pairs: the first for messages, the others (at least one) for data. Empty
  // after leave().
  [[nodiscard]] std::span<const std::shared_ptr<QueuePair>> pairs() const { return pairs_; }
  [[nodiscard]] QueuePair& pair(std::uint32_t number) const { return *pairs_[number]; }
  // Work requests that the device has.
  [[nodiscard]] std::uint32_t in_flight() const { return in_flight_; }

  // Returns how many of `wanted` work requests may be posted on queue pair `number`. If that is 0,
  // the port runs the endpoint once there is room.
  [[nodiscard]] std::uint32_t room(std::uint32_t number, std::uint32_t wanted) const {
    const std::uint32_t most = std::min(wanted, pair(number).room());
    return most == 0 ? 0 : port_.may_post(endpoint_, in_flight_, most);
  }

  // Posts one work request of `operation`, for which there is room. Sets `accepted` to whether the
  // device took it.
  Status post(std::uint32_t number, ibv_send_wr& request, bool signaled, Handle operation, bool& accepted);
  // Posts a chain that is not empty, for which there is room. Sets `accepted` to the number of
  // requests that the device took: all of them, unless the status says why not.
  Status post_chain(std::uint32_t number, Chain& chain, std::uint32_t& accepted);
  // Posts a request with a completion behind the work requests that asked for none. The device does
  // not flush a work request that has succeeded, so only the flush of the new request shows that
  // all earlier ones have ended.
  void mark_ends();

  // Returns the queue pair of the work request `id`; null if no work request in flight has this id.
  [[nodiscard]] QueuePair* find(const WorkId& id) const {
    if (id.queue_pair >= pairs_.size()) return nullptr;
    QueuePair& pair = *pairs_[id.queue_pair];
    return pair.in_window(id.place) ? &pair : nullptr;
  }
  // Notes that a completion has ended `count` work requests.
  void gave_back(std::uint32_t count) {
    const std::uint32_t before = in_flight_;
    in_flight_ -= count;
    port_.gave_back(before, count);
  }

  // Releases the queue pairs. Returns the number of work requests that are still in flight, and
  // appends their send buffers to `buffers`.
  std::uint32_t leave(std::vector<std::uint32_t>& buffers);

 private:
  Status post_counted(std::uint32_t number, ibv_send_wr& request, bool signaled, Handle operation,
                      bool& accepted);
  void count(std::uint32_t work_requests);

  PortState& port_;
  VerbsEndpoint& endpoint_;
  const Handle place_;
  EndpointCounters& counters_;
  std::vector<std::shared_ptr<QueuePair>> pairs_;
  std::uint32_t in_flight_ = 0;
};

}  // namespace slime::transport::verbs

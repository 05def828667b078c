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

// The send queues of one endpoint: hands work requests to the device, within the port's share of
// its completion queue, and counts those that the device has. Queue pair 0 is for messages, the
// others for data. Thread: the loop.
class SendQueues {
 public:
  // `endpoint`: the port runs it when there is room again. Borrows port and counters.
  SendQueues(PortState& port, VerbsEndpoint& endpoint, Handle place, EndpointCounters& counters,
             std::vector<std::shared_ptr<QueuePair>> pairs)
      : port_(port), endpoint_(endpoint), place_(place), counters_(counters), pairs_(std::move(pairs)) {}

  // Returns the queue pairs: one for messages and at least one for data; empty after leave().
  [[nodiscard]] std::span<const std::shared_ptr<QueuePair>> pairs() const { return pairs_; }
  [[nodiscard]] QueuePair& pair(std::uint32_t number) const { return *pairs_[number]; }
  // Work requests that the device has.
  [[nodiscard]] std::uint32_t in_flight() const { return in_flight_; }

  // Returns how many of `wanted` work requests may be posted. 0: the endpoint runs when there is
  // room.
  [[nodiscard]] std::uint32_t room(std::uint32_t number, std::uint32_t wanted) const {
    const std::uint32_t most = std::min(wanted, pair(number).room());
    return most == 0 ? 0 : port_.may_post(endpoint_, in_flight_, most);
  }

  // Posts one work request, for which there is room; `operation` owns it. `accepted`: the device
  // took it.
  Status post(std::uint32_t number, ibv_send_wr& request, bool signaled, Handle operation, bool& accepted);
  // Posts a chain, for which there is room. `accepted`: how many the device took, all of them
  // unless the status says why not.
  Status post_chain(std::uint32_t number, Chain& chain, std::uint32_t& accepted);
  // Work requests that were posted without a completion of their own and have succeeded are not
  // flushed. So this posts a request behind them, whose flush shows that they are over.
  void mark_ends();

  // Returns the queue pair of a completion; null if nothing in flight has that id.
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

  // Releases the queue pairs. Returns how many work requests they still have, and adds their send
  // buffers to `buffers`.
  std::uint32_t leave(std::vector<std::uint32_t>& buffers);

 private:
  Status post_counted(std::uint32_t number, ibv_send_wr& request, bool signaled, Handle operation,
                      bool& accepted);
  void account(QueuePair& pair, const QueuePair::Owner& owner);

  PortState& port_;
  VerbsEndpoint& endpoint_;
  const Handle place_;
  EndpointCounters& counters_;
  std::vector<std::shared_ptr<QueuePair>> pairs_;
  std::uint32_t in_flight_ = 0;
};

}  // namespace slime::transport::verbs

#pragma once

#include <cstdint>

#include "transport/counters.h"
#include "transport/verbs/chain.h"
#include "transport/verbs/operations.h"

namespace slime::transport::verbs {

// Turns one-sided operations into work requests. Joins blocks where the device can, and adds the
// flushing read and the notification behind the data of a batch. Thread: the loop.
class RequestBuilder {
 public:
  struct Device {
    std::uint32_t max_gather = 1;   // most local pieces of one write
    std::uint32_t max_scatter = 1;  // most local pieces of one read
    ibv_sge scratch{};              // where a flushing read puts its byte, which nothing uses
    bool flush_read = false;        // batches have such a read
  };
  // Counts bytes and joined blocks in `counters`, and sent notifications in `notifications`.
  RequestBuilder(const Device& device, EndpointCounters& counters, std::uint64_t& notifications)
      : device_(device), counters_(counters), notifications_(notifications) {}

  // Adds the next work request of the operation to `chain`. Returns false if that was the last one.
  bool next(OneSided& operation, Chain& chain);
  // Fills `request` with the only work request of a read or write of one block. Returns false, and
  // changes nothing, if the operation needs more requests. `request` must be zeroed before, or be
  // new in a chain; afterwards it points to `part`.
  bool single(OneSided& operation, std::uint32_t max_inline, ibv_send_wr& request, ibv_sge& part);

 private:
  std::uint64_t gather(OneSided& operation, ibv_send_wr& request, std::uint64_t most);
  void add_atomic(OneSided& operation, Chain& chain) const;
  bool next_tail(OneSided& operation, Chain& chain);
  void notify_with(OneSided& operation, ibv_send_wr& request);

  const Device device_;
  EndpointCounters& counters_;
  std::uint64_t& notifications_;
};

}  // namespace slime::transport::verbs

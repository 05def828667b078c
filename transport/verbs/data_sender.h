#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/queue.h"
#include "transport/verbs/chain.h"
#include "transport/verbs/link.h"
#include "transport/verbs/request_builder.h"

namespace slime::transport::verbs {

// Hands one-sided operations to the data queue pairs, each of which has a backlog. Thread: the
// loop.
class DataSender {
 public:
  explicit DataSender(Link& link);

  // Takes an operation from link.operations. Returns true if it left at once, alone.
  bool add(OneSided& operation, bool striped);
  // Posts as much as the device takes.
  void run();
  // Returns whether nothing is left to post or to complete.
  [[nodiscard]] bool idle() const;
  // Completes the batches without bytes. Call outside of every post.
  void complete_empty();

  // Returns whether to spread a batch over all data queue pairs.
  [[nodiscard]] bool worth_striping(std::span<const CopyBlock> copies) const;
  // Returns whether a read of the batch's last byte has to flush the batch into memory.
  [[nodiscard]] bool wants_flush_read(std::span<const CopyBlock> copies) const;

 private:
  [[nodiscard]] QueuePair& pair(std::uint32_t lane) const { return link_.queues.pair(lane + 1); }
  [[nodiscard]] std::uint32_t least_busy() const;
  bool post_single(OneSided& operation, std::uint32_t lane);
  bool post_chain(std::uint32_t lane);
  void fill(std::uint32_t lane, Chain& chain, std::uint32_t most);

  Link& link_;
  RequestBuilder requests_;
  std::vector<Queue<Handle>> backlogs_;  // one for each data queue pair
  std::vector<Handle> empty_;            // batches without bytes, completed outside of posts
};

}  // namespace slime::transport::verbs

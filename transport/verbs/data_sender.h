#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/queue.h"
#include "transport/verbs/chain.h"
#include "transport/verbs/link.h"
#include "transport/verbs/request_builder.h"

namespace slime::transport::verbs {

// Posts one-sided operations on the data queue pairs. Each pair has a backlog of operations that
// wait for room. Thread: the loop.
class DataSender {
 public:
  explicit DataSender(Link& link);

  // Takes an operation of link.operations. `striped`: all data queue pairs share its blocks, in
  // large parts. Returns true if the operation was posted at once, by itself.
  bool add(OneSided& operation, bool striped);
  // Posts as much as the device takes.
  void run();
  // Returns whether no operation waits to be posted, and no empty batch waits to be completed.
  [[nodiscard]] bool idle() const;
  // Completes the batches that have no bytes. Do not call it inside of a post, because completions
  // run callbacks.
  void complete_empty();

  // Returns whether the batch is large enough to spread it over all data queue pairs.
  [[nodiscard]] bool worth_striping(std::span<const CopyBlock> copies) const;
  // Returns in how large chunks, in work requests, the data queue pairs share this batch of reads;
  // 0: one queue pair takes it. A queue pair has only Link::reads_at_once reads under way, so a
  // longer batch of small blocks is faster over several.
  [[nodiscard]] std::uint32_t read_chunk(std::span<const CopyBlock> copies) const;
  // Returns whether a write of this batch must be followed by a read from its last region, which
  // flushes the written bytes into memory.
  [[nodiscard]] bool wants_flush_read(std::span<const CopyBlock> copies) const;

 private:
  [[nodiscard]] QueuePair& pair(std::uint32_t lane) const { return link_.queues.pair(lane + 1); }
  [[nodiscard]] std::uint32_t least_busy() const;
  std::uint32_t lane_for(const OneSided& operation);
  bool post_single(OneSided& operation, std::uint32_t lane);
  bool add_single(OneSided& operation, Chain& chain);
  bool post_chain(std::uint32_t lane);
  [[nodiscard]] bool takes_chunk(OneSided& operation, std::uint32_t lane) const;
  void fill(std::uint32_t lane, Chain& chain, std::uint32_t most);

  Link& link_;
  RequestBuilder requests_;
  std::vector<Queue<Handle>> backlogs_;  // one for each data queue pair
  std::vector<Handle> empty_;            // batches without bytes, completed outside of posts
  // The data queue pair that takes the small operations until the next turn, and how much they are,
  // in work requests.
  std::uint32_t collecting_ = 0;
  std::uint64_t collected_ = 0;
  bool finished_chunks_ = false;  // a lane has posted the last requests of an operation with chunks
};

}  // namespace slime::transport::verbs

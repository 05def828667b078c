#include "transport/verbs/data_sender.h"

#include <algorithm>
#include <utility>

#include "transport/limits.h"

namespace slime::transport::verbs {
namespace {

std::uint64_t bytes_of(const ibv_send_wr& request) {
  std::uint64_t bytes = 0;
  for (int i = 0; i < request.num_sge; ++i) bytes += request.sg_list[i].length;
  return bytes;
}

// Decides which requests of a chain ask for a completion. A completion ends all requests before it,
// so one for the last operation that ends in the chain is enough, and a few more where much lies
// before it.
class ChainSignals {
 public:
  ChainSignals(Chain& chain, const QueuePair& pair)
      : chain_(chain),
        interval_(std::min(limits::kSignalInterval, std::max(pair.depth() / 4, 1U))),
        since_(pair.unsignaled()) {}

  enum class Rule : std::uint8_t {
    kInterval,  // signals within an operation, too, so that the send queue becomes free part by part
    kEnds,      // only the ends, which come soon enough
    kAll,
  };
  // Handles the request `index`, which may have its flag already. `ends`: no other request of its
  // operation follows on this queue pair for now.
  void add(std::uint32_t index, bool ends, Rule rule) {
    ibv_send_wr& request = chain_.requests[index];
    ++since_;
    bytes_ += bytes_of(request);
    const bool asks = (request.send_flags & IBV_SEND_SIGNALED) != 0 || rule == Rule::kAll ||
                      (rule == Rule::kInterval && since_ >= interval_) ||
                      (ends && bytes_ >= limits::kSignalRunBytes);
    if (asks)
      signal(index);
    else if (ends)
      last_end_ = index;
  }
  // Call when the chain is complete.
  void close() {
    if (last_end_ != kNone) signal(last_end_);
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  void signal(std::uint32_t index) {
    chain_.requests[index].send_flags |= IBV_SEND_SIGNALED;
    since_ = 0;
    bytes_ = 0;
    last_end_ = kNone;
  }

  Chain& chain_;
  const std::uint32_t interval_;
  std::uint32_t since_;             // requests behind the last one that asks
  std::uint64_t bytes_ = 0;         // theirs, in this chain
  std::uint32_t last_end_ = kNone;  // the last request of an operation, if none behind it asks
};

}  // namespace

DataSender::DataSender(Link& link)
    : link_(link),
      requests_({link.port->max_gather(), link.port->max_scatter(), link.port->words().scratch(),
                 link.port->context()->options.flush_read},
                link.counters, link.notifications_sent),
      backlogs_(link.queues.pairs().size() - 1) {}

bool DataSender::wants_flush_read(std::span<const CopyBlock> copies) const {
  return link_.port->context()->options.flush_read && !copies.empty() &&
         allows(copies.back().remote->rights(), Rights::kRemoteRead);
}

bool DataSender::worth_striping(std::span<const CopyBlock> copies) const {
  if (backlogs_.size() < 2) return false;
  if (copies.size() == 1) return copies.front().length_bytes >= limits::kStripeBytes;
  std::uint64_t total = 0;
  for (const CopyBlock& copy : copies) total += copy.length_bytes;
  return total >= limits::kStripeBytes && total / copies.size() >= limits::kStripePartBytes;
}

// Returns the data queue pair that has the least work; of several, the last one, whose ring is the
// smallest. Choosing always the same queue pair keeps it in the device's cache.
std::uint32_t DataSender::least_busy() const {
  std::uint32_t best = 0;
  std::size_t least = SIZE_MAX;
  for (std::uint32_t i = 0; i < backlogs_.size(); ++i) {
    const std::size_t busy = pair(i).in_flight() + backlogs_[i].size();
    if (busy > least) continue;
    least = busy;
    best = i;
  }
  return best;
}

std::uint32_t DataSender::read_chunk(std::span<const CopyBlock> copies) const {
  const std::size_t lanes = backlogs_.size();
  if (lanes < 2 || copies.size() <= link_.reads_at_once) return 0;
  // A chunk asks for one completion, at its end, and is at most half of a send queue.
  const std::size_t most = std::min(limits::kSignalInterval, pair(1).depth() / 2);
  return static_cast<std::uint32_t>(std::min((copies.size() + lanes - 1) / lanes, most));
}

// Returns the data queue pair for an operation that one queue pair takes. Small operations of one
// turn go to the same one, where they share a doorbell and a completion: up to a chain of them, of
// reads as many as the device has under way at once.
std::uint32_t DataSender::lane_for(const OneSided& operation) {
  std::uint64_t size = 0;
  for (const CopyBlock& copy : operation.copies()) size += 1 + copy.length_bytes / limits::kLaneBytes;
  std::uint64_t most = limits::kChainRequests;
  if (operation.kind != Kind::kWrite) {
    const std::uint32_t busy = pair(collecting_).in_flight();
    most = link_.reads_at_once - std::min(link_.reads_at_once, busy);
  }
  if (collected_ == 0 || collected_ + size > most) {
    collecting_ = least_busy();
    collected_ = 0;
  }
  collected_ += size;
  return collecting_;
}

bool DataSender::add(OneSided& operation, bool striped) {
  operation.striped = striped;
  const bool now = std::exchange(link_.prompt, false) && link_.opening.got_hello && !link_.in_burst;
  if (striped || operation.chunk > 0) {
    for (Queue<Handle>& backlog : backlogs_) backlog.push_back(operation.self);
  } else {
    // The first data queue pair carries all notifications, so that they arrive in the order of
    // their posts. It also carries large batches, because its send queue is the deepest.
    const bool first = operation.has_imm || operation.batch.size() > limits::kSideDepth / 2;
    const std::uint32_t lane = first ? 0 : lane_for(operation);
    if (now && post_single(operation, lane)) {
      collected_ = 0;
      return true;
    }
    backlogs_[lane].push_back(operation.self);
  }
  if (now) run();
  return false;
}

void DataSender::run() {
  collected_ = 0;
  bool again = true;
  while (again && link_.working()) {
    again = false;
    for (std::uint32_t i = 0; i < backlogs_.size() && link_.working(); ++i) {
      if (!backlogs_[i].empty()) again = post_chain(i) || again;
    }
    // Other lanes still have the operation in front of what waits behind it.
    again = std::exchange(finished_chunks_, false) || again;
  }
}

bool DataSender::idle() const {
  return empty_.empty() && std::all_of(backlogs_.begin(), backlogs_.end(),
                                       [](const Queue<Handle>& backlog) { return backlog.empty(); });
}

void DataSender::complete_empty() {
  if (empty_.empty()) return;
  const std::vector<Handle> handles = std::exchange(empty_, {});
  for (const Handle handle : handles) link_.complete_one_sided(*link_.operations.find(handle), Status());
}

// Posts an operation of one block as one work request, which is the fastest way. Returns false, and
// posts nothing, if the operation needs more work requests or has to wait for its turn.
bool DataSender::post_single(OneSided& operation, std::uint32_t lane) {
  if (operation.batch.size() != 1 || operation.flush_read || !backlogs_[lane].empty()) return false;
  if (link_.queues.room(lane + 1, 1) == 0) return false;
  ibv_send_wr request{};
  ibv_sge part{};
  if (!requests_.single(operation, pair(lane).max_inline(), request, part)) return false;
  bool accepted = false;
  const Status posted = link_.queues.post(lane + 1, request, true, operation.self, accepted);
  operation.in_flight = accepted ? 1 : 0;
  if (posted.ok()) return true;
  operation.failure = link_.path.unavailable(posted);
  link_.break_now(operation.failure);
  return true;
}

// Adds an operation of one block to `chain` as one work request, which is the fastest way. Returns
// false, and adds nothing, if the operation needs more work requests.
bool DataSender::add_single(OneSided& operation, Chain& chain) {
  if (operation.batch.size() != 1 || operation.flush_read || operation.striped || operation.moved)
    return false;
  ibv_send_wr& request = chain.add(IBV_WR_RDMA_WRITE);
  if (!requests_.single(operation, 0, request, *request.sg_list)) {
    chain.drop_last();
    return false;
  }
  if (request.sg_list->length >= limits::kSignalBytes) request.send_flags |= IBV_SEND_SIGNALED;
  return true;
}

// Posts one chain on the data queue pair `lane`. Returns true if another chain may follow at once.
bool DataSender::post_chain(std::uint32_t lane) {
  const std::uint32_t most = link_.queues.room(lane + 1, limits::kChainRequests);
  if (most == 0) return false;
  Chain& chain = link_.port->empty_chain();
  fill(lane, chain, most);
  if (chain.count == 0) return false;  // another data queue pair has the turn
  std::uint32_t accepted = 0;
  const Status posted = link_.queues.post_chain(lane + 1, chain, accepted);
  if (!posted.ok()) {
    const Status lost = link_.path.unavailable(posted);
    chain.for_refused(accepted, [&](Handle handle, std::uint32_t count) {
      OneSided* const operation = link_.operations.find(handle);
      if (operation == nullptr) return;
      operation->in_flight -= count;
      // parts that the device took may succeed, but the operation has failed
      operation->failure = lost;
    });
    link_.break_fabric(lost);
  }
  return accepted == chain.count && !backlogs_[lane].empty();
}

// Returns whether the lane posts requests of an operation with chunks now. It begins a chunk when
// the whole chunk fits into its send queue, so that chains are not cut, unless no completion is to
// come that would make room.
bool DataSender::takes_chunk(OneSided& operation, std::uint32_t lane) const {
  const QueuePair& taker = pair(lane);
  const bool waits = taker.in_flight() > 0 && taker.unsignaled() == 0;
  if (operation.chunk_left == 0 && taker.room() < operation.chunk && waits) return false;
  return operation.claim_chunk(lane);
}

void DataSender::fill(std::uint32_t lane, Chain& chain, std::uint32_t most) {
  Queue<Handle>& backlog = backlogs_[lane];
  ChainSignals signals(chain, pair(lane));
  while (chain.count < most && !backlog.empty()) {
    const Handle handle = backlog.front();
    OneSided* operation = link_.operations.find(handle);
    if (operation == nullptr || operation->posted) {
      backlog.pop_front();
      continue;
    }
    if (add_single(*operation, chain)) {
      chain.own(handle);
      signals.add(chain.count - 1, true, ChainSignals::Rule::kInterval);
      operation->in_flight = 1;
      backlog.pop_front();
      continue;
    }
    const bool chunks = operation->chunk > 0;
    if (chunks && !takes_chunk(*operation, lane)) break;
    const std::uint32_t before = chain.count;
    // A striped operation adds two work requests at a time, so that the data queue pairs take
    // turns.
    std::uint32_t until = operation->striped ? std::min(most, before + 2) : most;
    if (chunks) until = std::min(until, before + operation->chunk_left);
    bool more = true;
    while (chain.count < until && more) more = requests_.next(*operation, chain);
    const std::uint32_t added = chain.count - before;
    if (chunks) operation->chunk_left -= added;
    const bool ends = !more || (chunks && operation->chunk_left == 0);
    const auto rule = operation->striped ? ChainSignals::Rule::kAll
                      : chunks           ? ChainSignals::Rule::kEnds
                                         : ChainSignals::Rule::kInterval;
    for (std::uint32_t i = before; i < chain.count; ++i) {
      chain.own(handle);
      signals.add(i, ends && i + 1 == chain.count, rule);
    }
    operation->in_flight += added;
    if (added > 0) operation->started = true;
    if (more) break;  // the chain is full, or another data queue pair goes on with the operation
    operation->posted = true;
    finished_chunks_ = finished_chunks_ || chunks;
    backlog.pop_front();
    if (operation->in_flight == 0) empty_.push_back(handle);  // a batch without bytes
  }
  signals.close();
}

}  // namespace slime::transport::verbs

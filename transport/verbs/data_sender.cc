#include "transport/verbs/data_sender.h"

#include <algorithm>
#include <utility>

#include "transport/limits.h"

namespace slime::transport::verbs {

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

bool DataSender::add(OneSided& operation, bool striped) {
  operation.striped = striped;
  const bool now = std::exchange(link_.prompt, false) && link_.opening.got_hello && !link_.in_burst;
  if (striped) {
    for (Queue<Handle>& backlog : backlogs_) backlog.push_back(operation.self);
  } else {
    // The first data queue pair carries all notifications, so that they arrive in the order of
    // their posts. It also carries large batches, because its send queue is the deepest.
    const bool first = operation.has_imm || operation.batch.size() > limits::kSideDepth / 2;
    const std::uint32_t lane = first ? 0 : least_busy();
    if (now && post_single(operation, lane)) return true;
    backlogs_[lane].push_back(operation.self);
  }
  if (now) run();
  return false;
}

void DataSender::run() {
  bool again = true;
  while (again && link_.working()) {
    again = false;
    for (std::uint32_t i = 0; i < backlogs_.size() && link_.working(); ++i) {
      if (!backlogs_[i].empty()) again = post_chain(i) || again;
    }
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

// Posts one chain on the data queue pair `lane`. Returns true if another chain may follow at once.
bool DataSender::post_chain(std::uint32_t lane) {
  const std::uint32_t most = link_.queues.room(lane + 1, limits::kChainRequests);
  if (most == 0) return false;
  Chain& chain = link_.port->empty_chain();
  fill(lane, chain, most);
  if (chain.count == 0) return !backlogs_[lane].empty();
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

void DataSender::fill(std::uint32_t lane, Chain& chain, std::uint32_t most) {
  Queue<Handle>& backlog = backlogs_[lane];
  const std::uint32_t interval = std::min(limits::kSignalInterval, std::max(pair(lane).depth() / 4, 1U));
  std::uint32_t since_signal = pair(lane).unsignaled();
  while (chain.count < most && !backlog.empty()) {
    const Handle handle = backlog.front();
    OneSided* operation = link_.operations.find(handle);
    if (operation == nullptr || operation->posted) {
      backlog.pop_front();
      continue;
    }
    const std::uint32_t before = chain.count;
    // A striped operation adds two work requests at a time, so that the data queue pairs take
    // turns.
    const std::uint32_t until = operation->striped ? std::min(most, before + 2) : most;
    bool more = true;
    while (chain.count < until && more) more = requests_.next(*operation, chain);
    for (std::uint32_t i = before; i < chain.count; ++i) {
      chain.own(handle);
      ++operation->in_flight;
      ++since_signal;
      const bool last = i + 1 == chain.count && !more;
      const bool large = (chain.requests[i].send_flags & IBV_SEND_SIGNALED) != 0;
      if (large || last || operation->striped || since_signal >= interval) {
        chain.requests[i].send_flags |= IBV_SEND_SIGNALED;
        since_signal = 0;
      }
    }
    if (chain.count > before) operation->started = true;
    if (more) return;  // the chain is full, or another data queue pair goes on with the operation
    operation->posted = true;
    backlog.pop_front();
    if (operation->in_flight == 0) empty_.push_back(handle);  // a batch without bytes
  }
}

}  // namespace slime::transport::verbs

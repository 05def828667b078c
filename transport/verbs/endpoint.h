#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/endpoint.h"
#include "transport/endpoint/inbox.h"
#include "transport/verbs/arrivals.h"
#include "transport/verbs/credit_exchange.h"
#include "transport/verbs/data_sender.h"
#include "transport/verbs/link.h"
#include "transport/verbs/message_sender.h"
#include "transport/verbs/side_talk.h"
#include "transport/verbs/silence_watch.h"
#include "transport/verbs/work_completions.h"

namespace slime::transport::verbs {

// One side of a connection: a message queue pair, data queue pairs, and the handshake's TCP
// connection as a side channel. Thread: the loop.
//
// The first post after an arrival goes to the device at once. Later posts are only queued: run(),
// which the port calls once for each burst of completions or posts, hands them to the device in
// chains. No callback runs inside of a post.
//
// This class takes posts, runs its parts in each turn, and ends the connection. The parts share the
// Link: MessageSender and DataSender hand work to the device, WorkCompletions and Arrivals handle
// completions, CreditExchange and SideTalk talk to the peer, SilenceWatch finds a silent peer.
class VerbsEndpoint final : public Endpoint, public CreditOwner {
 public:
  explicit VerbsEndpoint(EndpointParts parts);
  ~VerbsEndpoint() override;

  void set_receiver(Receiver& receiver) override;
  Status send(std::span<const Bytes> parts, Operation& operation, SendOptions options) override;
  Status read(std::span<const CopyBlock> copies, Operation& operation) override;
  Status write(std::span<const CopyBlock> copies, Operation& operation) override;
  Status write_with_imm(std::span<const CopyBlock> copies, std::uint32_t imm, Operation& operation) override;
  Status fetch_add(const AtomicTarget& target, std::uint64_t add, Operation& operation) override;
  Status compare_swap(const AtomicTarget& target, std::uint64_t expected, std::uint64_t desired,
                      Operation& operation) override;
  Result<RemoteRegion> import_region(const RegionDescriptor& descriptor) override;
  void close(Nanos bound) override;
  void reset(Status reason) override;
  void hold_credit() override { link_.credits.given.hold(); }
  void release_credits(std::uint32_t count) override;
  void set_awaiting(bool awaiting) override;
  [[nodiscard]] bool closed() const override { return link_.life.told_closed(); }
  [[nodiscard]] Status error() const override { return link_.life.error(); }
  [[nodiscard]] bool failed() const override { return !link_.life.error().ok(); }
  [[nodiscard]] bool unreached() const override { return link_.opening.unreached; }
  [[nodiscard]] std::uint32_t max_message_bytes() const override { return max_message_bytes_; }
  [[nodiscard]] std::uint64_t id() const override { return link_.id; }
  [[nodiscard]] std::size_t in_flight() const override { return messages_.size() + link_.operations.size(); }
  [[nodiscard]] std::uint64_t credits() const override;
  [[nodiscard]] TimePoint last_progress() const override { return link_.stalls.last_progress(); }
  [[nodiscard]] EndpointCounters counters() const override { return link_.counters; }
  [[nodiscard]] std::string describe() const override;

  // ---- for the port
  void run();
  void schedule() { link_.schedule(); }
  void on_slot_free() noexcept override { link_.schedule_housekeeping(); }
  // Handles the completion of a work request. Returns false if no work request in flight has this
  // id.
  bool on_sent(const WorkId& id, const ibv_wc& completion);
  void on_received(std::uint32_t queue_pair, const ibv_wc& completion, ReceiveSlot& slot);
  // Resets the endpoint if its operations use the region of `uses`; null: in any case. `now`: the
  // uses have ended when this function returns.
  void reset_if_using(const RegionUses* uses, bool now);

  // Returns whether the peer's hello has come, which shows that the queue pairs of both sides carry
  // messages. Also for tests.
  [[nodiscard]] bool reached() const { return link_.opening.got_hello; }

  // ---- for its queue pairs
  void on_connected(const Status& outcome);
  void on_pairs_failed() { link_.queues.mark_ends(); }
  // Returns whether no work request of this endpoint is at the device. Also for tests.
  [[nodiscard]] bool drained() const { return link_.queues.in_flight() == 0; }
  // Releases the queue pairs. Returns the number of work requests that are still in flight, and
  // appends their send buffers to `buffers`.
  std::uint32_t leave_pairs(std::vector<std::uint32_t>& buffers) { return link_.queues.leave(buffers); }
  void on_pairs_gone();

 private:
  // ---- posting
  // Returns OK if the endpoint takes posts now, else the error for the caller of the post.
  Status refusal() {
    SLIME_CHECK(link_.loop->in_loop());
    return link_.gate.refusal(in_flight());
  }
  Status admit(Kind kind, std::span<const CopyBlock> copies, bool notifies, Operation& operation,
               OneSided*& record);
  void enqueue(OneSided& record, bool striped);
  Status post_atomic(Kind kind, const AtomicTarget& target, std::uint64_t compare_add, std::uint64_t swap,
                     Operation& operation);

  // ---- turns
  void schedule_after_completion();
  void flush();
  void settle();
  void complete_sent();

  // ---- time and the end
  void on_timer(TimePoint now, Nanos pause);
  bool expire(TimePoint now, TimePoint& next);
  void report_stuck(OneSided& operation) const;
  void finish_close(Status leftover);
  void advance_close();
  void end();
  void tell_closed();

  Link link_;
  const Introduction who_;
  const std::uint32_t max_message_bytes_;
  Inbox inbox_;
  CreditExchange credits_;
  SideTalk side_;
  MessageSender messages_;
  DataSender data_;
  WorkCompletions completions_;
  Arrivals arrivals_;
  SilenceWatch silence_;
};

}  // namespace slime::transport::verbs

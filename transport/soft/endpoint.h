#pragma once

#include <memory>

#include "transport/endpoint.h"
#include "transport/endpoint/inbox.h"
#include "transport/soft/answers.h"
#include "transport/soft/direct_copies.h"
#include "transport/soft/frame_queue.h"
#include "transport/soft/frame_receiver.h"
#include "transport/soft/link.h"
#include "transport/soft/message_sender.h"
#include "transport/soft/request_sender.h"
#include "transport/soft/write_receiver.h"
#include "transport/soft/write_sender.h"

namespace slime::transport::soft {

// The software engine: one end of a connection over a Wire. Thread: the loop.
//
// A post queues its operation; only a short message or a short copy may be carried out at once.
// Everything else happens in run(), which the port calls once for each burst, and in the wire's
// events. So no callback runs inside a post, and none while a frame is half handled.
//
// This class takes posts, gives its parts their turns, and ends the connection. The parts share the
// Link. FrameQueue and FrameReceiver are the outgoing and the incoming end of the stream.
// MessageSender, WriteSender and RequestSender stage what this side posted; DirectCopies makes the
// copies that need no wire. Answers and WriteReceiver handle what the peer asks for.
class SoftEndpoint final : public Endpoint, public CreditOwner, private WireHandler {
 public:
  SoftEndpoint(std::shared_ptr<PortState> port, std::shared_ptr<CreditAccount> account,
               const Parameters& peer, std::unique_ptr<Wire> wire, Introduction who);
  ~SoftEndpoint() override;

  void set_receiver(Receiver& receiver) override;
  Status send(std::span<const Bytes> parts, Operation& operation, SendOptions options) override;
  Status read(std::span<const CopyBlock> copies, Operation& operation) override;
  Status write(std::span<const CopyBlock> copies, Operation& operation) override;
  Status write_with_imm(std::span<const CopyBlock> copies, std::uint32_t imm, Operation& operation) override;
  bool read_now(std::span<const CopyBlock> copies) override { return done_now(Kind::kRead, copies); }
  bool write_now(std::span<const CopyBlock> copies) override { return done_now(Kind::kWrite, copies); }
  Status fetch_add(const AtomicTarget& target, std::uint64_t add, Operation& operation) override;
  Status compare_swap(const AtomicTarget& target, std::uint64_t expected, std::uint64_t desired,
                      Operation& operation) override;
  Result<RemoteRegion> import_region(const RegionDescriptor& descriptor) override;
  void close(Nanos bound) override;
  void reset(Status reason) override;
  void hold_credit() override { link_.given.hold(); }
  void release_credits(std::uint32_t count) override;
  void set_awaiting(bool awaiting) override;

  [[nodiscard]] bool closed() const override { return link_.life.told_closed(); }
  [[nodiscard]] Status error() const override { return link_.life.error(); }
  [[nodiscard]] bool failed() const override { return !link_.life.error().ok(); }
  [[nodiscard]] std::uint32_t max_message_bytes() const override { return link_.peer.slot_bytes; }
  [[nodiscard]] std::uint32_t long_message_bytes() const override { return link_.long_bytes; }
  [[nodiscard]] std::uint32_t slot_bytes() const override { return link_.port->pool->options().slot_bytes; }
  [[nodiscard]] bool takes_long(std::uint64_t bytes) override;
  [[nodiscard]] std::uint64_t id() const override { return link_.id; }
  [[nodiscard]] std::size_t in_flight() const override { return link_.in_flight(); }
  [[nodiscard]] std::uint64_t credits() const override;
  [[nodiscard]] TimePoint last_progress() const override { return link_.stalls.last_progress(); }
  [[nodiscard]] EndpointCounters counters() const override { return link_.counters; }
  [[nodiscard]] std::string describe() const override;

  // ---- for the port ----
  void run();  // sends queued frames; ends the endpoint if it is broken
  void on_slot_free() noexcept override { link_.top_up(); }
  void reset_if_using(const RegionRecord& record);

 private:
  // ---- posting
  Status refusal() {
    SLIME_CHECK(link_.loop->in_loop());
    return link_.gate.refusal(in_flight());
  }
  Status need_credit(std::uint64_t reserve = 0);
  bool done_now(Kind kind, std::span<const CopyBlock> copies);
  Status post_one_sided(OneSided& record, Operation& operation);
  Status post_atomic(const AtomicTarget& target, OneSided record, Operation& operation);

  // ---- the wire's events
  void on_readable() noexcept override;
  void on_writable() noexcept override;
  void on_peer_memory() noexcept override;
  void on_broken(Status reason) noexcept override { frames_.lost(reason); }

  // ---- turns
  void flush();
  void stage();
  void stage_control();
  void stage_bulk();
  // called after a burst: tells the wire whether work waits, and calls on_ready() if there is room
  void settle();
  void tell_waiting();

  // ---- time
  void on_timer(TimePoint now, Nanos pause);
  void note_backlog(TimePoint now);
  bool expire(TimePoint now, TimePoint& next);

  // ---- the end
  void end();
  void complete_leftovers();
  void tell_closed();
  bool peer_has_left();

  Link link_;
  Inbox inbox_;
  FrameQueue frames_;
  WayFinder ways_;
  DirectCopies copies_;
  MessageSender messages_;
  RequestSender requests_;
  WriteSender writes_;
  Answers answers_;
  WriteReceiver incoming_writes_;
  FrameReceiver incoming_;

  bool waiting_ = false;
  bool awaiting_ = false;
  bool answers_turn_ = false;
  std::uint64_t credits_to_return_ = 0;
  std::uint64_t backlog_bytes_ = 0;  // of the wire, at last_backlog
  TimePoint backlog_at_{};
  // after end(): the loan under which the peer may still be inside a copy; null: none
  std::shared_ptr<const Loan> left_inside_;
  Nanos next_look_ = limits::kLoanLook;
};

}  // namespace slime::transport::soft

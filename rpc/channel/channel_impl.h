#pragma once

// Private to rpc/channel/: the state machine behind rpc/channel.h.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "rpc/channel.h"
#include "rpc/channel/answer_box.h"
#include "rpc/channel/attachment_room.h"
#include "rpc/channel/call_contexts.h"
#include "rpc/channel/call_table.h"
#include "rpc/channel/completions.h"
#include "rpc/channel/connection.h"
#include "rpc/channel/inbox.h"
#include "rpc/channel/lending.h"
#include "rpc/channel/lent_messages.h"
#include "rpc/channel/method_names.h"
#include "rpc/channel/outbox.h"
#include "rpc/channel/puller.h"
#include "rpc/channel/request_maker.h"
#include "rpc/channel/served_table.h"
#include "rpc/channel/turn.h"
#include "rpc/channel/user_messages.h"
#include "rpc/codec/frame.h"
#include "rpc/server/budget.h"
#include "rpc/stream/stream_table.h"

namespace slime::rpc {

// The implementation of Channel. Says hello, passes each frame and each request of a user to the
// part of the channel that handles it, calls handlers at the end of a turn, and closes.
class ChannelImpl final : public Channel,
                          private transport::Receiver,
                          private TurnHost,
                          private AnswerBox::Host,
                          private Outbox::Listener,
                          private Inbox::Receives,
                          private CallTable::Host {
 public:
  ChannelImpl(transport::Loop& loop, transport::Device& device, std::unique_ptr<transport::Endpoint> endpoint,
              Server* server, ChannelOwner& owner, ChannelOptions options);
  ~ChannelImpl() override;
  void start();

  Ticket call(const CallSpec& spec, ByteVector body, CallHandler handler) override;
  Ticket call_attached(const CallSpec& spec, AttachedBody request, CallHandler handler) override;
  Ticket call_one_way(const CallSpec& spec, AttachedBody request, DoneHandler handler) override;
  Ticket stream(const CallSpec& spec, AttachedBody request, std::shared_ptr<StreamEnd> stream,
                CallHandler handler) override;
  Ticket send(std::uint64_t tag, ByteVector body, TimePoint deadline, DoneHandler handler) override;
  Ticket send_ranges(std::uint64_t tag, Attachments ranges, TimePoint deadline, DoneHandler handler) override;
  Ticket recv_into(std::uint64_t tag, Destinations into, TimePoint deadline, LengthHandler handler) override;
  Ticket recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler handler) override;
  Ticket lookup_region(std::string_view name, TimePoint deadline, RegionHandler handler) override;
  Ticket ping(TimePoint deadline, DoneHandler handler) override;
  void cancel(Ticket ticket) override;
  void resume() override;
  void revoke_region(std::string_view name) override;
  void prove(Bytes proof) override;
  void expel(Status reason) override;
  void close(Nanos bound) override;
  void reset(Status reason) override;
  [[nodiscard]] bool ready() const override {
    return connection_.ready() && !connection_.closing() && !connection_.closed();
  }
  [[nodiscard]] bool closed() const override { return connection_.closed(); }
  [[nodiscard]] transport::Endpoint& endpoint() override { return connection_.endpoint(); }
  [[nodiscard]] bool idle() const override;
  [[nodiscard]] bool peer_leaves_message_credits() const override {
    return connection_.peer_has(wire::kFeatureMessageCredits);
  }
  [[nodiscard]] bool takes_proofs() const override {
    return connection_.ready() && connection_.peer_has(wire::kFeatureProofs);
  }
  [[nodiscard]] ChannelCounters counters() const override;

 private:
  using Kind = CallTable::Kind;

  // A turn (rpc/channel/turn.h) without virtual calls.
  class Scope {
   public:
    Scope(ChannelImpl& channel, bool from_loop) : channel_(channel), from_loop_(from_loop) {
      ++channel_.depth_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { channel_.leave(from_loop_); }

   private:
    ChannelImpl& channel_;
    bool from_loop_;
  };

  // channel.cc: turns
  void finish_call(Handle handle, CallTable::Pending& pending, Payload&& reply);
  void tell_awaiting();
  void leave(bool from_loop);
  void run_done();
  void begin_turn() noexcept override { ++depth_; }
  void end_turn(bool from_loop) noexcept override { leave(from_loop); }

  // close.cc
  void begin_close(Nanos bound);
  void check_drained();
  void end_receives();
  void sweep(const Status& cause);
  void on_closed(const Status& reason) noexcept override;

  // receive.cc
  void on_message(transport::Message message) noexcept override;
  // `waited`: since the frame came.
  void take_frame(transport::Message&& message, Nanos waited);
  void on_imm(std::uint32_t imm) noexcept override;
  void on_ready() noexcept override;
  void flush();
  Status dispatch(const wire::Frame& frame, transport::Message&& message);
  Status on_hello(const wire::Frame& frame);
  Status on_reply(const wire::Frame& frame, transport::Message&& message);
  Status on_region_lookup(const wire::Frame& frame);
  Status on_peer_closing();
  Status on_proof(const wire::Frame& frame);  // proof.cc

  // AnswerBox::Host
  void take_answers() override;
  void send_answer(Handle served, Result<ByteVector>&& reply) override {
    served_.send_answer(served, std::move(reply));
  }
  void attend_user(std::uint64_t key) override;
  void on_granted(Handle served) override;

  // The parts call each other through these.
  void on_queued_frame_left(const OutFrame& frame) override { calls_.on_left(frame); }
  void on_receive_ended(std::uint64_t tag, Handle receive) override { inbox_.remove_receive(tag, receive); }
  bool end_reading(Handle call, const Status& reason) override {
    lent_messages_.on_given_up(call);
    return puller_.abort_reply(call, reason);
  }
  [[nodiscard]] std::string deadline_text(Handle call) const override { return streams_.deadline_text(call); }
  void on_one_way_failed(Status status, const PeerMethod* method) override;
  DeliveryHandler take_receive(Handle receive) override { return calls_.take_receive(receive); }
  void collect_untaken() override { take_answers(); }

  Connection connection_;
  ChannelOwner& owner_;
  const std::shared_ptr<Account> account_;
  const std::shared_ptr<AnswerBox> box_;
  Completions completions_;
  MethodNames names_;
  Outbox outbox_;
  Lending lending_;
  Inbox inbox_;
  CallTable calls_;
  CallContexts contexts_;
  AttachmentRoom room_;
  Puller puller_;
  RequestMaker requests_;
  LentMessages lent_messages_;
  UserMessages messages_;
  ServedTable served_;
  StreamTable streams_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for posted tasks

  bool holding_ = connection_.options().held;
  struct HeldFrame {
    transport::Message message;
    TimePoint came;
  };
  std::vector<HeldFrame> held_;  // frames that wait for resume()

  bool ready_told_ = false;
  bool closing_told_ = false;
  bool closed_told_ = false;
  TimePoint close_deadline_ = kNever;
  transport::TimerId close_timer_;

  int depth_ = 0;  // of turns
  bool awaiting_told_ = false;
  bool running_done_ = false;
  bool done_posted_ = false;
  std::uint64_t one_way_failed_ = 0;
};

}  // namespace slime::rpc

#pragma once

// Private to rpc/channel/ and rpc/stream/: the state machine behind rpc/channel.h.

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

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
#include "rpc/channel/method_names.h"
#include "rpc/channel/outbox.h"
#include "rpc/channel/puller.h"
#include "rpc/channel/turn.h"
#include "rpc/codec/attachments.h"
#include "rpc/codec/frame.h"
#include "rpc/server/budget.h"

namespace slime::rpc {

class ChannelImpl final : public Channel,
                          private transport::Receiver,
                          private TurnHost,
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
  Ticket recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler handler) override;
  Ticket lookup_region(std::string_view name, TimePoint deadline, RegionHandler handler) override;
  Ticket ping(TimePoint deadline, DoneHandler handler) override;
  void cancel(Ticket ticket) override;
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

  // ---- for AnswerBox
  void take_answers();
  void send_answer(Handle served, Result<ByteVector>&& reply);
  void attend_user(std::uint64_t key);
  void on_granted(Handle served);

 private:
  using Handler = Completions::Handler;
  using Outcome = Completions::Outcome;

  using Kind = CallTable::Kind;

  // A request of the peer that has no answer yet.
  struct Served {
    std::uint64_t call = 0;
    std::uint32_t method = 0;  // the id that the answer tells the peer; 0: none
    bool one_way = false;      // answered only if it fails
    bool timed = false;        // its caller asks where the time went: in timed_
    TimePoint deadline = kNever;
  };

  // Callbacks and public functions run inside one: handlers are called when the outermost one ends, from the
  // loop, so never from inside a public function.
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

  // channel.cc: what we ask for, how it ends
  template <class Body, class H>
  Ticket begin_call(const CallSpec& spec, Body&& body, H&& handler, std::uint8_t flags, std::uint64_t into);
  Ticket ask_attached(const CallSpec& spec, AttachedBody&& request, CallHandler&& handler,
                      std::uint8_t flags);
  void on_queued_frame_left(const OutFrame& frame) override { calls_.on_left(frame); }
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

  // CallTable::Host
  void on_receive_ended(std::uint64_t tag, Handle receive) override { inbox_.remove_receive(tag, receive); }
  bool end_reading(Handle call, const Status& reason) override { return puller_.abort_reply(call, reason); }
  [[nodiscard]] std::string deadline_text(Handle call) const override { return stream_deadline_text(call); }
  void on_one_way_failed(Status status, const PeerMethod* method) override;

  // hello.cc
  Status on_hello(const wire::Frame& frame);
  void put_signature(OutFrame& frame, const PeerMethod* known, std::uint64_t signature) const;
  Status put_kind(OutFrame& frame, const AttachedBody& body) const;
  Status put_context(OutFrame& frame, const CallContext& context) const;
  void withdraw_signatures();
  void withdraw_contexts();
  void refuse_queued(std::uint8_t flag, const Status& why);
  [[nodiscard]] Status no_raw() const;
  [[nodiscard]] Status no_metadata() const;

  // send.cc
  void flush();
  void finish_reply(OutFrame&& frame, const Served& served, Result<ByteVector>&& reply);
  void send_reply(const Served& served, Result<ByteVector>&& reply);
  void send_reply(const Served& served, Result<ByteVector>&& reply, const wire::ServerTimes& times);

  void send_known_answer(Handle handle, const Served& served, Result<ByteVector>&& reply);
  void extend(CallInfo& info, const wire::Frame& frame, Handle served);
  void refuse_request(const wire::Frame& frame, const Served& served, Status refusal);
  wire::ServerTimes take_timed(Handle served);
  void send_timed(Handle handle, const Served& served, Result<ByteVector>&& reply);
  const std::shared_ptr<Request::Responder>& one_way_responder();

  // receive.cc
  void on_message(transport::Message message) noexcept override;
  void on_imm(std::uint32_t imm) noexcept override;
  void on_ready() noexcept override;
  void on_closed(const Status& reason) noexcept override;
  Status dispatch(const wire::Frame& frame, transport::Message&& message);
  Status on_request(const wire::Frame& frame, transport::Message&& message);
  Status turn_away(const wire::Frame& frame, const Served& served, Status refusal);
  void serve(CallInfo&& info, Server::Found& found, Payload&& body, Handle handle, bool one_way);
  Status on_cancel(const wire::Frame& frame);
  bool make_place(std::size_t index);
  Status on_reply(const wire::Frame& frame);
  Status admit_message(std::uint64_t tag, std::uint64_t bytes) const;
  Status on_user_message(const wire::Frame& frame);
  Status on_user_ack(const wire::Frame& frame);
  Status on_region_lookup(const wire::Frame& frame);
  Status on_region_reply(const wire::Frame& frame);
  Status on_pong(const wire::Frame& frame);
  Status on_proof(const wire::Frame& frame);  // proof.cc
  Status on_peer_closing();
  Status peer_error(const wire::Frame& frame) const;

  // rpc/stream/streams.cc, messages.cc, time.cc; their types are in rpc/stream/streams.h
  struct Streams;
  struct Stream;
  struct Arriving;
  Streams& streams();
  Stream& add_stream(std::shared_ptr<StreamEnd> end, std::uint64_t id, bool from_handler);
  void refuse_streams();
  Status note_stream(std::uint64_t id);
  Status take_stream(Handle served, std::uint64_t id, TimePoint deadline);
  void touch_stream(Stream& stream);
  void watch_streams(TimePoint first);
  void look_at_streams();
  [[nodiscard]] TimePoint stream_due(const Stream& stream) const;
  [[nodiscard]] bool stream_is_idle(Stream& stream) const;
  void end_idle(Stream& stream);
  [[nodiscard]] std::string stream_deadline_text(Handle call) const;
  void cancel_stream(std::uint64_t id);
  bool hold_answer(Handle handle, const Served& served, Result<ByteVector>& reply);
  void note_replied(Handle handle);
  void end_asked(std::uint64_t key, const Status& reason);
  void end_served(Stream& stream, const Status& reason);
  void break_stream(Stream& stream, Status reason);
  void drop_arriving(Stream& stream);
  void drop_leaving(Stream& stream);
  void erase_stream(Stream& stream);
  void sweep_streams();
  Status on_stream(const wire::Frame& frame);
  Result<Stream*> stream_of(const wire::FrameHeader& header);
  Status on_data(Stream& stream, const wire::Frame& frame);
  void attend_stream(std::uint64_t key);
  void advance(Stream& stream);
  bool pull_next(Stream& stream);
  void pump(Stream& stream, bool all_credits = false);
  bool send_next(Stream& stream);
  void stall(Stream& stream);
  void pump_stalled();
  void message_released(StreamEnd& stream, std::uint64_t bytes);

  // Inbox::Receives
  DeliveryHandler take_receive(Handle receive) override { return calls_.take_receive(receive); }
  void collect_untaken() override { take_answers(); }

  Connection connection_;
  Server* const server_;
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
  Account::Held answer_held_;                    // of the answer that is being sent
  std::shared_ptr<Request::Responder> one_way_;  // of one-way requests, since the first
  const std::shared_ptr<int> alive_ =
      std::make_shared<int>(0);  // posted tasks look whether we are still here

  bool ready_told_ = false;
  bool closing_told_ = false;
  bool closed_told_ = false;
  TimePoint close_deadline_ = kNever;
  transport::TimerId close_timer_;

  int depth_ = 0;
  bool awaiting_told_ = false;
  bool running_done_ = false;
  bool done_posted_ = false;

  SlotMap<Served> served_;
  std::vector<Handle> served_by_call_;  // by the index of the caller's id: what a cancel names

  // Of requests whose caller asks where the time went, by handle.
  std::unordered_map<std::uint64_t, std::shared_ptr<CallExtras>> timed_;

  std::unique_ptr<Streams> streams_;  // null: there was none yet

  ChannelCounters counters_;
};

}  // namespace slime::rpc

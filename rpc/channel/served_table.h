#pragma once

// Private to rpc: the requests of the peer that a channel serves.

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/channel/answer_box.h"
#include "rpc/channel/connection.h"
#include "rpc/channel/lending.h"
#include "rpc/channel/method_names.h"
#include "rpc/channel/outbox.h"
#include "rpc/channel/puller.h"
#include "rpc/codec/frame.h"
#include "rpc/server.h"
#include "rpc/server/budget.h"
#include "rpc/service.h"
#include "rpc/stream/stream_table.h"
#include "transport/endpoint.h"

namespace slime::rpc {

// Keeps each request of the peer from its arrival until it is answered. Admits or refuses the
// request, has its large body read, passes it to the server, cancels it, and sends its answer.
// Thread: the loop, in a turn.
class ServedTable final : public StreamTable::Answers {
 public:
  struct Parts {
    Connection& connection;
    MethodNames& names;
    Outbox& outbox;
    Lending& lending;
    Puller& puller;
    StreamTable& streams;
  };
  // If `server` is null, each request is answered with kNotFound.
  ServedTable(const Parts& parts, std::shared_ptr<AnswerBox> box, Server* server);
  ServedTable(const ServedTable&) = delete;
  ServedTable& operator=(const ServedTable&) = delete;

  // Handles a kRequest frame. Returns an error if the peer broke the protocol. A request that is
  // refused for another reason is answered, and OK is returned.
  Status on_request(const wire::Frame& frame, transport::Message&& message);
  // Handles a kCancel frame. Does nothing if the request has already been answered.
  void on_cancel(const wire::Frame& frame);
  // Sends the answer of a handler. Does nothing if the request has already been answered.
  void send_answer(Handle served, Result<ByteVector>&& answer);
  // Sends the answers that other threads have put into the AnswerBox.
  void send_answers(std::vector<AnswerBox::Answer>&& answers);
  void send_held_answer(Handle served, Result<ByteVector>&& answer, Account::Held&& held) override;
  // Drops all requests: the channel is closed.
  void clear();

  [[nodiscard]] bool empty() const { return served_.empty(); }
  [[nodiscard]] std::uint64_t requests() const { return requests_; }  // that ever came

 private:
  struct Served {
    std::uint64_t call = 0;    // the caller's id
    std::uint32_t method = 0;  // the method's number, which the answer tells the caller; 0: none
    bool one_way = false;      // answered only if it fails
    bool timed = false;        // the caller asks for times: see timed_
    TimePoint deadline = kNever;
  };

  [[nodiscard]] Status admission() const;
  Handle add(const Served& served);
  bool make_place(std::size_t index);
  void add_extras(CallInfo& info, const wire::Frame& frame, Handle handle);
  Status read(const wire::Frame& frame, CallInfo&& info, Server::Found& found, Handle handle, bool one_way);
  void take_long(transport::Message&& message, Bytes body, CallInfo&& info, Server::Found& found,
                 Handle handle, bool one_way);
  Task when_granted(Handle handle);
  Puller::Handler when_read(CallInfo&& info, Handle handle, bool one_way);
  void serve(CallInfo&& info, Server::Found& found, Payload&& body, Handle handle, bool one_way);
  const std::shared_ptr<Request::Responder>& one_way_responder();
  Status refuse(const wire::Frame& frame, const Served& served, Status refusal);

  void finish_reply(OutFrame&& frame, const Served& served, Result<ByteVector>&& reply);
  void send_reply(const Served& served, Result<ByteVector>&& reply);
  void send_reply(const Served& served, Result<ByteVector>&& reply, const wire::ServerTimes& times);
  void send_timed(Handle handle, const Served& served, Result<ByteVector>&& reply);
  void send_with_notes(Handle handle, const Served& served, Result<ByteVector>&& reply);
  wire::ServerTimes take_times(Handle handle);

  Connection& connection_;
  MethodNames& names_;
  Outbox& outbox_;
  Lending& lending_;
  Puller& puller_;
  StreamTable& streams_;
  const std::shared_ptr<AnswerBox> box_;
  Server* const server_;
  SlotMap<Served> served_;
  // requests by the index of the caller's id, to find the request that a cancel is for
  std::vector<Handle> by_call_;
  std::unordered_map<std::uint64_t, std::shared_ptr<CallExtras>> timed_;  // by handle
  std::shared_ptr<Request::Responder> one_way_;                           // null: not used yet
  Account::Held held_;                                                    // of the current answer
  std::uint64_t requests_ = 0;
};

}  // namespace slime::rpc

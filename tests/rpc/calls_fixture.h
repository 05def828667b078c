#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rpc/channel/answer_box.h"
#include "rpc/channel/attachment_room.h"
#include "rpc/channel/call_table.h"
#include "rpc/channel/lending.h"
#include "rpc/channel/method_names.h"
#include "rpc/channel/outbox.h"
#include "rpc/channel/puller.h"
#include "tests/rpc/parts_fixture.h"
#include "tests/support/bytes.h"

namespace slime::rpc::testing {

using test::same;

// The parts of a channel that make and serve requests stand on these, on side 0 of a connection.
// Records what the call table asks of the channel. Call finish() in the destructor of what is
// declared after it.
class CallsBase final : private Outbox::Listener, private CallTable::Host {
 public:
  using Kind = CallTable::Kind;

  explicit CallsBase(ChannelOptions options = {.peer_name = "peer"}) : base(sim, std::move(options)) {}
  ~CallsBase() { finish(); }
  void finish() { base.finish(); }

  Connection& connection() { return *base.connection; }
  // Adds a request of this kind and sends or queues its frame.
  template <class Handler>
  Ticket ask(Kind kind, Handler handler, TimePoint deadline = kNever) {
    OutFrame frame;
    frame.header.type = kind == Kind::kSend     ? wire::FrameType::kUserMessage
                        : kind == Kind::kLookup ? wire::FrameType::kRegionLookup
                        : kind == Kind::kCall   ? wire::FrameType::kRequest
                                                : wire::FrameType::kPing;
    if (kind == Kind::kCall) frame.header.method = 1;
    if (kind == Kind::kLookup) ByteWriter(frame.text).append(as_bytes(std::string_view("region")));
    frame.deadline = deadline;
    return calls.ask(calls.add(kind, std::move(handler), deadline).first, deadline, frame);
  }
  // The header of the peer's answer to that request.
  static wire::FrameHeader answer_to(Ticket ticket) {
    wire::FrameHeader header;
    header.type = wire::FrameType::kReply;
    header.id = ticket.value;
    return header;
  }
  // The n-th frame that the peer got, if it got so many within the time that a message takes.
  bool peer_got(std::size_t frames) {
    sim.settle();
    return base.received.messages.size() >= frames;
  }
  wire::Frame last_frame() {
    REQUIRE(peer_got(1));
    return base.frame(base.received.messages.size() - 1);
  }
  std::size_t frames_of(wire::FrameType type) {
    sim.settle();
    std::size_t count = 0;
    for (std::size_t i = 0; i < base.received.messages.size(); ++i)
      count += base.frame(i).header.type == type;
    return count;
  }

  // What the table has told its host, and what the host says.
  std::vector<std::pair<std::uint64_t, Handle>> ended_receives;
  std::vector<Status> one_way_failures;
  std::vector<std::string> failed_methods;
  std::string text_of_deadline;
  bool reads_on = false;  // whether the reading of a reply goes on after end_reading()

  SimFixture sim{kSeed};
  PartsBase base;
  Outbox outbox{*base.connection, base, *this};
  Lending lending{*base.connection, base, base.account};
  CallTable calls{*base.connection, base.completions, outbox, lending, base, *this};

 private:
  void on_queued_frame_left(const OutFrame& frame) override { calls.on_left(frame); }
  void on_receive_ended(std::uint64_t tag, Handle receive) override {
    ended_receives.emplace_back(tag, receive);
  }
  bool end_reading(Handle, const Status&) override { return reads_on; }
  [[nodiscard]] std::string deadline_text(Handle) const override { return text_of_deadline; }
  void on_one_way_failed(Status status, const PeerMethod* method) override {
    one_way_failures.push_back(std::move(status));
    failed_methods.push_back(method != nullptr ? method->method : "");
  }
};

// Memory of the peer that it lends, and the frame that offers it.
class PeerLoan {
 public:
  PeerLoan(CallsBase& base, std::size_t bytes, Handle lease) : data(pattern(bytes)) {
    auto made = base.sim.device(1).register_memory(data.data(), data.size(), transport::Rights::kRemoteRead);
    REQUIRE_MESSAGE(made.has_value(), made.status().to_string());
    region = std::move(*made);
    wire::Offer offer;
    offer.lease = lease;
    offer.length_bytes = data.size();
    offer.region = region.describe();
    body = offer.encode();
    frame.header.flags = wire::kFlagRendezvous;
    frame.body = body;
  }
  ~PeerLoan() { region.close(Nanos::zero()).ignore(); }
  PeerLoan(const PeerLoan&) = delete;
  PeerLoan& operator=(const PeerLoan&) = delete;

  ByteVector data;
  transport::DeviceRegion region;
  ByteVector body;
  wire::Frame frame;
};

}  // namespace slime::rpc::testing

#pragma once

// Private to rpc: makes the requests that this side sends.

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "rpc/channel.h"
#include "rpc/channel/attachment_room.h"
#include "rpc/channel/call_contexts.h"
#include "rpc/channel/call_table.h"
#include "rpc/channel/connection.h"
#include "rpc/channel/lending.h"
#include "rpc/channel/method_names.h"
#include "rpc/channel/outbox.h"
#include "rpc/codec/frame.h"
#include "rpc/service.h"

namespace slime::rpc {

// Makes requests: all kinds of calls, region look-ups and pings; takes the answers of the latter
// two. Fills the frame as the peer's version allows, lends a body that does not fit, and adds the
// request to the CallTable. When the hello of an older peer arrives, removes from queued requests
// what that peer does not know. Thread: the loop, in a turn.
class RequestMaker {
 public:
  struct Parts {
    Connection& connection;
    MethodNames& names;
    Outbox& outbox;
    Lending& lending;
    CallTable& calls;
    CallContexts& contexts;
    AttachmentRoom& room;
  };
  explicit RequestMaker(const Parts& parts)
      : connection_(parts.connection),
        names_(parts.names),
        outbox_(parts.outbox),
        lending_(parts.lending),
        calls_(parts.calls),
        contexts_(parts.contexts),
        room_(parts.room) {}
  RequestMaker(const RequestMaker&) = delete;
  RequestMaker& operator=(const RequestMaker&) = delete;

  // Makes a call without context and signature; `spec` must have neither.
  Ticket call(const CallSpec& spec, ByteVector&& body, CallHandler&& handler);
  // Makes a call of any kind. `flags`: kFlagStream if the call opens a stream.
  Ticket call(const CallSpec& spec, AttachedBody&& request, CallHandler&& handler, std::uint8_t flags);
  Ticket call_one_way(const CallSpec& spec, AttachedBody&& request, DoneHandler&& handler);
  // Ends a call that cannot be made.
  Ticket refuse_call(const CallSpec& spec, CallHandler&& handler, Status status);
  Ticket lookup_region(std::string_view name, TimePoint deadline, RegionHandler&& handler);
  Ticket ping(TimePoint deadline, DoneHandler&& handler);

  // ---- answers. Return an error if the peer broke the protocol.
  Status on_region_reply(const wire::Frame& frame);
  Status on_pong(const wire::Frame& frame);

  // ---- the peer's hello has come
  // Removes signatures and optional metadata from queued requests if the peer does not know them.
  // Fails queued calls that require metadata.
  void withdraw_extras();
  // Fails queued calls with attachments, and queued calls of raw methods, if the peer does not know
  // them.
  void refuse_unknown_kinds();

  [[nodiscard]] std::uint64_t calls() const { return count_; }  // of calls that were made

 private:
  template <class Body, class H>
  Ticket begin(const CallSpec& spec, Body&& body, H&& handler, std::uint8_t flags, std::uint64_t into);
  void put_signature(OutFrame& frame, const PeerMethod* known, std::uint64_t signature) const;
  Status put_kind(OutFrame& frame, const AttachedBody& body) const;
  Status put_context(OutFrame& frame, const CallContext& context) const;
  void withdraw_signatures();
  void withdraw_contexts();
  void refuse_queued(std::uint8_t flag, const Status& why);
  [[nodiscard]] Status no_raw() const;
  [[nodiscard]] Status no_metadata() const;

  Connection& connection_;
  MethodNames& names_;
  Outbox& outbox_;
  Lending& lending_;
  CallTable& calls_;
  CallContexts& contexts_;
  AttachmentRoom& room_;
  std::uint64_t count_ = 0;
};

}  // namespace slime::rpc

#include "rpc/channel/request_maker.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "base/str.h"
#include "rpc/text.h"

namespace slime::rpc {

// Frames contain only what the peer's version knows. Before the peer's hello has arrived, a frame
// is made for the newest version; if the hello tells an older version, the queued frame is changed.

using Kind = CallTable::Kind;

// ------------------------------------------------------------------------------------------ making

// Begins a call. Inlined into each caller, so that a call with only bytes, without context and
// signature, contains no code for those.
template <class Body, class H>
[[gnu::always_inline]] inline Ticket RequestMaker::begin(const CallSpec& spec, Body&& body, H&& handler,
                                                         std::uint8_t flags, std::uint64_t into) {
  ++count_;
  constexpr bool kPlain = std::is_same_v<Body, ByteVector>;
  const bool extended = !kPlain && spec.context != nullptr;
  if (extended) contexts_.watch(spec.context, handler);
  Status status = calls_.admission(Kind::kCall);
  PeerMethod* known = nullptr;
  if (status.ok()) status = names_.find(spec.service, spec.method, known);
  if (!status.ok()) return calls_.refuse(Kind::kCall, std::forward<H>(handler), std::move(status));

  OutFrame frame;
  frame.header.type = wire::FrameType::kRequest;
  frame.header.flags = flags & wire::kFlagStream;
  if constexpr (!kPlain) status = put_kind(frame, body);
  frame.deadline = spec.deadline;
  frame.one_way = flags == wire::kFlagOneWay;
  const bool has_signature = !kPlain && spec.signature != 0;
  if (has_signature && known != nullptr) known = MethodNames::find_by_signature(*known, spec.signature);
  if (known != nullptr) frame.header.method = known->id;
  if (frame.header.method == 0) frame.text = wire::encode_names(spec.service, spec.method);
  if (extended && status.ok()) status = put_context(frame, *spec.context);
  if (has_signature) put_signature(frame, known, spec.signature);
  Handle lent;
  if (status.ok()) status = lending_.put_body(frame, std::forward<Body>(body), lent, outbox_.empty());
  if (!status.ok()) return calls_.refuse(Kind::kCall, std::forward<H>(handler), std::move(status));
  const auto [handle, pending] = calls_.add(Kind::kCall, std::forward<H>(handler), spec.deadline);
  pending->lent = lent;
  if (!kPlain) pending->into = into;
  pending->method = known;
  if (extended) contexts_.keep(handle, spec.context);
  return calls_.ask(handle, spec.deadline, frame);
}

Ticket RequestMaker::call(const CallSpec& spec, ByteVector&& body, CallHandler&& handler) {
  return begin(spec, std::move(body), std::move(handler), 0, 0);
}

Ticket RequestMaker::call(const CallSpec& spec, AttachedBody&& request, CallHandler&& handler,
                          std::uint8_t flags) {
  std::uint64_t into = 0;
  if (!request.into.empty()) handler = room_.keep(std::move(request.into), std::move(handler), into);
  return begin(spec, std::move(request), std::move(handler), flags, into);
}

Ticket RequestMaker::call_one_way(const CallSpec& spec, AttachedBody&& request, DoneHandler&& handler) {
  return begin(spec, std::move(request), std::move(handler), wire::kFlagOneWay, 0);
}

Ticket RequestMaker::refuse_call(const CallSpec& spec, CallHandler&& handler, Status status) {
  ++count_;
  if (spec.context != nullptr) contexts_.watch(spec.context, handler);
  return calls_.refuse(Kind::kCall, std::move(handler), std::move(status));
}

Ticket RequestMaker::lookup_region(std::string_view name, TimePoint deadline, RegionHandler&& handler) {
  Status status = calls_.admission(Kind::kLookup);
  if (status.ok()) status = validate_name("region", name);
  if (status.ok() && !connection_.fits(name.size(), 0)) {
    status = Status(Code::kInvalidArgument, "the name of the region does not fit into a message");
  }
  if (!status.ok()) return calls_.refuse(Kind::kLookup, std::move(handler), std::move(status));
  OutFrame frame;
  frame.header.type = wire::FrameType::kRegionLookup;
  ByteWriter(frame.text).append(as_bytes(name));
  return calls_.ask(calls_.add(Kind::kLookup, std::move(handler), deadline).first, deadline, frame);
}

Ticket RequestMaker::ping(TimePoint deadline, DoneHandler&& handler) {
  Status status = calls_.admission(Kind::kPing);
  if (!status.ok()) return calls_.refuse(Kind::kPing, std::move(handler), std::move(status));
  OutFrame frame;
  frame.header.type = wire::FrameType::kPing;
  return calls_.ask(calls_.add(Kind::kPing, std::move(handler), deadline).first, deadline, frame);
}

// -------------------------------------------------------------------------------- parts of a frame

// Appends the signature to the names. A request by number needs none: the peer tells a method's
// number only to callers with the right signature.
void RequestMaker::put_signature(OutFrame& frame, const PeerMethod* known, std::uint64_t signature) const {
  const bool checked =
      connection_.ready() ? connection_.peer_has(wire::kFeatureSignatures) : known != nullptr;
  if (frame.header.method != 0 || !checked) return;
  ByteWriter(frame.text).write(signature);
  frame.has_signature = true;
}

Status RequestMaker::put_kind(OutFrame& frame, const AttachedBody& body) const {
  if (!body.raw) return {};
  if (!body.attachments.empty() || !body.into.empty())
    return Status(Code::kInvalidArgument, "a call of bytes has nothing beside them");
  if (!connection_.peer_has(wire::kFeatureRaw)) return no_raw();
  frame.header.flags |= wire::kFlagRaw;
  return {};
}

// Appends the metadata to the names, if the frame has names. Asks for no times in a one-way call,
// which gets no answer.
Status RequestMaker::put_context(OutFrame& frame, const CallContext& context) const {
  const bool timed = context.timed && !frame.one_way;
  if (context.metadata.empty() && !timed) return {};
  if (!connection_.peer_has(wire::kFeatureMetadata))
    return context.metadata.has_required() ? no_metadata() : Status();
  frame.header.flags |= wire::kFlagMetadata;
  wire::encode_extras(context.metadata, timed, frame.text);
  return {};
}

// ----------------------------------------------------------------------------------- an older peer

void RequestMaker::withdraw_extras() {
  if (!connection_.peer_has(wire::kFeatureSignatures)) withdraw_signatures();
  if (!connection_.peer_has(wire::kFeatureMetadata)) withdraw_contexts();
}

void RequestMaker::refuse_unknown_kinds() {
  if (!connection_.peer_has(wire::kFeatureAttachments))
    refuse_queued(wire::kFlagAttachments, lending_.no_attachments());
  if (!connection_.peer_has(wire::kFeatureRaw)) refuse_queued(wire::kFlagRaw, no_raw());
}

void RequestMaker::withdraw_signatures() {
  outbox_.edit([](OutFrame& frame) {
    if (!std::exchange(frame.has_signature, false)) return;
    frame.text.resize(frame.text.size() - sizeof(std::uint64_t));
  });
}

void RequestMaker::withdraw_contexts() {
  std::vector<Handle> refused;
  outbox_.edit([&](OutFrame& frame) {
    if (frame.header.type != wire::FrameType::kRequest || (frame.header.flags & wire::kFlagMetadata) == 0)
      return;
    if (contexts_.requires_metadata(frame.pending)) return refused.push_back(frame.pending);
    // The text begins with the names, because no method has a number before the hello.
    ByteReader text(frame.text);
    text.take(text.read<std::uint16_t>());
    text.take(text.read<std::uint16_t>());
    const std::size_t behind = frame.has_signature ? sizeof(std::uint64_t) : 0;
    const auto begin = frame.text.end() - static_cast<std::ptrdiff_t>(text.remaining());
    frame.text.erase(begin, frame.text.end() - static_cast<std::ptrdiff_t>(behind));
    frame.header.flags &= static_cast<std::uint8_t>(~wire::kFlagMetadata);
  });
  for (const Handle handle : refused) calls_.fail(handle, no_metadata());
}

void RequestMaker::refuse_queued(std::uint8_t flag, const Status& why) {
  std::vector<Handle> refused;
  outbox_.edit([&](const OutFrame& frame) {
    if (frame.header.type == wire::FrameType::kRequest && (frame.header.flags & flag) != 0)
      refused.push_back(frame.pending);
  });
  for (const Handle handle : refused) calls_.fail(handle, why);
}

Status RequestMaker::no_raw() const {
  return Status(Code::kUnimplemented, str(connection_.peer_name(), " knows no methods of bytes: upgrade it"));
}

Status RequestMaker::no_metadata() const {
  return Status(Code::kUnimplemented,
                str(connection_.peer_name(), " takes no metadata, which this call needs: upgrade it"));
}

// ---------------------------------------------------------------------------------------- answers

Status RequestMaker::on_pong(const wire::Frame& frame) {
  auto expectation = calls_.expected(frame.header, Kind::kPing);
  if (!expectation) return std::move(expectation).error();
  calls_.finish(Handle::unpack(frame.header.id), {});
  return {};
}

Status RequestMaker::on_region_reply(const wire::Frame& frame) {
  auto expectation = calls_.expected(frame.header, Kind::kLookup);
  if (!expectation) return std::move(expectation).error();
  const Handle handle = Handle::unpack(frame.header.id);
  if (frame.header.code != 0) {
    calls_.finish(handle, {wire::error_of(frame), {}, {}});
    return {};
  }
  auto descriptor = wire::decode_region(frame.body);
  if (!descriptor) return std::move(descriptor).error();
  auto region = connection_.endpoint().import_region(*descriptor);
  if (!region) return std::move(region).error();
  calls_.finish(handle, {{}, {}, std::make_unique<transport::RemoteRegion>(*region)});
  return {};
}

}  // namespace slime::rpc

#include "rpc/channel/lending.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/copy.h"
#include "base/str.h"
#include "rpc/channel/answer_box.h"
#include "rpc/codec/body_pool.h"

namespace slime::rpc {
namespace {

// Returns how the memory of a payload of this size is registered. A lasting registration of small
// memory costs too much.
transport::Use use_of(std::size_t bytes) {
  return bytes < limits::kLendLastingBytes ? transport::Use::kOnce : transport::Use::kLasting;
}

}  // namespace

std::uint64_t Lent::own_bytes() const { return body_bytes() + owned_bytes(attachments); }

void Lent::close() {
  region.close(Nanos::zero()).ignore();
  for (transport::DeviceRegion& each : regions) each.close(Nanos::zero()).ignore();
}

// The table has room for the lent bodies of all requests and replies that the limits allow.
Lending::Lending(Connection& connection, TurnHost& turns, std::shared_ptr<Account> account)
    : connection_(connection),
      account_(std::move(account)),
      most_(4 * connection.options().max_calls),
      lent_(most_),
      revocation_(connection.loop(), turns, [this] { revoke_late(); }) {}

Lending::~Lending() {
  lent_.for_each([](Handle, Lent& lent) { lent.close(); });
}

// ----------------------------------------------------------------------------------------- lending

Result<Handle> Lending::add(Lent&& lent) {
  const auto handle = lent_.insert(std::move(lent));
  if (!handle) return Status(Code::kResourceExhausted, "too many payloads are lent to the peer");
  return *handle;
}

// Lends the body to the peer. Uses the loan `lent` if it exists already, else a new loan.
Status Lending::lend(OutFrame& frame, ByteVector&& body, Handle& lent) {
  if (body.size() > connection_.max_payload_bytes()) return too_large(body.size());
  Lent placed;
  wire::Offer offer;
  offer.length_bytes = body.size();
  SLIME_TRY(place(std::move(body), placed, offer.region));
  if (!connection_.fits(frame.text.size(), offer.encoded_bytes())) {
    return Status(Code::kInvalidArgument,
                  str("the names of the method and the metadata do not fit into a message of ",
                      connection_.message_bytes(), " bytes"));
  }
  if (lent.generation == 0) {
    const auto handle = add(Lent());
    if (!handle) return handle.error();
    lent = *handle;
  }
  Lent& record = *lent_.find(lent);
  record.bytes = std::move(placed.bytes);
  record.block = std::move(placed.block);
  record.block_bytes = placed.block_bytes;
  record.region = std::move(placed.region);
  offer.lease = lent;
  frame.header.flags |= wire::kFlagRendezvous;
  frame.body = offer.encode();
  ++counters_.rendezvous;
  return {};
}

// Puts the body into memory that the peer can read. Copies it to a block if there is one: the peer
// has mapped the block already, or the device has registered it, which takes longer than a copy.
Status Lending::place(ByteVector&& body, Lent& to, transport::RegionDescriptor& region) {
  to.block = connection_.blocks().take_to_lend(body.size());
  if (to.block != nullptr) {
    copy_bytes(to.block->bytes().data(), body.data(), body.size());
    to.block_bytes = body.size();
    region = to.block->region().describe();
    give_body(std::move(body));
    return {};
  }
  auto registered = register_bytes(body);
  if (!registered) return std::move(registered).error().with_context("lending a payload");
  region = registered->describe();
  to.bytes = std::move(body);
  to.region = std::move(*registered);
  return {};
}

// The const_cast is safe: the peer gets only the right to read.
Result<transport::DeviceRegion> Lending::register_bytes(Bytes bytes) {
  ++counters_.registrations;
  return connection_.device().register_memory(const_cast<std::byte*>(bytes.data()), bytes.size(),
                                              transport::Rights::kRemoteRead, transport::MemoryKind::kHost,
                                              use_of(bytes.size()));
}

Status Lending::put_body(OutFrame& frame, AttachedBody&& body, Handle& lent, bool at_once) {
  if (body.attachments.empty()) return put_body(frame, std::move(body.body), lent, at_once);
  SLIME_TRY(check_attached(body));
  std::size_t whole = 16 + body.body.size();
  for (const Attachment& attachment : body.attachments) whole += 9 + attachment.size();
  const std::size_t most = connection_.fits(frame.text.size(), whole) ? connection_.message_bytes()
                                                                      : limits::kInlineAttachmentBytes;
  Lent record;
  wire::AttachmentTable table;
  table.body = body.body;
  for (const Attachment& attachment : body.attachments) {
    wire::AttachmentEntry& entry = table.entries.emplace_back();
    entry.length_bytes = attachment.size();
    entry.bytes = attachment.bytes();
    if (attachment.size() > most) {
      SLIME_TRY(lend_attachment(attachment, record, entry));
    } else {
      counters_.copied_bytes += attachment.size();
    }
  }
  if (!record.attachments.empty()) {
    const auto handle = add(std::move(record));
    if (!handle) return handle.error();
    lent = table.lease = *handle;
    ++counters_.rendezvous;
  }
  frame.header.flags |= wire::kFlagAttachments;
  ByteVector bytes = wire::encode_attachments(table);
  if (connection_.fits(frame.text.size(), bytes.size())) {
    frame.body = std::move(bytes);
    return {};
  }
  Status status = lend(frame, std::move(bytes), lent);
  if (!status.ok() && lent.generation != 0) release(lent);
  return status;
}

Status Lending::no_attachments() const {
  return Status(Code::kUnimplemented, str(connection_.peer_name(),
                                          " knows no attachments: upgrade it, or send bytes in the message"));
}

Status Lending::check_attached(const AttachedBody& body) const {
  if (!connection_.peer_has(wire::kFeatureAttachments)) return no_attachments();
  if (body.attachments.size() > limits::kMaxAttachments) {
    return Status(Code::kInvalidArgument, str(body.attachments.size(),
                                              " attachments, of which one message has "
                                              "at most ",
                                              limits::kMaxAttachments));
  }
  std::uint64_t bytes = body.body.size();
  for (const Attachment& attachment : body.attachments)
    bytes += std::min(attachment.size(), std::numeric_limits<std::uint64_t>::max() - bytes);
  return bytes <= connection_.max_payload_bytes() ? Status() : too_large(bytes);
}

Status Lending::too_large(std::uint64_t bytes) const {
  return Status(Code::kInvalidArgument,
                str("a payload of ", bytes, " bytes: ", connection_.peer_name(), " takes at most ",
                    connection_.max_payload_bytes(), " (its max_payload_bytes)"));
}

Status Lending::lend_attachment(const Attachment& attachment, Lent& to, wire::AttachmentEntry& entry) {
  entry.lent = true;
  if (attachment.memory() != nullptr && attachment.memory()->shown_to(connection_.endpoint().id())) {
    auto region = attachment.memory()->on(connection_.device());
    if (!region) return std::move(region).error().with_context("lending an attachment");
    if (!transport::allows((*region)->rights(), transport::Rights::kRemoteRead)) {
      return Status(Code::kPermissionDenied,
                    "lending an attachment: its memory was registered without the right to be read");
    }
    entry.region = (*region)->describe();
    entry.offset = static_cast<std::uint64_t>(attachment.bytes().data() - (*region)->data());
  } else {
    auto region = register_bytes(attachment.bytes());
    if (!region) return std::move(region).error().with_context("lending an attachment");
    entry.region = region->describe();
    to.regions.push_back(std::move(*region));
  }
  to.attachments.push_back(attachment);
  return {};
}

// --------------------------------------------------------------------------------------- releasing

void Lending::release(Handle lent) {
  auto record = lent_.take(lent);
  if (!record) return;
  record->close();
  const std::uint64_t length = record->body_bytes();
  give_body(std::move(record->bytes));
  if (record->released) record->released(length);
}

void Lending::release_all() {
  revocation_.cancel();
  std::vector<Handle> lent;
  lent_.for_each([&](Handle handle, Lent&) { lent.push_back(handle); });
  for (const Handle handle : lent) release(handle);
}

// ----------------------------------------------------------------------------------------- answers

Status Lending::over_budget(std::uint64_t bytes) {
  ++counters_.over_budget;
  return {Code::kResourceExhausted,
          str(bytes, " bytes, while ", account_->held(), " are held for ", connection_.peer_name(), " and ",
              held_bytes(), " in the process: a connection has at most ", account_->share(),
              " (a quarter of memory_bytes: read answers as they come, or raise it)")};
}

Status Lending::admit_answer(OutFrame& frame, Handle lent, TimePoint deadline, Account::Held& held) {
  Lent& record = *lent_.find(lent);
  Status refusal;
  if (deadline <= connection_.now()) {
    refusal = Status(Code::kDeadlineExceeded, "the answer came after the deadline of the call");
  } else {
    const std::uint64_t bytes = record.own_bytes();
    record.held = std::move(held);
    if (record.held.bytes() != bytes) {
      record.held.give_back();
      record.held = account_->take(bytes);
    }
    if (!record.held) refusal = over_budget(bytes);
  }
  if (refusal.ok()) {
    revoke_after(record, deadline);
    return {};
  }
  release(lent);
  frame.header.flags &= static_cast<std::uint8_t>(~(wire::kFlagRendezvous | wire::kFlagAttachments));
  frame.body.clear();
  return refusal;
}

void Lending::revoke_after(Lent& lent, TimePoint deadline) {
  if (deadline == kNever) return;
  lent.revoke_at = deadline_after(deadline, connection_.options().answer_grace);
  revocation_.arm(lent.revoke_at);
}

// Closes the regions of answers that the peer did not read in time. If the peer is reading one of
// these regions at this moment, its read fails, which ends the connection and all loans.
void Lending::revoke_late() {
  const TimePoint now = connection_.now();
  TimePoint next = kNever;
  std::vector<Handle> late;
  lent_.for_each([&](Handle handle, const Lent& lent) {
    if (lent.revoke_at <= now)
      late.push_back(handle);
    else
      next = std::min(next, lent.revoke_at);
  });
  revocation_.arm(next);
  for (const Handle handle : late) {
    const Lent* const lent = lent_.find(handle);
    if (lent == nullptr) continue;
    ++counters_.revoked;
    if (lent->block != nullptr) lent->block->retire();
    release(handle);
  }
}

}  // namespace slime::rpc

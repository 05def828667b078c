#pragma once

// Private to rpc: memory that a channel lends to its peer.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/function.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/attachment.h"
#include "rpc/channel/connection.h"
#include "rpc/channel/outbox.h"
#include "rpc/channel/turn.h"
#include "rpc/codec/attachments.h"
#include "rpc/server/budget.h"
#include "transport/memory.h"

namespace slime::rpc {

// Memory lent to the peer for reading: a body that does not fit into a message, attachments, or both.
struct Lent {
  ByteVector bytes;
  Attachments attachments;
  // Closed before the memory goes:
  transport::MemoryRegion region;                        // of the bytes
  std::vector<transport::MemoryRegion> regions;          // of those attachments that had none
  UniqueFunction<void(std::uint64_t bytes)> released{};  // may be empty; gets the size of `bytes`
  TimePoint revoke_at = kNever;                          // answers only
  Account::Held held{};                                  // answers only: bytes taken from the account
  // Bytes that exist only for this: not those of a user's region.
  [[nodiscard]] std::uint64_t own_bytes() const;
  // Closes the regions without waiting: the peer released them, never heard of them, or loses them.
  void close();
};

// Puts bodies into frames: into the frame as far as they fit, else as an offer of memory. Lends that memory
// until the peer releases it, or the endpoint is closed; an answer's memory is also bounded by the account,
// and revoked `answer_grace` after the deadline of its call. Thread: the loop.
class Lending {
 public:
  struct Counters {
    std::uint64_t rendezvous = 0;
    std::uint64_t copied_bytes = 0;  // of inline attachments
    std::uint64_t over_budget = 0;
    std::uint64_t revoked = 0;
  };
  Lending(Connection& connection, TurnHost& turns, std::shared_ptr<Account> account);
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;
  ~Lending();

  // Puts the body into the frame, or lends it: then `lent` names the memory. After an error nothing is lent.
  Status put_body(OutFrame& frame, ByteVector&& body, Handle& lent) {
    if (!connection_.fits(frame.text.size(), body.size())) return lend(frame, std::move(body), lent);
    frame.body = std::move(body);
    return {};
  }
  // The same with a table of the attachments in front of the body.
  Status put_body(OutFrame& frame, AttachedBody&& body, Handle& lent);
  [[nodiscard]] Status no_attachments() const;

  // Takes the memory of an answer from the account, unless `held` has it already: the answer's caller may
  // never read it. On an error the memory is released, and the frame lends nothing.
  Status admit_answer(OutFrame& frame, Handle lent, TimePoint deadline, Account::Held& held);
  // Counts and returns the refusal of so many bytes.
  [[nodiscard]] Status over_budget(std::uint64_t bytes);
  // Revokes the memory some time after `deadline`.
  void revoke_after(Lent& lent, TimePoint deadline);

  [[nodiscard]] Lent* find(Handle lent) { return lent_.find(lent); }
  // The peer has read it, or cannot. Does nothing if it was released already.
  void release(Handle lent);
  // Releases everything: the connection is closed.
  void release_all();
  [[nodiscard]] bool empty() const { return lent_.empty(); }
  [[nodiscard]] bool full() const { return lent_.size() >= most_; }
  [[nodiscard]] std::size_t size() const { return lent_.size(); }
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  Status lend(OutFrame& frame, ByteVector&& body, Handle& lent);
  Status check_attached(const AttachedBody& body) const;
  Status lend_attachment(const Attachment& attachment, Lent& to, wire::AttachmentEntry& entry);
  Result<Handle> add(Lent&& lent);
  void revoke_late();

  Connection& connection_;
  const std::shared_ptr<Account> account_;
  const std::size_t most_;
  SlotMap<Lent> lent_;
  DueTimer revocation_;
  Counters counters_;
};

}  // namespace slime::rpc

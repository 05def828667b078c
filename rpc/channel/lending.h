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

// Memory that is lent to the peer for reading: a body that does not fit into a message,
// attachments, or both.
struct Lent {
  ByteVector bytes;
  // instead of `bytes`: the block that the body was copied to, and its length there
  ConnectionBlocks::Taken block{};
  std::uint64_t block_bytes = 0;
  Attachments attachments;
  // Registration of `bytes`. Declared after `bytes`, so destroyed before them.
  transport::DeviceRegion region;                // of `bytes`
  std::vector<transport::DeviceRegion> regions;  // of attachments that were not registered
  // called when the loan ends, with the size of the body; may be empty
  UniqueFunction<void(std::uint64_t bytes)> released{};
  TimePoint revoke_at = kNever;  // answers only
  Account::Held held{};          // answers only
  // Returns the bytes that are freed with this object. Bytes in a user's region do not count.
  [[nodiscard]] std::uint64_t own_bytes() const;
  [[nodiscard]] std::uint64_t body_bytes() const { return bytes.size() + block_bytes; }
  // Closes the regions without waiting: the peer has released them, never heard of them, or must no
  // longer read them. A block stays registered; it goes back to its connection with this object.
  void close();
};

// Puts bodies into frames: inline if they fit, else as an offer of memory: of a block of the
// connection that the body is copied to, where the device favours that and the body is not too
// large, else of the body's own memory. Offered memory is lent until the peer releases it or the
// endpoint is closed. The account bounds the memory of answers;
// an answer's memory is also revoked `answer_grace` after the call's deadline. Thread: the loop.
class Lending {
 public:
  struct Counters {
    std::uint64_t rendezvous = 0;
    std::uint64_t copied_bytes = 0;  // of inline attachments
    std::uint64_t over_budget = 0;
    std::uint64_t revoked = 0;
    std::uint64_t registrations = 0;
  };
  Lending(Connection& connection, TurnHost& turns, std::shared_ptr<Account> account);
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;
  ~Lending();

  // Puts the body into the frame if it fits; otherwise lends the body, and `lent` names the loan.
  // After an error, nothing is lent. `at_once`: the frame is a request or a reply that nothing
  // waits in front of and that is sent next: it may be a long message.
  Status put_body(OutFrame& frame, ByteVector&& body, Handle& lent, bool at_once = false) {
    if (!connection_.fits(frame.text.size(), body.size()) &&
        !(at_once && connection_.takes_long(frame.text.size(), body.size())))
      return lend(frame, std::move(body), lent);
    frame.body = std::move(body);
    return {};
  }
  // Like put_body() above, with a table of the attachments before the body.
  Status put_body(OutFrame& frame, AttachedBody&& body, Handle& lent, bool at_once = false);
  [[nodiscard]] Status no_attachments() const;
  [[nodiscard]] Status too_large(std::uint64_t bytes) const;

  // Takes the bytes of an answer from the account, or uses `held` if the bytes were taken before.
  // On an error, ends the loan, and removes the offer from the frame.
  Status admit_answer(OutFrame& frame, Handle lent, TimePoint deadline, Account::Held& held);
  // Counts an answer or request that is refused for its `bytes`, and returns the error for it.
  [[nodiscard]] Status over_budget(std::uint64_t bytes);
  // Revokes the loan `answer_grace` after `deadline`.
  void revoke_after(Lent& lent, TimePoint deadline);

  [[nodiscard]] Lent* find(Handle lent) { return lent_.find(lent); }
  // Ends the loan because the peer has read the memory, or cannot read it. Does nothing if the loan
  // has ended.
  void release(Handle lent);
  // Releases everything: the connection is closed.
  void release_all();
  [[nodiscard]] bool empty() const { return lent_.empty(); }
  [[nodiscard]] bool full() const { return lent_.size() >= most_; }
  [[nodiscard]] std::size_t size() const { return lent_.size(); }
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  Status lend(OutFrame& frame, ByteVector&& body, Handle& lent);
  Status place(ByteVector&& body, Lent& to, transport::RegionDescriptor& region);
  Result<transport::DeviceRegion> register_bytes(Bytes bytes);
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

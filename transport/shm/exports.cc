#include "transport/shm/exports.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "transport/shm/gate.h"

namespace slime::transport::shm {
namespace {

// Returns whether the process at the other end of `socket` has ended. The kernel closes the sockets
// of a process only when none of its threads can touch memory any more.
bool is_gone(int socket) {
  pollfd entry{socket, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace

class Exports::Export final : public Loan {
 public:
  // `mapped`: true if the peer maps the region. False if the peer reads the region by its address,
  // for which no revocation waits. Such a peer may also write the region by its address, once
  // let_write() has given it a gate.
  Export(std::shared_ptr<Attachment> attachment, ExportPage& page, std::size_t slot, std::uint64_t ticket,
         bool mapped)
      : attachment_(std::move(attachment)), page_(page), slot_(slot), ticket_(ticket), mapped_(mapped) {
    page_.shown[slot_].store(ticket_, std::memory_order_seq_cst);
  }

  void let_write(Gate gate) {
    const MutexLock lock(mutex_);
    if (revoked_ || !gate) return;
    gate_ = std::move(gate);
    page_.gates[slot_].store(gate_.address(), std::memory_order_seq_cst);
  }

  void revoke() override {
    const MutexLock lock(mutex_);
    if (std::exchange(revoked_, true)) return;
    page_.shown[slot_].store(0, std::memory_order_seq_cst);
    if (!gate_) return;
    page_.gates[slot_].store(0, std::memory_order_seq_cst);
    gate_.close();
  }
  [[nodiscard]] bool busy() const override {
    const MutexLock lock(mutex_);
    return may_be_copying();
  }
  // Returns true if no copy can use the export any more, so that its slot may be used again.
  [[nodiscard]] bool over() const override {
    const MutexLock lock(mutex_);
    return revoked_ && !may_be_copying();
  }
  void let_go() override {
    const MutexLock lock(mutex_);
    SLIME_CHECK(revoked_);
    end();
  }

 private:
  // Returns whether the peer may be inside a copy. After revoke(), drops the attachment when this
  // becomes false: the region may outlive many connections.
  bool may_be_copying() const SLIME_REQUIRES(mutex_) {
    if (attachment_ == nullptr) return false;
    if ((mapped_ || gate_) && page_.in_use.load(std::memory_order_seq_cst) == ticket_ &&
        !no_longer_writes() && !is_gone(attachment_->socket.get()))
      return true;
    if (revoked_) end();
    return false;
  }
  // Call after the gate was closed. Returns true if the peer's last call that passed the gate is
  // over, or if the peer's thread is stopped, because a stopped thread is not inside a system call.
  // Later calls of that thread do not pass the gate.
  bool no_longer_writes() const SLIME_REQUIRES(mutex_) {
    if (!gate_) return false;
    const std::uint64_t writing = page_.writing.load(std::memory_order_seq_cst);
    return gate_.over() == writing || is_stopped(attachment_->peer, static_cast<int>(writing >> 32));
  }
  void end() const SLIME_REQUIRES(mutex_) {
    gate_ = Gate();
    attachment_.reset();
  }

  mutable Mutex mutex_;
  mutable std::shared_ptr<Attachment> attachment_ SLIME_GUARDED_BY(mutex_);  // null: over
  mutable Gate gate_ SLIME_GUARDED_BY(mutex_);
  ExportPage& page_;
  const std::size_t slot_;
  const std::uint64_t ticket_;
  const bool mapped_;
  bool revoked_ SLIME_GUARDED_BY(mutex_) = false;
};

Exports::Exports(std::shared_ptr<Attachment> attachment, ExportPage& page)
    : attachment_(std::move(attachment)), page_(page) {}

// Revokes all exports. An export whose copy is in progress keeps the attachment until the copy has
// ended.
Exports::~Exports() { (void)take_back(); }

// Revokes all exports before it checks whether the peer uses one: otherwise a peer could end one
// copy and begin another between two checks.
std::shared_ptr<const Loan> Exports::take_back() {
  for (const std::shared_ptr<Export>& lent : exports_) lent->revoke();
  std::shared_ptr<const Loan> inside;
  for (const std::shared_ptr<Export>& lent : exports_) {
    if (lent->busy()) inside = lent;
  }
  return inside;
}

WindowReply Exports::refuse(const WindowRequest& request, Code code) {
  if (newest_ != nullptr) std::exchange(newest_, nullptr)->revoke();
  WindowReply reply;
  reply.region = request.region;
  reply.key = request.key;
  reply.code = static_cast<std::uint8_t>(code);
  return reply;
}

WindowReply Exports::answer(const WindowRequest& request, Lender& lender, UniqueFd& descriptor) {
  newest_ = nullptr;
  const auto free = std::find_if(exports_.begin(), exports_.end(), [](const auto& e) { return e->over(); });
  const auto slot = static_cast<std::size_t>(free - exports_.begin());
  if (slot == limits::kExports) return refuse(request, Code::kResourceExhausted);
  auto lent = std::make_shared<Export>(attachment_, page_, slot, ++last_ticket_, is_mappable(request.key));
  Result<Lent> memory = lender.lend(Handle::unpack(request.region), request.key, lent);
  newest_ = lent.get();
  if (!memory) return refuse(request, memory.error().code());
  if (memory->address != 0 && allows(memory->rights, Rights::kRemoteWrite) && slot < limits::kGatedExports &&
      attachment_->peer != 0)
    lent->let_write(Gate::open());
  if (slot == exports_.size())
    exports_.push_back(std::move(lent));
  else
    *free = std::move(lent);
  WindowReply reply;
  reply.region = request.region;
  reply.key = request.key;
  reply.ticket = last_ticket_;
  reply.length_bytes = memory->length_bytes;
  reply.address = memory->address;
  reply.slot = static_cast<std::uint16_t>(slot);
  reply.rights = static_cast<std::uint8_t>(memory->rights);
  descriptor = std::move(memory->memory);
  return reply;
}

}  // namespace slime::transport::shm

#include "transport/shm/peer_process.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "transport/shm/gate.h"

namespace slime::transport::shm {

PeerProcess::Word PeerProcess::word_of(const InstanceId& cookie) {
  Word out;
  static_assert(sizeof out == sizeof cookie.bytes);
  std::memcpy(out.data(), cookie.bytes.data(), sizeof out);
  return out;
}

PeerProcess::PeerProcess(const InstanceId& ours, const InstanceId& theirs, bool allowed)
    : allowed_(allowed), theirs_(word_of(theirs)) {
  const Word word = word_of(ours);
  for (std::size_t i = 0; i < word.size(); ++i) ours_[i].store(word[i], std::memory_order_relaxed);
}

std::uint64_t PeerProcess::word() const { return allowed_ ? reinterpret_cast<std::uintptr_t>(&ours_) : 0; }

// Learns the peer's process id from SO_PEERCRED, which has it in the pid namespace of this process
// (0: the peer has no id there). Then tries to read the peer's word.
void PeerProcess::meet(int socket, std::uint64_t their_word) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (!allowed_ || their_word == 0 ||
      ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0 || credentials.pid <= 0)
    return;
  pid_ = credentials.pid;
  their_word_ = their_word;
  met_ = fetches_ = stands();
}

bool PeerProcess::stands() const {
  Word word{};
  const iovec here{word.data(), sizeof word};
  const iovec there{at_peer(their_word_), sizeof word};
  const ssize_t got = ::process_vm_readv(pid_, &here, 1, &there, 1, 0);
  return got == static_cast<ssize_t>(sizeof word) && word == theirs_;
}

PeerProcess::Outcome PeerProcess::fetch(PeerBlocks& list) {
  if (!fetches_) return Outcome::kDenied;
  Word word{};
  const std::size_t count = list.count();
  list.here()[count] = {word.data(), sizeof word};
  list.there()[count] = {at_peer(their_word_), sizeof word};
  const ssize_t got = ::process_vm_readv(pid_, list.here(), count + 1, list.there(), count + 1, 0);
  if (got == static_cast<ssize_t>(list.bytes() + sizeof word) && word == theirs_) return Outcome::kDone;
  const bool denied = got < 0 && errno != EFAULT && errno != ESRCH;
  if (!denied && stands()) return Outcome::kFault;
  fetches_ = false;
  return denied ? Outcome::kDenied : Outcome::kGone;
}

PeerProcess::Outcome PeerProcess::store(PeerBlocks& list, std::uint64_t gate, std::uint64_t word) {
  if (!fetches_) return Outcome::kDenied;
  const std::size_t count = list.count();
  list.here()[-1] = list.here()[count] = {&word, sizeof word};
  list.there()[-1] = {at_peer(gate), sizeof word};
  list.there()[count] = {at_peer(Gate::last_word(gate)), sizeof word};
  const ssize_t got = ::process_vm_writev(pid_, list.here() - 1, count + 2, list.there() - 1, count + 2, 0);
  if (got == static_cast<ssize_t>(list.bytes() + 2 * sizeof word)) return Outcome::kDone;
  if (got > 0) return Outcome::kFault;
  if (errno == EFAULT || errno == ESRCH) return Outcome::kGone;
  fetches_ = false;
  return Outcome::kDenied;
}

void PeerProcess::withdraw() {
  for (std::atomic<std::uint64_t>& part : ours_) part.store(0, std::memory_order_seq_cst);
}

}  // namespace slime::transport::shm

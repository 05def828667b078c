#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "transport/peer_memory.h"

namespace slime::transport::shm {

// The other process of a connection. The kernel may let each of the two processes read and write
// the memory of the other by its address. Each side keeps its cookie (its "word"), which the other
// side knows from the handshake, in memory whose address it sends. A call that reads memory of the
// peer reads that word last. If the word is right, the process is still the peer (not another
// process with a reused id), and the peer's side of the connection was still open. A call that
// writes memory of the peer passes a gate of the peer first (gate.h). Thread: the loop.
class PeerProcess {
 public:
  using Outcome = PeerMemory::Outcome;
  using Known = PeerMemory::Known;

  // `allowed`: if false, this object behaves as if the kernel refused access in both directions.
  PeerProcess(const InstanceId& ours, const InstanceId& theirs, bool allowed);
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Returns the address of this process's word; 0: the peer must not read memory of this process.
  [[nodiscard]] std::uint64_t word() const;
  // Tries to read the memory of the process at the other end of the local socket. `their_word`:
  // address of that process's word.
  void meet(int socket, std::uint64_t their_word);
  // Notes whether the peer can read memory of this process, as the peer has reported.
  void told(bool fetches) { peer_fetches_ = fetches ? Known::kYes : Known::kNo; }
  // Returns the id of the peer's process in the pid namespace of this process; 0: unknown.
  [[nodiscard]] pid_t id() const { return pid_; }
  [[nodiscard]] bool met() const { return met_; }  // meet() succeeded
  // Returns true if meet() succeeded, and no call since has failed because the kernel refused it or
  // the peer had ended.
  [[nodiscard]] bool fetches() const { return fetches_; }
  [[nodiscard]] Known peer_fetches() const { return peer_fetches_; }

  Outcome fetch(PeerBlocks& list);
  // Writes `word` behind the bytes.
  Outcome store(PeerBlocks& list, std::uint64_t gate, std::uint64_t word);
  void withdraw();

 private:
  using Word = std::array<std::uint64_t, 2>;
  static Word word_of(const InstanceId& cookie);
  [[nodiscard]] bool stands() const;

  const bool allowed_;
  const Word theirs_;
  std::array<std::atomic<std::uint64_t>, 2> ours_;
  pid_t pid_ = 0;
  std::uint64_t their_word_ = 0;
  bool met_ = false;
  bool fetches_ = false;
  Known peer_fetches_ = Known::kOpen;
};

}  // namespace slime::transport::shm

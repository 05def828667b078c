#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "transport/peer_memory.h"

namespace slime::transport::shm {

// The other process of a connection. The kernel may let each of the two processes read and write
// the memory of the other one by its address.
//
// Each side keeps its cookie, which the other side knows from the handshake, at an address that it
// tells. A call that reads memory of a process reads that word last. If the word is right, the
// process is the one of the connection (another process may have its id by now), and its side of
// the connection stands. A call that writes memory passes a gate of the owner first (gate.h).
// Thread: the loop.
class PeerProcess {
 public:
  using Outcome = PeerMemory::Outcome;
  using Known = PeerMemory::Known;

  // `allowed`: false behaves as if the kernel refused, in both directions.
  PeerProcess(const InstanceId& ours, const InstanceId& theirs, bool allowed);
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Returns the address of the word of this process; 0: no process may read its memory.
  [[nodiscard]] std::uint64_t word() const;
  // Tries to read the process at the other end of the local socket; `their_word` is the address of
  // its word.
  void meet(int socket, std::uint64_t their_word);
  // Notes whether the other side could read this process.
  void told(bool fetches) { peer_fetches_ = fetches ? Known::kYes : Known::kNo; }
  // id of the process as we see it; 0: unknown
  [[nodiscard]] pid_t id() const { return pid_; }
  [[nodiscard]] bool met() const { return met_; }  // meet() succeeded
  // this side can read the process, and no read has failed since
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

#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "transport/peer_memory.h"

namespace slime::transport::shm {

// The other process of a connection, whose memory the kernel may let us read and write by its address, and
// ours, which it may let the other one read and write.
//
// Each side keeps its cookie, which the other one knows from the handshake, at an address that it tells.
// Whoever reads memory reads that word last, in the same call: it is right as long as the process is the one
// that we are connected to (its id may be another's by now) and its side of the connection stands. Whoever
// writes memory passes a gate of the owner's first (gate.h). Thread: the loop.
class PeerProcess {
 public:
  using Outcome = PeerMemory::Outcome;
  using Known = PeerMemory::Known;

  // `allowed` false: as where the kernel refuses, in both directions.
  PeerProcess(const InstanceId& ours, const InstanceId& theirs, bool allowed);
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // The address of our word; 0: nobody shall read us.
  [[nodiscard]] std::uint64_t word() const;
  // Tries to read the process at the other end of the local socket, whose word is there.
  void meet(int socket, std::uint64_t their_word);
  // What the other side says of that.
  void told(bool fetches) { peer_fetches_ = fetches ? Known::kYes : Known::kNo; }
  [[nodiscard]] pid_t id() const { return pid_; }          // as we see it; 0: unknown
  [[nodiscard]] bool met() const { return met_; }          // meet() succeeded
  [[nodiscard]] bool fetches() const { return fetches_; }  // and nothing has failed since
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

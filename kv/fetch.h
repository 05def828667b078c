#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/peer_agent.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "kv/move_state.h"
#include "kv/offer.h"
#include "kv/relay.h"
#include "kv/signal.h"

namespace slime::kv {

// The parts of a reader that a fetch uses. The references are valid until Fetcher::run() returns.
struct FetchTask {
  PeerAgent& agent;
  Peer owner;
  std::string name;  // of the broadcast, and of the replicas
  const std::vector<Part>& parts;
  std::vector<MemoryRegion>& regions;  // by part
  std::shared_ptr<Relay> relay;
  std::shared_ptr<Move::State> move;
};

// One fetch of all bytes of the newest version of a broadcast. Reads the chunks in order from its
// parent, tells its own children through the Relay, and asks the owner for another parent when its
// parent fails. Thread: one, but for cancel().
class Fetcher {
 public:
  explicit Fetcher(FetchTask task)
      : task_(std::move(task)), signal_(std::make_shared<Signal>(task_.agent.driver())) {}

  // Returns OK if all bytes are here, and the owner has said after that that they are still the
  // newest version. No byte moves any more when it returns.
  Status run();
  // Ends run() with kCancelled soon, also beside a frozen peer: it closes the regions if reads into
  // them do not end. Thread: any.
  void cancel() {
    cancelled_ = true;
    signal_->raise();
  }
  // Gives the place at the owner back, after run().
  void leave();
  // Valid after run() has returned OK.
  [[nodiscard]] std::uint64_t version() const { return offer_.version; }

 private:
  struct Source;
  struct Inbox;
  struct Round;
  // The answer of a call, for the thread of the fetch.
  struct Answer {
    bool pending = false;  // asked, and the answer is not taken yet
    bool arrived = false;
    Status status{};
    std::uint64_t value = 0;
  };
  enum class Chunk : std::uint8_t { kMissing, kReading, kHere };

  Status begin();
  Status read_all();
  // Waits for the outcome; returns kCancelled early after cancel().
  template <class T>
  Result<T> outcome(Future<T> future);
  // Connects, and returns the peer of that connection.
  Result<Peer> connection_to(Peer peer, Nanos timeout);
  Result<Place> next_place(std::uint64_t failed);
  Result<Source> connect(const Place& place);
  Status read_from(const Source& source);
  void take_events(Round& round);
  void post_reads(Round& round);
  void ask(Round& round);
  Status post(Round& round, std::uint64_t chunk);
  void report_when_due(Round& round);
  Status confirm();
  [[nodiscard]] bool all_here() const { return ready_ == chunks_.size(); }
  // Returns why the fetch cannot go on at all.
  [[nodiscard]] Status stopped() const;
  [[nodiscard]] Nanos left() const { return task_.move->left(); }
  [[nodiscard]] Nanos bounded(Nanos bound) const { return std::min(bound, left()); }

  const FetchTask task_;
  const std::shared_ptr<Signal> signal_;
  std::atomic<bool> cancelled_{false};
  Peer owner_;  // of the one connection that the place belongs to
  std::string service_;
  Offer offer_;
  std::unique_ptr<ChunkMap> map_;
  std::vector<Chunk> chunks_;
  std::uint64_t ready_ = 0;       // chunks from the first on that are here
  std::uint64_t ticket_ = 0;      // 0: no place yet
  std::uint64_t unreported_ = 0;  // bytes read from the owner that it was not told of
  Status fatal_;                  // of the owner
  TimePoint reported_{};
};

namespace limits {

// Chunks that a reader reads at a time.
inline constexpr std::size_t kWindow = 4;
// Time that the reads of a cancelled fetch have to end by themselves.
inline constexpr Nanos kCancelGrace = std::chrono::milliseconds(100);
// Pause before a reader asks again while the owner has no place, or changes the memory.
inline constexpr Nanos kAskAgain = std::chrono::milliseconds(20);

}  // namespace limits
}  // namespace slime::kv

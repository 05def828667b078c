#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/function.h"
#include "transport/loop.h"
#include "transport/peer_memory.h"
#include "transport/shm/exports.h"
#include "transport/shm/packet.h"
#include "transport/shm/peer_process.h"
#include "transport/shm/shared_memory.h"

namespace slime::transport::shm {

// Unmaps memory a part at a time, in several turns of the loop: while the kernel frees a gigabyte
// of pages, all other work would wait. Thread: the loop.
class Unmapper final : private Deferred {
 public:
  explicit Unmapper(Loop& loop) : loop_(loop) {}
  Unmapper(const Unmapper&) = delete;
  Unmapper& operator=(const Unmapper&) = delete;
  ~Unmapper();  // the rest at once
  void take(SharedMemory memory);
  [[nodiscard]] std::size_t left_bytes() const;

 private:
  void run_deferred() noexcept override;

  Loop& loop_;
  bool deferred_ = false;
  std::vector<SharedMemory> left_;
};

// The regions of one peer that this process maps, or reads and writes by their addresses. Thread:
// the loop. The unmapper and the process must outlive this object.
class Windows final : public PeerMemory {
 public:
  // Function that sends a request to the peer. It returns an error if the peer can no longer be
  // asked.
  using Ask = UniqueFunction<Status(const WindowRequest&)>;

  Windows(Unmapper& unmapper, PeerProcess& process) : unmapper_(unmapper), process_(process) {}
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  ~Windows();

  // Begins to ask the peer for regions. Before this call, reach() returns kAsked for every region
  // that the peer may be asked for. Returns true if a caller of reach() or peer_fetches() waits for
  // an answer: WireHandler::on_peer_memory() must then be called.
  bool attach(std::shared_ptr<Attachment> attachment, ExportPage& page, Ask ask);
  Reach reach(const RemoteRegion& region) override;
  Outcome fetch(PeerBlocks& list) override { return process_.fetch(list); }
  Outcome store(PeerBlocks& list, const PeerWindow& window) override;
  [[nodiscard]] bool fetches() const override { return process_.met(); }
  [[nodiscard]] Known peer_fetches() override;
  void withdraw() override { process_.withdraw(); }
  // Handles the peer's answer to a request. Returns kCorrupt if a correct peer would not send it.
  Status on_reply(const WindowReply& reply, std::vector<UniqueFd> descriptors);
  // Call when the peer can answer no more requests.
  void lose();
  // Unmaps the regions that the peer has revoked. Forgets refusals that are worth another request.
  void sweep();
  [[nodiscard]] std::size_t mapped() const;
  // Returns true if no region is mapped, read by address or asked for, or to be asked for again.
  [[nodiscard]] bool empty() const;

 private:
  enum class State { kAsked, kShown, kRefused };
  struct Entry {
    State state = State::kAsked;
    PeerWindow window;  // window.key is the key that was sent in the request
    SharedMemory memory;
    bool again = false;  // refused for lack of a descriptor or slot: ask again later
  };
  bool make_room();
  void unmap(Entry& entry);
  Status map(Entry& entry, const WindowReply& reply, const UniqueFd& memory);

  Unmapper& unmapper_;
  PeerProcess& process_;
  std::shared_ptr<Attachment> attachment_;
  ExportPage* page_ = nullptr;
  Ask ask_;
  bool lost_ = false;
  bool awaited_ = false;                    // before attach()
  std::map<std::uint64_t, Entry> entries_;  // by the region's packed handle
  std::uint64_t bytes_ = 0;                 // mapped
  std::uint64_t stores_ = 0;
  std::size_t asked_ = 0;
  // The packed handle of the last region given to reach(), and its entry.
  std::uint64_t last_region_ = 0;
  const Entry* last_ = nullptr;
};

}  // namespace slime::transport::shm

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

// Unmaps memory in pieces, some in each turn of the loop, both large memory and many small ones:
// while the kernel frees a gigabyte of pages, all other work would wait. Thread: the loop.
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

// The regions of one peer that are mapped here, or read by their addresses. Thread: the loop. The
// unmapper and the process must outlive it.
class Windows final : public PeerMemory {
 public:
  // Sends a request to the peer; an error: the peer cannot be asked.
  using Ask = UniqueFunction<Status(const WindowRequest&)>;

  Windows(Unmapper& unmapper, PeerProcess& process) : unmapper_(unmapper), process_(process) {}
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  ~Windows();

  // Starts asking the peer; until then all regions count as asked for. Returns true if a caller has
  // asked for one, and waits.
  bool attach(std::shared_ptr<Attachment> attachment, ExportPage& page, Ask ask);
  Reach reach(const RemoteRegion& region) override;
  Outcome fetch(PeerBlocks& list) override { return process_.fetch(list); }
  Outcome store(PeerBlocks& list, const PeerWindow& window) override;
  [[nodiscard]] bool fetches() const override { return process_.met(); }
  [[nodiscard]] Known peer_fetches() override;
  void withdraw() override { process_.withdraw(); }
  // Returns kCorrupt for an answer that a correct peer does not send.
  Status on_reply(const WindowReply& reply, std::vector<UniqueFd> descriptors);
  // Call when no answer can come any more.
  void lose();
  // Unmaps the regions that the peer has taken back.
  void sweep();
  [[nodiscard]] std::size_t mapped() const;
  // Returns whether no region is mapped or asked for.
  [[nodiscard]] bool empty() const;

 private:
  enum class State { kAsked, kShown, kRefused };
  struct Entry {
    State state = State::kAsked;
    PeerWindow window;  // its key is the key of the request
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
  // The region that reach() was asked for last.
  std::uint64_t last_region_ = 0;
  const Entry* last_ = nullptr;
};

}  // namespace slime::transport::shm

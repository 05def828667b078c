#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "base/mutex.h"
#include "integrations/nixl/plugin_data.h"

namespace slime::nixl {

class Remote;

// One memory registration of a remote agent, as NIXL's metadata describes it. The region is looked
// up over the connection at first use.
struct RemoteMemory {
  RemoteMemory(std::shared_ptr<Remote> its_owner, std::string its_name, std::uintptr_t its_base,
               std::uint64_t its_length)
      : owner(std::move(its_owner)), name(std::move(its_name)), base(its_base), length_bytes(its_length) {}
  const std::shared_ptr<Remote> owner;
  const std::string name;
  const std::uintptr_t base;  // the owner's address of byte 0
  const std::uint64_t length_bytes;

 private:
  friend class Remote;
  std::optional<RemoteRegion> region_;  // guarded by the owner
};

// Another NIXL agent, or this agent itself as the target of its own transfers. Each loaded
// connection info has its own Remote: a restarted agent gets a new one. Thread: any.
class Remote : public std::enable_shared_from_this<Remote> {
 public:
  using Memories = std::vector<std::shared_ptr<RemoteMemory>>;
  using Regions = std::vector<RemoteRegion>;

  Remote(Peer peer, ConnInfo info, Nanos patience)
      : peer_(std::move(peer)), info_(std::move(info)), patience_(patience) {}

  [[nodiscard]] const Peer& peer() const { return peer_; }
  [[nodiscard]] const ConnInfo& info() const { return info_; }
  std::shared_ptr<RemoteMemory> memory(std::uint64_t number, std::uintptr_t base, std::uint64_t length_bytes);

  // Returns the regions of `memories`; nothing if one of them is unknown.
  [[nodiscard]] std::optional<Regions> known(std::span<const std::shared_ptr<RemoteMemory>> memories);
  // Looks up the unknown regions of `memories`. Calls `done` with all regions, or with an error if
  // one cannot be found: before ask() returns, or later on the loop.
  void ask(Memories memories, std::function<void(Result<Regions>)> done);
  // Forgets the regions of `memories`, because the connection on which they were valid has ended.
  void forget(std::span<const std::shared_ptr<RemoteMemory>> memories);

  // Sends a notification, which has no answer. Returns kResourceExhausted, and does not call
  // `done`, while too many bytes of earlier notifications are unsent. Otherwise calls `done` once
  // the notification has been sent, or has failed.
  Status notify(ByteVector body, std::function<void(Status)> done);

  // Notes for later estimates that a transfer of `bytes` took the time `took`.
  void measured(std::uint64_t bytes, Nanos took);
  // Expected duration of a transfer, and by how much the real duration may differ from it.
  struct Estimate {
    Nanos cost{};
    Nanos doubt{};
  };
  Estimate estimate(std::uint64_t bytes) const;

 private:
  const Peer peer_;
  const ConnInfo info_;
  const Nanos patience_;
  mutable Mutex mutex_;
  std::size_t notification_bytes_ SLIME_GUARDED_BY(mutex_) = 0;  // not sent yet
  // average of recent transfers of less than limits::kManyBytes, in ns
  std::optional<double> short_ns_ SLIME_GUARDED_BY(mutex_);
  std::optional<double> ns_per_byte_ SLIME_GUARDED_BY(mutex_);  // of a transfer of many bytes
};

// The service and the method that receive notifications, as raw bytes.
inline constexpr const char* kService = "nixl";
inline constexpr const char* kNotify = "notify";

}  // namespace slime::nixl

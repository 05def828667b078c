#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "integrations/nixl/wire.h"

namespace slime::nixl {

class Remote;

// One registration of a remote agent, as NIXL's metadata told of it. The connection's view of it is asked for
// at first use.
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

// Another agent of NIXL's, or this one as it is to itself. One for each connection info that was loaded: an
// agent that has started again is another one. Thread: any.
class Remote : public std::enable_shared_from_this<Remote> {
 public:
  using Memories = std::vector<std::shared_ptr<RemoteMemory>>;
  using Regions = std::vector<RemoteRegion>;

  Remote(Peer peer, ConnInfo info, Nanos patience)
      : peer_(std::move(peer)), info_(std::move(info)), patience_(patience) {}

  [[nodiscard]] const Peer& peer() const { return peer_; }
  [[nodiscard]] const ConnInfo& info() const { return info_; }
  std::shared_ptr<RemoteMemory> memory(std::uint64_t number, std::uintptr_t base, std::uint64_t length_bytes);

  // The regions of these, if all are known.
  [[nodiscard]] std::optional<Regions> known(std::span<const std::shared_ptr<RemoteMemory>> memories);
  // Asks for those that are not known, and calls `done` once all are, or one cannot be had; at once or on the
  // loop.
  void ask(Memories memories, std::function<void(Result<Regions>)> done);
  // The connection that these were of is gone.
  void forget(std::span<const std::shared_ptr<RemoteMemory>> memories);

  // Sends it, without an answer; kResourceExhausted while too many bytes of earlier ones have not left.
  // `done` once it has left, or has not.
  Status notify(ByteVector body, std::function<void(Status)> done);

  // A transfer of so many bytes has taken so long.
  void measured(std::uint64_t bytes, Nanos took);
  // How long one of so many bytes is likely to take, and by how much that may be wrong.
  struct Estimate {
    Nanos cost{};
    Nanos doubt{};
  };
  Estimate estimate(std::uint64_t bytes) const;

 private:
  const Peer peer_;
  const ConnInfo info_;
  const Nanos patience_;
  mutable std::mutex mutex_;
  std::size_t notification_bytes_ = 0;  // not left yet
  std::optional<double> short_ns_;      // what a transfer of few bytes takes, lately
  std::optional<double> ns_per_byte_;   // of many
};

// How a notification is called for: a method of bytes.
inline constexpr const char* kService = "nixl";
inline constexpr const char* kNotify = "notify";

}  // namespace slime::nixl

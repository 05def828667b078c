#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/connecting/pairing.h"
#include "agent/connecting/session_keys.h"
#include "agent/operations/operations.h"
#include "rpc/channel.h"
#include "transport/connect.h"
#include "transport/time_bounds.h"

namespace slime::agent {

class Devices;
class Link;
class RegionTable;
class Session;

// What a session tells the switchboard. On the loop.
class SessionOwner {
 public:
  virtual void on_session_ready(Session& session) = 0;
  // The peer closes it in good order: nothing new may be asked on it.
  virtual void on_session_closing(Session& session) = 0;
  virtual void on_session_imm(Session& session, std::uint32_t imm) = 0;
  // Its other end still has it, after probe().
  virtual void on_session_alive(Session& session) = 0;
  // The peer proved a key that is not known here yet: there may be newer ones.
  virtual void on_session_unknown_key() = 0;
  // The last call. The session stays until the switchboard lets it go.
  virtual void on_session_closed(Session& session, const Status& reason) = 0;

 protected:
  ~SessionOwner() = default;
};

// What all sessions of one agent share. Outlives them.
struct SessionContext {
  transport::Loop& loop;
  const Devices& devices;
  rpc::Server& server;
  const RegionTable& regions;
  SessionOwner& owner;
  rpc::StreamOptions streams{};
  std::uint64_t memory_bytes = rpc::limits::kMemoryBytes;
  std::uint64_t max_payload_bytes = rpc::limits::kMaxPayloadBytes;
  const Keyring* keyring = nullptr;  // null: handshakes are under a token, or nothing
};

// One finished handshake with one peer: the endpoint, from open() on the channel over it, and what is known
// and waits because of it: the peer's regions, one-sided operations that the endpoint did not take yet.
// Thread: the loop.
class Session final : public std::enable_shared_from_this<Session>, private rpc::ChannelOwner {
 public:
  enum class State : std::uint8_t { kHeld, kOpening, kReady, kDraining, kClosed };

  Session(SessionContext& context, Pairing::Id id, transport::Connected connected);
  ~Session();

  // Makes the channel: from here on the peer may use it.
  void open();
  // Asks the other end whether it is there; on_session_alive(), or the connection is reset.
  void probe(Nanos timeout);
  // Ends in good order: what is in flight has until `bound`. `abandoned`: for a reason that is not the
  // user's, so what is cut off is kUnavailable and not kCancelled.
  void drain(Nanos bound, bool abandoned);
  void reset(Status reason);
  // The same, and it is over when this returns: the owner has been told, and lets it go.
  void cut(Status reason);
  // Tells the peer why, and ends at once: what is in flight is cut off.
  void expel(Status reason);
  void revoke(std::string_view region);

  // The scope has other keys than before, or the channel is ready: proves the newest one to the peer, and
  // looks at what the peer has proved. May end.
  void on_keys(const KeySet& set);
  // Until when the peer has to prove a key of the set; kNever: it has, or the connection is under no keys.
  TimePoint prove_by(const KeySet& set);
  // Whether the peer has proved a key that is not known here yet.
  [[nodiscard]] bool awaits_key() const { return keys_ && state_ != State::kClosed && keys_->awaits_key(); }

  // One-sided operations and atomics, in order.
  void post(std::shared_ptr<Posted> operation);
  // True if it had waited and is taken out.
  bool withdraw(const Posted& operation);

  [[nodiscard]] Pairing::Id id() const { return id_; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool ready() const { return state_ == State::kReady; }
  // It broke because the fabric carried nothing.
  [[nodiscard]] bool unreached() const { return endpoint() != nullptr && endpoint()->unreached(); }
  // It broke, and on_session_closed() comes in a later turn.
  [[nodiscard]] bool lost() const;
  [[nodiscard]] bool abandoned() const { return abandoned_; }
  [[nodiscard]] const transport::PeerIdentity& peer() const { return peer_; }
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] bool initiator() const { return initiator_; }
  // Both ends of a connection to ourselves are here. Users ask and send on the one that connected, so what
  // they send arrives at the other one, and is to be received there.
  [[nodiscard]] bool other_end_of(const Session& session) const;
  void receive_at(const std::shared_ptr<Session>& other_end) { other_end_ = other_end; }
  // Where the peer's messages arrive: this session, but of a connection to ourselves.
  [[nodiscard]] Session& receiver();
  // Which of the agent's devices it runs on, and why that one.
  [[nodiscard]] std::size_t device() const { return device_; }
  // Whether a batch was done within this call: see transport::Endpoint::read_now().
  bool done_now(Transfer transfer, BoundCopies& copies);
  // kAborted when the region was looked up over another connection.
  [[nodiscard]] Status check_remote(const RemoteRegion& remote) const;
  [[nodiscard]] const std::string& provider() const { return provider_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }
  [[nodiscard]] rpc::Channel& channel() { return *channel_; }
  [[nodiscard]] const RemoteRegion* cached_region(std::string_view name) const;
  void cache_region(const std::string& name, const RemoteRegion& region);
  // Drops it from the cache, because the peer has refused it. The next look-up asks the peer.
  void forget_region(const RemoteRegion& region);
  [[nodiscard]] std::string describe() const;  // of the endpoint

  // Nothing in flight in any direction.
  [[nodiscard]] bool idle() const;
  // When somebody last asked something of the other side, as far as this side sees: what the peer reads and
  // writes here does not show.
  TimePoint last_use(TimePoint now);
  void touch() { used_at_ = context_.loop.now(); }
  [[nodiscard]] rpc::ChannelCounters channel_counters() const;
  [[nodiscard]] transport::EndpointCounters endpoint_counters() const;
  [[nodiscard]] std::size_t in_flight() const;  // operations that the endpoint has
  [[nodiscard]] std::uint64_t credits() const;  // messages that it would take now

  std::vector<Link*> links;  // that use it, or wait for it to be ready

 private:
  void on_channel_ready() noexcept override;
  void on_channel_imm(std::uint32_t imm) noexcept override;
  void on_channel_writable() noexcept override;
  Result<transport::RegionDescriptor> on_region_lookup(std::string_view name) noexcept override;
  void on_region_revoked(std::string_view name) noexcept override;
  void on_channel_closing() noexcept override;
  Status on_channel_proof(Bytes proof) noexcept override;
  void on_one_way_failed(const Status& status) noexcept override;
  void on_channel_closed(const Status& reason) noexcept override;

  [[nodiscard]] const transport::Endpoint* endpoint() const;
  // Takes it out of use, before the channel ends for a reason of ours.
  void abandon(const Status& refused);
  void stall(std::shared_ptr<Posted> operation);
  void watch_stalled(Posted& operation, const transport::TimeBounds& bounds, bool looked);
  void fail_stalled(const Status& reason);

  SessionContext& context_;
  const Pairing::Id id_;
  const transport::PeerIdentity peer_;
  const std::string address_;
  const bool initiator_;
  const std::array<std::byte, 32> handshake_;
  const std::string provider_;
  const std::string reason_;
  const std::size_t device_;
  std::optional<SessionKeys> keys_;
  State state_ = State::kHeld;
  std::weak_ptr<Session> other_end_;
  bool abandoned_ = false;
  transport::TimerId ready_timer_;
  std::map<std::string, RemoteRegion, std::less<>> regions_;
  std::deque<std::shared_ptr<Posted>> stalled_;
  TimePoint used_at_;
  std::uint64_t requests_seen_ = 0;
  std::unique_ptr<transport::Endpoint> endpoint_;  // until open()
  std::unique_ptr<rpc::Channel> channel_;
};

}  // namespace slime::agent

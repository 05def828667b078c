#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/connecting/named_peer.h"
#include "agent/connecting/pairing.h"
#include "agent/connecting/post_queue.h"
#include "agent/connecting/session_keys.h"
#include "rpc/channel.h"
#include "transport/connect.h"

namespace slime::agent {

class Devices;
class FirstUse;
class Link;
class RegionTable;
class Session;

// Receives the events of a Session; the switchboard implements it. Thread: the loop.
class SessionOwner {
 public:
  virtual void on_session_ready(Session& session) = 0;
  // The session closes in good order, or because of a wrong proof: no operation may start on it.
  virtual void on_session_closing(Session& session) = 0;
  virtual void on_session_imm(Session& session, std::uint32_t imm) = 0;
  // The other end answered probe(): it still has the connection.
  virtual void on_session_alive(Session& session) = 0;
  // The peer proved a key that is not in the keyring: there may be newer keys.
  virtual void on_session_unknown_key() = 0;
  // The session is closed, and no further event follows. The object exists until the switchboard
  // releases it.
  virtual void on_session_closed(Session& session, const Status& reason) = 0;

 protected:
  ~SessionOwner() = default;
};

// Objects and settings that all sessions of an agent share. Outlives the sessions.
struct SessionContext {
  transport::Loop& loop;
  const Devices& devices;
  rpc::Server& server;
  const RegionTable& regions;
  SessionOwner& owner;
  FirstUse& first_use;
  rpc::StreamOptions streams{};
  std::uint64_t memory_bytes = rpc::limits::kMemoryBytes;
  std::uint64_t max_payload_bytes = rpc::limits::kMaxPayloadBytes;
  // keys of the scope; null: handshakes use the token or no secret
  const Keyring* keyring = nullptr;
  // Numbers the uses of all sessions, in order. Costs less than the time of each use.
  std::uint64_t uses = 0;
};

// One connection with one peer, after a successful handshake. Owns the endpoint and, from open()
// on, the channel over it. Holds the peer's regions and the one-sided operations that wait for room
// in the endpoint. Thread: the loop.
class Session final : public std::enable_shared_from_this<Session>, private rpc::ChannelOwner {
 public:
  enum class State : std::uint8_t { kHeld, kOpening, kReady, kDraining, kClosed };

  Session(SessionContext& context, transport::Connected connected);
  ~Session();

  // Makes the channel, and registers regions if this is the first use of the device. The peer
  // learns at once that this side lives; its requests are handled once the regions are registered.
  void open();
  // Pings the peer. on_session_alive() follows if the peer answers within `timeout`; else the
  // connection is reset.
  void probe(Nanos timeout);
  // Closes in good order: operations in flight have at most `bound` to finish. `abandoned`: the
  // user did not ask for the close, so operations that are cut off end with kUnavailable instead of
  // kCancelled.
  void drain(Nanos bound, bool abandoned);
  void reset(Status reason);
  // Resets the connection like reset(), but calls on_session_closed() before it returns.
  void cut(Status reason);
  // Tells the peer the reason and closes at once, which cuts off operations in flight.
  void expel(Status reason);
  void revoke(std::string_view region);

  // The scope has new keys, or the channel is ready: proves the newest key to the peer and checks
  // the key that the peer has proved. May end the session.
  void on_keys(const KeySet& set);
  // Returns the time by which the peer must prove a key of `set`; kNever if the peer has proved
  // one, or if the connection uses no keys.
  TimePoint prove_by(const KeySet& set);
  // Returns true if the peer proved a key that is not in the keyring yet.
  [[nodiscard]] bool awaits_key() const { return keys_ && state_ != State::kClosed && keys_->awaits_key(); }

  // Posts one-sided operations and atomics, in order: see PostQueue::post().
  void post(const Post& post, transport::Operation& operation) { posts_->post(post, operation); }
  // Removes an operation that waits for room in the endpoint. Returns false if it does not wait
  // here.
  bool withdraw(const transport::Operation& operation) { return posts_->withdraw(operation); }

  // Returns the id of the connection: Endpoint::id(), CallInfo::connection.
  [[nodiscard]] Pairing::Id id() const { return id_; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool ready() const { return state_ == State::kReady; }
  // Returns whether the connection broke because its provider could not move data between the two
  // hosts: another provider may.
  [[nodiscard]] bool unreached() const { return endpoint() != nullptr && endpoint()->unreached(); }
  // Returns true if the connection broke and on_session_closed() follows in a later turn.
  [[nodiscard]] bool lost() const;
  [[nodiscard]] bool abandoned() const { return abandoned_; }
  [[nodiscard]] const transport::PeerIdentity& peer() const { return peer_; }
  // The peer, for operations of the user on it.
  [[nodiscard]] const std::shared_ptr<NamedPeer>& named_peer() const { return named_peer_; }
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] bool initiator() const { return initiator_; }
  // Returns whether this session and `session` are the two ends of a connection of the agent to
  // itself. Operations start at the end that connected; messages arrive, and receives wait, at the
  // accepted end.
  [[nodiscard]] bool other_end_of(const Session& session) const;
  void receive_at(const std::shared_ptr<Session>& other_end) { other_end_ = other_end; }
  // Returns the session at which the peer's messages arrive: this session, or the accepted end of a
  // connection of the agent to itself.
  [[nodiscard]] Session& receiver();
  // Index of the agent's device that carries the session; reason() tells why it was chosen.
  [[nodiscard]] std::size_t device() const { return device_; }
  // Copies a batch within this call if possible, and returns whether it did; see
  // transport::Endpoint::read_now(). `kind` is kRead or kWrite.
  bool done_now(OneSided kind, std::span<const transport::CopyBlock> copies);
  // Returns whether the region was looked up over this connection.
  [[nodiscard]] bool knows(const transport::RemoteRegion& remote) const {
    return remote.endpoint_id() == id_;
  }
  // Returns kAborted if not knows().
  [[nodiscard]] Status check_remote(const transport::RemoteRegion& remote) const;
  [[nodiscard]] const std::string& provider() const { return provider_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }
  [[nodiscard]] rpc::Channel& channel() { return *channel_; }
  [[nodiscard]] const transport::RemoteRegion* cached_region(std::string_view name) const;
  void cache_region(const std::string& name, const transport::RemoteRegion& region);
  // Removes the region from the cache, because the peer has refused it. The next look-up asks the
  // peer.
  void forget_region(const transport::RemoteRegion& region);
  [[nodiscard]] std::string describe() const;  // of the endpoint

  // Returns whether no operation is in flight in either direction, as far as this side sees.
  [[nodiscard]] bool idle() const;
  // Returns the number of the last use by an operation of either side. Of two sessions, that with
  // the smaller number has been idle longer. Does not see one-sided reads and writes by the peer;
  // the peer's requests since the last call count as one use now.
  std::uint64_t last_use();
  void touch() { last_use_ = ++context_.uses; }
  [[nodiscard]] rpc::ChannelCounters channel_counters() const;
  [[nodiscard]] transport::EndpointCounters endpoint_counters() const;
  [[nodiscard]] std::size_t in_flight() const;  // operations that the endpoint has
  [[nodiscard]] std::uint64_t credits() const;  // messages that the endpoint would take now

  std::vector<Link*> links;  // links that use this session or wait for it to be ready

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
  void on_registered();
  void become_ready();
  // Stops new operations, before this side ends the channel because of `refused`.
  void abandon(const Status& refused);

  SessionContext& context_;
  const Pairing::Id id_;
  const transport::PeerIdentity peer_;
  const std::shared_ptr<NamedPeer> named_peer_ = std::make_shared<NamedPeer>(peer_.name);
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
  bool greeted_ = false;     // a message has gone both ways
  bool registered_ = false;  // no region waits for the device
  transport::TimerId ready_timer_;
  std::map<std::string, transport::RemoteRegion, std::less<>> regions_;
  std::uint64_t last_use_;
  std::uint64_t requests_seen_ = 0;
  std::unique_ptr<transport::Endpoint> endpoint_;  // until open()
  // The endpoint of endpoint_ or channel_. Spares each post the way through the channel.
  const transport::Endpoint& carrier_;
  std::unique_ptr<rpc::Channel> channel_;
  std::optional<PostQueue> posts_;  // over the channel's endpoint
};

}  // namespace slime::agent

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/connecting/avoided.h"
#include "agent/connecting/key_watch.h"
#include "agent/connecting/link.h"
#include "agent/connecting/link_table.h"
#include "agent/connecting/named_peer.h"
#include "agent/connecting/pairing.h"
#include "agent/connecting/peer_view.h"
#include "agent/connecting/session.h"
#include "agent/limits.h"
#include "agent/memory/first_use.h"
#include "base/random.h"
#include "ctrl/types.h"
#include "transport/connect.h"

namespace slime::agent {

// An operation in info().
struct OperationView {
  std::string what;
  std::string peer;
  std::string_view stage;
  Nanos age{};
  Nanos left{};  // until its deadline
};

struct OperationsView {
  std::size_t count = 0;
  std::vector<OperationView> oldest;  // at most limits::kShownOperations
};

struct BoardCounters {
  std::size_t connections = 0;  // open now
  std::uint64_t made = 0;       // usable ones since the start
  // Sums of rpc::ChannelCounters over all connections since the start.
  std::uint64_t receives_given_back = 0;
  std::uint64_t over_budget = 0;
  std::uint64_t answers_revoked = 0;

  void add(const rpc::ChannelCounters& channel);
};

// Maps the peers that users name to connections: owns the links, the sessions, and for each peer
// instance the pairing that decides which session lives. Thread: the loop, unless stated otherwise.
class Switchboard final : public transport::Acceptor,
                          private transport::Deferred,
                          private LinkOwner,
                          private SessionOwner,
                          private KeyWatchOwner {
 public:
  struct Options {
    transport::HandshakeOptions handshake;
    std::size_t max_connections = 1024;
    bool has_registry = false;
    rpc::StreamOptions streams{};
    std::uint64_t memory_bytes = rpc::limits::kMemoryBytes;
    std::uint64_t max_payload_bytes = rpc::limits::kMaxPayloadBytes;
    Nanos outage_tolerated = transport::limits::kOutageTolerated;
    std::shared_ptr<const Keyring> keyring = nullptr;  // keys of the scope; null: none are used
  };
  Switchboard(transport::Loop& loop, Devices& devices, transport::Outlets outlets, rpc::Server& server,
              const RegionTable& regions, Options options);
  ~Switchboard();

  // Access to the registry, which finds addresses of names. After look_up(name), on_resolved() is
  // called on the loop. A null `look_up`: no registry.
  struct Registry {
    const Directory* directory = nullptr;
    std::function<void(const std::string& name)> look_up;
    // Asks the registry for newer keys; on_keys(name, attempt) follows on the loop. Null:
    // handshakes use no keys of the registry. An empty `name`: no attempt of a link waits for the
    // keys.
    std::function<void(const std::string& name, std::uint64_t attempt)> refresh_keys = {};
  };
  // Thread: the loop.
  struct Handlers {
    std::function<void(Session& session, std::uint32_t imm)> imm;
    // A connection that the peer has opened is ready, and may have ended since. `peer` is as
    // peer_of() returns it.
    std::function<void(std::shared_ptr<NamedPeer> peer, Pairing::Id connection)> connected = {};
    std::function<void(const std::string& peer, std::uint64_t connection)> closed;
  };
  void set_registry(Registry registry);
  void set_handlers(Handlers handlers);
  // Sets the address at which this agent listens. Without a registry, the agent's own name leads to
  // this address.
  void set_address(std::string address) { own_address_ = std::move(address); }

  // Gives the peer back the held credit of one notification: see Endpoint::release_credits().
  void release_credit(Pairing::Id session);
  // An operation of a peer of one connection starts on that connection, or ends with kUnavailable.
  void submit(NamedPeer& peer, OperationPtr<PeerOperation> operation);
  // Starts the operation, and takes it over, if the peer's connection is ready and no operation
  // waits for it; else returns false and does nothing. Runs no callbacks except those of the
  // operation.
  bool submit_at_once(NamedPeer& peer, OperationPtr<PeerOperation>& operation);
  // Returns the session on which an operation on this peer would start now; null: it would wait.
  Session* session_now(NamedPeer& peer);
  void disconnect(NamedPeer& peer);
  void on_resolved(const std::string& name, Result<DirectoryEntry> entry);
  void on_keys(const std::string& name, std::uint64_t attempt);
  // The keyring has changed.
  void on_new_keys() { keys_.on_new_keys(); }
  void on_registry_event(const ctrl::Event& event);
  void revoke(const std::vector<std::string>& regions);

  // Refuses new work, fails waiting operations, and cuts off operations in flight after `bound`.
  void close(Nanos bound);
  // Cuts off all sessions that are left. No session exists when it returns.
  void cut_all();
  // Returns whether an operation is in flight on a connection, as far as this side sees.
  [[nodiscard]] bool busy() const;
  // The number of sessions that are not closed. Thread: any.
  [[nodiscard]] std::size_t live_sessions() const { return live_.load(std::memory_order_acquire); }

  [[nodiscard]] std::vector<PeerView> view() const;
  [[nodiscard]] PeerView view(NamedPeer& peer) const;
  // Returns the peer of a connection that is ready; null: there is no such connection. Of a
  // connection of the agent to itself: the agent by its name.
  [[nodiscard]] std::shared_ptr<NamedPeer> peer_of(std::uint64_t connection) const;
  [[nodiscard]] OperationsView operations() const;
  [[nodiscard]] BoardCounters counters() const;

  // Acceptor.
  Status on_hello(const transport::PeerIdentity& peer) noexcept override;
  void on_connected(transport::Connected connected) noexcept override;
  void on_unproved() noexcept override { keys_.on_stranger(); }

 private:
  using SessionPtr = std::shared_ptr<Session>;
  using Pairings = std::map<InstanceId, Pairing>;

  // LinkOwner.
  SessionPtr find_session(const Link& link) override;
  std::optional<DirectoryEntry> cached_entry(const std::string& name) override;
  void resolve(Link& link) override;
  std::unique_ptr<transport::Connecting> connect(Link& link, std::uint64_t attempt,
                                                 const std::string& address,
                                                 transport::PeerIdentity expected) override;
  void drain(Session& session) override;
  void on_new_instance(Link& link, const InstanceId& next) override { links_.on_new_instance(link, next); }
  // SessionOwner.
  void on_session_ready(Session& session) override;
  void on_session_closing(Session& session) override;
  void on_session_imm(Session& session, std::uint32_t imm) override;
  void on_session_alive(Session& session) override;
  void on_session_unknown_key() override { keys_.on_unknown_key(); }
  void on_session_closed(Session& session, const Status& reason) override;
  // KeyWatchOwner.
  void replace_unproved(Session& session, Nanos left) override { drain(session, left, true); }
  void expel(Session& session, Status reason) override;

  Link& link_for(const std::string& key);
  // Forgets unused links. Runs in a later turn: links_ must not shrink while a caller iterates over
  // it.
  void run_deferred() noexcept override;
  void handshake_done(const std::string& key, std::uint64_t attempt, Result<transport::Connected> result);
  void arrived(transport::Connected connected, Link* link);
  // Returns true for the accepted end of a connection of the agent to itself. This end only
  // receives and answers: no operation starts on it.
  [[nodiscard]] bool passive(const Session& session) const;
  void join_ends(const SessionPtr& session);
  bool avoid(const transport::PeerIdentity& peer, const std::string& provider, const Status& cause);
  Pairings::iterator pairing_named(std::string_view name);
  Pairing& pairing_of(const InstanceId& instance);
  void apply(const Pairing::Changes& changes);
  void attach_links(const SessionPtr& session);
  [[nodiscard]] bool displaces(const Session& session, const Link& link);
  [[nodiscard]] static bool leads_elsewhere(const Link& link, const InstanceId& owner);
  SessionPtr session_by_id(Pairing::Id id) const;
  // Returns the session of this id if operations can start on it; else null.
  [[nodiscard]] Session* usable_session(Pairing::Id id) const;
  void release(Session& session);
  void drain(Session& session, Nanos bound, bool abandoned);
  // Takes the session out of use: new operations wait for the next connection. The caller must
  // apply() the returned changes.
  Pairing::Changes retire(Session& session);
  // If max_connections are open, closes the one that has been idle longest. Returns false if none
  // is idle.
  bool make_room();

  transport::Loop& loop_;
  const transport::Outlets outlets_;
  const Options options_;
  const std::shared_ptr<FirstUse> first_use_;
  SessionContext context_;
  Registry registry_;
  Handlers handlers_;
  Rng rng_;
  std::string own_address_;
  bool closing_ = false;
  BoardCounters totals_;  // sums over closed connections; `made`: over all
  LinkTable links_;
  bool forgets_links_ = false;  // run_deferred() is due
  std::map<Pairing::Id, SessionPtr> sessions_;
  Pairings pairings_;
  Avoided avoided_;
  KeyWatch keys_{loop_, options_.keyring, sessions_, *this};
  std::atomic<std::size_t> live_{0};
  OperationTable operations_;
};

}  // namespace slime::agent

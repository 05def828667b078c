#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/connecting/connection.h"
#include "agent/connecting/session.h"
#include "agent/connecting/target.h"
#include "agent/operations/operation_table.h"
#include "agent/registry/directory.h"
#include "transport/connect.h"

namespace slime::agent {

class Link;

// The part of the switchboard that a Link calls. Thread: the loop.
class LinkOwner {
 public:
  // Returns a session that already leads to this link's peer; null: none.
  virtual std::shared_ptr<Session> find_session(const Link& link) = 0;
  // Returns the cached registry entry of the peer; nullopt: not cached.
  virtual std::optional<DirectoryEntry> cached_entry(const std::string& name) = 0;
  // Asks the registry; on_resolved() follows.
  virtual void resolve(Link& link) = 0;
  // Starts a handshake. Its result calls attach() or on_handshake_failed(), unless the link has
  // given up `attempt` by then.
  virtual std::unique_ptr<transport::Connecting> connect(Link& link, std::uint64_t attempt,
                                                         const std::string& address,
                                                         transport::PeerIdentity expected) = 0;
  // Closes the session in good order: operations in flight may finish.
  virtual void drain(Session& session) = 0;
  // Must be called before the instance of link.identity() changes to `next`.
  virtual void on_new_instance(Link& link, const InstanceId& next) = 0;

 protected:
  ~LinkOwner() = default;
};

// One peer under the name or address that the user gave: the state of its connection, the current
// attempt to connect, and the operations that wait for the connection. Two links ("worker:0",
// "10.0.0.7:4000") may lead to one session. Thread: the loop.
class Link {
 public:
  Link(LinkOwner& owner, transport::Loop& loop, std::string log_name, std::string key, Target target,
       std::uint64_t seed);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void submit(OperationPtr<PeerOperation> operation);
  // Returns whether submit() would start an operation now, without queueing it: start() does so.
  [[nodiscard]] bool takes_at_once() const { return usable() && waiting_.empty() && !flushing_; }
  // Starts an operation. Call only if takes_at_once(), or for an operation that was waiting.
  void start(OperationPtr<PeerOperation> operation);
  // Ends the attempt to connect, and fails all waiting operations.
  void fail_all(const Status& reason);
  // Closes the connection in good order. If there is only an attempt to connect, ends the attempt
  // and fails the waiting operations.
  void disconnect();
  // Ends the backoff, because something new is known about the peer. Connects at once if an
  // operation waits.
  void retry_soon();

  void on_resolved(Result<DirectoryEntry> entry);
  // Records the identity of the peer that answered an attempt, successful or not.
  void answered(transport::PeerIdentity peer);
  // Event: the attempt failed before there was a session. `others`: only one provider failed, and
  // other providers are left, with which the link connects again at once.
  void on_handshake_failed(Status reason, bool others);
  // Event: the attempt failed because of a key, of this side or of the peer. Returns true if the
  // caller must ask the registry for newer keys and then call on_keys(), which connects again.
  // Returns false after limits::kKeyRetries: the caller then handles the failure like any other.
  bool wait_for_keys();
  void on_keys(std::uint64_t attempt);
  // Uses `session`, whose handshake has succeeded, but which may not be ready yet.
  void attach(std::shared_ptr<Session> session);
  void on_session_ready();
  void on_session_draining();
  // `replacement`: another session with the peer, to use from now on; null: none. `others`: other
  // providers are left to connect with.
  void on_session_closed(const Status& reason, std::shared_ptr<Session> replacement, bool others);
  // Stops using the session, which other links may still use. The next operation connects again.
  void detach(Status reason);

  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] bool by_name() const { return target_.by_name; }
  [[nodiscard]] const Status& problem() const { return target_.problem; }
  [[nodiscard]] const ConnectionMachine& machine() const { return machine_; }
  [[nodiscard]] const std::shared_ptr<Session>& session() const { return session_; }
  [[nodiscard]] const std::string& address() const { return address_; }
  // The peer that answered the last successful handshake; an empty name: none yet.
  [[nodiscard]] const transport::PeerIdentity& identity() const { return identity_; }
  // The current attempt; null: none.
  [[nodiscard]] const transport::Connecting* connecting() const { return attempt_.get(); }
  [[nodiscard]] std::uint64_t attempt() const { return attempt_ ? attempt_number_ : 0; }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::uint64_t connects() const { return connects_; }
  // Returns whether the link may be deleted: it has no session, no attempt and no waiting
  // operation.
  [[nodiscard]] bool forgettable() const;

 private:
  using Step = ConnectionMachine::Step;
  void perform(Step step);
  void resolve(bool fresh);
  void connect();
  [[nodiscard]] bool usable() const;
  void wait(OperationPtr<PeerOperation> operation);
  void flush();
  void fail_waiting();
  void arm_retry();
  void connect_again(Status reason);
  void end_attempt();
  void leave_session();
  void note_state();

  LinkOwner& owner_;
  transport::Loop& loop_;
  const std::string log_name_;
  const std::string key_;
  const Target target_;
  ConnectionMachine machine_;
  ConnectionState noted_ = ConnectionState::kIdle;
  std::string address_;               // of the last attempt or connection
  transport::PeerIdentity expected_;  // the peer of the last attempt
  transport::PeerIdentity identity_;
  std::uint64_t connects_ = 0;  // number of connections that became ready
  std::uint64_t attempt_number_ = 0;
  // retries after key failures, since the link was ready or an attempt failed
  int key_retries_ = 0;
  std::unique_ptr<transport::Connecting> attempt_;
  std::shared_ptr<Session> session_;
  WaitingOperations waiting_;
  bool flushing_ = false;
  transport::TimerId retry_timer_;
};

}  // namespace slime::agent

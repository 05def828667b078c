#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/connecting/connection.h"
#include "agent/connecting/session.h"
#include "agent/connecting/target.h"
#include "agent/operations/operations.h"
#include "agent/registry/directory.h"
#include "transport/connect.h"

namespace slime::agent {

class Link;

// What a link asks of the switchboard. On the loop.
class LinkOwner {
 public:
  // A session that leads to this peer already; null: none.
  virtual std::shared_ptr<Session> find_session(const Link& link) = 0;
  // Where the registry says the peer is, from memory; nothing: not known.
  virtual std::optional<DirectoryEntry> cached_entry(const std::string& name) = 0;
  // Asks the registry, which ends in on_resolved().
  virtual void resolve(Link& link) = 0;
  // Starts a handshake, which ends in attach() or on_handshake_failed(), if link.attempt() is still
  // `attempt`.
  virtual std::unique_ptr<transport::Connecting> connect(Link& link, std::uint64_t attempt,
                                                         const std::string& address,
                                                         transport::PeerIdentity expected) = 0;
  // The link's own connection, to be closed in good order.
  virtual void drain(Session& session) = 0;
  // Destroys it in a later turn: it may be on the stack now. What it still says is not heard.
  virtual void release_later(std::unique_ptr<transport::Connecting> attempt) = 0;

 protected:
  ~LinkOwner() = default;
};

// One peer as the user names it: the state of its connection, the attempt under way, the operations that wait
// for it. Two links ("worker:0", "10.0.0.7:4000") may lead to one session. Thread: the loop.
class Link {
 public:
  Link(LinkOwner& owner, transport::Loop& loop, std::string log_name, std::string key, Target target,
       std::uint64_t seed);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void submit(std::shared_ptr<PeerOperation> operation);
  // submit() would hand it to the connection now.
  [[nodiscard]] bool takes_at_once() const { return usable() && waiting_.empty() && !flushing_; }
  // Takes an operation out that waits here.
  std::shared_ptr<PeerOperation> withdraw(PeerOperation& operation);
  // Ends everything that waits, and the attempt.
  void fail_all(const Status& reason);
  // Closes the connection in good order; an attempt ends, and with it what waits for it.
  void disconnect();
  // Something new is known: operations that wait for readiness need not wait for the backoff's end.
  void retry_soon();

  void on_resolved(Result<DirectoryEntry> entry);
  // Who is at the other end, whatever became of the attempt.
  void answered(transport::PeerIdentity peer) { identity_ = std::move(peer); }
  // The attempt failed before a session came of it. `others`: over one provider, and there are others, which
  // are tried at once.
  void on_handshake_failed(Status reason, bool others);
  // The attempt failed for the key that this side or the peer has. True: newer ones are to be asked for, and
  // then on_keys() tries again; false: it is a failure as any other.
  bool wait_for_keys();
  void on_keys(std::uint64_t attempt);
  // The handshake is over, `session` (which may not be ready yet) is what came of it.
  void attach(std::shared_ptr<Session> session);
  void on_session_ready();
  void on_session_draining();
  // Another of the peer's sessions may stand in: `replacement`, or null. `others`: as above.
  void on_session_closed(const Status& reason, std::shared_ptr<Session> replacement, bool others);
  // Leaves its session to those that still use it; the next use connects anew.
  void detach(Status reason);

  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] bool by_name() const { return target_.by_name; }
  [[nodiscard]] const Status& problem() const { return target_.problem; }
  [[nodiscard]] const ConnectionMachine& machine() const { return machine_; }
  [[nodiscard]] const std::shared_ptr<Session>& session() const { return session_; }
  [[nodiscard]] const std::string& address() const { return address_; }
  // Who answered last; an empty name: nobody yet.
  [[nodiscard]] const transport::PeerIdentity& identity() const { return identity_; }
  // The attempt under way; null: none.
  [[nodiscard]] const transport::Connecting* connecting() const { return attempt_.get(); }
  [[nodiscard]] std::uint64_t attempt() const { return attempt_ ? attempt_number_ : 0; }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::uint64_t connects() const { return connects_; }
  // Nothing is under way and nobody waits: only its memory would be lost.
  [[nodiscard]] bool forgettable() const;

 private:
  using Step = ConnectionMachine::Step;
  void perform(Step step);
  void resolve(bool fresh);
  void connect();
  [[nodiscard]] bool usable() const;
  void start(std::shared_ptr<PeerOperation> operation);
  void wait(std::shared_ptr<PeerOperation> operation);
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
  transport::PeerIdentity expected_;  // who the last attempt looked for
  transport::PeerIdentity identity_;
  std::uint64_t connects_ = 0;  // that became ready
  std::uint64_t attempt_number_ = 0;
  int key_retries_ = 0;  // since it was ready, or an attempt failed
  std::unique_ptr<transport::Connecting> attempt_;
  std::shared_ptr<Session> session_;
  std::list<std::shared_ptr<PeerOperation>> waiting_;
  bool flushing_ = false;
  transport::TimerId retry_timer_;
};

}  // namespace slime::agent

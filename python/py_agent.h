#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "base/mutex.h"
#include "python/binding.h"
#include "python/py_rpc.h"

namespace slime::python {

// Queue of notifications for the Python handler. The loop pushes; a Python thread takes.
class ImmQueue {
 public:
  // Number of notifications that may wait without holding their credits. Further notifications keep
  // their credits, so a peer that is faster than the handler has to wait. Equals the limit of
  // messages in an inbox.
  static constexpr std::size_t kLimit = 4096;
  // Like kLimit, for a peer of an earlier version: its credits also carry answers, and the handler
  // may be waiting for an answer of that peer. Such a queue takes at most about 100 MiB.
  static constexpr std::size_t kEarlierPeerLimit = 1 << 20;

  struct Item {
    Peer peer;
    std::uint32_t imm = 0;
    std::optional<HeldCredit> credit;
  };
  void push(Peer peer, std::uint32_t imm, NotificationCredit& credit);
  // Waits for a notification. Returns nullopt once the queue is closed. Thread: any, without the
  // GIL.
  std::optional<Item> take();
  void close();

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<Item> items_ SLIME_GUARDED_BY(mutex_);
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
};

// _slime.PeerAgent, from which slime.PeerAgent derives. Thread: holds the GIL.
class PyAgent {
 public:
  PyAgent(std::unique_ptr<PeerAgent> agent, Progress progress)
      : agent_(std::shared_ptr<PeerAgent>(std::move(agent))), progress_(progress) {}
  PyAgent(PyAgent&&) = delete;
  ~PyAgent();

  [[nodiscard]] PeerAgent& agent() const { return *agent_; }
  [[nodiscard]] const std::shared_ptr<PeerAgent>& shared() const { return agent_.shared(); }
  [[nodiscard]] bool forked() const { return agent_.forked(); }
  [[nodiscard]] Progress progress() const { return progress_; }
  // Returns the queue of notifications. The first call creates the queue and connects it to the
  // agent.
  std::shared_ptr<ImmQueue> imms();
  Status close(double timeout);
  // Adds a queue of requests for turn().
  void add_inline(std::shared_ptr<RequestQueue> queue);
  // Returns a request of the inline queues; None if there is none.
  nb::object take_inline();
  // Runs due work of the agent, without the GIL; waits up to `budget` if there is none. Returns a
  // request of the inline queues, or whether anything ran. `for_request`: waits until there is a
  // request, or until wake(). Raises the exception of a signal handler (KeyboardInterrupt).
  nb::object turn(Nanos budget, bool for_request);
  // Ends a turn() that waits in another thread, or the next one.
  void wake();

 private:
  using InlineQueues = std::vector<std::shared_ptr<RequestQueue>>;
  ForkGuarded<PeerAgent> agent_;
  Progress progress_;
  // Replaced, never changed: turn() reads it without the GIL.
  std::shared_ptr<const InlineQueues> inline_ = std::make_shared<const InlineQueues>();
  std::size_t next_inline_ = 0;  // the queue whose turn it is
  TimePoint turned_{};           // when the last turn() ended
  std::atomic<bool> woken_{false};
  std::shared_ptr<ImmQueue> imms_;
};

// _slime.Peer, from which slime.Peer derives. Keeps its agent alive. Thread: holds the GIL.
class PyPeer {
 public:
  PyPeer(Peer peer, nb::object agent)
      : peer_(std::make_shared<Peer>(std::move(peer))), agent_(std::move(agent)) {}
  PyPeer(PyPeer&&) = default;

  [[nodiscard]] Peer& peer() const { return *peer_; }
  [[nodiscard]] const std::shared_ptr<Peer>& shared() const { return peer_.shared(); }
  [[nodiscard]] const nb::object& agent() const { return agent_; }
  static int traverse(PyObject* self, visitproc visit, void* arg);
  static int clear(PyObject* self);

 private:
  ForkGuarded<Peer> peer_;
  nb::object agent_;
};

// Returns the future of a one-sided operation. The future keeps `used`, the regions of the
// operation, open until the operation has ended, even if Python drops the future earlier.
nb::object make_transfer(Future<None> future, nb::object used, nb::object agent);

void bind_peer(nb::module_& m);
void bind_prepared(nb::module_& m, nb::class_<PyPeer>& peer);
void bind_proxy(nb::module_& m);

}  // namespace slime::python

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/loop.h"

namespace slime::agent {

class PeerOperation;
class Session;
class WaitingOperations;

// The record of one operation in the OperationTable. Base of PeerOperation. The table and the
// queues need no nodes of their own. Thread: the loop, unless stated otherwise.
class OperationRecord {
 public:
  enum class State : std::uint8_t {
    kNew,      // made; or between two of the other states
    kWaiting,  // waits for a connection, in the queue of its peer
    kRunning,  // runs on a session, which may keep the operation until its endpoint has room
    kEnded,    // has its outcome
  };

  OperationRecord(const OperationRecord&) = delete;
  OperationRecord& operator=(const OperationRecord&) = delete;

  [[nodiscard]] State state() const { return state_; }
  // Adds `weight` to `count` until the operation leaves the table, also if it was never added.
  // Thread: the maker's, before the operation is shared.
  void count_in(std::atomic<std::size_t>& count, std::size_t weight) {
    count_ = &count;
    weight_ = weight;
    count.fetch_add(weight, std::memory_order_relaxed);
  }

 protected:
  OperationRecord() = default;
  ~OperationRecord() { leave(); }

  void run_on(Session& session) {
    session_ = &session;
    state_ = State::kRunning;
  }
  void end_run() {
    session_ = nullptr;
    state_ = State::kEnded;
    leave();
  }
  // Leaves the table, if the operation is in one.
  void leave() {
    if (auto* const count = std::exchange(count_, nullptr))
      count->fetch_sub(weight_, std::memory_order_relaxed);
    part(&OperationRecord::in_table_);
  }
  // The session that the operation runs on; null in every other state.
  [[nodiscard]] Session* running() const { return session_; }
  // The queue in which the operation waits; null in every other state.
  [[nodiscard]] WaitingOperations* queue() const { return queue_; }
  // Keeps the operation alive until released(): the queue or the endpoint has only a reference.
  void keep(std::shared_ptr<PeerOperation> self) { kept_ = std::move(self); }
  [[nodiscard]] std::shared_ptr<PeerOperation> released() { return std::move(kept_); }

 private:
  friend class OperationTable;
  friend class WaitingOperations;
  // Neighbours in a ring, which begins and ends at a record of its own. Null: in no ring.
  struct Links {
    OperationRecord* previous = nullptr;
    OperationRecord* next = nullptr;
  };
  struct End;

  // Makes a ring of this record alone.
  void close(Links OperationRecord::*ring) { this->*ring = {this, this}; }
  // Appends this record to the ring of `end`.
  void join(Links OperationRecord::*ring, OperationRecord& end) {
    OperationRecord& last = *(end.*ring).previous;
    this->*ring = {&last, &end};
    (last.*ring).next = this;
    (end.*ring).previous = this;
  }
  void part(Links OperationRecord::*ring) {
    const Links links = this->*ring;
    if (links.next == nullptr) return;
    (links.previous->*ring).next = links.next;
    (links.next->*ring).previous = links.previous;
    this->*ring = {};
  }

  Links in_table_;
  Links in_queue_;
  WaitingOperations* queue_ = nullptr;
  Session* session_ = nullptr;
  std::shared_ptr<PeerOperation> kept_;
  transport::TimerId timer_;  // ends the wait
  std::atomic<std::size_t>* count_ = nullptr;
  std::size_t weight_ = 0;
  State state_ = State::kNew;
};

// The head of a ring of records: stands before the first and after the last one.
struct OperationRecord::End final : OperationRecord {};

}  // namespace slime::agent

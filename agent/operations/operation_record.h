#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "transport/loop.h"

namespace slime::agent {

class PeerOperation;
class Session;
class WaitingOperations;

// Keeps an operation alive. Costs no atomic operation, so one thread at a time may use the
// references to one operation: the maker until the operation is submitted, then the loop.
template <class T>
class OperationPtr {
 public:
  OperationPtr() = default;
  OperationPtr(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): as std::shared_ptr
  explicit OperationPtr(T* operation) : operation_(operation) {
    if (operation_ != nullptr) operation_->hold();
  }
  OperationPtr(const OperationPtr& other) : OperationPtr(other.operation_) {}
  OperationPtr(OperationPtr&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> OperationPtr(
      OperationPtr<U> other)  // NOLINT(google-explicit-constructor): as std::shared_ptr
      : operation_(other.release()) {}
  OperationPtr& operator=(OperationPtr other) noexcept {
    std::swap(operation_, other.operation_);
    return *this;
  }
  ~OperationPtr() {
    if (operation_ != nullptr) operation_->let_go();
  }
  [[nodiscard]] T* get() const { return operation_; }
  // Returns the operation, for which the caller now holds the reference.
  [[nodiscard]] T* release() { return std::exchange(operation_, nullptr); }
  T* operator->() const { return operation_; }
  T& operator*() const { return *operation_; }
  explicit operator bool() const { return operation_ != nullptr; }

 private:
  T* operation_ = nullptr;
};

// State and list links of one operation. Base of PeerOperation, so OperationTable and
// WaitingOperations need no nodes of their own. Thread: the loop, unless stated otherwise.
class OperationRecord {
 public:
  enum class State : std::uint8_t {
    kNew,      // not submitted yet, or between two of the other states
    kWaiting,  // waits for a connection, in the queue of its peer
    kRunning,  // runs on a session, which may keep the operation until its endpoint has room
    kEnded,    // has its outcome
  };

  OperationRecord(const OperationRecord&) = delete;
  OperationRecord& operator=(const OperationRecord&) = delete;

  [[nodiscard]] State state() const { return state_; }
  // Counts the operation in `count` until leave(), once, even if the operation is never in a table.
  // Other threads may read `count`, but only the loop's changes it.
  void count_in(std::atomic<std::size_t>& count) {
    if (count_ != nullptr) return;
    count_ = &count;
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

 protected:
  OperationRecord() = default;
  ~OperationRecord();

  void run_on(Session& session) {
    session_ = &session;
    state_ = State::kRunning;
  }
  void end_run() {
    session_ = nullptr;
    state_ = State::kEnded;
    leave();
  }
  // Removes the operation from the table, if it is in one, and undoes count_in().
  void leave() {
    if (auto* const count = std::exchange(count_, nullptr))
      count->store(count->load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    part(&OperationRecord::in_table_);
  }
  // The session on which the operation runs; null if it does not run.
  [[nodiscard]] Session* running() const { return session_; }
  // The queue in which the operation waits; null if it does not wait.
  [[nodiscard]] WaitingOperations* queue() const { return queue_; }
  // Keeps the operation alive until released(): the queue or the endpoint has only a plain
  // reference.
  void keep(OperationPtr<PeerOperation> self);
  [[nodiscard]] OperationPtr<PeerOperation> released();

 private:
  friend class OperationTable;
  friend class WaitingOperations;
  // Neighbours in a circular list whose head is an End. Null: in no list.
  struct Links {
    OperationRecord* previous = nullptr;
    OperationRecord* next = nullptr;
  };
  struct End;

  // Makes a ring of this record alone.
  void close(Links OperationRecord::*ring) { this->*ring = {this, this}; }
  // Appends this record to the circular list with the head `end`.
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
  OperationPtr<PeerOperation> kept_;
  transport::TimerId timer_;  // ends the wait
  std::atomic<std::size_t>* count_ = nullptr;
  State state_ = State::kNew;
};

// Head of a circular list of records: stands before the first record and after the last.
struct OperationRecord::End final : OperationRecord {};

}  // namespace slime::agent

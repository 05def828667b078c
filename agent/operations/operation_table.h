#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/operations/operation_record.h"
#include "agent/operations/peer_operation.h"
#include "base/clock.h"
#include "base/function.h"
#include "transport/loop.h"

namespace slime::agent {

// All operations of an agent that wait or run, in the order in which they began. An operation
// leaves the table when it ends. The table is intrusive: it owns no operations and allocates no
// memory, and adding and removing an operation takes four stores. Thread: the loop.
class OperationTable {
 public:
  OperationTable() { end_.close(&OperationRecord::in_table_); }
  ~OperationTable() {
    while (end_.in_table_.next != &end_) end_.in_table_.next->leave();
  }
  OperationTable(const OperationTable&) = delete;
  OperationTable& operator=(const OperationTable&) = delete;

  // Adds an operation that is in no table.
  void add(PeerOperation& operation) {
    OperationRecord& record = operation;
    record.join(&OperationRecord::in_table_, end_);
  }
  // Calls fn(const PeerOperation&), oldest first. `fn` must not change the table.
  template <class F>
  void for_each(F&& fn) const {
    for (const OperationRecord* at = end_.in_table_.next; at != &end_; at = at->in_table_.next)
      fn(static_cast<const PeerOperation&>(*at));
  }

 private:
  OperationRecord::End end_;
};

// The operations that wait for a connection to one peer, in order. Keeps the operations alive.
// Thread: the loop.
class WaitingOperations {
 public:
  using Late = UniqueFunction<void(OperationPtr<PeerOperation>)>;

  // `peer` is the name that the user gave.
  WaitingOperations(transport::Loop& loop, std::string peer);
  WaitingOperations(const WaitingOperations&) = delete;
  WaitingOperations& operator=(const WaitingOperations&) = delete;
  ~WaitingOperations();

  // Appends an operation. If it still waits at `until`, removes it and calls `late` with it.
  void add(OperationPtr<PeerOperation> operation, TimePoint until, Late late);
  // Removes and returns an operation that waits here.
  OperationPtr<PeerOperation> withdraw(PeerOperation& operation);
  // Removes and returns the first operation.
  OperationPtr<PeerOperation> take_first() { return withdraw(at(end_.in_queue_.next)); }
  // Removes and returns, in order, the operations for which wanted(const PeerOperation&) is true.
  template <class F>
  std::vector<OperationPtr<PeerOperation>> take_if(F&& wanted);

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const std::string& peer() const { return peer_; }
  // Returns whether a waiting operation makes the agent connect to the peer (a receive does not).
  [[nodiscard]] bool any_connects() const;

 private:
  static PeerOperation& at(OperationRecord* record) { return static_cast<PeerOperation&>(*record); }

  transport::Loop& loop_;
  const std::string peer_;
  OperationRecord::End end_;
  std::size_t size_ = 0;
};

template <class F>
std::vector<OperationPtr<PeerOperation>> WaitingOperations::take_if(F&& wanted) {
  std::vector<OperationPtr<PeerOperation>> out;
  for (OperationRecord* next = end_.in_queue_.next; next != &end_;) {
    PeerOperation& operation = at(std::exchange(next, next->in_queue_.next));
    if (wanted(static_cast<const PeerOperation&>(operation))) out.push_back(withdraw(operation));
  }
  return out;
}

}  // namespace slime::agent

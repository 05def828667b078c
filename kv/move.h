#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/future.h"
#include "base/result.h"

namespace slime::kv {

// How far a Move is. Bytes count when the operation that moved them has succeeded.
struct MoveProgress {
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;
  // A fetch counts chunks here, a gather operations. A layer of a write with a request is done once
  // the peer was told.
  std::uint32_t layers_done = 0;
  std::uint32_t layers_total = 0;
  Nanos elapsed{};              // until now, or until the end
  double bytes_per_second = 0;  // bytes_done in `elapsed`
  std::optional<Nanos> left{};  // at this rate; none before the first layer is done
};

// A transfer that has begun: of a Remote, a Replica or a Gather. Copies share it. Dropping a Move
// does not end the transfer, which goes on to its end or its timeout. Thread: any.
class Move {
 public:
  Move() = default;

  // Waits for the end of the transfer and takes the outcome, once; see Future::wait(). OK: all
  // bytes have arrived. After an error some blocks may have been written, and bytes that had left
  // may still arrive in the peer's blocks until it knows that the connection has ended. Once this
  // has returned other than with a wait timeout, the transfer does not touch this process's cache.
  Result<None> wait(Nanos timeout = Nanos::max()) { return future_.wait(timeout); }
  // Returns the future of the transfer, which shares the outcome with wait().
  [[nodiscard]] Future<None> future() const { return future_; }
  [[nodiscard]] MoveProgress progress() const;

  struct State;
  Move(std::shared_ptr<State> state, Future<None> future)
      : state_(std::move(state)), future_(std::move(future)) {}
  // Returns a Move that has failed before it began.
  static Move failed(Status error);

 private:
  std::shared_ptr<State> state_;  // null: failed before it began
  Future<None> future_;
};

struct MoveOptions {
  // The one layer to move, by the model's number. No value: all layers that both caches have.
  std::optional<std::uint32_t> layer{};
  // A write with a request tells the peer of each layer after its bytes have arrived: the peer's
  // Cache::wait_layer() and on_layer() get the request's number. Layers of one request are told in
  // the order in which their writes were begun with this Remote.
  std::optional<std::uint64_t> request{};
  // Timeout of the whole call; zero: limits::kOperationDeadline, 30 s. A write may end later, if an
  // earlier write of the same request is under way: then as late as that one.
  Nanos timeout{};
};

}  // namespace slime::kv

#include "kv/replica.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "kv/broadcast_names.h"
#include "kv/cache_state.h"
#include "kv/fetch.h"

namespace slime::kv {

namespace {

// Joins the thread of a fetch. A callback of the fetch's future runs on that thread, and may begin
// another fetch or close the replica: the thread touches neither after that.
void join_ended(std::thread& thread) {
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id())
    thread.detach();
  else
    thread.join();
}

}  // namespace

struct Replica::State {
  State(PeerAgent& its_agent, std::span<const NamedMemory> its_memory, std::string its_name)
      : agent(its_agent),
        name(std::move(its_name)),
        memory(its_memory.begin(), its_memory.end()),
        parts(parts_of(memory)),
        relay(std::make_shared<Relay>(agent.driver())) {}

  // Makes sure that no reader of an earlier fetch reads the memory. Thread: the user of `regions`.
  Status send_children_away(Nanos timeout);
  Status run(Fetcher& fetcher);
  Status start(const Peer& owner, const std::shared_ptr<Move::State>& move);
  Status check_idle() SLIME_REQUIRES(mutex);
  void end_thread();
  Status retire(Nanos timeout);
  Status close(Nanos timeout);

  PeerAgent& agent;
  const std::string name;
  const std::vector<NamedMemory> memory;
  const std::vector<Part> parts;
  const std::shared_ptr<Relay> relay;
  // By part. Used by the thread of the fetch while one runs, else by retire() and close().
  std::vector<MemoryRegion> regions;

  Mutex mutex;
  bool closed SLIME_GUARDED_BY(mutex) = false;
  bool busy SLIME_GUARDED_BY(mutex) = false;  // a fetch or retire() runs
  std::uint64_t version SLIME_GUARDED_BY(mutex) = 0;
  std::shared_ptr<Fetcher> fetcher SLIME_GUARDED_BY(mutex);  // of the last fetch
  std::thread thread SLIME_GUARDED_BY(mutex);
};

Status Replica::State::send_children_away(Nanos timeout) {
  relay->stop();
  const auto cancelled = [this] {
    const MutexLock lock(mutex);
    return closed ? Status(Code::kCancelled, "the replica was closed") : Status();
  };
  SLIME_TRY(cancelled());
  if (relay->wait_alone(timeout)) return {};
  SLIME_TRY(cancelled());
  // Some are slow or frozen. Closing the regions is final for them; the memory is registered anew.
  SLIME_TRY(close_all(regions, timeout));
  regions.clear();
  auto again = publish_parts(agent, memory, replica_regions(name));
  if (!again) return std::move(again).error();
  regions = std::move(*again);
  return {};
}

Status Replica::State::run(Fetcher& fetch) {
  SLIME_TRY(send_children_away(slime::limits::kCloseBound));
  return fetch.run();
}

Status Replica::State::check_idle() {
  if (closed) return Status(Code::kUnavailable, "the replica is closed");
  if (busy) return Status(Code::kInvalidArgument, "a fetch or retire() of this replica is under way");
  return {};
}

Status Replica::State::start(const Peer& owner, const std::shared_ptr<Move::State>& move) {
  const MutexLock lock(mutex);
  SLIME_TRY(check_idle());
  join_ended(thread);
  auto next = std::make_shared<Fetcher>(FetchTask{agent, owner, name, parts, regions, relay, move});
  try {
    thread = make_thread([this, next, move] {
      Status status = run(*next);
      {
        const MutexLock ended(mutex);
        busy = false;
        if (status.ok()) version = next->version();
      }
      move->finish(std::move(status));
    });
  } catch (const std::system_error&) {
    return Status(Code::kResourceExhausted, "a fetch needs a thread, and none can be started now");
  }
  busy = true;  // before the thread ends: it needs the lock for that
  version = 0;
  // The place of an earlier fetch belongs to contents that this memory will not have any more.
  if (fetcher) fetcher->leave();
  fetcher = std::move(next);
  return {};
}

void Replica::State::end_thread() {
  std::thread ending;
  {
    const MutexLock lock(mutex);
    if (fetcher) fetcher->cancel();
    ending.swap(thread);
  }
  relay->interrupt();
  join_ended(ending);
}

Status Replica::State::retire(Nanos timeout) {
  std::shared_ptr<Fetcher> leaving;
  {
    const MutexLock lock(mutex);
    SLIME_TRY(check_idle());
    busy = true;
    leaving.swap(fetcher);
  }
  if (leaving) leaving->leave();
  Status status = send_children_away(timeout);
  const MutexLock lock(mutex);
  busy = false;
  return status;
}

Status Replica::State::close(Nanos timeout) {
  const TimePoint end = deadline_after(steady_clock().now(), timeout);
  {
    const MutexLock lock(mutex);
    if (std::exchange(closed, true)) return {};
  }
  end_thread();
  std::shared_ptr<Fetcher> leaving;
  {
    const MutexLock lock(mutex);
    leaving.swap(fetcher);
  }
  if (leaving) leaving->leave();
  relay->stop();
  // Half of the time is for children that go, half for cutting off the others.
  relay->wait_alone(std::max((end - steady_clock().now()) / 2, Nanos::zero()));
  return close_all(regions, std::max(end - steady_clock().now(), Nanos::zero()));
}

Result<Replica> Replica::over(PeerAgent& agent, std::span<const NamedMemory> parts, ReplicaOptions options) {
  SLIME_TRY(check_broadcast_name(options.name));
  SLIME_TRY(check_parts(parts_of(parts)));
  Replica out(std::make_shared<State>(agent, parts, std::move(options.name)));
  State& state = *out.state_;
  auto regions = publish_parts(agent, parts, replica_regions(state.name));
  if (!regions) return std::move(regions).error();
  state.regions = std::move(*regions);
  SLIME_TRY(Relay::serve(agent, replica_service(state.name), state.relay));
  return out;
}

Replica::~Replica() { close(limits::kDestructorBound).ignore(); }

Replica& Replica::operator=(Replica&& other) noexcept {
  if (this != &other) {
    close().ignore();
    state_ = std::move(other.state_);
  }
  return *this;
}

Move Replica::fetch(const Peer& owner, Nanos timeout) {
  if (!state_) return Move::failed(Status(Code::kInvalidArgument, "an empty kv::Replica"));
  if (timeout < Nanos::zero()) return Move::failed(Status(Code::kInvalidArgument, "the timeout is negative"));
  const auto move = std::make_shared<Move::State>(
      state_->agent.driver(), 0, 0, timeout == Nanos::zero() ? slime::limits::kOperationDeadline : timeout);
  Move out(move, move->future());
  if (Status wrong = state_->start(owner, move); !wrong.ok()) return Move::failed(std::move(wrong));
  return out;
}

std::uint64_t Replica::version() const {
  const MutexLock lock(state_->mutex);
  return state_->version;
}

std::size_t Replica::children() const { return state_->relay->children(); }

Status Replica::retire(Nanos timeout) {
  return state_ ? state_->retire(timeout) : Status(Code::kInvalidArgument, "an empty kv::Replica");
}

Status Replica::close(Nanos timeout) { return state_ ? state_->close(timeout) : Status(); }

}  // namespace slime::kv

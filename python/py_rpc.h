#pragma once

#include <array>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/peer_agent.h"
#include "base/unique_fd.h"
#include "python/binding.h"

namespace slime::python {

// A payload as Python sees it: read-only memory. Thread: holds the GIL.
class PyPayload {
 public:
  explicit PyPayload(std::shared_ptr<Payload> payload) : payload_(std::move(payload)) {}
  [[nodiscard]] Bytes bytes() const { return payload_->bytes(); }
  [[nodiscard]] Payload& payload() const { return *payload_; }
  static int get_buffer(PyObject* self, Py_buffer* view, int flags);

 private:
  ForkGuarded<Payload> payload_;
};

// Requests of async handlers that were cancelled: the loop, where no Python runs, tells an asyncio loop
// through a descriptor. Thread: any.
class CancelFeed {
 public:
  CancelFeed();
  // Readable while there are some.
  [[nodiscard]] int fd() const { return event_.get(); }
  void push(std::uint64_t id);
  std::vector<std::uint64_t> take();

 private:
  const UniqueFd event_;
  std::mutex mutex_;
  std::vector<std::uint64_t> ids_;
};

// How many requests of a method run at once, and which are taken first.
struct MethodLoad {
  std::size_t max_running = 0;  // 0: any number
  rpc::Priority priority = rpc::Priority::kNormal;
  std::size_t running = 0;  // taken and not answered; these two under the lock of their queue
  std::size_t waiting = 0;
};

// Requests that wait for a Python worker: the loop pushes, workers take.
class RequestQueue : public std::enable_shared_from_this<RequestQueue> {
 public:
  explicit RequestQueue(std::size_t limit) : limit_(limit) {}
  // A request that a worker has; counts among those of its method until it is answered.
  class Taken {
   public:
    Taken(rpc::Request r, std::shared_ptr<RequestQueue> queue, std::shared_ptr<MethodLoad> load, Nanos waited)
        : request(std::move(r)), queue_ns(waited), queue_(std::move(queue)), load_(std::move(load)) {}
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    ~Taken() { leave(); }
    void leave() {
      if (load_) queue_->leave(*std::exchange(load_, nullptr));
    }
    rpc::Request request;
    const Nanos queue_ns;

   private:
    const std::shared_ptr<RequestQueue> queue_;
    std::shared_ptr<MethodLoad> load_;
  };
  // Queues a request, or answers it with a refusal. A full queue first drops requests whose callers
  // have given up. Thread: the loop.
  void push(rpc::Request request, const std::shared_ptr<MethodLoad>& load);
  // Waits for a request that may run and that somebody still waits for; nothing when closed. Thread: any,
  // without the GIL.
  std::shared_ptr<Taken> take();
  // Answers what waits with kUnavailable; refuses the rest.
  void close();
  [[nodiscard]] const std::shared_ptr<CancelFeed>& feed() const { return feed_; }

 private:
  struct Waiting {
    rpc::Request request;
    std::shared_ptr<MethodLoad> load;
    TimePoint since;
  };
  using List = std::list<Waiting>;
  [[nodiscard]] Status refusal(const MethodLoad& load) const;
  // Removes the requests whose callers have given up.
  List take_dead();
  // The first that may run, by priority; nothing: none.
  std::optional<std::pair<List*, List::iterator>> next();
  void leave(MethodLoad& load);

  const std::shared_ptr<CancelFeed> feed_ = std::make_shared<CancelFeed>();
  const std::size_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<List, rpc::kPriorities> waiting_;
  std::size_t count_ = 0;  // of waiting_
  TimePoint looked_{};     // time of the last search for dead requests
  bool closed_ = false;
};

// What there is to say of a method, as Python hands it over: name, parameters (name, type, optional, rest),
// result, doc, max_running, priority, and the types that it reads and writes if it streams.
using PyParameter = std::tuple<std::string, std::string, bool, bool>;
using PyMethod = std::tuple<std::string, std::vector<PyParameter>, std::string, std::string, std::size_t,
                            rpc::Priority, std::string, std::string>;

// A service whose methods queue their requests for Python. Thread: holds the GIL.
class PyService {
 public:
  PyService(std::string name, const std::vector<PyMethod>& methods, std::size_t queue_limit);
  void serve(PeerAgent& agent);
  [[nodiscard]] RequestQueue& queue() const { return *queue_; }
  [[nodiscard]] bool forked() const { return queue_.forked(); }

 private:
  ForkGuarded<RequestQueue> queue_;
  rpc::Service service_;
};

}  // namespace slime::python

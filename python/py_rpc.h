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
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "python/binding.h"

namespace slime::python {

// A payload for Python: read-only memory. Thread: holds the GIL.
class PyPayload {
 public:
  explicit PyPayload(std::shared_ptr<Payload> payload) : payload_(std::move(payload)) {}
  [[nodiscard]] Bytes bytes() const { return payload_->bytes(); }
  [[nodiscard]] Payload& payload() const { return *payload_; }
  static int get_buffer(PyObject* self, Py_buffer* view, int flags);

 private:
  ForkGuarded<Payload> payload_;
};

// Reports cancelled requests to the asyncio loop that runs their async handlers, through a file
// descriptor. Slime's loop, which runs no Python code, writes to the descriptor. Thread: any.
class CancelFeed {
 public:
  CancelFeed();
  // Readable while there are cancelled requests.
  [[nodiscard]] int fd() const { return event_.get(); }
  void push(std::uint64_t id);
  std::vector<std::uint64_t> take();

 private:
  const UniqueFd event_;
  Mutex mutex_;
  std::vector<std::uint64_t> ids_ SLIME_GUARDED_BY(mutex_);
};

// Limit and order of a method's requests.
struct MethodLoad {
  std::size_t max_running = 0;  // 0: no limit
  rpc::Priority priority = rpc::Priority::kNormal;
  // Requests that a worker has taken and not answered. The lock of the method's queue guards
  // `running` and `waiting`.
  std::size_t running = 0;
  std::size_t waiting = 0;
};

// Queue of requests for the Python workers. The loop pushes; the workers take.
class RequestQueue : public std::enable_shared_from_this<RequestQueue> {
 public:
  explicit RequestQueue(std::size_t limit) : limit_(limit) {}
  // A request that a worker has taken. Counts in MethodLoad::running until it is answered.
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
  // Queues a request, or refuses it if the queue is full. Before that, a full queue drops requests
  // that were cancelled or are past their deadline. Thread: the loop.
  void push(rpc::Request request, const std::shared_ptr<MethodLoad>& load);
  // Waits for a request that is not cancelled and whose method may run one more. Returns null once
  // the queue is closed. Thread: any, without the GIL.
  std::shared_ptr<Taken> take();
  // Closes the queue: answers waiting and further requests with kUnavailable.
  void close();
  [[nodiscard]] const std::shared_ptr<CancelFeed>& feed() const { return feed_; }

 private:
  struct Waiting {
    rpc::Request request;
    std::shared_ptr<MethodLoad> load;
    TimePoint since;
  };
  using List = std::list<Waiting>;
  [[nodiscard]] Status refusal(const MethodLoad& load) const SLIME_REQUIRES(mutex_);
  // Removes requests that were cancelled or are past their deadline.
  List take_dead() SLIME_REQUIRES(mutex_);
  // Returns the first request, by priority, whose method may run one more; nullopt if there is
  // none.
  std::optional<std::pair<List*, List::iterator>> next() SLIME_REQUIRES(mutex_);
  void leave(MethodLoad& load);

  const std::shared_ptr<CancelFeed> feed_ = std::make_shared<CancelFeed>();
  const std::size_t limit_;
  Mutex mutex_;
  CondVar changed_;
  std::array<List, rpc::kPriorities> waiting_ SLIME_GUARDED_BY(mutex_);
  std::size_t count_ SLIME_GUARDED_BY(mutex_) = 0;  // of waiting_
  // time of the last search for requests that are cancelled or past their deadline
  TimePoint looked_ SLIME_GUARDED_BY(mutex_){};
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
};

// A parameter from Python: name, type, optional, rest. PyMethod below is a method: name,
// parameters, result, doc, max_running, priority, and the types of the messages that a streaming
// method reads and writes.
using PyParameter = std::tuple<std::string, std::string, bool, bool>;
using PyMethod = std::tuple<std::string, std::vector<PyParameter>, std::string, std::string, std::size_t,
                            rpc::Priority, std::string, std::string>;

// A service whose requests wait in a queue for Python threads. Thread: holds the GIL.
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

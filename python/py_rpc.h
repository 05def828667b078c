#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
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

// Queue of requests for Python threads. The loop pushes; Python threads take, while they hold the
// GIL. So a thread that has answered a request takes the next one without giving the GIL to another
// thread first, and a burst of requests wakes one sleeping thread, not all: further threads are
// woken only while requests are left and the GIL becomes free.
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
    ~Taken() {
      send_late();
      leave();
    }
    void leave() {
      if (load_) queue_->leave(*std::exchange(load_, nullptr));
    }
    // Keeps an answer that send_late() sends. Thread: the one that has taken the request.
    void reply_late(ByteVector body) { late_ = std::move(body); }
    void send_late() {
      if (!late_) return;
      request.reply(*std::exchange(late_, std::nullopt));
      leave();
    }
    rpc::Request request;
    const Nanos queue_ns;

   private:
    std::optional<ByteVector> late_;
    const std::shared_ptr<RequestQueue> queue_;
    std::shared_ptr<MethodLoad> load_;
  };
  // Queues a request, or refuses it if the queue is full. Before that, a full queue drops requests
  // that were cancelled or are past their deadline. Thread: the loop.
  void push(rpc::Request request, const std::shared_ptr<MethodLoad>& load);
  // Lets a thread in wait() drive the agent's loop for a moment, before it sleeps: a request that
  // comes soon then wakes no thread.
  void drive_with(std::shared_ptr<Driver> driver);
  // Takes a request that is not cancelled and whose method may run one more. Returns null if there
  // is none. `woken`: what wait() returned, if this thread has waited. Thread: any.
  std::shared_ptr<Taken> try_take(bool woken = false);
  // Waits until try_take() may find a request, or until the queue is closed. `answered`: the
  // request that this thread has just answered, or null; the next request may come soon then. Sends
  // its late answer, while this thread drives the loop if the loop's thread sleeps: nothing has to
  // wake that thread then. Thread: any, without the GIL.
  bool wait(Taken* answered);
  // Returns whether requests wait. Thread: any; cheap.
  [[nodiscard]] bool pending() const { return pending_.load(std::memory_order_acquire) > 0; }
  // Closes the queue: answers waiting and further requests with kUnavailable.
  void close();
  [[nodiscard]] bool closed() const;
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
  void count(std::ptrdiff_t change) SLIME_REQUIRES(mutex_);
  // Returns whether to wake a sleeping thread: not while another thread is on its way to the queue.
  bool call_one() SLIME_REQUIRES(mutex_);
  void doze(TimePoint until);

  const std::shared_ptr<CancelFeed> feed_ = std::make_shared<CancelFeed>();
  const std::size_t limit_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::array<List, rpc::kPriorities> waiting_ SLIME_GUARDED_BY(mutex_);
  std::size_t count_ SLIME_GUARDED_BY(mutex_) = 0;  // of waiting_
  std::atomic<std::size_t> pending_{0};             // a copy of count_; not 0 once closed
  std::shared_ptr<Driver> driver_ SLIME_GUARDED_BY(mutex_);
  bool driving_ SLIME_GUARDED_BY(mutex_) = false;  // a thread in wait() drives
  std::size_t asleep_ SLIME_GUARDED_BY(mutex_) = 0;
  std::size_t calls_ SLIME_GUARDED_BY(mutex_) = 0;  // wake-ups that no sleeping thread has taken yet
  // Threads that were woken, or drive, and have not called try_take() yet.
  std::size_t coming_ SLIME_GUARDED_BY(mutex_) = 0;
  // time of the last search for requests that are cancelled or past their deadline
  TimePoint looked_ SLIME_GUARDED_BY(mutex_){};
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
};

// A parameter from Python: name, type, optional, rest. PyMethod below is a method: name,
// parameters, result, doc, max_running, priority, the types of the messages that a streaming method
// reads and writes, and whether its requests go to the queue of inline methods.
using PyParameter = std::tuple<std::string, std::string, bool, bool>;
using PyMethod = std::tuple<std::string, std::vector<PyParameter>, std::string, std::string, std::size_t,
                            rpc::Priority, std::string, std::string, bool>;

// A service whose requests wait in queues for Python threads: one queue for its workers, and one
// for the thread that polls the agent. Thread: holds the GIL.
class PyService {
 public:
  PyService(std::string name, const std::vector<PyMethod>& methods, std::size_t queue_limit);
  // `driver`: for RequestQueue::drive_with(), or null.
  void serve(PeerAgent& agent, std::shared_ptr<Driver> driver);
  [[nodiscard]] RequestQueue& queue() const { return *queue_; }
  [[nodiscard]] const std::shared_ptr<RequestQueue>& inline_queue() const { return inline_queue_.shared(); }
  [[nodiscard]] bool forked() const { return queue_.forked(); }

 private:
  ForkGuarded<RequestQueue> queue_;
  ForkGuarded<RequestQueue> inline_queue_;
  rpc::Service service_;
};

// Returns a Request for Python.
nb::object make_request(std::shared_ptr<RequestQueue::Taken> taken, const RequestQueue& queue);

}  // namespace slime::python

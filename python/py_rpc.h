#pragma once

#include <deque>
#include <string>
#include <tuple>
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

// Requests that wait for a Python worker: the loop pushes, workers take.
class RequestQueue {
 public:
  explicit RequestQueue(std::size_t limit) : limit_(limit) {}
  // Answers by itself what it refuses. Thread: the loop.
  void push(rpc::Request request);
  // Waits for a request that somebody still waits for; nothing when closed. Thread: any, without the GIL.
  std::shared_ptr<rpc::Request> take();
  // Answers what waits with kUnavailable; refuses the rest.
  void close();
  [[nodiscard]] const std::shared_ptr<CancelFeed>& feed() const { return feed_; }

 private:
  const std::shared_ptr<CancelFeed> feed_ = std::make_shared<CancelFeed>();
  const std::size_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<rpc::Request> requests_;
  bool closed_ = false;
};

// What reflection says of a method, as Python hands it over: name, parameters (name, type, optional, rest),
// result, doc.
using PyParameter = std::tuple<std::string, std::string, bool, bool>;
using PyMethod = std::tuple<std::string, std::vector<PyParameter>, std::string, std::string>;

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

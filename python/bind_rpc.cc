#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <system_error>

#include "python/py_memory.h"
#include "python/py_rpc.h"

namespace slime::python {
namespace {

// A request that a worker has taken. Thread: holds the GIL.
class PyRequest {
 public:
  PyRequest(std::shared_ptr<rpc::Request> request, std::shared_ptr<CancelFeed> feed)
      : request_(std::move(request)), feed_(std::move(feed)) {}
  [[nodiscard]] const rpc::CallInfo& info() const { return request_->info(); }
  [[nodiscard]] bool cancelled() const { return request_->cancelled(); }
  // The number that the feed tells when it is cancelled.
  std::uint64_t watch_cancel() {
    static std::atomic<std::uint64_t> last{0};
    const std::uint64_t id = ++last;
    rpc::Request& request = *request_;
    const nb::gil_scoped_release unlocked;
    request.on_cancel([feed = feed_, id] { feed->push(id); });
    return id;
  }
  PyPayload take_payload() { return PyPayload(std::make_shared<Payload>(std::move(request_->payload()))); }
  void reply(nb::handle body) {
    answer();
    const PinnedMemory memory = PinnedMemory::of(body);
    rpc::Request& request = *request_;
    const nb::gil_scoped_release unlocked;
    request.reply(ByteVector(memory.bytes().begin(), memory.bytes().end()));
  }
  // `executed`: the handler ran, so that the caller may retry only what is idempotent.
  void fail(Code code, std::string text, bool executed) {
    answer();
    rpc::Request& request = *request_;
    Status status(code == Code::kOk ? Code::kInternal : code, std::move(text));
    const nb::gil_scoped_release unlocked;
    if (executed) {
      request.fail(std::move(status));
    } else {
      request.refuse(std::move(status));
    }
  }

 private:
  void answer() {
    if (std::exchange(answered_, true)) raise(Code::kInvalidArgument, "the request was answered before");
  }
  ForkGuarded<rpc::Request> request_;
  const std::shared_ptr<CancelFeed> feed_;
  bool answered_ = false;
};

std::optional<double> seconds_left(const rpc::CallInfo& info) {
  if (info.deadline == kNever) return std::nullopt;
  return std::chrono::duration<double>(info.deadline - steady_clock().now()).count();
}

PyType_Slot kPayloadSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&PyPayload::get_buffer)},
                               {0, nullptr}};

}  // namespace

int PyPayload::get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* payload = nb::inst_ptr<PyPayload>(self);
  if (payload->payload_.forked()) {
    PyErr_SetString(PyExc_BufferError, "made before fork()");
    view->obj = nullptr;
    return -1;
  }
  const Bytes bytes = payload->bytes();
  static std::byte nothing{};  // no null pointer for empty payloads
  auto* data = bytes.empty() ? &nothing : const_cast<std::byte*>(bytes.data());
  return PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(bytes.size()), 1, flags);
}

CancelFeed::CancelFeed() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (event_.get() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

void CancelFeed::push(std::uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    ids_.push_back(id);
  }
  const std::uint64_t one = 1;
  // Full (EAGAIN) means that somebody is being told.
  [[maybe_unused]] const ssize_t n = ::write(event_.get(), &one, sizeof one);
}

std::vector<std::uint64_t> CancelFeed::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(event_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(ids_, {});
}

void RequestQueue::push(rpc::Request request) {
  Status refusal;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      refusal = Status(Code::kUnavailable, "the service has ended");
    } else if (requests_.size() >= limit_) {
      refusal = Status(Code::kResourceExhausted, "the service's queue is full");
    } else {
      requests_.push_back(std::move(request));
    }
  }
  if (refusal.ok()) {
    changed_.notify_one();
  } else {
    request.refuse(std::move(refusal));
  }
}

std::shared_ptr<rpc::Request> RequestQueue::take() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !requests_.empty(); });
    if (requests_.empty()) return nullptr;
    auto request = std::make_shared<rpc::Request>(std::move(requests_.front()));
    requests_.pop_front();
    lock.unlock();
    if (!request->cancelled()) return request;
    request->refuse(request->info().deadline <= steady_clock().now()
                        ? Status(Code::kDeadlineExceeded, "the deadline passed before a worker was free")
                        : Status(Code::kCancelled, "cancelled before a worker was free"));
  }
}

void RequestQueue::close() {
  std::deque<rpc::Request> left;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    left.swap(requests_);
  }
  changed_.notify_all();
  for (rpc::Request& request : left) request.refuse(Status(Code::kUnavailable, "the service has ended"));
}

PyService::PyService(std::string name, const std::vector<PyMethod>& methods, std::size_t queue_limit)
    : queue_(std::make_shared<RequestQueue>(queue_limit)), service_(std::move(name)) {
  for (const auto& [method, parameters, result, doc] : methods) {
    rpc::MethodInfo info{.result = result, .doc = doc};
    for (const auto& [parameter, type, optional, rest] : parameters)
      info.parameters.push_back({.name = parameter, .type = type, .optional = optional, .rest = rest});
    // Inline: it only queues. The workers are Python's.
    check(service_.add_raw(
        method, [queue = queue_.shared()](rpc::Request request) { queue->push(std::move(request)); },
        rpc::Run::kInline, std::move(info)));
  }
}

void PyService::serve(PeerAgent& agent) {
  const Status status = [&] {
    const nb::gil_scoped_release unlocked;  // tells nanoctrl
    return agent.serve(service_);
  }();
  check(status);
}

void bind_rpc(nb::module_& m) {
  nb::class_<PyPayload>(
      m, "Payload", nb::type_slots(kPayloadSlots),
      "Bytes as they came in. Has the buffer protocol: memoryview(payload), bytes(payload).")
      .def("__len__", [](const PyPayload& self) { return self.bytes().size(); });

  nb::class_<PyRequest>(m, "Request", "A request that waits for its answer.")
      .def_prop_ro(
          "peer", [](const PyRequest& self) { return self.info().peer; }, "The caller's name.")
      .def_prop_ro("service", [](const PyRequest& self) { return self.info().service; })
      .def_prop_ro("method", [](const PyRequest& self) { return self.info().method; })
      .def(
          "seconds_left", [](const PyRequest& self) { return seconds_left(self.info()); },
          "Until the caller's deadline; None for no deadline.")
      .def("cancelled", &PyRequest::cancelled, "Whether nobody waits for the answer any more.")
      .def("watch_cancel", &PyRequest::watch_cancel,
           "Its number among those that Service.take_cancelled() tells when nobody waits any more.")
      .def("take_payload", &PyRequest::take_payload, "The encoded arguments, once.")
      .def("reply", &PyRequest::reply, nb::arg("body").none(),
           nb::sig("def reply(self, body: typing.Any) -> None"))
      .def("fail", &PyRequest::fail, nb::arg("code"), nb::arg("text"), nb::arg("executed"));

  nb::class_<PyService>(m, "Service", "Named methods whose requests wait for Python workers.")
      .def(nb::init<std::string, const std::vector<PyMethod>&, std::size_t>(), nb::arg("name"),
           nb::arg("methods"), nb::arg("queue_limit"))
      .def(
          "take",
          [](const PyService& self) -> nb::object {
            RequestQueue& queue = self.queue();
            std::shared_ptr<rpc::Request> request;
            {
              const nb::gil_scoped_release unlocked;
              request = queue.take();
            }
            if (!request) return nb::none();
            return nb::cast(PyRequest(std::move(request), queue.feed()));
          },
          nb::sig("def take(self) -> Request | None"), "Waits for a request. None once closed.")
      .def(
          "cancel_fd", [](const PyService& self) { return self.queue().feed()->fd(); },
          "Readable while take_cancelled() has something.")
      .def(
          "take_cancelled", [](const PyService& self) { return self.queue().feed()->take(); },
          "Numbers of requests that were cancelled.")
      .def("close", [](const PyService& self) {
        if (self.forked()) return;
        RequestQueue& queue = self.queue();
        const nb::gil_scoped_release unlocked;
        queue.close();
      });
}

}  // namespace slime::python

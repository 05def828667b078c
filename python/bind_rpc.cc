#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "python/py_attachments.h"
#include "python/py_memory.h"
#include "python/py_rpc.h"
#include "python/py_streams.h"
#include "python/py_values.h"

namespace slime::python {
namespace {

// A reply of at most this many bytes is sent without releasing the GIL, as a call's arguments are:
// to release and take the GIL again would let another thread take it in between.
constexpr std::size_t kShortReply = 4096;

// A request that a worker has taken. Thread: holds the GIL.
class PyRequest {
 public:
  PyRequest(std::shared_ptr<RequestQueue::Taken> taken, std::shared_ptr<CancelFeed> feed)
      : taken_(std::move(taken)), feed_(std::move(feed)) {}
  [[nodiscard]] const rpc::CallInfo& info() const { return taken_->request.info(); }
  [[nodiscard]] bool cancelled() const { return taken_->request.cancelled(); }
  [[nodiscard]] const std::shared_ptr<RequestQueue::Taken>& taken() const { return taken_.shared(); }
  [[nodiscard]] std::int64_t queue_ns() const { return taken_->queue_ns.count(); }
  // Returns the number that the CancelFeed reports when this request is cancelled.
  std::uint64_t watch_cancel() {
    static std::atomic<std::uint64_t> last{0};
    const std::uint64_t id = ++last;
    rpc::Request& request = taken_->request;
    const nb::gil_scoped_release unlocked;
    request.on_cancel([feed = feed_, id] { feed->push(id); });
    return id;
  }
  nb::object stream() const { return stream_of(taken_->request); }
  PyPayload take_payload() {
    return PyPayload(std::make_shared<Payload>(std::move(taken_->request.payload())));
  }
  // Alternative to take_payload(): decodes the arguments in C++. Returns None if only Python can
  // decode them.
  nb::object arguments() {
    Payload& payload = taken_->request.payload();
    nb::object value = decode_value(payload);
    if (!value.is_valid() || !PyList_CheckExact(value.ptr())) return nb::none();
    payload.release();
    return value;
  }
  // Encodes and sends the result of the handler. Returns false, without an answer, if only Python
  // can encode the value.
  // `late`: the answer may wait until this request is given to Service.take().
  bool reply_value(nb::handle value, bool late) {
    rpc::AttachedBody all;
    if (!encode_value(value, all)) return false;
    answer();
    rpc::Request& request = taken_->request;
    if (all.attachments.empty() && all.body.size() <= kShortReply) {
      if (late) {
        taken_->reply_late(std::move(all.body));
        return true;
      }
      request.reply(std::move(all.body));
      taken_->leave();
      return true;
    }
    const nb::gil_scoped_release unlocked;
    request.reply(std::move(all));
    taken_->leave();
    return true;
  }
  // `attached`: a PyAttachedBody or None.
  void reply(nb::handle body, nb::handle attached) {
    answer();
    rpc::Request& request = taken_->request;
    if (!attached.is_none()) {
      rpc::AttachedBody all = nb::cast<PyAttachedBody&>(attached).take(body);
      const nb::gil_scoped_release unlocked;
      request.reply(std::move(all));
      return taken_->leave();
    }
    const PinnedMemory memory = PinnedMemory::of(body);
    const nb::gil_scoped_release unlocked;
    request.reply(ByteVector(memory.bytes().begin(), memory.bytes().end()));
    taken_->leave();
  }
  // Answers with an error. `executed`: the handler ran, so the caller may repeat only idempotent
  // calls.
  void fail(Code code, nb::str text, bool executed) {
    // The text of an exception may contain lone surrogates (from a file name), which UTF-8 cannot
    // encode.
    const auto encoded = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "replace"));
    if (!encoded.is_valid()) throw nb::python_error();
    answer();
    rpc::Request& request = taken_->request;
    Status status(code == Code::kOk ? Code::kInternal : code, std::string(PyBytes_AsString(encoded.ptr())));
    const nb::gil_scoped_release unlocked;
    if (executed) {
      request.fail(std::move(status));
    } else {
      request.refuse(std::move(status));
    }
    taken_->leave();
  }

 private:
  void answer() {
    if (std::exchange(answered_, true)) raise(Code::kInvalidArgument, "the request was answered before");
  }
  ForkGuarded<RequestQueue::Taken> taken_;
  const std::shared_ptr<CancelFeed> feed_;
  bool answered_ = false;
};

std::optional<double> seconds_left(const rpc::CallInfo& info) {
  if (info.deadline == kNever) return std::nullopt;
  return std::chrono::duration<double>(info.deadline - steady_clock().now()).count();
}

// Answers a waiting request that was cancelled or is past its deadline with the matching error.
void refuse_dead(rpc::Request& request) {
  request.refuse(request.info().deadline <= steady_clock().now()
                     ? Status(Code::kDeadlineExceeded, "the deadline passed before a worker was free")
                     : Status(Code::kCancelled, "cancelled before a worker was free"));
}

// Least time between two searches of a full queue for requests that are cancelled or past their
// deadline.
constexpr Nanos kLookInterval = std::chrono::milliseconds(1);
// How long a thread that waits for requests may drive the loop before it sleeps. The loop's driver
// gives up earlier if nothing comes.
constexpr Nanos kHotWait = std::chrono::milliseconds(1);

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
  static std::byte nothing{};  // avoids a null pointer for empty payloads
  auto* data = bytes.empty() ? &nothing : const_cast<std::byte*>(bytes.data());
  return PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(bytes.size()), 1, flags);
}

CancelFeed::CancelFeed() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_.valid()) raise(from_errno("eventfd", errno));
}

void CancelFeed::push(std::uint64_t id) {
  {
    const MutexLock lock(mutex_);
    ids_.push_back(id);
  }
  const std::uint64_t one = 1;
  // EAGAIN (full): the descriptor is readable already.
  [[maybe_unused]] const ssize_t n = ::write(event_.get(), &one, sizeof one);
}

std::vector<std::uint64_t> CancelFeed::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(event_.get(), &count, sizeof count);
  const MutexLock lock(mutex_);
  return std::exchange(ids_, {});
}

Status RequestQueue::refusal(const MethodLoad& load) const {
  if (closed_) return Status(Code::kUnavailable, "the service has ended");
  if (count_ >= limit_) return Status(Code::kResourceExhausted, "the service's queue is full");
  // Once a method runs max_running requests, its waiting requests may fill only half of the queue:
  // the other half is left to the other methods.
  if (load.max_running > 0 && load.running >= load.max_running &&
      load.waiting >= std::max<std::size_t>(1, limit_ / 2))
    return Status(Code::kResourceExhausted, "too many requests of this method wait for its limit already");
  return {};
}

void RequestQueue::push(rpc::Request request, const std::shared_ptr<MethodLoad>& load) {
  List dead;  // answered without the lock
  MutexLock lock(mutex_);
  Status refused = refusal(*load);
  if (refused.code() == Code::kResourceExhausted) {
    dead = take_dead();
    if (!dead.empty()) refused = refusal(*load);
  }
  if (refused.ok()) {
    waiting_[static_cast<std::size_t>(load->priority)].push_back(
        {std::move(request), load, steady_clock().now()});
    ++load->waiting;
    count(1);
    const bool wake = call_one();
    lock.unlock();
    if (wake) changed_.notify_one();
  } else {
    lock.unlock();
    request.refuse(std::move(refused));
  }
  for (Waiting& each : dead) refuse_dead(each.request);
}

RequestQueue::List RequestQueue::take_dead() {
  List dead;
  const TimePoint now = steady_clock().now();
  // Limits the cost of a full queue: searches at most once in kLookInterval, not for each request.
  if (now - looked_ < kLookInterval) return dead;
  looked_ = now;
  for (List& list : waiting_) {
    for (auto at = list.begin(); at != list.end();) {
      const auto one = at++;
      if (!one->request.cancelled()) continue;
      --one->load->waiting;
      count(-1);
      dead.splice(dead.end(), list, one);
    }
  }
  return dead;
}

std::optional<std::pair<RequestQueue::List*, RequestQueue::List::iterator>> RequestQueue::next() {
  for (List& list : waiting_) {
    for (auto at = list.begin(); at != list.end(); ++at) {
      if (at->load->max_running == 0 || at->load->running < at->load->max_running) return {{&list, at}};
    }
  }
  return std::nullopt;
}

void RequestQueue::count(std::ptrdiff_t change) {
  count_ += static_cast<std::size_t>(change);
  pending_.store(closed_ ? 1 : count_, std::memory_order_release);
}

// A thread that is on its way takes a request, and wakes the next thread if more are left. So only
// threads that get the GIL wake others, and short handlers answer a burst in one thread.
bool RequestQueue::call_one() {
  if (coming_ > 0 || asleep_ == 0) return false;
  ++coming_;
  ++calls_;
  --asleep_;
  return true;
}

std::shared_ptr<RequestQueue::Taken> RequestQueue::try_take(bool woken) {
  while (true) {
    List one;
    bool wake = false;
    {
      const MutexLock lock(mutex_);
      if (std::exchange(woken, false)) --coming_;
      const auto found = next();
      if (!found) return nullptr;
      one.splice(one.begin(), *found->first, found->second);
      ++one.front().load->running;
      --one.front().load->waiting;
      count(-1);
      wake = count_ > 0 && next() && call_one();
    }
    if (wake) changed_.notify_one();
    Waiting& taken = one.front();
    auto out = std::make_shared<Taken>(std::move(taken.request), shared_from_this(), std::move(taken.load),
                                       steady_clock().now() - taken.since);
    rpc::Request& request = out->request;
    request.mark_started();
    if (!request.cancelled()) return out;
    refuse_dead(request);
  }
}

bool RequestQueue::wait(Taken* answered) {
  const auto send = [answered] {
    if (answered != nullptr) answered->send_late();
  };
  std::shared_ptr<Driver> driver;  // may own the loop: dropped after the lock is released
  MutexLock lock(mutex_);
  const bool drives = answered != nullptr && driver_ && !driving_ && !closed_ && !next();
  if (drives) {
    driver = driver_;
    const TimePoint until = deadline_after(steady_clock().now(), kHotWait);
    driving_ = true;
    ++coming_;
    lock.unlock();
    // The driver asks for the first time before it drives. When it asks again it drives, or cannot
    // drive because the loop's thread is awake, and nothing has to wake that.
    int asked = 0;
    const auto done = [&] {
      if (++asked == 2) send();
      return pending();
    };
    driver->wait(done, until, [this, until, &send] {
      send();
      doze(until);
    });
    send();
    lock.lock();
    driving_ = false;
    if (closed_ || next()) return true;
    --coming_;
  } else {
    lock.unlock();
    send();
    lock.lock();
    if (closed_ || next()) return false;
  }
  ++asleep_;
  changed_.wait(mutex_, [this]() SLIME_REQUIRES(mutex_) { return closed_ || calls_ > 0; });
  if (closed_) return false;
  --calls_;
  return true;
}

// Sleeps for a moment, for a driver that has stopped driving: the driver learns whether driving for
// longer would have paid. The thread counts in coming_ before and after the sleep.
void RequestQueue::doze(TimePoint until) {
  const MutexLock lock(mutex_);
  if (closed_ || next()) return;
  --coming_;
  ++asleep_;
  const auto called = [this]() SLIME_REQUIRES(mutex_) { return closed_ || calls_ > 0; };
  if (changed_.wait_until(mutex_, until, called) && !closed_) {
    --calls_;  // call_one() has counted this thread in coming_
    return;
  }
  if (!closed_) --asleep_;
  ++coming_;
}

void RequestQueue::drive_with(std::shared_ptr<Driver> driver) {
  const MutexLock lock(mutex_);
  driver_ = std::move(driver);
}

bool RequestQueue::closed() const {
  const MutexLock lock(mutex_);
  return closed_;
}

void RequestQueue::leave(MethodLoad& load) {
  bool wake = false;
  {
    const MutexLock lock(mutex_);
    --load.running;
    wake = load.max_running > 0 && next() && call_one();
  }
  if (wake) changed_.notify_one();
}

void RequestQueue::close() {
  List left;
  std::shared_ptr<Driver> driver;  // destroyed without the lock: it may own the loop
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    for (List& list : waiting_) left.splice(left.end(), list);
    count(-static_cast<std::ptrdiff_t>(count_));
    driver.swap(driver_);
  }
  changed_.notify_all();
  for (Waiting& each : left) each.request.refuse(Status(Code::kUnavailable, "the service has ended"));
}

nb::object make_request(std::shared_ptr<RequestQueue::Taken> taken, const RequestQueue& queue) {
  return nb::cast(PyRequest(std::move(taken), queue.feed()));
}

PyService::PyService(std::string name, const std::vector<PyMethod>& methods, std::size_t queue_limit)
    : queue_(std::make_shared<RequestQueue>(queue_limit)),
      inline_queue_(std::make_shared<RequestQueue>(queue_limit)),
      service_(std::move(name)) {
  for (const PyMethod& each : methods) {
    const auto& [method, parameters, result, doc, max_running, priority, reads, writes, is_inline] = each;
    rpc::MethodInfo info{.result = result, .doc = doc, .reads = reads, .writes = writes};
    for (const auto& [parameter, type, optional, rest] : parameters)
      info.parameters.push_back({.name = parameter, .type = type, .optional = optional, .rest = rest});
    const auto load = std::make_shared<MethodLoad>(MethodLoad{max_running, priority});
    // kInline: the handler runs on the loop's thread, since it only queues the request. Python
    // threads take requests from the queue and run them.
    const std::shared_ptr<RequestQueue>& to = is_inline ? inline_queue_.shared() : queue_.shared();
    check(service_.add_raw(
        method, [queue = to, load](rpc::Request request) { queue->push(std::move(request), load); },
        rpc::Run::kInline, std::move(info)));
  }
}

void PyService::serve(PeerAgent& agent, std::shared_ptr<Driver> driver) {
  queue().drive_with(std::move(driver));
  const Status status = [&] {
    const nb::gil_scoped_release unlocked;  // registers with nanoctrl
    return agent.serve(service_);
  }();
  check(status);
}

void bind_rpc(nb::module_& m) {
  nb::class_<PyPayload>(m, "Payload", nb::type_slots(kPayloadSlots),
                        "Received bytes. Has the buffer protocol: memoryview(payload), bytes(payload).")
      .def("__len__", [](const PyPayload& self) { return self.bytes().size(); })
      .def(
          "attachment",
          [](const PyPayload& self, nb::bytes data) { return attachment_from(self.payload(), data); },
          nb::arg("data"), nb::sig("def attachment(self, data: bytes) -> Attachment"),
          "Returns the attachment to which an extension value in the bytes refers, by the value's\n"
          "data.")
      .def(
          "drop_attachments", [](const PyPayload& self) { self.payload().drop_attachments(); },
          "Drops the payload's own references to its attachments. Attachments that were returned\n"
          "before stay.");

  m.def(
      "signature_hash", [](std::string_view text) { return rpc::Signature(text).hash(); },
      nb::arg("signature"),
      "Returns the hash of a signature such as \"(int, str?) -> bool\", as sent on the wire. 0:\n"
      "the signature contains \"any\", and is not checked.");

  nb::enum_<rpc::Priority>(m, "Priority", "Order of the requests that wait for a worker.")
      .value("HIGH", rpc::Priority::kHigh)
      .value("NORMAL", rpc::Priority::kNormal)
      .value("LOW", rpc::Priority::kLow);

  nb::class_<PyRequest>(m, "Request", "A request that waits for its answer.")
      .def_prop_ro(
          "peer", [](const PyRequest& self) { return self.info().peer; }, "The caller's name.")
      .def_prop_ro(
          "connection", [](const PyRequest& self) { return self.info().connection; },
          "Id of the connection that the request came over.")
      .def_prop_ro("service", [](const PyRequest& self) { return self.info().service; })
      .def_prop_ro("method", [](const PyRequest& self) { return self.info().method; })
      .def(
          "seconds_left", [](const PyRequest& self) { return seconds_left(self.info()); },
          "Returns the seconds until the caller's deadline; None: no deadline.")
      .def_prop_ro("queue_ns", &PyRequest::queue_ns,
                   "Time for which the request waited for a worker, in nanoseconds.")
      .def(
          "metadata",
          [](const PyRequest& self) {
            nb::dict out;
            for (const auto& entry : self.info().metadata().entries())
              out[nb::cast(entry.key)] = nb::cast(entry.value);
            return out;
          },
          nb::sig("def metadata(self) -> dict[str, str]"), "The caller's metadata.")
      .def("cancelled", &PyRequest::cancelled, "Returns whether the caller no longer waits.")
      .def("watch_cancel", &PyRequest::watch_cancel,
           "Returns the number that Service.take_cancelled() returns when the request is cancelled.")
      .def("stream", &PyRequest::stream, nb::sig("def stream(self) -> StreamEnd | None"),
           "Returns the handler's end of the request's stream; None: a plain call, or the stream\n"
           "has ended.")
      .def("take_payload", &PyRequest::take_payload, "Returns the encoded arguments. Call once.")
      .def("arguments", &PyRequest::arguments, nb::sig("def arguments(self) -> list | None"),
           "Returns the arguments. Call once. None: only Python can decode them; use\n"
           "take_payload().")
      .def("reply_value", &PyRequest::reply_value, nb::arg("value").none(), nb::arg("late") = false,
           nb::sig("def reply_value(self, value: typing.Any, late: bool = False) -> bool"),
           "Answers with a value. Returns False, and answers nothing, if only Python can encode\n"
           "the value. `late`: the answer may wait until Service.take() gets this request.")
      .def("reply", &PyRequest::reply, nb::arg("body").none(), nb::arg("attached") = nb::none(),
           nb::sig("def reply(self, body: typing.Any, attached: AttachedBody | None = None) -> None"))
      .def("fail", &PyRequest::fail, nb::arg("code"), nb::arg("text"), nb::arg("executed"));

  nb::class_<PyService>(m, "Service", "Named methods; their requests wait for Python workers.")
      .def(nb::init<std::string, const std::vector<PyMethod>&, std::size_t>(), nb::arg("name"),
           nb::arg("methods"), nb::arg("queue_limit"))
      .def(
          "take",
          [](const PyService& self, nb::handle answered) -> nb::object {
            RequestQueue& queue = self.queue();
            std::shared_ptr<RequestQueue::Taken> last;
            if (!answered.is_none()) last = nb::cast<const PyRequest&>(answered).taken();
            bool woken = false;
            while (true) {
              // holds the GIL: see RequestQueue
              if (auto taken = queue.try_take(woken)) {
                if (last) last->send_late();
                return make_request(std::move(taken), queue);
              }
              if (queue.closed()) {
                if (last) last->send_late();
                return nb::none();
              }
              const nb::gil_scoped_release unlocked;
              woken = queue.wait(last.get());
              last.reset();
            }
          },
          nb::arg("answered").none() = nb::none(),
          nb::sig("def take(self, answered: Request | None = None) -> Request | None"),
          "Waits for a request. Returns None once closed. `answered`: the request that this thread has\n"
          "taken before; its late answer is sent.")
      .def(
          "cancel_fd", [](const PyService& self) { return self.queue().feed()->fd(); },
          "Returns a descriptor that is readable while take_cancelled() has numbers to return.")
      .def(
          "take_cancelled", [](const PyService& self) { return self.queue().feed()->take(); },
          "Returns the numbers of requests that were cancelled.")
      .def("close", [](const PyService& self) {
        if (self.forked()) return;
        RequestQueue& queue = self.queue();
        RequestQueue& inline_queue = *self.inline_queue();
        const nb::gil_scoped_release unlocked;
        queue.close();
        inline_queue.close();
      });
}

}  // namespace slime::python

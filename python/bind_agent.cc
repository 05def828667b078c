#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <new>
#include <thread>

#include "agent/dump.h"
#include "agent/endpoint.h"
#include "python/py_agent.h"
#include "python/py_devices.h"
#include "python/py_future.h"
#include "python/py_memory.h"
#include "python/py_rpc.h"
#include "transport/outage.h"

namespace slime::python {
namespace {

// Requests of inline methods that have arrived are taken for this long between two turns of the
// agent's loop.
constexpr Nanos kInlineTurn = std::chrono::milliseconds(1);
// How long serve_forever() pauses where another thread drives the loop: far less than a call takes
// that has to wake a thread.
constexpr Nanos kDrivenPause = std::chrono::microseconds(50);

void start(PyAgent* self, PeerAgentOptions options) {
  const Progress progress = options.progress;
  auto agent = unwrap(run_blocking([options = std::move(options)] { return PeerAgent::start(options); }));
  new (self) PyAgent(std::move(agent), progress);
}

PyRegion allocate(const PyAgent& self, nb::handle bytes, Rights rights, Pages pages) {
  const std::uint64_t length = unsigned_from(bytes, "bytes");
  PeerAgent& agent = self.agent();
  Result<MemoryRegion> region = [&] {
    const nb::gil_scoped_release unlocked;  // allocating touches the memory, which takes long
    return agent.allocate(length, rights, MemoryKind::kHost, pages);
  }();
  return {unwrap(std::move(region)), PinnedMemory()};
}

PyRegion register_pinned(const PyAgent& self, PinnedMemory pin, Rights rights) {
  if (pin.readonly() && transport::allows(rights, Rights::kRemoteWrite)) {
    raise(Code::kPermissionDenied, "the memory is read-only: peers cannot have the right to write to it");
  }
  PeerAgent& agent = self.agent();
  Result<MemoryRegion> region = [&] {
    const nb::gil_scoped_release unlocked;
    return agent.register_memory(pin.data(), pin.length_bytes(), rights);
  }();
  return {unwrap(std::move(region)), std::move(pin)};
}

PyRegion register_memory(const PyAgent& self, nb::handle buffer, Rights rights) {
  return register_pinned(self, PinnedMemory::of(buffer), rights);
}

PyRegion register_address(const PyAgent& self, nb::handle address, nb::handle bytes, Rights rights) {
  return register_pinned(
      self, PinnedMemory::at(unsigned_from(address, "address"), unsigned_from(bytes, "bytes")), rights);
}

// Waits for a notification. Returns (peer, imm), or None once the agent is closed.
nb::object next_imm(nb::handle self) {
  const std::shared_ptr<ImmQueue> imms = nb::cast<PyAgent&>(self).imms();
  std::optional<ImmQueue::Item> item = [&] {
    const nb::gil_scoped_release unlocked;
    return imms->take();
  }();
  if (!item) return nb::none();
  return nb::make_tuple(PyPeer(std::move(item->peer), nb::borrow(self)), item->imm);
}

PyPeer accept(nb::handle self, std::optional<double> timeout) {
  PeerAgent& agent = nb::cast<PyAgent&>(self).agent();
  Result<Peer> peer = Status(Code::kDeadlineExceeded, "no peer has connected before the timeout");
  wait_in_slices(
      [&](Nanos slice) {
        peer = agent.accept(slice);
        return peer.has_value() || peer.status().code() != Code::kDeadlineExceeded;
      },
      timeout_from(timeout));
  return {unwrap(std::move(peer)), nb::borrow(self)};
}

PyPeer peer_of(nb::handle self, nb::handle connection) {
  const std::shared_ptr<PeerAgent> agent = nb::cast<PyAgent&>(self).shared();
  auto peer =
      run_blocking([agent, id = unsigned_from(connection, "connection")] { return agent->peer_of(id); });
  return {unwrap(std::move(peer)), nb::borrow(self)};
}

PyPeer connect_to(nb::handle self, const std::string& info, std::optional<double> timeout) {
  const auto to = EndpointInfo::parse(info);
  const std::shared_ptr<PeerAgent> agent = nb::cast<PyAgent&>(self).shared();
  auto peer = run_blocking([agent, to = unwrap(to), bound = timeout_or_default(timeout)] {
    return slime::connect(*agent, to, bound);
  });
  return {unwrap(std::move(peer)), nb::borrow(self)};
}

// Returns zero for None: the agent's default.
Nanos outage_from(std::optional<double> seconds) {
  if (!seconds) return Nanos::zero();
  // Maps NaN to zero, and clamps seconds that Nanos cannot hold to +-1e9: check() refuses both.
  const Nanos out = std::isnan(*seconds) ? Nanos::zero() : to_nanos(std::clamp(*seconds, -1e9, 1e9));
  check(transport::check_outage("outage_tolerated", out));
  return out;
}

void bind_init(nb::class_<PyAgent>& agent) {
  agent.def(
      "__init__",
      [](PyAgent* self, std::string name, std::string scope, std::string ctrl_url, std::string ctrl_token,
         std::string ctrl_ca_file, std::string listen, std::string advertise, std::string provider,
         std::string token, bool insecure, Progress progress, double timeout, std::string kind,
         std::optional<double> heartbeat, bool report_links, std::size_t max_connections,
         std::size_t stream_window, std::uint64_t stream_bytes, double stream_idle_timeout,
         nb::handle memory_bytes, nb::handle max_payload_bytes, std::optional<double> outage_tolerated,
         nb::handle verbs, bool accepts) {
        PeerAgentOptions options;
        options.name = std::move(name);
        options.scope = std::move(scope);
        options.ctrl_url = std::move(ctrl_url);
        options.ctrl_token = std::move(ctrl_token);
        options.ctrl_ca_file = std::move(ctrl_ca_file);
        options.listen = std::move(listen);
        options.advertise = std::move(advertise);
        options.provider = std::move(provider);
        options.token = std::move(token);
        options.insecure = insecure;
        options.progress = progress;
        options.timeout = timeout_or_default(timeout);
        options.kind = std::move(kind);
        options.heartbeat = timeout_or_default(heartbeat);
        options.report_links = report_links;
        options.max_connections = max_connections;
        options.streams = {.window = stream_window,
                           .window_bytes = stream_bytes,
                           .idle_timeout = timeout_or_default(stream_idle_timeout)};
        options.memory_bytes = unsigned_from(memory_bytes, "memory_bytes");
        options.max_payload_bytes = unsigned_from(max_payload_bytes, "max_payload_bytes");
        options.outage_tolerated = outage_from(outage_tolerated);
        options.verbs = verbs_from(verbs);
        options.accepts = accepts;
        start(self, std::move(options));
      },
      nb::arg("name") = "", nb::kw_only(), nb::arg("scope") = "default", nb::arg("ctrl_url") = "",
      nb::arg("ctrl_token") = "", nb::arg("ctrl_ca_file") = "", nb::arg("listen") = "127.0.0.1:0",
      nb::arg("advertise") = "", nb::arg("provider") = "auto", nb::arg("token") = "",
      nb::arg("insecure") = false, nb::arg("progress") = Progress::kThread, nb::arg("timeout") = 30.0,
      nb::arg("kind") = "", nb::arg("heartbeat") = nb::none(), nb::arg("report_links") = true,
      nb::arg("max_connections") = 1024, nb::arg("stream_window") = rpc::StreamOptions().window,
      nb::arg("stream_bytes") = rpc::StreamOptions().window_bytes, nb::arg("stream_idle_timeout") = 30.0,
      nb::arg("memory_bytes") = rpc::limits::kMemoryBytes,
      nb::arg("max_payload_bytes") = rpc::limits::kMaxPayloadBytes, nb::arg("outage_tolerated") = nb::none(),
      nb::arg("verbs") = nb::none(), nb::arg("accepts") = false);
}

void bind_regions(nb::class_<PyAgent>& agent) {
  agent
      .def(
          "allocate", &allocate, nb::arg("bytes"), nb::arg("rights") = Rights::kLocal,
          nb::arg("pages") = Pages::kDefault,
          nb::sig("def allocate(self, bytes: int, rights: Rights = ..., pages: Pages = ...) -> MemoryRegion"),
          "Allocates zeroed registered memory. Huge pages are all taken now, from the machine's\n"
          "pool; ResourceExhausted says how many the pool lacks, and what to do.")
      .def("register_memory", &register_memory, nb::arg("buffer").none(), nb::arg("rights") = Rights::kLocal,
           nb::sig("def register_memory(self, buffer: typing.Any, rights: Rights = ...) -> MemoryRegion"),
           "Registers host memory of a contiguous object with the buffer protocol, DLPack or\n"
           "__array_interface__. The region keeps the object alive and in place until the region\n"
           "is closed.")
      .def("register_address", &register_address, nb::arg("address"), nb::arg("bytes"),
           nb::arg("rights") = Rights::kLocal,
           nb::sig(
               "def register_address(self, address: int, bytes: int, rights: Rights = ...) -> MemoryRegion"),
           "Registers host memory by its address, as C libraries give it. The caller keeps the\n"
           "memory alive and in place until the region is closed. Raises InvalidArgument if a part\n"
           "of the range is not mapped or not readable now.")
      .def(
          "publish",
          [](const PyAgent& self, std::string name, const PyRegion& region) {
            PeerAgent& target = self.agent();
            MemoryRegion& memory = region.region();
            const Status status = [&] {
              const nb::gil_scoped_release unlocked;
              return target.publish(name, memory);
            }();
            check(status);
          },
          nb::arg("name"), nb::arg("region"),
          "Publishes a region under a name, by which peers ask this agent for it.")
      .def(
          "unpublish",
          [](const PyAgent& self, std::string name) {
            check(run_blocking(
                [target = self.shared(), name = std::move(name)] { return target->unpublish(name); }));
          },
          nb::arg("name"));
}

void check_polls(const PyAgent& agent) {
  static_cast<void>(agent.agent());  // raises Unavailable in a forked child
  if (agent.progress() != Progress::kCaller)
    raise(Code::kInvalidArgument, "poll() is for agents with progress=Progress.CALLER");
}

void bind_life(nb::class_<PyAgent>& agent) {
  agent
      .def_static("provider_names", &PeerAgent::provider_names,
                  "Returns the values of `provider` in this build: \"auto\", \"tcp\", ...")
      .def(
          "_list_peers_json",
          [](const PyAgent& self, double timeout) {
            return unwrap(run_blocking([target = self.shared(), nanos = timeout_from(timeout)] {
              auto peers = target->list_peers(nanos);
              return peers ? Result<std::string>(to_json(*peers)) : Result<std::string>(peers.error());
            }));
          },
          nb::arg("timeout") = 5.0)
      .def("_info_json",
           [](const PyAgent& self) {
             return run_blocking([target = self.shared()] { return to_json(target->info()); });
           })
      .def(
          "_poll",
          [](const PyAgent& self, double budget) {
            check_polls(self);
            PeerAgent& target = self.agent();
            const Nanos nanos = std::min(timeout_from(budget), kSignalInterval);
            bool ran = false;
            {
              const nb::gil_scoped_release unlocked;
              ran = target.poll(nanos);
            }
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            return ran;
          },
          nb::arg("budget"), "Progress.CALLER only: poll() without inline methods.")
      .def(
          "_turn",
          [](PyAgent& self, double budget, bool for_request) {
            check_polls(self);
            return self.turn(timeout_from(budget), for_request);
          },
          nb::arg("budget"), nb::arg("for_request"),
          nb::sig("def _turn(self, budget: float, for_request: bool) -> Request | bool"),
          "Progress.CALLER only: runs due work; waits up to `budget` seconds (0.1 at most) if\n"
          "there is none. Returns a request of an inline method, or whether anything ran.\n"
          "`for_request`: waits until there is a request, or until _wake().")
      .def("_take_inline", &PyAgent::take_inline, nb::sig("def _take_inline(self) -> Request | None"),
           "Returns a request of an inline method that has arrived, or None.")
      .def("_wake", &PyAgent::wake, "Ends a _turn() that waits in another thread, or the next one.")
      .def(
          "drain",
          [](const PyAgent& self, double timeout) {
            check(run_blocking(
                [target = self.shared(), nanos = timeout_from(timeout)] { return target->drain(nanos); }));
          },
          nb::arg("timeout"), "Refuses new requests, and waits for running handlers.")
      .def("_accept", &accept, nb::arg("timeout"),
           nb::sig("def _accept(self, timeout: float | None) -> Peer"),
           "Waits for the next peer that has connected.")
      .def("_peer_of", &peer_of, nb::arg("connection"),
           nb::sig("def _peer_of(self, connection: int) -> Peer"), "Returns the peer of a connection.")
      .def("_connect_to", &connect_to, nb::arg("info"), nb::arg("timeout"),
           nb::sig("def _connect_to(self, info: str, timeout: float | None) -> Peer"),
           "Connects to what EndpointInfo::parse() reads.")
      .def("_endpoint_info_json",
           [](const PyAgent& self) { return EndpointInfo::of(self.agent()).to_json(); })
      .def("_next_imm", &next_imm, nb::sig("def _next_imm(self) -> tuple[Peer, int] | None"),
           "Waits for a notification. Returns (peer, number), or None once the agent is closed.")
      .def(
          "_start_imms", [](PyAgent& self) { self.imms(); }, "Keeps notifications for _next_imm from now on.")
      .def(
          "_close_agent", [](PyAgent& self, double timeout) { check(self.close(timeout)); },
          nb::arg("timeout"));
}

}  // namespace

void ImmQueue::push(Peer peer, std::uint32_t imm, NotificationCredit& credit) {
  {
    const MutexLock lock(mutex_);
    if (closed_) return;
    items_.push_back({std::move(peer), imm, std::nullopt});
    const std::size_t limit = credit.leaves_messages() ? kLimit : kEarlierPeerLimit;
    if (items_.size() > limit) items_.back().credit.emplace(credit.hold());
  }
  changed_.notify_one();
}

std::optional<ImmQueue::Item> ImmQueue::take() {
  const MutexLock lock(mutex_);
  changed_.wait(mutex_, [&]() SLIME_REQUIRES(mutex_) { return closed_ || !items_.empty(); });
  if (items_.empty()) return std::nullopt;
  Item item = std::move(items_.front());
  items_.pop_front();
  return item;
}

void ImmQueue::close() {
  std::deque<Item> dropped;  // the peers are destroyed outside the lock
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    dropped.swap(items_);
  }
  changed_.notify_all();
}

PyAgent::~PyAgent() {
  if (agent_.forked()) {
    // Leaks the queue: a thread of the parent process may have held the queue's lock at the fork.
    static_cast<void>(new (std::nothrow) std::shared_ptr<ImmQueue>(std::move(imms_)));
    return;
  }
  if (imms_) imms_->close();
  const nb::gil_scoped_release unlocked;
  agent_.reset();  // closes the agent if close() was not called, so may wait
}

std::shared_ptr<ImmQueue> PyAgent::imms() {
  PeerAgent& target = agent();
  if (!imms_) {
    imms_ = std::make_shared<ImmQueue>();
    target.on_imm_queued([queue = imms_](Peer peer, std::uint32_t imm, NotificationCredit& credit) {
      queue->push(std::move(peer), imm, credit);
    });
  }
  return imms_;
}

Status PyAgent::close(double timeout) {
  const Status status =
      run_blocking([target = shared(), nanos = timeout_from(timeout)] { return target->close(nanos); });
  if (imms_) imms_->close();
  return status;
}

void PyAgent::add_inline(std::shared_ptr<RequestQueue> queue) {
  auto queues = std::make_shared<InlineQueues>(*inline_);
  queues->push_back(std::move(queue));
  inline_ = std::move(queues);
  wake();  // turn() then sees the new queue
}

nb::object PyAgent::take_inline() {
  const std::shared_ptr<const InlineQueues> queues = inline_;
  for (std::size_t i = 0; i < queues->size(); ++i) {
    const std::shared_ptr<RequestQueue>& queue = (*queues)[next_inline_++ % queues->size()];
    if (!queue->pending()) continue;
    if (auto taken = queue->try_take()) return make_request(std::move(taken), *queue);
  }
  return nb::none();
}

nb::object PyAgent::turn(Nanos budget, bool for_request) {
  PeerAgent& target = agent();
  // Requests that have arrived come first, but not for so long that the agent's own work waits.
  if (for_request && steady_clock().now() - turned_ < kInlineTurn) {
    nb::object request = take_inline();
    if (!request.is_none()) return request;
  }
  const std::shared_ptr<const InlineQueues> queues = inline_;  // serve() may replace it meanwhile
  const auto any_inline = [&queues] {
    return std::any_of(queues->begin(), queues->end(), [](const auto& queue) { return queue->pending(); });
  };
  const TimePoint until = deadline_after(steady_clock().now(), std::min(budget, kSignalInterval));
  bool ran = false;
  {
    const nb::gil_scoped_release unlocked;
    while (true) {
      const TimePoint now = steady_clock().now();
      const bool turned =
          target.poll(any_inline() ? Nanos::zero() : std::max(Nanos(until - now), Nanos::zero()));
      ran = turned || ran;
      if (!for_request || any_inline() || woken_.exchange(false) || steady_clock().now() >= until) break;
      // Another thread drives the loop, in a wait for a future. The pause leaves it the core.
      if (!turned) std::this_thread::sleep_for(kDrivenPause);
    }
  }
  turned_ = steady_clock().now();
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  nb::object request = take_inline();
  return request.is_none() ? nb::bool_(ran) : request;
}

void PyAgent::wake() {
  woken_ = true;
  agent().wake();
}

void bind_agent(nb::module_& m) {
  nb::enum_<Progress>(m, "Progress", "The thread that makes progress.")
      .value("THREAD", Progress::kThread, "a thread of the agent's own")
      .value("CALLER", Progress::kCaller, "result() and poll(), in the caller: no hand-over between threads")
      .value("POLLED", Progress::kPolled,
             "a thread; a caller that polls wait_done() carries out the operations that it began,\n"
             "of any size");
  nb::class_<PyAgent> agent(m, "PeerAgent", "See slime.PeerAgent.");
  bind_init(agent);
  agent.def_prop_ro("name", [](const PyAgent& self) { return self.agent().name(); })
      .def_prop_ro(
          "address", [](const PyAgent& self) { return self.agent().address(); },
          "The address that peers connect to.")
      .def_prop_ro("instance", [](const PyAgent& self) { return self.agent().instance().to_string(); })
      .def_prop_ro("progress", &PyAgent::progress)
      .def_prop_ro("forked", &PyAgent::forked, "True in a child that was forked after the agent was made.");
  bind_regions(agent);
  bind_life(agent);
  agent.def(
      "_serve_raw",
      [](PyAgent& self, PyService& service) {
        // A loop without a thread is driven by the threads that poll or wait, not by workers.
        service.serve(self.agent(), self.progress() == Progress::kCaller ? nullptr : self.agent().driver());
        self.add_inline(service.inline_queue());
      },
      nb::arg("service"));
  bind_peer(m);
  bind_proxy(m);
  m.def(
      "dump", [] { return dump(); }, nb::call_guard<nb::gil_scoped_release>(),
      "Returns a description of every agent of this process and of its operations, in lines for\n"
      "people.");
  m.def(
      "dump_on_signal", [](int number) { check(dump_on_signal(number)); }, nb::arg("number") = SIGUSR1,
      "Makes this process write dump() to stderr at each such signal, without stopping.");
}

}  // namespace slime::python

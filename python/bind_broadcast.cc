// The layer kv: broadcasts and shards of slime.kv.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/str.h"
#include "kv/broadcast.h"
#include "kv/gather.h"
#include "kv/replica.h"
#include "kv/shards.h"
#include "python/py_agent.h"
#include "python/py_attachments.h"
#include "python/py_future.h"
#include "python/py_kv.h"
#include "python/py_memory.h"
#include "python/py_numbers.h"

namespace slime::python {
namespace {

// The memory of Python objects, in order.
struct Pins {
  void add(nb::handle memory, const std::string& name, bool written) {
    pins.push_back(PinnedMemory::of(memory));
    if (written && pins.back().readonly()) raise(Code::kPermissionDenied, "memory " + name + " is read-only");
  }
  [[nodiscard]] MutableBytes bytes(std::size_t i) const { return {pins[i].data(), pins[i].length_bytes()}; }
  std::vector<PinnedMemory> pins;
};

// `parts`: a list of (name, memory).
std::vector<kv::NamedMemory> named_memory(const nb::list& parts, bool written, Pins& pins) {
  std::vector<kv::NamedMemory> out;
  for (const nb::handle part : parts) {
    auto name = nb::cast<std::string>(part[0]);
    pins.add(part[1], name, written);
    out.push_back({std::move(name), pins.bytes(out.size())});
  }
  return out;
}

kv::Tensor tensor_from(std::string name, nb::handle shape, std::uint64_t item_bytes) {
  kv::Tensor out{std::move(name), numbers_from<std::uint64_t>(shape, "shape"), 0};
  if (item_bytes > UINT32_MAX) raise(Code::kInvalidArgument, out.name + ": the items are too large");
  out.item_bytes = static_cast<std::uint32_t>(item_bytes);
  return out;
}

// An object of the layer, the agent that it uses, and the memory of Python objects, which is kept
// until the object is closed. Thread: holds the GIL.
template <class T>
class PyOwned {
 public:
  struct Held {
    ~Held() { object.close().ignore(); }
    std::shared_ptr<PeerAgent> agent;
    T object;
  };
  PyOwned(std::shared_ptr<Held> held, Pins pins) : pins_(std::move(pins)), held_(std::move(held)) {}
  PyOwned(PyOwned&&) noexcept = default;
  ~PyOwned() {
    if (!held_.has_value() || held_->forked()) return;
    const nb::gil_scoped_release unlocked;
    held_->reset();  // closes the regions: may wait
  }
  [[nodiscard]] T& get() const { return (**held_).object; }
  [[nodiscard]] const std::shared_ptr<Held>& shared() const { return held_->shared(); }
  void close(double timeout) {
    const Status status =
        run_blocking([held = shared(), nanos = timeout_from(timeout)] { return held->object.close(nanos); });
    pins_.pins.clear();
    check(status);
  }
  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    for (const PinnedMemory& pin : nb::inst_ptr<PyOwned>(self)->pins_.pins)
      if (const int result = pin.traverse(visit, arg); result != 0) return result;
    return 0;
  }

 private:
  Pins pins_;  // released after the object is closed
  std::optional<ForkGuarded<Held>> held_;
};

// Makes the object in `self` without the GIL.
template <class T, class Make>
void make_owned(PyOwned<T>* self, const PyAgent& agent, Pins pins, Make make) {
  auto held = std::make_shared<typename PyOwned<T>::Held>();
  held->agent = agent.shared();
  held->object = unwrap([&] {
    const nb::gil_scoped_release unlocked;  // publishing waits for nanoctrl
    return make(*held->agent);
  }());
  new (self) PyOwned<T>(std::move(held), std::move(pins));
}

// No tp_clear: the memory must stay until the destructor has closed the object.
template <class T>
PyType_Slot* owned_slots() {
  static PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&PyOwned<T>::traverse)},
                                {0, nullptr}};
  return slots;
}

using PyBroadcast = PyOwned<kv::Broadcast>;
using PyReplica = PyOwned<kv::Replica>;
using PyShards = PyOwned<kv::Shards>;
using PyGather = PyOwned<kv::Gather>;

constexpr const char* kCloseSig = "def close(self, timeout: float = 2.0) -> None";
constexpr double kCloseTimeout = 2.0;

void bind_owner(nb::module_& m) {
  nb::class_<PyBroadcast>(m, "KvBroadcast", nb::type_slots(owned_slots<kv::Broadcast>()),
                          "The owner's side of a broadcast: slime.kv.Broadcast.")
      .def(
          "__init__",
          [](PyBroadcast* self, const PyAgent& agent, const nb::list& parts, std::string name,
             nb::handle fan_out, nb::handle chunk_bytes, double patience) {
            kv::BroadcastOptions options{.name = std::move(name),
                                         .fan_out = small_from(fan_out, "fan_out"),
                                         .chunk_bytes = unsigned_from(chunk_bytes, "chunk_bytes"),
                                         .patience = timeout_from(patience)};
            Pins pins;
            const auto memory = named_memory(parts, false, pins);
            make_owned(self, agent, std::move(pins),
                       [&](PeerAgent& to) { return kv::Broadcast::over(to, memory, std::move(options)); });
          },
          nb::arg("agent"), nb::arg("parts"), nb::arg("name"), nb::arg("fan_out"), nb::arg("chunk_bytes"),
          nb::arg("patience"))
      .def(
          "begin_update", [](const PyBroadcast& self) { check(self.get().begin_update()); },
          "Ends the version that is offered: after it the memory may change.")
      .def(
          "publish", [](const PyBroadcast& self) { return unwrap(self.get().publish()); },
          "Offers the memory as the next version, and returns its number.")
      .def("_info",
           [](const PyBroadcast& self) {
             const kv::BroadcastInfo info = self.get().info();
             return nb::make_tuple(info.version, info.readers, info.complete, info.from_owner,
                                   info.total_bytes, info.bytes_out, info.moves);
           })
      .def("close", &PyBroadcast::close, nb::arg("timeout") = kCloseTimeout, nb::sig(kCloseSig),
           "After it no peer touches the memory. Further calls do nothing.");
}

void bind_reader(nb::module_& m) {
  nb::class_<PyReplica>(m, "KvReplica", nb::type_slots(owned_slots<kv::Replica>()),
                        "A reader's side of a broadcast: slime.kv.Replica.")
      .def(
          "__init__",
          [](PyReplica* self, const PyAgent& agent, const nb::list& parts, std::string name) {
            Pins pins;
            const auto memory = named_memory(parts, true, pins);
            make_owned(self, agent, std::move(pins),
                       [&](PeerAgent& to) { return kv::Replica::over(to, memory, {std::move(name)}); });
          },
          nb::arg("agent"), nb::arg("parts"), nb::arg("name"))
      .def(
          "_fetch",
          [](const PyReplica& self, nb::object replica, nb::object agent, const PyPeer& owner,
             std::optional<double> timeout) {
            kv::Move move = [&, peer = owner.shared(), nanos = timeout_or_default(timeout)] {
              const nb::gil_scoped_release unlocked;
              return self.get().fetch(*peer, nanos);
            }();
            return moving(std::move(move), std::move(replica), std::move(agent));
          },
          nb::arg("replica"), nb::arg("agent"), nb::arg("owner"), nb::arg("timeout").none())
      .def_prop_ro(
          "version", [](const PyReplica& self) { return self.get().version(); },
          nb::sig("def version(self) -> int"), "The version of the last fetch if that has succeeded; else 0.")
      .def_prop_ro(
          "children", [](const PyReplica& self) { return self.get().children(); },
          nb::sig("def children(self) -> int"), "The number of readers that read from this memory now.")
      .def(
          "retire",
          [](const PyReplica& self, double timeout) {
            check(run_blocking([held = self.shared(), nanos = timeout_from(timeout)] {
              return held->object.retire(nanos);
            }));
          },
          nb::arg("timeout") = kCloseTimeout, nb::sig("def retire(self, timeout: float = 2.0) -> None"),
          "Passes on nothing any more, until the next fetch: after it the memory may change. Readers that\n"
          "read from here go on elsewhere; those that do not within `timeout` seconds are cut off.")
      .def("close", &PyReplica::close, nb::arg("timeout") = kCloseTimeout, nb::sig(kCloseSig),
           "After it no peer touches the memory. Further calls do nothing.");
}

// `shards`: a list of (name, memory, shape of the whole, dim, first).
void make_shards(PyShards* self, const PyAgent& agent, const nb::list& list, std::string name) {
  Pins pins;
  std::vector<kv::Shard> shards;
  std::vector<MutableBytes> memory;
  for (const nb::handle each : list) {
    const auto its_name = nb::cast<std::string>(each[0]);
    pins.add(each[1], its_name, false);
    memory.push_back(pins.bytes(memory.size()));
    kv::Shard shard{.tensor = tensor_from(its_name, each[2], unsigned_from(each[3], "item_bytes")),
                    .dim = small_from(each[4], "dim"),
                    .first = unsigned_from(each[5], "first"),
                    .count = unsigned_from(each[6], "count")};
    shards.push_back(std::move(shard));
  }
  make_owned(self, agent, std::move(pins),
             [&](PeerAgent& to) { return kv::Shards::over(to, shards, memory, {std::move(name)}); });
}

// `tensors`: a list of (name, memory, shape, bytes of an item).
void make_gather(PyGather* self, const PyAgent& agent, const nb::list& owners, const nb::list& list,
                 std::string name, std::optional<double> timeout) {
  Pins pins;
  std::vector<Peer> peers;
  for (const nb::handle owner : owners) peers.push_back(*nb::cast<const PyPeer&>(owner).shared());
  std::vector<kv::Tensor> tensors;
  std::vector<MutableBytes> memory;
  for (const nb::handle each : list) {
    auto its_name = nb::cast<std::string>(each[0]);
    pins.add(each[1], its_name, true);
    memory.push_back(pins.bytes(memory.size()));
    tensors.push_back(tensor_from(std::move(its_name), each[2], unsigned_from(each[3], "item_bytes")));
  }
  const Nanos nanos = timeout_or_default(timeout);
  make_owned(self, agent, std::move(pins), [&](PeerAgent& to) {
    return kv::Gather::connect(to, peers, tensors, memory, {std::move(name), nanos});
  });
}

void bind_gather(nb::module_& m) {
  nb::class_<PyShards>(m, "KvShards", nb::type_slots(owned_slots<kv::Shards>()),
                       "The shards of this process: slime.kv.Shards.")
      .def("__init__", &make_shards, nb::arg("agent"), nb::arg("shards"), nb::arg("name"))
      .def("close", &PyShards::close, nb::arg("timeout") = kCloseTimeout, nb::sig(kCloseSig),
           "After it no peer reads the memory. Further calls do nothing.");
  nb::class_<PyGather>(m, "KvGather", nb::type_slots(owned_slots<kv::Gather>()),
                       "Tensors and the owners of their shards: slime.kv.Gather.")
      .def("__init__", &make_gather, nb::arg("agent"), nb::arg("owners"), nb::arg("tensors"), nb::arg("name"),
           nb::arg("timeout").none())
      .def(
          "_read",
          [](const PyGather& self, nb::object gather, nb::object agent, std::optional<double> timeout) {
            kv::Move move = [&, held = self.shared(), nanos = timeout_or_default(timeout)] {
              const nb::gil_scoped_release unlocked;
              return held->object.read(nanos);
            }();
            return moving(std::move(move), std::move(gather), std::move(agent));
          },
          nb::arg("gather"), nb::arg("agent"), nb::arg("timeout").none())
      .def("close", &PyGather::close, nb::arg("timeout") = kCloseTimeout, nb::sig(kCloseSig),
           "After it no byte lands in the memory. Further calls do nothing.");
}

}  // namespace

void bind_broadcast(nb::module_& m) {
  bind_owner(m);
  bind_reader(m);
  bind_gather(m);
}

}  // namespace slime::python

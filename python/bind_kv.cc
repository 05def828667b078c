// The layer kv: slime.kv.

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/str.h"
#include "kv/cache.h"
#include "kv/remote.h"
#include "python/py_agent.h"
#include "python/py_attachments.h"
#include "python/py_future.h"
#include "python/py_kv.h"
#include "python/py_memory.h"
#include "python/py_numbers.h"

namespace slime::python {

std::uint32_t small_from(nb::handle value, const char* name) {
  const std::uint64_t number = unsigned_from(value, name);
  if (number > UINT32_MAX) raise(Code::kInvalidArgument, str(name, " is ", number, ": above 2**32 - 1"));
  return static_cast<std::uint32_t>(number);
}

namespace {

// -------------------------------------------------------------------------------------- geometries

nb::tuple tuple_of(const kv::Heads& heads) { return nb::make_tuple(heads.first, heads.count); }

nb::tuple map_blocks(const kv::Geometry& local, const kv::Geometry& remote) {
  const kv::Mapping mapping = unwrap(kv::map_blocks(local, remote));
  nb::list pieces;
  for (const kv::Piece& piece : mapping.pieces)
    pieces.append(nb::make_tuple(piece.local_region, piece.remote_region, piece.local_offset,
                                 piece.remote_offset, piece.bytes));
  return nb::make_tuple(mapping.first_layer, mapping.layers, tuple_of(mapping.heads), mapping.block_bytes,
                        pieces);
}

nb::list list_of(const std::vector<std::uint32_t>& ranks) {
  nb::list out;
  for (const std::uint32_t rank : ranks) out.append(rank);
  return out;
}

void bind_geometry(nb::module_& m) {
  nb::enum_<kv::Order>(m, "KvOrder", "The order of the numbers of a block.")
      .value("NHD", kv::Order::kNHD, "tokens, then heads")
      .value("HND", kv::Order::kHND, "heads, then tokens");
  nb::enum_<kv::Form>(m, "KvForm", "The regions of a layer.")
      .value("APART", kv::Form::kApart, "one of keys and one of values")
      .value("FUSED", kv::Form::kFused, "one, in which each block has its keys, then its values")
      .value("LATENT", kv::Form::kLatent, "one latent cache (MLA), without values and heads");
  nb::class_<kv::Geometry> geometry(
      m, "KvGeometry",
      "The shape of the paged KV cache of one process: a rank of tensor parallelism, and a range of\n"
      "the model's layers. Cannot be changed.\n\n"
      "heads: KV heads of the model, of all ranks together. head_bytes: for each token and head, the\n"
      "head dimension x the size of a number. scale_bytes: scales for each token and head, in regions\n"
      "of their own.");
  geometry.def(
      "__init__",
      [](kv::Geometry* self, nb::handle layers, nb::handle blocks, nb::handle block_tokens, nb::handle heads,
         nb::handle head_bytes, nb::handle first_layer, nb::handle scale_bytes, kv::Order order,
         kv::Form form, nb::handle tp_degree, nb::handle tp_rank) {
        const kv::Geometry made{.first_layer = small_from(first_layer, "first_layer"),
                                .layers = small_from(layers, "layers"),
                                .blocks = unsigned_from(blocks, "blocks"),
                                .block_tokens = small_from(block_tokens, "block_tokens"),
                                .heads = small_from(heads, "heads"),
                                .head_bytes = small_from(head_bytes, "head_bytes"),
                                .scale_bytes = small_from(scale_bytes, "scale_bytes"),
                                .order = order,
                                .form = form,
                                .tp_degree = small_from(tp_degree, "tp_degree"),
                                .tp_rank = small_from(tp_rank, "tp_rank")};
        check(made.validate());
        new (self) kv::Geometry(made);
      },
      nb::kw_only(), nb::arg("layers"), nb::arg("blocks"), nb::arg("block_tokens"), nb::arg("heads"),
      nb::arg("head_bytes"), nb::arg("first_layer") = 0, nb::arg("scale_bytes") = 0,
      nb::arg("order") = kv::Order::kNHD, nb::arg("form") = kv::Form::kApart, nb::arg("tp_degree") = 1,
      nb::arg("tp_rank") = 0,
      nb::sig(
          "def __init__(self, *, layers: int, blocks: int, block_tokens: int, heads: int, head_bytes: int, "
          "first_layer: int = 0, scale_bytes: int = 0, order: KvOrder = ..., "
          "form: KvForm = ..., tp_degree: int = 1, tp_rank: int = 0) -> None"),
      "Raises InvalidArgument, which names the first wrong field.");
  geometry.def_ro("first_layer", &kv::Geometry::first_layer)
      .def_ro("layers", &kv::Geometry::layers)
      .def_ro("blocks", &kv::Geometry::blocks)
      .def_ro("block_tokens", &kv::Geometry::block_tokens)
      .def_ro("heads", &kv::Geometry::heads)
      .def_ro("head_bytes", &kv::Geometry::head_bytes)
      .def_ro("scale_bytes", &kv::Geometry::scale_bytes)
      .def_ro("order", &kv::Geometry::order)
      .def_ro("form", &kv::Geometry::form)
      .def_ro("tp_degree", &kv::Geometry::tp_degree)
      .def_ro("tp_rank", &kv::Geometry::tp_rank)
      .def(
          "rank_heads", [](const kv::Geometry& self) { return tuple_of(self.rank_heads()); },
          nb::sig("def rank_heads(self) -> tuple[int, int]"),
          "Returns the first head of this rank, and the number of its heads.")
      .def(
          "regions",
          [](const kv::Geometry& self) {
            nb::list out;
            for (const kv::RegionShape& each : self.regions())
              out.append(nb::make_tuple(each.name, each.block_bytes));
            return out;
          },
          nb::sig("def regions(self) -> list[tuple[str, int]]"),
          "Returns name and block bytes of each region of a layer.")
      .def("block_bytes", &kv::Geometry::block_bytes, "Bytes of a block of one layer, in all its regions.")
      .def("layer_bytes", &kv::Geometry::layer_bytes, "Bytes of all blocks of one layer.")
      .def(
          "encode",
          [](const kv::Geometry& self) {
            const ByteVector bytes = self.encode();
            return nb::bytes(bytes.data(), bytes.size());
          },
          "Returns the geometry as bytes, for decode().")
      .def_static(
          "decode",
          [](const nb::bytes& bytes) {
            const auto* data = static_cast<const std::byte*>(bytes.data());
            return unwrap(kv::Geometry::decode({data, bytes.size()}));
          },
          nb::arg("bytes"), "Returns the geometry of encode(). Raises InvalidArgument.")
      .def(
          "__eq__",
          [](const kv::Geometry& self, nb::handle other) {
            return nb::isinstance<kv::Geometry>(other) && self == nb::cast<const kv::Geometry&>(other);
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__hash__", [](const kv::Geometry& self) { return std::hash<std::string>()(self.to_string()); })
      .def("__str__", &kv::Geometry::to_string)
      .def("__repr__",
           [](const kv::Geometry& self) { return "<slime.kv.Geometry " + self.to_string() + ">"; });
  m.def("kv_map_blocks", &map_blocks, nb::arg("local"), nb::arg("remote"));
  m.def("kv_sources_of", [](const kv::Geometry& to, nb::handle degree) {
    return list_of(unwrap(kv::sources_of(to, small_from(degree, "from_degree"))));
  });
  m.def("kv_targets_of", [](const kv::Geometry& from, nb::handle degree) {
    return list_of(unwrap(kv::targets_of(from, small_from(degree, "to_degree"))));
  });
}

// ------------------------------------------------------------------------------------------ caches

// The layers that have arrived, for the thread of a Python handler. The loop pushes.
class LayerQueue {
 public:
  using Item = std::pair<std::uint32_t, std::uint64_t>;  // layer, request
  void push(Item item) {
    {
      const MutexLock lock(mutex_);
      if (!closed_) items_.push_back(item);
    }
    changed_.notify_one();
  }
  // Waits for an item. Returns nullopt once the queue is closed and empty. Thread: without the GIL.
  std::optional<Item> take() {
    const MutexLock lock(mutex_);
    changed_.wait(mutex_, [&]() SLIME_REQUIRES(mutex_) { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    const Item item = items_.front();
    items_.pop_front();
    return item;
  }
  void close() {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<Item> items_ SLIME_GUARDED_BY(mutex_);
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
};

// For Python, which keeps it in the handler's thread: so the thread does not keep the cache.
class PyLayerQueue {
 public:
  explicit PyLayerQueue(std::shared_ptr<LayerQueue> queue) : queue_(std::move(queue)) {}
  [[nodiscard]] nb::object take() const {
    const std::optional<LayerQueue::Item> item = [queue = queue_.shared()] {
      const nb::gil_scoped_release unlocked;
      return queue->take();
    }();
    if (!item) return nb::none();
    return nb::make_tuple(item->first, item->second);
  }

 private:
  ForkGuarded<LayerQueue> queue_;
};

// A cache and the agent that it uses. The cache is destroyed first.
struct KvCache {
  ~KvCache() { close(limits::kCloseBound).ignore(); }
  Status close(Nanos timeout) {
    Status status = cache.close(timeout);
    queue->close();
    return status;
  }
  std::shared_ptr<PeerAgent> agent;
  std::shared_ptr<LayerQueue> queue = std::make_shared<LayerQueue>();
  kv::Cache cache;
};

// _slime.KvCache, from which slime.kv.Cache derives. Keeps the memory until the cache is closed.
// Thread: holds the GIL.
class PyKvCache {
 public:
  PyKvCache(const PyAgent& agent, const kv::Geometry& geometry, const nb::list& memory, std::string name,
            Rights rights) {
    const std::vector<kv::RegionShape> shapes = geometry.regions();
    pins_.reserve(nb::len(memory));
    std::vector<MutableBytes> regions;
    for (const nb::handle each : memory) {
      // an address has the bytes that it has to have; their number is checked for arrays
      const std::uint64_t bytes = geometry.blocks * shapes[pins_.size() % shapes.size()].block_bytes;
      pins_.push_back(PyLong_Check(each.ptr()) ? PinnedMemory::at(unsigned_from(each, "the address"), bytes)
                                               : PinnedMemory::of(each));
      if (pins_.back().readonly())
        raise(Code::kPermissionDenied, str("memory ", pins_.size() - 1, " is read-only"));
      regions.emplace_back(pins_.back().data(), pins_.back().length_bytes());
    }
    auto made = std::make_shared<KvCache>();
    made->agent = agent.shared();
    made->cache = unwrap([&] {
      const nb::gil_scoped_release unlocked;  // publishing waits for nanoctrl
      return kv::Cache::over(*made->agent, geometry, regions, {std::move(name), rights});
    }());
    cache_ = std::make_unique<ForkGuarded<KvCache>>(std::move(made));
  }
  ~PyKvCache() {
    if (!cache_ || cache_->forked()) return;
    const nb::gil_scoped_release unlocked;
    // An interrupted connect() may still use the cache, and the memory is released after this. May
    // wait.
    (*cache_)->close(limits::kCloseBound).ignore();
    cache_->reset();
  }

  [[nodiscard]] KvCache& get() const { return **cache_; }
  [[nodiscard]] const std::shared_ptr<KvCache>& shared() const { return cache_->shared(); }
  void close(double timeout) {
    const Status status =
        run_blocking([cache = shared(), nanos = timeout_from(timeout)] { return cache->close(nanos); });
    // Not clear(): a release may run Python code, and the garbage collector must not see released
    // pins.
    const auto released = std::exchange(pins_, {});
    check(status);
  }
  [[nodiscard]] PyLayerQueue listen() const {
    KvCache& cache = get();
    cache.cache.on_layer([queue = cache.queue](std::uint32_t layer, std::uint64_t request) {
      queue->push({layer, request});
    });
    return PyLayerQueue(cache.queue);
  }

  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    for (const PinnedMemory& pin : nb::inst_ptr<PyKvCache>(self)->pins_)
      if (const int result = pin.traverse(visit, arg); result != 0) return result;
    return 0;
  }

 private:
  std::vector<PinnedMemory> pins_;  // released after the cache is closed
  std::unique_ptr<ForkGuarded<KvCache>> cache_;
};

// No tp_clear: the memory must stay until the destructor has closed the cache.
PyType_Slot kKvCacheSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&PyKvCache::traverse)}, {0, nullptr}};

void wait_layer(const PyKvCache& self, nb::handle request, nb::handle layer, std::optional<double> timeout) {
  const std::uint64_t of = unsigned_from(request, "request");
  const std::uint32_t number = small_from(layer, "layer");
  Status status;
  const auto ended = [&, cache = self.shared()](Nanos slice) {
    status = cache->cache.wait_layer(of, number, slice);
    return status.code() != Code::kDeadlineExceeded;
  };
  wait_in_slices(ended, timeout_from(timeout));
  check(status);
}

void bind_cache_class(nb::module_& m) {
  nb::class_<PyLayerQueue>(m, "KvLayerQueue", "Layers that have arrived.").def("take", &PyLayerQueue::take);
  nb::class_<PyKvCache>(m, "KvCache", nb::type_slots(kKvCacheSlots), "The paged KV cache of this process.")
      .def(nb::init<const PyAgent&, const kv::Geometry&, const nb::list&, std::string, Rights>(),
           nb::arg("agent"), nb::arg("geometry"), nb::arg("memory"), nb::arg("name"), nb::arg("rights"))
      .def_prop_ro(
          "geometry", [](const PyKvCache& self) { return self.get().cache.geometry(); },
          nb::sig("def geometry(self) -> KvGeometry"))
      .def_prop_ro(
          "name", [](const PyKvCache& self) { return self.get().cache.name(); },
          nb::sig("def name(self) -> str"))
      .def("wait_layer", &wait_layer, nb::arg("request"), nb::arg("layer"), nb::arg("timeout") = nb::none(),
           nb::sig("def wait_layer(self, request: int, layer: int, timeout: float | None = None) -> None"),
           "Waits until peers have written all heads of this layer (the model's number), with this\n"
           "request's number. Raises DeadlineExceeded after `timeout` seconds; Cancelled after forget();\n"
           "Unavailable after close().")
      .def(
          "forget",
          [](const PyKvCache& self, nb::handle request) {
            self.get().cache.forget(unsigned_from(request, "request"));
          },
          nb::arg("request"), nb::sig("def forget(self, request: int) -> None"),
          "Forgets the layers of a request, so that its number can be used again. Call it when no writer\n"
          "works on the request any more: a layer that arrives later is remembered again. The cache\n"
          "remembers 16,384 requests; further ones are refused at their writers.")
      .def("close", &PyKvCache::close, nb::arg("timeout") = 5.0,
           nb::sig("def close(self, timeout: float = 5.0) -> None"),
           "After it no peer touches the memory. Further calls do nothing.")
      .def("_listen", &PyKvCache::listen);
}

// ----------------------------------------------------------------------------------------- remotes

class PyKvMove {
 public:
  explicit PyKvMove(kv::Move move) : move_(std::make_shared<kv::Move>(std::move(move))) {}
  [[nodiscard]] nb::tuple progress() const {
    const kv::MoveProgress now = move_->progress();
    const auto seconds = [](Nanos span) { return std::chrono::duration<double>(span).count(); };
    return nb::make_tuple(now.bytes_done, now.bytes_total, now.layers_done, now.layers_total,
                          seconds(now.elapsed), now.bytes_per_second,
                          now.left ? nb::object(nb::float_(seconds(*now.left))) : nb::none());
  }

 private:
  ForkGuarded<kv::Move> move_;
};

class PyKvRemote {
 public:
  explicit PyKvRemote(kv::Remote remote) : remote_(std::make_shared<kv::Remote>(std::move(remote))) {}
  [[nodiscard]] const std::shared_ptr<kv::Remote>& shared() const { return remote_.shared(); }

 private:
  ForkGuarded<kv::Remote> remote_;
};

PyKvRemote connect_cache(const PyPeer& peer, const PyKvCache& cache, std::string name,
                         std::optional<double> timeout) {
  return PyKvRemote(unwrap(run_blocking(
      [peer = peer.shared(), cache = cache.shared(), name = std::move(name),
       nanos = timeout_or_default(timeout)] { return kv::connect(*peer, cache->cache, name, nanos); })));
}

// Starts a transfer; `kind` is Remote::write_blocks or Remote::read_blocks. Returns its future,
// which keeps `cache`, and its progress.
template <auto kind>
nb::tuple start_move(const PyKvRemote& self, nb::object cache, nb::object agent, nb::handle local_ids,
                     nb::handle remote_ids, nb::handle layer, nb::handle request,
                     std::optional<double> timeout) {
  const std::vector<std::uint64_t> local = numbers_from<std::uint64_t>(local_ids, "local_ids");
  const std::vector<std::uint64_t> remote = numbers_from<std::uint64_t>(remote_ids, "remote_ids");
  kv::MoveOptions options{.timeout = timeout_or_default(timeout)};
  if (!layer.is_none()) options.layer = small_from(layer, "layer");
  if (!request.is_none()) options.request = unsigned_from(request, "request");
  ReleaseQueue::get().have_waiter();
  ReleaseQueue::get().drain();
  kv::Move move = [&, to = self.shared()] {
    const nb::gil_scoped_release unlocked;  // takes time proportional to the number of blocks
    return ((*to).*kind)(local, remote, options);
  }();
  return moving(std::move(move), std::move(cache), std::move(agent));
}

void bind_remote(nb::module_& m) {
  nb::class_<PyKvMove>(m, "KvMove", "The progress of a transfer.").def("progress", &PyKvMove::progress);
  nb::class_<PyKvRemote>(m, "KvRemote", "The KV cache of a peer.")
      .def_prop_ro(
          "geometry", [](const PyKvRemote& self) { return self.shared()->geometry(); },
          nb::sig("def geometry(self) -> KvGeometry"))
      .def("_write_blocks", &start_move<&kv::Remote::write_blocks>, nb::arg("cache"), nb::arg("agent"),
           nb::arg("local_ids").none(), nb::arg("remote_ids").none(), nb::arg("layer").none(),
           nb::arg("request").none(), nb::arg("timeout").none())
      .def("_read_blocks", &start_move<&kv::Remote::read_blocks>, nb::arg("cache"), nb::arg("agent"),
           nb::arg("local_ids").none(), nb::arg("remote_ids").none(), nb::arg("layer").none(),
           nb::arg("request").none(), nb::arg("timeout").none());
  m.def("kv_connect", &connect_cache, nb::arg("peer"), nb::arg("cache"), nb::arg("name"),
        nb::arg("timeout").none());
}

}  // namespace

nb::tuple moving(kv::Move move, nb::object used, nb::object agent) {
  nb::object future = make_transfer(move.future(), std::move(used), std::move(agent));
  return nb::make_tuple(std::move(future), PyKvMove(std::move(move)));
}

void bind_kv(nb::module_& m) {
  bind_geometry(m);
  bind_cache_class(m);
  bind_remote(m);
  bind_broadcast(m);
}

}  // namespace slime::python

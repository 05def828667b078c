#include <string>
#include <vector>

#include "base/mutex.h"
#include "cache/client.h"
#include "cache/store.h"
#include "python/py_agent.h"
#include "python/py_attachments.h"
#include "python/py_future.h"
#include "python/py_memory.h"

namespace slime::python {
namespace {

using cache::CacheClient;

// A cache client and the agent that it uses. The client is the last member, so it is destroyed
// first.
struct Client {
  Client(std::shared_ptr<PeerAgent> of, std::string_view server, const cache::CacheClientOptions& options)
      : agent(std::move(of)), client(unwrap(CacheClient::create(*agent, server, options))) {}
  std::shared_ptr<PeerAgent> agent;
  CacheClient client;
};

// _slime.CacheClient, from which slime.CacheClient derives. Thread: holds the GIL.
class PyCacheClient {
 public:
  PyCacheClient(const PyAgent& agent, std::string_view server, const cache::CacheClientOptions& options)
      : client_(std::make_shared<Client>(agent.shared(), server, options)) {}
  ~PyCacheClient() {
    if (client_.forked()) return;
    const nb::gil_scoped_release unlocked;
    client_.reset();  // ends the staging registrations: may wait
  }
  [[nodiscard]] const std::shared_ptr<Client>& shared() const { return client_.shared(); }

 private:
  ForkGuarded<Client> client_;
};

// Like run_blocking(), for calls that use memory of Python objects: returns only when the call has
// ended and no longer uses the memory. An exception of a signal handler is raised after that.
template <class F>
void run_to_its_end(F fn) {
  struct Latch {
    Mutex mutex;
    CondVar changed;
    bool done SLIME_GUARDED_BY(mutex) = false;
  };
  const auto latch = std::make_shared<Latch>();
  try {
    run_blocking([&fn, latch] {
      fn();
      {
        const MutexLock lock(latch->mutex);
        latch->done = true;
      }
      latch->changed.notify_all();
      return true;
    });
  } catch (const nb::python_error&) {
    {
      const nb::gil_scoped_release unlocked;
      const MutexLock lock(latch->mutex);
      latch->changed.wait(latch->mutex, [&]() SLIME_REQUIRES(latch->mutex) { return latch->done; });
    }
    throw;
  }
}

// Returns the bytes of a key: a str as UTF-8, or bytes.
std::string_view view_of_key(nb::handle key) {
  if (PyUnicode_Check(key.ptr())) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(key.ptr(), &size);
    if (text == nullptr) throw nb::python_error();
    return {text, static_cast<std::size_t>(size)};
  }
  if (PyBytes_Check(key.ptr()))
    return {PyBytes_AS_STRING(key.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(key.ptr()))};
  raise(Code::kInvalidArgument, "a key is str or bytes");
}

// Borrows the keys of a Python list.
std::vector<std::string_view> views_of_keys(const nb::list& keys) {
  std::vector<std::string_view> out;
  for (const nb::handle key : keys) out.push_back(view_of_key(key));
  return out;
}

// Converts a Python list of places to memory, and keeps the memory alive. A place is the tuple
// (region, offset, length), or any object that PinnedMemory accepts.
class Places {
 public:
  Places(const nb::list& places, bool filled) {
    pins_.reserve(nb::len(places));
    for (const nb::handle place : places) add(place, filled);
  }
  struct Place {
    const MemoryRegion* region = nullptr;
    std::uint64_t offset = 0;
    MutableBytes bytes;
  };
  [[nodiscard]] const std::vector<Place>& all() const { return places_; }

 private:
  void add(nb::handle place, bool filled) {
    if (nb::isinstance<nb::tuple>(place)) {
      const auto& region = nb::cast<const PyRegion&>(place[0]);
      const std::uint64_t offset = unsigned_from(place[1], "the offset");
      const std::uint64_t length = unsigned_from(place[2], "the length");
      if (region.closed() || offset > region.length_bytes() || length > region.length_bytes() - offset)
        raise(Code::kInvalidArgument, "the array reaches past the end of its region, or that is closed");
      refuse_readonly(filled && region.readonly());
      places_.push_back({&region.region(), offset, MutableBytes(region.data() + offset, length)});
      return;
    }
    const PinnedMemory& pin = pins_.emplace_back(PinnedMemory::of(place));
    refuse_readonly(filled && pin.readonly());
    places_.push_back({nullptr, 0, MutableBytes(pin.data(), pin.length_bytes())});
  }
  static void refuse_readonly(bool readonly) {
    if (readonly) raise(Code::kPermissionDenied, "the memory is read-only: nothing can be read into it");
  }

  std::vector<PinnedMemory> pins_;
  std::vector<Place> places_;
};

cache::Source source_of(const Places::Place& place) {
  if (place.region == nullptr) return Bytes(place.bytes);
  return {*place.region, place.offset, place.bytes.size()};
}
cache::Target target_of(const Places::Place& place) {
  if (place.region == nullptr) return place.bytes;
  return {*place.region, place.offset, place.bytes.size()};
}

// Returns the arguments of slime._errors.from_status().
nb::object outcome(const Status& status) {
  if (status.ok()) return nb::none();
  return nb::make_tuple(static_cast<int>(status.code()), status.text(), status.maybe_executed());
}

nb::list put_many(const PyCacheClient& self, std::string space, const nb::list& keys, const nb::list& sources,
                  std::optional<double> ttl, bool replace) {
  const std::vector<std::string_view> names = views_of_keys(keys);
  const Places places(sources, false);
  if (names.size() != places.all().size()) raise(Code::kInvalidArgument, "as many keys as objects, please");
  std::vector<cache::PutItem> items;
  for (std::size_t i = 0; i < names.size(); ++i) items.push_back({names[i], source_of(places.all()[i])});
  const cache::PutOptions options{.ttl = ttl ? timeout_or_default(ttl) : Nanos::zero(), .replace = replace};
  std::vector<Status> statuses;
  run_to_its_end([&, client = self.shared()] { statuses = client->client.put_many(space, items, options); });
  nb::list out;
  for (const Status& status : statuses) out.append(outcome(status));
  return out;
}

nb::list get_many(const PyCacheClient& self, std::string space, const nb::list& keys) {
  const std::vector<std::string_view> names = views_of_keys(keys);
  std::vector<Result<ByteVector>> results;
  run_to_its_end([&, client = self.shared()] { results = client->client.get_many(space, names); });
  nb::list out;
  for (Result<ByteVector>& result : results) {
    out.append(result ? nb::object(nb::bytes(result->data(), result->size())) : outcome(result.error()));
    if (result) result = ByteVector();  // avoids two copies of all values
  }
  return out;
}

nb::list get_many_into(const PyCacheClient& self, std::string space, const nb::list& keys,
                       const nb::list& targets) {
  const std::vector<std::string_view> names = views_of_keys(keys);
  const Places places(targets, true);
  if (names.size() != places.all().size()) raise(Code::kInvalidArgument, "as many keys as targets, please");
  std::vector<cache::GetItem> items;
  for (std::size_t i = 0; i < names.size(); ++i) items.push_back({names[i], target_of(places.all()[i])});
  std::vector<Result<std::uint64_t>> results;
  run_to_its_end([&, client = self.shared()] { results = client->client.get_many(space, items); });
  nb::list out;
  for (const Result<std::uint64_t>& result : results)
    out.append(result ? nb::object(nb::int_(*result)) : outcome(result.error()));
  return out;
}

// One place of memory for an asynchronous call. The caller hands `keeper` to the call's future,
// which keeps the memory alive.
struct KeptPlace {
  KeptPlace(nb::handle place, bool filled) : places(list_of(place), filled) {
    keeper = keep(nb::isinstance<nb::tuple>(place) ? PinnedMemory::owned_by(nb::borrow(place[0]))
                                                   : PinnedMemory::of(place));
  }
  static nb::list list_of(nb::handle place) {
    nb::list out;
    out.append(place);
    return out;
  }
  [[nodiscard]] const Places::Place& place() const { return places.all()[0]; }

  Places places;
  std::shared_ptr<const void> keeper;
};

nb::object put_async(const PyCacheClient& self, nb::object agent, std::string_view space, nb::handle key,
                     nb::handle source, std::optional<double> ttl, bool replace) {
  const KeptPlace kept(source, false);
  const cache::PutOptions options{.ttl = ttl ? timeout_or_default(ttl) : Nanos::zero(), .replace = replace};
  auto future = self.shared()->client.put_async(space, view_of_key(key), source_of(kept.place()), options);
  future.on_done([keeper = kept.keeper] {});
  return make_future(std::move(future), std::move(agent));
}

nb::object get_async(const PyCacheClient& self, nb::object agent, std::string_view space, nb::handle key) {
  auto future = self.shared()->client.get_async(space, view_of_key(key));
  const auto convert = [](ByteVector& bytes) { return nb::object(nb::bytes(bytes.data(), bytes.size())); };
  return make_future(std::move(future), std::move(agent), convert);
}

nb::object get_into_async(const PyCacheClient& self, nb::object agent, std::string_view space, nb::handle key,
                          nb::handle target) {
  const KeptPlace kept(target, true);
  auto future = self.shared()->client.get_async(space, view_of_key(key), target_of(kept.place()));
  future.on_done([keeper = kept.keeper] {});
  const auto convert = [](std::uint64_t& length) { return nb::object(nb::int_(length)); };
  return make_future(std::move(future), std::move(agent), convert);
}

nb::list remove_many(const PyCacheClient& self, std::string space, const nb::list& keys) {
  std::vector<std::string> names;
  for (const std::string_view key : views_of_keys(keys)) names.emplace_back(key);
  const std::vector<Status> statuses =
      run_blocking([client = self.shared(), space = std::move(space), names = std::move(names)] {
        const std::vector<std::string_view> views(names.begin(), names.end());
        return client->client.remove_many(space, views);
      });
  nb::list out;
  for (const Status& status : statuses) out.append(outcome(status));
  return out;
}

// Makes a Python function of a method that takes only a namespace and a key. The call owns copies
// of both, so it may go on after an exception of a signal handler has interrupted the wait.
template <class R>
auto by_name(R (CacheClient::*method)(std::string_view, std::string_view)) {
  return [method](const PyCacheClient& self, std::string space, nb::handle key) {
    return run_blocking(
        [client = self.shared(), method, space = std::move(space), name = std::string(view_of_key(key))] {
          return (client->client.*method)(space, name);
        });
  };
}

nb::dict info_dict(const cache::ObjectInfo& info) {
  nb::dict out;
  out["version"] = info.version;
  out["length"] = info.length;
  out["checksum"] = info.checksum;
  out["pinned"] = info.pinned;
  return out;
}

}  // namespace

void bind_cache(nb::module_& m) {
  nb::class_<PyCacheClient>(m, "CacheClient", "A client of one cache.")
      .def(
          "__init__",
          [](PyCacheClient* self, const PyAgent& agent, std::string_view server,
             std::optional<double> timeout) {
            cache::CacheClientOptions options;
            if (timeout) options.timeout = timeout_or_default(timeout);
            new (self) PyCacheClient(agent, server, options);
          },
          nb::arg("agent"), nb::arg("server"), nb::arg("timeout") = nb::none())
      .def("_put_places", &put_many, nb::arg("namespace"), nb::arg("keys"), nb::arg("places"),
           nb::arg("ttl") = nb::none(), nb::arg("replace") = false)
      .def("_get_bytes", &get_many, nb::arg("namespace"), nb::arg("keys"))
      .def("_get_places", &get_many_into, nb::arg("namespace"), nb::arg("keys"), nb::arg("places"))
      .def("_remove_many", &remove_many, nb::arg("namespace"), nb::arg("keys"))
      .def("_put_async", &put_async, nb::keep_alive<0, 1>(), nb::arg("agent"), nb::arg("namespace"),
           nb::arg("key"), nb::arg("place"), nb::arg("ttl").none(), nb::arg("replace"))
      .def("_get_async", &get_async, nb::keep_alive<0, 1>(), nb::arg("agent"), nb::arg("namespace"),
           nb::arg("key"))
      .def("_get_into_async", &get_into_async, nb::keep_alive<0, 1>(), nb::arg("agent"), nb::arg("namespace"),
           nb::arg("key"), nb::arg("place"))
      .def(
          "info",
          [](const PyCacheClient& self, std::string space, nb::handle key) {
            return info_dict(unwrap(by_name(&CacheClient::info)(self, std::move(space), key)));
          },
          nb::arg("namespace"), nb::arg("key"),
          "Returns version, length, checksum and pinned of an object, without reading its bytes.",
          nb::sig("def info(self, namespace: str, key: str | bytes) -> dict"))
      .def(
          "exists",
          [](const PyCacheClient& self, std::string space, nb::handle key) {
            return unwrap(by_name(&CacheClient::exists)(self, std::move(space), key));
          },
          nb::arg("namespace"), nb::arg("key"),
          nb::sig("def exists(self, namespace: str, key: str | bytes) -> bool"))
      .def(
          "remove",
          [](const PyCacheClient& self, std::string space, nb::handle key) {
            check(by_name(&CacheClient::remove)(self, std::move(space), key));
          },
          nb::arg("namespace"), nb::arg("key"), "Removes an object. Raises NotFound if there is none.",
          nb::sig("def remove(self, namespace: str, key: str | bytes) -> None"))
      .def(
          "pin",
          [](const PyCacheClient& self, std::string space, nb::handle key) {
            check(by_name(&CacheClient::pin)(self, std::move(space), key));
          },
          nb::arg("namespace"), nb::arg("key"),
          "Pins an object, so that it is not evicted. The pin belongs to the object, not to the\n"
          "client that set it.",
          nb::sig("def pin(self, namespace: str, key: str | bytes) -> None"))
      .def(
          "unpin",
          [](const PyCacheClient& self, std::string space, nb::handle key) {
            check(by_name(&CacheClient::unpin)(self, std::move(space), key));
          },
          nb::arg("namespace"), nb::arg("key"),
          nb::sig("def unpin(self, namespace: str, key: str | bytes) -> None"))
      .def("_stats_json", [](const PyCacheClient& self) {
        return to_json(unwrap(run_blocking([client = self.shared()] { return client->client.stats(); })));
      });
}

}  // namespace slime::python

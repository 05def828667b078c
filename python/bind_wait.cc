#include <nanobind/stl/vector.h>

#include "base/wait.h"
#include "python/py_future.h"

namespace slime::python {
namespace {

// A future of any type, for WaitSet. Thread: any, without the GIL.
struct Awaited {
  std::shared_ptr<AnyFuture> future;
  [[nodiscard]] bool done() const { return future->done(); }
  [[nodiscard]] bool valid() const { return future != nullptr; }
  [[nodiscard]] std::shared_ptr<Driver> driver() const { return future->driver(); }
  void on_done(Task task) const { future->on_done(std::move(task)); }
};

// _slime.WaitSet. Thread: holds the GIL.
class PyWaitSet {
 public:
  explicit PyWaitSet(nb::handle futures) : set_(std::make_shared<Guarded>(awaited(futures))) {}

  bool wait_all(std::optional<double> timeout) {
    return waits([](WaitSet<Awaited>& set, Nanos slice) { return set.wait_all(slice); }, timeout);
  }
  std::optional<std::size_t> wait_any(std::optional<double> timeout) {
    std::optional<std::size_t> found;
    waits(
        [&found](WaitSet<Awaited>& set, Nanos slice) {
          found = set.wait_any(slice);
          return found || set.futures().empty();
        },
        timeout);
    return found;
  }
  // Raises WaitTimeout after `timeout` seconds.
  std::optional<std::size_t> next(std::optional<double> timeout) {
    std::optional<std::size_t> found;
    const auto take = [&found](WaitSet<Awaited>& set, Nanos slice) {
      if (set.left() == 0) return true;
      found = set.next(slice);
      return found.has_value();
    };
    if (!waits(take, timeout)) raise(Status::wait_timed_out());
    return found;
  }

 private:
  // Several Python threads may use one iterator: they take turns.
  struct Guarded {
    explicit Guarded(std::vector<Awaited> futures) : set(std::move(futures)) {}
    Mutex mutex;
    WaitSet<Awaited> set SLIME_GUARDED_BY(mutex);
  };
  static std::vector<Awaited> awaited(nb::handle futures) {
    std::vector<Awaited> all;
    for (const nb::handle each : nb::iter(futures)) all.push_back({nb::cast<const PyFuture&>(each).shared()});
    return all;
  }
  template <class Wait>
  bool waits(Wait wait, std::optional<double> timeout) {
    const std::shared_ptr<Guarded> guarded = set_.shared();
    return wait_in_slices(
        [&](Nanos slice) {
          const MutexLock lock(guarded->mutex);
          return wait(guarded->set, slice);
        },
        timeout_from(timeout));
  }
  ForkGuarded<Guarded> set_;
};

}  // namespace

void bind_wait(nb::module_& m) {
  nb::class_<PyWaitSet>(m, "WaitSet", "Follows futures until they have ended. See slime.as_completed().")
      .def(
          "__init__", [](PyWaitSet* self, nb::handle futures) { new (self) PyWaitSet(futures); },
          nb::arg("futures"),
          nb::sig("def __init__(self, futures: collections.abc.Iterable[Future]) -> None"))
      .def("wait_all", &PyWaitSet::wait_all, nb::arg("timeout") = nb::none(),
           "Waits until all futures are done. Returns False after `timeout` seconds.")
      .def("wait_any", &PyWaitSet::wait_any, nb::arg("timeout") = nb::none(),
           "Waits until a future is done. Returns the least number of such a future; None after\n"
           "`timeout` seconds, or if there is no future.")
      .def("next", &PyWaitSet::next, nb::arg("timeout") = nb::none(),
           "Waits for a future that next() has not returned yet, and returns its number; None if\n"
           "none is left. Raises WaitTimeout after `timeout` seconds.");
}

}  // namespace slime::python

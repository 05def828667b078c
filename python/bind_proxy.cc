#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/py_agent.h"
#include "python/py_attachments.h"
#include "python/py_call.h"
#include "python/py_future.h"
#include "python/py_memory.h"
#include "python/py_rpc.h"
#include "python/py_values.h"

namespace slime::python {
namespace {

// _slime.ServiceProxy. Keeps its agent alive. Thread: holds the GIL.
class PyServiceProxy {
 public:
  PyServiceProxy(ServiceProxy proxy, nb::object agent)
      : proxy_(std::make_shared<ServiceProxy>(std::move(proxy))), agent_(std::move(agent)) {}
  PyServiceProxy(PyServiceProxy&&) = default;

  [[nodiscard]] const ServiceProxy& proxy() const { return *proxy_; }
  [[nodiscard]] const nb::object& agent() const { return agent_; }
  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<PyServiceProxy>(self)->agent_.ptr());
    return 0;
  }
  static int clear(PyObject* self) {
    nb::inst_ptr<PyServiceProxy>(self)->agent_.reset();
    return 0;
  }

 private:
  ForkGuarded<ServiceProxy> proxy_;
  nb::object agent_;
};

PyType_Slot kProxySlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&PyServiceProxy::traverse)},
                             {Py_tp_clear, reinterpret_cast<void*>(&PyServiceProxy::clear)},
                             {0, nullptr}};

Balance balance_from(std::string_view name) {
  if (name == "round-robin") return Balance::kRoundRobin;
  if (name == "least-in-flight") return Balance::kLeastInFlight;
  if (name == "sticky") return Balance::kSticky;
  raise(Code::kInvalidArgument,
        "balance is \"round-robin\", \"least-in-flight\" or \"sticky\", not \"" + std::string(name) + "\"");
}

// Starts a call with values that C++ can encode. Returns an empty future, and sends nothing, for
// other values.
Future<Payload> begin(const PyServiceProxy& self, std::string_view method, const nb::tuple& arguments,
                      std::optional<double> timeout) {
  rpc::AttachedBody request;
  if (!encode_value(arguments, request)) return {};
  const Nanos nanos = timeout_or_default(timeout);
  if (!request.attachments.empty())
    return self.proxy().raw().call_attached(method, std::move(request), nanos);
  return self.proxy().raw().call(method, std::move(request.body), nanos);
}

nb::object call_value(const PyServiceProxy& self, std::string_view method, const nb::tuple& arguments,
                      std::optional<double> timeout) {
  return value_future(begin(self, method, arguments, timeout), self.agent());
}

nb::object call_now(const PyServiceProxy& self, std::string_view method, const nb::tuple& arguments,
                    std::optional<double> timeout) {
  return value_now(begin(self, method, arguments, timeout));
}

nb::object call_raw(const PyServiceProxy& self, std::string_view method, nb::handle arguments,
                    std::optional<double> timeout, nb::handle decode,
                    const std::optional<PyMetadata>& metadata, bool timing, bool as_bytes) {
  const PinnedMemory memory = PinnedMemory::of(arguments);
  rpc::AttachedBody body{.body = {memory.bytes().begin(), memory.bytes().end()}, .raw = as_bytes};
  auto told = times_if(timing);
  const ServiceProxy proxy = carrying(self.proxy(), metadata, told);
  return make_call_future(proxy.raw().call_attached(method, std::move(body), timeout_or_default(timeout)),
                          self.agent(), decode, std::move(told));
}

nb::object call_attached(const PyServiceProxy& self, std::string_view method, nb::handle arguments,
                         PyAttachedBody& attached, std::optional<double> timeout, nb::handle decode,
                         const std::optional<PyMetadata>& metadata, bool timing) {
  rpc::AttachedBody body = attached.take(arguments);
  auto told = times_if(timing);
  const ServiceProxy proxy = carrying(self.proxy(), metadata, told);
  return make_call_future(proxy.raw().call_attached(method, std::move(body), timeout_or_default(timeout)),
                          self.agent(), decode, std::move(told));
}

nb::object one_way_raw(const PyServiceProxy& self, std::string_view method, nb::handle arguments,
                       std::optional<double> timeout, const std::optional<PyMetadata>& metadata, bool timing,
                       PyAttachedBody* attached, bool as_bytes) {
  rpc::AttachedBody body = body_of(arguments, attached);
  body.raw = as_bytes;
  auto told = times_if(timing);
  const ServiceProxy proxy = carrying(self.proxy(), metadata, told);
  return make_future(proxy.raw().one_way_attached(method, std::move(body), timeout_or_default(timeout)),
                     self.agent(), std::move(told), OnInterrupt::kCancel);
}

PyServiceProxy idempotent(const PyServiceProxy& self, int attempts, double backoff, double backoff_max,
                          std::optional<double> attempt_timeout) {
  RetryPolicy retry;
  retry.attempts = attempts;
  if (!(backoff >= 0) || !(backoff_max >= backoff))
    raise(Code::kInvalidArgument, "backoff is from 0 to backoff_max");
  retry.backoff = timeout_from(backoff);
  retry.backoff_max = timeout_from(backoff_max);
  retry.attempt_timeout = timeout_or_default(attempt_timeout);
  check(retry.validate());
  return {self.proxy().idempotent(retry), self.agent()};
}

}  // namespace

void bind_proxy(nb::module_& m) {
  nb::class_<PyServiceProxy>(
      m, "ServiceProxy", nb::type_slots(kProxySlots),
      "Calls any server of a service in the agent's scope. See slime.PeerAgent.proxy().")
      .def(
          "__init__",
          [](PyServiceProxy* self, nb::handle agent, std::string_view service, std::string_view balance,
             std::string key, std::optional<double> timeout, bool wait_for_ready) {
            ProxyOptions options;
            options.policy = balance_from(balance);
            options.key = std::move(key);
            options.timeout = timeout_or_default(timeout);
            options.wait_for_ready = wait_for_ready;
            check(options.validate());
            new (self) PyServiceProxy(nb::cast<PyAgent&>(agent).agent().proxy(service, std::move(options)),
                                      nb::borrow(agent));
          },
          nb::arg("agent"), nb::arg("service"), nb::arg("balance") = "least-in-flight", nb::arg("key") = "",
          nb::arg("timeout") = nb::none(), nb::arg("wait_for_ready") = false,
          nb::sig("def __init__(self, agent: PeerAgent, service: str, balance: str = \"least-in-flight\", "
                  "key: str = \"\", timeout: float | None = None, wait_for_ready: bool = False) -> None"))
      .def("idempotent", &idempotent, nb::arg("attempts"), nb::arg("backoff"), nb::arg("backoff_max"),
           nb::arg("attempt_timeout") = nb::none(),
           "Returns this proxy with repetition of calls that may have been executed.")
      .def(
          "with_signature",
          [](const PyServiceProxy& self, std::string_view signature) {
            return PyServiceProxy(self.proxy().with_signature(rpc::Signature(signature)), self.agent());
          },
          nb::arg("signature"), "Like Peer.with_signature().")
      .def("call_value", &call_value, nb::arg("method"), nb::arg("arguments"),
           nb::arg("timeout") = nb::none(),
           nb::sig("def call_value(self, method: str, arguments: tuple, timeout: float | None = None) "
                   "-> Future | None"),
           "Calls a method with values that C++ can encode. Returns None, and sends nothing, for\n"
           "other values.")
      .def("call_now", &call_now, nb::arg("method"), nb::arg("arguments"), nb::arg("timeout"),
           nb::sig("def call_now(self, method: str, arguments: tuple, timeout: float | None) -> typing.Any"),
           "Like _slime.call_now().")
      .def("call_raw", &call_raw, nb::arg("method"), nb::arg("arguments").none(),
           nb::arg("timeout") = nb::none(), nb::arg("decode") = nb::none(), nb::arg("metadata") = nb::none(),
           nb::arg("timing") = false, nb::arg("as_bytes") = false,
           nb::sig("def call_raw(self, method: str, arguments: typing.Any, timeout: float | None = None, "
                   "decode: collections.abc.Callable[[Payload], typing.Any] | None = None, "
                   "metadata: collections.abc.Sequence[tuple[str, str, bool]] | None = None, "
                   "timing: bool = False, as_bytes: bool = False) -> Future"),
           "Like Peer._call_raw(); the timing covers all attempts together.")
      .def("call_attached", &call_attached, nb::arg("method"), nb::arg("arguments").none(),
           nb::arg("attached"), nb::arg("timeout") = nb::none(), nb::arg("decode") = nb::none(),
           nb::arg("metadata") = nb::none(), nb::arg("timing") = false,
           nb::sig("def call_attached(self, method: str, arguments: typing.Any, attached: AttachedBody, "
                   "timeout: float | None = None, "
                   "decode: collections.abc.Callable[[Payload], typing.Any] | None = None, "
                   "metadata: collections.abc.Sequence[tuple[str, str, bool]] | None = None, "
                   "timing: bool = False) -> Future"),
           "Like Peer._call_attached().")
      .def("one_way_raw", &one_way_raw, nb::arg("method"), nb::arg("arguments").none(),
           nb::arg("timeout") = nb::none(), nb::arg("metadata") = nb::none(), nb::arg("timing") = false,
           nb::arg("attached") = nb::none(), nb::arg("as_bytes") = false,
           nb::sig("def one_way_raw(self, method: str, arguments: typing.Any, timeout: float | None = None, "
                   "metadata: collections.abc.Sequence[tuple[str, str, bool]] | None = None, "
                   "timing: bool = False, attached: AttachedBody | None = None, as_bytes: bool = False) -> "
                   "Future"),
           "Like Peer._one_way_raw().");
}

}  // namespace slime::python

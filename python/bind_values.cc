#include "agent/peer_agent.h"
#include "python/py_agent.h"
#include "python/py_attachments.h"
#include "python/py_call.h"
#include "python/py_values.h"

namespace slime::python {
namespace {

// Starts a call with values that C++ can encode. Returns an empty future, and sends nothing, for
// other values.
Future<Payload> begin(const PyPeer& self, std::string_view service, std::string_view method,
                      const nb::tuple& arguments, std::optional<double> timeout) {
  rpc::AttachedBody request;
  if (!encode_value(arguments, request)) return {};
  const Nanos nanos = timeout_or_default(timeout);
  if (!request.attachments.empty())
    return self.peer().raw().call_attached(service, method, std::move(request), nanos);
  return self.peer().raw().call(service, method, std::move(request.body), nanos);
}

nb::object call_value(const PyPeer& self, std::string_view service, std::string_view method,
                      const nb::tuple& arguments, std::optional<double> timeout) {
  return value_future(begin(self, service, method, arguments, timeout), self.agent());
}

nb::object call_now(const PyPeer& self, std::string_view service, std::string_view method,
                    const nb::tuple& arguments, std::optional<double> timeout) {
  return value_now(begin(self, service, method, arguments, timeout));
}

}  // namespace

nb::object ReplyValue::operator()(rpc::Payload& payload) {
  if (!kept_) kept_ = std::make_shared<rpc::Payload>(std::move(payload));
  const std::shared_ptr<rpc::Payload> kept = kept_;
  nb::object value = decode_value(*kept);
  if (value.is_valid()) return value;
  return nb::module_::import_("slime._attachments").attr("unpack_reply")(nb::cast(PyPayload(kept)));
}

nb::object value_future(Future<Payload> future, nb::object agent) {
  if (!future.valid()) return nb::none();
  return make_future(std::move(future), std::move(agent), ReplyValue(), {}, nullptr, OnInterrupt::kCancel);
}

nb::object value_now(Future<Payload> future) {
  if (!future.valid()) return nb::borrow(Py_NotImplemented);
  try {
    wait_in_slices([&future](Nanos slice) { return future.wait_done(slice); }, Nanos::max());
  } catch (const nb::python_error& error) {
    // Ctrl-C cancels the call, so that the program can end without waiting for the call's answer.
    if (error.matches(PyExc_KeyboardInterrupt)) future.cancel();
    throw;
  }
  Payload payload = unwrap(future.wait(Nanos::zero()));
  nb::object value = decode_value(payload);
  if (value.is_valid()) return value;
  ReplyValue convert;
  value = convert(payload);
  convert.value_taken();
  return value;
}

void bind_values(nb::module_& m) {
  m.def("call_now", &call_now, nb::arg("peer"), nb::arg("service"), nb::arg("method"), nb::arg("arguments"),
        nb::arg("timeout"),
        nb::sig("def call_now(peer: Peer, service: str, method: str, arguments: tuple, "
                "timeout: float | None) -> typing.Any"),
        "Calls a method with values that C++ can encode, waits, and returns the result. Returns\n"
        "NotImplemented, and sends nothing, for other values. Ctrl-C cancels the call.");
  m.def("call_value", &call_value, nb::arg("peer"), nb::arg("service"), nb::arg("method"),
        nb::arg("arguments"), nb::arg("timeout") = nb::none(),
        nb::sig("def call_value(peer: Peer, service: str, method: str, arguments: tuple, "
                "timeout: float | None = None) -> Future | None"),
        "Calls a method with values that C++ can encode. Returns None, and sends nothing, for\n"
        "other values.");
  m.def(
      "decode_value",
      [](const PyPayload& payload) -> nb::object {
        nb::object value = decode_value(payload.payload());
        return value.is_valid() ? value : nb::borrow(Py_NotImplemented);
      },
      nb::arg("payload"), nb::sig("def decode_value(payload: Payload) -> typing.Any"),
      "Decodes a value. Returns NotImplemented if only Python can decode it, and for bytes that\n"
      "are not a value.");
}

}  // namespace slime::python

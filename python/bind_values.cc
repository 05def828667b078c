#include "agent/peer_agent.h"
#include "python/py_agent.h"
#include "python/py_attachments.h"
#include "python/py_call.h"
#include "python/py_values.h"

namespace slime::python {
namespace {

nb::object call_value(const PyPeer& self, std::string_view service, std::string_view method,
                      const nb::tuple& arguments, std::optional<double> timeout) {
  rpc::AttachedBody request;
  if (!encode_value(arguments, request)) return nb::none();
  const Nanos nanos = timeout_or_default(timeout);
  Future<Payload> future = request.attachments.empty()
                               ? self.peer().raw().call(service, method, std::move(request.body), nanos)
                               : self.peer().raw().call_attached(service, method, std::move(request), nanos);
  return make_future(std::move(future), self.agent(), ReplyValue(), {}, nullptr, OnInterrupt::kCancel);
}

}  // namespace

nb::object ReplyValue::operator()(rpc::Payload& payload) {
  if (!kept_) kept_ = std::make_shared<rpc::Payload>(std::move(payload));
  const std::shared_ptr<rpc::Payload> kept = kept_;
  nb::object value = decode_value(*kept);
  if (value.is_valid()) return value;
  return nb::module_::import_("slime._attachments").attr("unpack_reply")(nb::cast(PyPayload(kept)));
}

void bind_values(nb::module_& m) {
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

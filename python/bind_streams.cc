#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/py_agent.h"
#include "python/py_call.h"
#include "python/py_future.h"
#include "python/py_memory.h"
#include "python/py_rpc.h"
#include "python/py_streams.h"

namespace slime::python {
namespace {

PyType_Slot kStreamSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&PyStreamEnd::traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(&PyStreamEnd::clear)},
                              {0, nullptr}};

nb::object stream_raw(const PyPeer& self, std::string_view service, std::string_view method,
                      nb::handle arguments, std::optional<double> timeout, nb::handle decode,
                      const std::optional<PyMetadata>& metadata, bool timing,
                      std::optional<double> idle_timeout) {
  const PinnedMemory memory = PinnedMemory::of(arguments);
  ByteVector body(memory.bytes().begin(), memory.bytes().end());
  auto told = times_if(timing);
  Peer peer = carrying(self.peer(), metadata, told);
  if (idle_timeout) peer = peer.with_idle_timeout(timeout_or_default(idle_timeout));
  auto [end, result] = peer.raw().stream(service, method, std::move(body), true, timeout_or_default(timeout));
  PyStreamEnd stream(std::move(end), result, self.agent());
  return nb::make_tuple(std::move(stream),
                        make_call_future(std::move(result), self.agent(), decode, std::move(told)));
}

}  // namespace

nb::object PyStreamEnd::write(nb::handle message) const {
  const PinnedMemory memory = PinnedMemory::of(message);
  rpc::StreamEnd& end = *held_->end;
  Future<None> written;
  {
    const nb::gil_scoped_release unlocked;
    written = end.write(ByteVector(memory.bytes().begin(), memory.bytes().end()));
  }
  return make_future(std::move(written), agent_);
}

nb::object PyStreamEnd::read(nb::handle decode) const {
  return make_future(
      held_->end->read(), agent_,
      [make = kept_payload()](rpc::StreamEnd::Message& message) mutable -> nb::object {
        if (!message) return nb::none();
        Payload payload = message->take();
        return make(payload);
      },
      decode.is_none() ? nb::object() : nb::borrow(decode));
}

int PyStreamEnd::traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<PyStreamEnd>(self)->agent_.ptr());
  return 0;
}

int PyStreamEnd::clear(PyObject* self) {
  nb::inst_ptr<PyStreamEnd>(self)->agent_.reset();
  return 0;
}

nb::object stream_of(rpc::Request& request) {
  auto end = request.stream();
  if (end == nullptr) return nb::none();
  return nb::cast(PyStreamEnd(std::move(end), {}, nb::none()));
}

void bind_streams(nb::module_& m, nb::class_<PyPeer>& peer) {
  nb::class_<PyStreamEnd>(m, "StreamEnd", nb::type_slots(kStreamSlots),
                          "One end of a stream, with messages as bytes.")
      .def("write", &PyStreamEnd::write, nb::arg("message").none(),
           nb::sig("def write(self, message: typing.Any) -> Future"),
           "Copies the message. The future is done once the message is accepted: wait for it\n"
           "before the next write.")
      .def("read", &PyStreamEnd::read, nb::arg("decode") = nb::none(),
           nb::sig("def read(self, decode: collections.abc.Callable[[Payload | None], typing.Any] | None = "
                   "None) -> Future"),
           "Reads the next message: decode(Payload), or the Payload. After the last message:\n"
           "decode(None), or None.")
      .def("close_writing", &PyStreamEnd::close_writing, "Ends the messages of this side.")
      .def("start_reading", &PyStreamEnd::start_reading,
           "Lets the other side write from now on, before the first read.")
      .def("cancel", &PyStreamEnd::cancel, "For the caller's end: ends the stream now, on both sides.")
      .def("drop", &PyStreamEnd::drop,
           "For the caller's end: cancels the stream and drops unread messages, as the destructor\n"
           "does.");
  peer.def("_stream_raw", &stream_raw, nb::arg("service"), nb::arg("method"), nb::arg("arguments").none(),
           nb::arg("timeout") = nb::none(), nb::arg("decode") = nb::none(), nb::arg("metadata") = nb::none(),
           nb::arg("timing") = false, nb::arg("idle_timeout") = nb::none(),
           nb::sig("def _stream_raw(self, service: str, method: str, arguments: typing.Any, "
                   "timeout: float | None = None, "
                   "decode: collections.abc.Callable[[Payload], typing.Any] | None = None, "
                   "metadata: collections.abc.Sequence[tuple[str, str, bool]] | None = None, "
                   "timing: bool = False, idle_timeout: float | None = None) -> tuple[StreamEnd, Future]"),
           "Calls a streaming method with an encoded msgpack array of the arguments. Returns this\n"
           "side of the stream, and the future of the result, which is decode(Payload), or the\n"
           "Payload.");
}

}  // namespace slime::python

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
#include "python/py_streams.h"

namespace slime::python {
namespace {

using Seconds = std::optional<double>;

PyType_Slot kPeerSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&PyPeer::traverse)},
                            {Py_tp_clear, reinterpret_cast<void*>(&PyPeer::clear)},
                            {0, nullptr}};

nb::object region(const PyPeer& self, std::string name, Seconds timeout) {
  return nb::cast(
      unwrap(run_blocking([peer = self.shared(), name = std::move(name),
                           nanos = timeout_or_default(timeout)] { return peer->region(name, nanos); })));
}

// The copies of one operation, and the Python list that keeps the copies' regions alive.
struct Blocks {
  Blocks(nb::handle list, bool fills_local) {
    ReleaseQueue::get().have_waiter();
    ReleaseQueue::get().drain();
    copies = copies_from(list, fills_local, used);
  }
  nb::list used;
  std::vector<Copy> copies;
};

nb::object read(const PyPeer& self, nb::handle list, Seconds timeout) {
  Blocks blocks(list, true);
  return make_transfer(self.peer().read(blocks.copies, timeout_or_default(timeout)), std::move(blocks.used),
                       self.agent());
}

nb::object write(const PyPeer& self, nb::handle list, Seconds timeout) {
  Blocks blocks(list, false);
  return make_transfer(self.peer().write(blocks.copies, timeout_or_default(timeout)), std::move(blocks.used),
                       self.agent());
}

nb::object write_with_imm(const PyPeer& self, nb::handle list, nb::handle imm, Seconds timeout) {
  Blocks blocks(list, false);
  const std::uint64_t number = unsigned_from(imm, "imm");
  if (number > UINT32_MAX) raise(Code::kInvalidArgument, "imm is above 2**32 - 1");
  return make_transfer(self.peer().write_with_imm(blocks.copies, static_cast<std::uint32_t>(number),
                                                  timeout_or_default(timeout)),
                       std::move(blocks.used), self.agent());
}

nb::object to_number(std::uint64_t& value) { return nb::int_(value); }

nb::object fetch_add(const PyPeer& self, const RemoteRegion& remote, nb::handle offset, nb::handle add,
                     Seconds timeout) {
  const std::uint64_t at = unsigned_from(offset, "remote_offset");
  return make_future(self.peer().fetch_add(remote, at, wrapped_from(add, "add"), timeout_or_default(timeout)),
                     self.agent(), &to_number);
}

nb::object compare_swap(const PyPeer& self, const RemoteRegion& remote, nb::handle offset,
                        nb::handle expected, nb::handle desired, Seconds timeout) {
  const std::uint64_t at = unsigned_from(offset, "remote_offset");
  return make_future(self.peer().compare_swap(remote, at, unsigned_from(expected, "expected"),
                                              unsigned_from(desired, "desired"), timeout_or_default(timeout)),
                     self.agent(), &to_number);
}

nb::object send(const PyPeer& self, nb::handle tag, nb::handle bytes, Seconds timeout) {
  const std::uint64_t number = unsigned_from(tag, "tag");
  const Nanos nanos = timeout_or_default(timeout);
  const PinnedMemory memory = PinnedMemory::of(bytes);
  Peer& peer = self.peer();
  Future<None> future;
  {
    const nb::gil_scoped_release unlocked;  // copies the bytes
    future = peer.send(number, memory.bytes(), nanos);
  }
  return make_future(std::move(future), self.agent());
}

nb::object sendv(const PyPeer& self, nb::handle tag, PyAttachedBody& ranges, Seconds timeout) {
  return make_future(
      self.peer().sendv(unsigned_from(tag, "tag"), ranges.take().attachments, timeout_or_default(timeout)),
      self.agent());
}

nb::object recvv(const PyPeer& self, nb::handle tag, PyAttachedBody& ranges, Seconds timeout) {
  return make_future(
      self.peer().recvv(unsigned_from(tag, "tag"), ranges.take().into, timeout_or_default(timeout)),
      self.agent(), &to_number);
}

nb::object recv(const PyPeer& self, nb::handle tag, Seconds timeout) {
  return make_future(
      self.peer().recv_delivery(unsigned_from(tag, "tag"), timeout_or_default(timeout)), self.agent(),
      [](rpc::Delivery& message) { return nb::bytes(message.bytes().data(), message.bytes().size()); });
}

nb::object call_raw(const PyPeer& self, std::string_view service, std::string_view method,
                    nb::handle arguments, Seconds timeout, nb::handle decode,
                    const std::optional<PyMetadata>& metadata, bool timing, bool as_bytes) {
  const PinnedMemory memory = PinnedMemory::of(arguments);
  rpc::AttachedBody body{.body = {memory.bytes().begin(), memory.bytes().end()}, .raw = as_bytes};
  const Nanos nanos = timeout_or_default(timeout);
  if (!metadata && !timing) {
    return make_call_future(self.peer().raw().call_attached(service, method, std::move(body), nanos),
                            self.agent(), decode, nullptr);
  }
  auto told = times_if(timing);
  Peer peer = carrying(self.peer(), metadata, told);
  return make_call_future(peer.raw().call_attached(service, method, std::move(body), nanos), self.agent(),
                          decode, std::move(told));
}

nb::object call_attached(const PyPeer& self, std::string_view service, std::string_view method,
                         nb::handle arguments, PyAttachedBody& attached, Seconds timeout, nb::handle decode,
                         const std::optional<PyMetadata>& metadata, bool timing) {
  rpc::AttachedBody body = attached.take(arguments);
  auto told = times_if(timing);
  Peer peer = carrying(self.peer(), metadata, told);
  return make_call_future(
      peer.raw().call_attached(service, method, std::move(body), timeout_or_default(timeout)), self.agent(),
      decode, std::move(told));
}

nb::object one_way_raw(const PyPeer& self, std::string_view service, std::string_view method,
                       nb::handle arguments, Seconds timeout, const std::optional<PyMetadata>& metadata,
                       bool timing, PyAttachedBody* attached, bool as_bytes) {
  rpc::AttachedBody body = body_of(arguments, attached);
  body.raw = as_bytes;
  auto told = times_if(timing);
  Peer peer = carrying(self.peer(), metadata, told);
  return make_future(
      peer.raw().one_way_attached(service, method, std::move(body), timeout_or_default(timeout)),
      self.agent(), std::move(told), OnInterrupt::kCancel);
}

void bind_operations(nb::class_<PyPeer>& peer) {
  const char* const copies_doc =
      "Moves the blocks of a list of Copy with one one-sided operation. The local regions stay\n"
      "open until the operation has ended. Source bytes must not change until the future is done.";
  peer.def("read", &read, nb::arg("copies").none(), nb::arg("timeout") = nb::none(), copies_doc,
           nb::sig("def read(self, copies: Copy | collections.abc.Iterable[typing.Any], "
                   "timeout: float | None = None) -> Future[None]"))
      .def("write", &write, nb::arg("copies").none(), nb::arg("timeout") = nb::none(), copies_doc,
           nb::sig("def write(self, copies: Copy | collections.abc.Iterable[typing.Any], "
                   "timeout: float | None = None) -> Future[None]"))
      .def("write_with_imm", &write_with_imm, nb::arg("copies").none(), nb::arg("imm"),
           nb::arg("timeout") = nb::none(),
           nb::sig("def write_with_imm(self, copies: Copy | collections.abc.Iterable[typing.Any], imm: int, "
                   "timeout: float | None = None) -> Future[None]"),
           "Like write(). The peer's on_imm handler gets `imm` once, after all bytes of the batch\n"
           "are visible there.")
      .def("fetch_add", &fetch_add, nb::arg("remote"), nb::arg("remote_offset"), nb::arg("add"),
           nb::arg("timeout") = nb::none(),
           nb::sig("def fetch_add(self, remote: RemoteRegion, remote_offset: int, add: int, "
                   "timeout: float | None = None) -> Future[int]"),
           "Adds `add` to the unsigned number of 8 bytes at `remote_offset`, modulo 2**64, so a\n"
           "negative `add` subtracts. The future's value is the old number. Atomic among the\n"
           "atomics of all peers on this number, but not against the peer's own CPU. The number\n"
           "must be aligned to 8 bytes in the peer's memory. Needs Rights.READ_WRITE.")
      .def(
          "compare_swap", &compare_swap, nb::arg("remote"), nb::arg("remote_offset"), nb::arg("expected"),
          nb::arg("desired"), nb::arg("timeout") = nb::none(),
          nb::sig(
              "def compare_swap(self, remote: RemoteRegion, remote_offset: int, expected: int, desired: int, "
              "timeout: float | None = None) -> Future[int]"),
          "Like fetch_add(), but stores `desired` if the number equals `expected`. The future's\n"
          "value is the old number in both cases.")
      .def("send", &send, nb::arg("tag"), nb::arg("bytes").none(), nb::arg("timeout") = nb::none(),
           nb::sig(
               "def send(self, tag: int, bytes: typing.Any, timeout: float | None = None) -> Future[None]"),
           "Sends a message of any size; messages with one tag arrive in order. Copies the bytes.\n"
           "Done once the peer's agent has the message.")
      .def("_sendv", &sendv, nb::arg("tag"), nb::arg("ranges"), nb::arg("timeout") = nb::none(),
           nb::sig("def _sendv(self, tag: int, ranges: AttachedBody, timeout: float | None = None) -> "
                   "Future[None]"))
      .def("_recvv", &recvv, nb::arg("tag"), nb::arg("ranges"), nb::arg("timeout") = nb::none(),
           nb::sig("def _recvv(self, tag: int, ranges: AttachedBody, timeout: float | None = None) -> "
                   "Future[int]"))
      .def("_recv_future", &recv, nb::arg("tag"), nb::arg("timeout") = nb::none(),
           nb::sig("def _recv_future(self, tag: int, timeout: float | None = None) -> Future"),
           "Receives the next message with this tag (see slime.Peer.recv()).")
      .def("_call_raw", &call_raw, nb::arg("service"), nb::arg("method"), nb::arg("arguments").none(),
           nb::arg("timeout") = nb::none(), nb::arg("decode") = nb::none(), nb::arg("metadata") = nb::none(),
           nb::arg("timing") = false, nb::arg("as_bytes") = false,
           nb::sig("def _call_raw(self, service: str, method: str, arguments: typing.Any, "
                   "timeout: float | None = None, "
                   "decode: collections.abc.Callable[[Payload], typing.Any] | None = None, "
                   "metadata: collections.abc.Sequence[tuple[str, str, bool]] | None = None, "
                   "timing: bool = False, as_bytes: bool = False) -> Future"),
           "Calls a method with an encoded msgpack array of the arguments. The future's value is\n"
           "decode(Payload), or the Payload. `metadata`: keys, values, and whether the call may\n"
           "be made without the entry. `timing`: the future has the call's timing. `as_bytes`:\n"
           "`arguments` are the body for a method of bytes, not msgpack.")
      .def("_call_attached", &call_attached, nb::arg("service"), nb::arg("method"),
           nb::arg("arguments").none(), nb::arg("attached"), nb::arg("timeout") = nb::none(),
           nb::arg("decode") = nb::none(), nb::arg("metadata") = nb::none(), nb::arg("timing") = false,
           nb::sig("def _call_attached(self, service: str, method: str, arguments: typing.Any, "
                   "attached: AttachedBody, timeout: float | None = None, "
                   "decode: collections.abc.Callable[[Payload], typing.Any] | None = None, "
                   "metadata: collections.abc.Sequence[tuple[str, str, bool]] | None = None, "
                   "timing: bool = False) -> Future"),
           "Like _call_raw(), with attachments of the arguments, and memory for attachments of\n"
           "the result.")
      .def("_one_way_raw", &one_way_raw, nb::arg("service"), nb::arg("method"), nb::arg("arguments").none(),
           nb::arg("timeout") = nb::none(), nb::arg("metadata") = nb::none(), nb::arg("timing") = false,
           nb::arg("attached") = nb::none(), nb::arg("as_bytes") = false,
           nb::sig("def _one_way_raw(self, service: str, method: str, arguments: typing.Any, "
                   "timeout: float | None = None, "
                   "metadata: collections.abc.Sequence[tuple[str, str, bool]] | None = None, "
                   "timing: bool = False, attached: AttachedBody | None = None, as_bytes: bool = False) -> "
                   "Future"),
           "Calls without an answer, with an encoded msgpack array. Done once the request has\n"
           "left. `metadata`, `timing` and `as_bytes` as for _call_raw(); the timing ends when\n"
           "the request has left.");
}

}  // namespace

nb::object make_transfer(Future<None> future, nb::object used, nb::object agent) {
  future.on_done([keeper = keep(PinnedMemory::owned_by(std::move(used)))] {});
  return make_future(std::move(future), std::move(agent));
}

int PyPeer::traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<PyPeer>(self)->agent_.ptr());
  return 0;
}

int PyPeer::clear(PyObject* self) {
  nb::inst_ptr<PyPeer>(self)->agent_.reset();
  return 0;
}

void bind_peer(nb::module_& m) {
  nb::class_<PyPeer> peer(m, "Peer", nb::type_slots(kPeerSlots),
                          "A peer by name or address. Connects on first use, and again after a break.");
  peer.def(
          "__init__",
          [](PyPeer* self, nb::handle agent, std::string_view name) {
            new (self) PyPeer(nb::cast<PyAgent&>(agent).agent().peer(name), nb::borrow(agent));
          },
          nb::arg("agent"), nb::arg("name"),
          nb::sig("def __init__(self, agent: PeerAgent, name: str) -> None"))
      .def(
          "__init__",
          [](PyPeer* self, const PyPeer& other) { new (self) PyPeer(other.peer(), other.agent()); },
          nb::arg("other"))
      .def_prop_ro("name", [](const PyPeer& self) { return self.peer().name(); })
      .def_prop_ro(
          "connection", [](const PyPeer& self) { return self.peer().connection(); },
          "Id of the connection if this is the peer of one connection; else 0.")
      .def_prop_ro(
          "agent", [](const PyPeer& self) { return self.agent(); }, nb::sig("def agent(self) -> PeerAgent"))
      .def(
          "connect",
          [](const PyPeer& self, Seconds timeout) {
            return make_future(self.peer().connect(timeout_or_default(timeout)), self.agent());
          },
          nb::arg("timeout") = nb::none(),
          nb::sig("def connect(self, timeout: float | None = None) -> Future[None]"),
          "Connects now, for warm-up.")
      .def("region", &region, nb::arg("name"), nb::arg("timeout") = nb::none(),
           nb::sig("def region(self, name: str, timeout: float | None = None) -> RemoteRegion"),
           "Asks the peer for a region by its published name, and waits. Cached for the connection; after a\n"
           "reconnect ask again: the old one answers Aborted.")
      .def(
          "with_timeout",
          [](const PyPeer& self, double timeout) {
            return PyPeer(self.peer().with_timeout(timeout_or_default(timeout)), self.agent());
          },
          nb::arg("timeout"), "Returns a Peer with another default timeout, in seconds.")
      .def(
          "with_signature",
          [](const PyPeer& self, std::string_view signature) {
            return PyPeer(self.peer().with_signature(rpc::Signature(signature)), self.agent());
          },
          nb::arg("signature"),
          "Returns a Peer whose calls require the server's method to match `signature`; otherwise\n"
          "Unimplemented, and nothing was executed.")
      .def(
          "wait_for_ready",
          [](const PyPeer& self) { return PyPeer(self.peer().wait_for_ready(), self.agent()); },
          "Returns a Peer whose operations wait for an unreachable peer, up to their timeout, instead of\n"
          "failing fast.")
      .def(
          "disconnect",
          [](const PyPeer& self) {
            check(run_blocking([peer = self.shared()] { return peer->disconnect(); }));
          },
          "Closes the connection, if any, for all that use it; the next use connects again.")
      .def(
          "_of_connection",
          [](const PyPeer& self, std::optional<double> timeout) {
            auto found = run_blocking([shared = self.shared(), bound = timeout_or_default(timeout)] {
              return shared->of_connection(bound);
            });
            return PyPeer(unwrap(std::move(found)), self.agent());
          },
          nb::arg("timeout"), nb::sig("def _of_connection(self, timeout: float | None) -> Peer"))
      .def("_info_json", [](const PyPeer& self) {
        return run_blocking([peer = self.shared()] { return to_json(peer->info()); });
      });
  bind_operations(peer);
  bind_prepared(m, peer);
  bind_streams(m, peer);
}

}  // namespace slime::python

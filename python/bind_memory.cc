#include "base/str.h"
#include "python/py_memory.h"

namespace slime::python {
namespace {

PyType_Slot kRegionSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&PyRegion::get_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(&PyRegion::release_buffer)},
                              {Py_tp_traverse, reinterpret_cast<void*>(&PyRegion::traverse)},
                              {0, nullptr}};

const char* rights_name(Rights rights) {
  switch (rights) {
    case Rights::kLocal:
      return "LOCAL";
    case Rights::kRemoteRead:
      return "REMOTE_READ";
    case Rights::kRemoteWrite:
      return "REMOTE_WRITE";
    case Rights::kReadWrite:
      return "READ_WRITE";
  }
  return "?";
}

PyCopy make_copy(nb::handle local, nb::handle local_offset, nb::handle remote, nb::handle remote_offset,
                 nb::handle length_bytes) {
  Local place = Local::of(local);
  remote_from(remote);
  const std::uint64_t offset = unsigned_from(local_offset, "local_offset");
  const std::uint64_t length = unsigned_from(length_bytes, "length_bytes");
  return {place.region, place.offset_of(offset, length), nb::borrow(remote),
          unsigned_from(remote_offset, "remote_offset"), length};
}

void add_copy(nb::handle item, bool fills_local, nb::list& keep, std::vector<Copy>& out) {
  nb::object copy = nb::borrow(item);
  if (!nb::isinstance<PyCopy>(copy)) {
    for (const char* name : {"local", "local_offset", "remote", "remote_offset", "length_bytes"}) {
      if (!nb::hasattr(item, name)) {
        raise(Code::kInvalidArgument, std::string(nb::type_name(item.type()).c_str()) +
                                          " is not a Copy: it has no `" + name +
                                          "`. Offsets without names swap unseen: use slime.Copy(local, "
                                          "local_offset, remote, remote_offset, length_bytes)");
      }
    }
    copy = nb::cast(make_copy(item.attr("local"), item.attr("local_offset"), item.attr("remote"),
                              item.attr("remote_offset"), item.attr("length_bytes")));
  }
  keep.append(copy);
  const auto& c = nb::cast<const PyCopy&>(copy);
  out.push_back(Copy{.local = local_from(c.local, fills_local),
                     .local_offset = c.local_offset,
                     .remote = nb::cast<const RemoteRegion&>(c.remote),
                     .remote_offset = c.remote_offset,
                     .length_bytes = c.length_bytes});
}

}  // namespace

Local Local::of(nb::handle local) {
  if (nb::isinstance<PyRegion>(local)) return {nb::borrow(local)};
  const nb::object found = nb::module_::import_("slime._memory").attr("locate")(local);
  return {found[0], unsigned_from(found[1], "the array's offset"),
          unsigned_from(found[2], "the array's length")};
}

// Checks the bounds of the array. The operation itself checks only the bounds of the region.
std::uint64_t Local::offset_of(std::uint64_t at, std::uint64_t length) const {
  if (at > length_bytes || length > length_bytes - at) {
    raise(Code::kInvalidArgument, str("local_offset ", at, " and length_bytes ", length,
                                      " reach past the end of an array of ", length_bytes, " bytes"));
  }
  return at + offset;
}

MemoryRegion& local_from(nb::handle region, bool fills_local) {
  const auto& local = nb::cast<const PyRegion&>(region);
  if (fills_local && local.readonly()) {
    raise(Code::kPermissionDenied, "the local memory is read-only: nothing can be read into it");
  }
  return local.region();
}

const RemoteRegion& remote_from(nb::handle remote) {
  if (!nb::isinstance<RemoteRegion>(remote)) {
    raise(Code::kInvalidArgument, "remote has to be a RemoteRegion, as peer.region(name) gives it");
  }
  return nb::cast<const RemoteRegion&>(remote);
}

PyRegion::PyRegion(MemoryRegion region, PinnedMemory pin)
    : region_(std::make_shared<MemoryRegion>(std::move(region))),
      pin_(std::move(pin)),
      data_(region_->data()),
      length_bytes_(region_->length_bytes()),
      readonly_(pin_.readonly()) {}

PyRegion::~PyRegion() {
  if (region_.forked()) return;
  const nb::gil_scoped_release unlocked;
  region_.reset();  // ends the registration if close() was not called, so may wait
}

void PyRegion::close(double timeout) {
  const std::shared_ptr<MemoryRegion> region = region_.shared();
  closed_ = true;
  const Status status =
      run_blocking([region, nanos = timeout_from(timeout)] { return region->close(nanos); });
  if (exports_ == 0) pin_.release();
  check(status);
}

int PyRegion::get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* region = nb::inst_ptr<PyRegion>(self);
  if (region->closed_) {
    PyErr_SetString(PyExc_BufferError, "the region is closed");
    view->obj = nullptr;
    return -1;
  }
  const int rc = PyBuffer_FillInfo(view, self, region->data_, static_cast<Py_ssize_t>(region->length_bytes_),
                                   region->readonly_ ? 1 : 0, flags);
  if (rc == 0) ++region->exports_;
  return rc;
}

void PyRegion::release_buffer(PyObject* self, Py_buffer* /*view*/) {
  auto* region = nb::inst_ptr<PyRegion>(self);
  if (--region->exports_ == 0 && region->closed_) region->pin_.release();
}

// The type has no tp_clear: the memory must stay until the destructor has ended the registration.
// The garbage collector breaks a cycle through a region at the other objects of the cycle.
int PyRegion::traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<PyRegion>(self)->pin_.traverse(visit, arg) : 0;
}

std::vector<Copy> copies_from(nb::handle list, bool fills_local, nb::list& keep) {
  std::vector<Copy> out;
  if (nb::isinstance<PyCopy>(list)) {
    add_copy(list, fills_local, keep, out);
    return out;
  }
  const Py_ssize_t hint = PyObject_LengthHint(list.ptr(), 8);
  if (hint < 0) throw nb::python_error();
  out.reserve(static_cast<std::size_t>(hint));
  for (const nb::handle item : nb::iter(list)) add_copy(item, fills_local, keep, out);
  return out;
}

void bind_memory(nb::module_& m) {
  nb::enum_<Rights>(m, "Rights", nb::is_flag(), "Rights of peers on a region.")
      .value("LOCAL", Rights::kLocal, "nothing: only the local side of this process's own operations")
      .value("REMOTE_READ", Rights::kRemoteRead)
      .value("REMOTE_WRITE", Rights::kRemoteWrite)
      .value("READ_WRITE", Rights::kReadWrite);

  nb::enum_<Pages>(m, "Pages", "The kind of pages of memory that Slime allocates.")
      .value("DEFAULT", Pages::kDefault)
      .value("HUGE", Pages::kHuge, "huge pages, from the machine's pool (vm.nr_hugepages)");

  nb::class_<PyRegion>(
      m, "MemoryRegion", nb::type_slots(kRegionSlots),
      "One registration of memory. Has the buffer protocol: memoryview(region) is its memory.")
      .def_prop_ro("length_bytes", &PyRegion::length_bytes)
      .def("__len__", &PyRegion::length_bytes)
      .def_prop_ro(
          "address", [](const PyRegion& self) { return reinterpret_cast<std::uintptr_t>(self.data()); },
          "The address of the first byte, in this process.")
      .def_prop_ro("rights", [](const PyRegion& self) { return self.region().rights(); })
      .def_prop_ro("readonly", &PyRegion::readonly)
      .def_prop_ro("closed", &PyRegion::closed)
      .def("close", &PyRegion::close, nb::arg("timeout") = 2.0,
           "Ends the registration: after close() has returned, no peer touches the memory.\n"
           "Idempotent. Memory that Slime allocated stays mapped until the last view of it is\n"
           "gone.")
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> MemoryRegion"))
      .def(
          "__exit__", [](PyRegion& self, nb::args) { self.close(2.0); },
          nb::sig("def __exit__(self, *args: typing.Any) -> None"))
      .def("__repr__", [](const PyRegion& self) {
        return "<slime.MemoryRegion " + std::to_string(self.length_bytes()) + " bytes" +
               (self.closed() ? " closed>" : ">");
      });

  nb::class_<RemoteRegion>(
      m, "RemoteRegion", "A peer's region as one connection sees it. Invalid once that connection has ended.")
      .def_prop_ro("length_bytes", &RemoteRegion::length_bytes)
      .def("__len__", &RemoteRegion::length_bytes)
      .def_prop_ro("rights", &RemoteRegion::rights)
      .def("__repr__", [](const RemoteRegion& self) {
        return "<slime.RemoteRegion " + std::to_string(self.length_bytes()) + " bytes " +
               rights_name(self.rights()) + ">";
      });

  nb::class_<PyCopy>(m, "Copy", "One block: for read, bytes go remote -> local; for write, local -> remote.")
      .def(
          "__init__",
          [](PyCopy* self, nb::handle local, nb::handle local_offset, nb::handle remote,
             nb::handle remote_offset, nb::handle length_bytes) {
            new (self) PyCopy(make_copy(local, local_offset, remote, remote_offset, length_bytes));
          },
          nb::arg("local").none(), nb::arg("local_offset"), nb::arg("remote").none(),
          nb::arg("remote_offset"), nb::arg("length_bytes"),
          nb::sig("def __init__(self, local: typing.Any, local_offset: int, remote: RemoteRegion, "
                  "remote_offset: int, length_bytes: int) -> None"),
          "`local` is a MemoryRegion, or an array from agent.empty() or a view of one.\n"
          "`local_offset` counts from the first byte of the region or array.")
      .def_prop_ro(
          "local", [](const PyCopy& self) { return self.local; }, nb::sig("def local(self) -> MemoryRegion"))
      .def_ro("local_offset", &PyCopy::local_offset)
      .def_prop_ro(
          "remote", [](const PyCopy& self) { return self.remote; },
          nb::sig("def remote(self) -> RemoteRegion"))
      .def_ro("remote_offset", &PyCopy::remote_offset)
      .def_ro("length_bytes", &PyCopy::length_bytes)
      .def("__repr__", [](const PyCopy& self) {
        return "Copy(local_offset=" + std::to_string(self.local_offset) +
               ", remote_offset=" + std::to_string(self.remote_offset) +
               ", length_bytes=" + std::to_string(self.length_bytes) + ")";
      });
}

}  // namespace slime::python

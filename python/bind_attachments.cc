#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <utility>

#include "agent/peer_agent.h"
#include "python/py_attachments.h"
#include "rpc/codec.h"
#include "rpc/limits.h"

namespace slime::python {
namespace {

// Time in which calls of Slime from Python may release memory that is queued. After that time the
// waiting thread releases the memory.
constexpr Nanos kReleaseDelay = std::chrono::milliseconds(20);

// Registered memory of an attachment. Also keeps alive the Python object that the memory belongs
// to.
class PinnedRegion final : public rpc::Registered {
 public:
  PinnedRegion(rpc::Attachment whole, std::shared_ptr<const void> keeper)
      : whole_(std::move(whole)), keeper_(std::move(keeper)) {}
  [[nodiscard]] MutableBytes bytes() const override { return whole_.memory()->bytes(); }
  [[nodiscard]] Result<const transport::DeviceRegion*> on(const transport::Device& device) const override {
    return whole_.memory()->on(device);
  }

 private:
  const rpc::Attachment whole_;
  const std::shared_ptr<const void> keeper_;
};

struct Range {
  std::shared_ptr<const rpc::Registered> memory;
  std::uint64_t offset = 0;
  std::uint64_t length_bytes = 0;
};

Range range_in(const PyRegion& region, PinnedMemory pinned) {
  const auto offset = static_cast<std::uint64_t>(pinned.data() - region.data());
  const std::uint64_t length = pinned.length_bytes();
  return {std::make_shared<const PinnedRegion>(unwrap(attach(region.region())), keep(std::move(pinned))),
          offset, length};
}

rpc::Attachment attachment_in(nb::handle memory, PinnedMemory pinned) {
  if (memory.is_none() || pinned.length_bytes() == 0) {
    const Bytes bytes = pinned.bytes();
    return {bytes, keep(std::move(pinned))};
  }
  if (nb::isinstance<PyAttachment>(memory)) {
    // C++ owns the memory of an Attachment, so any thread can release it, without Python.
    const rpc::Attachment& whole = nb::cast<const PyAttachment&>(memory).attachment();
    return unwrap(
        whole.part(static_cast<std::uint64_t>(pinned.data() - whole.bytes().data()), pinned.length_bytes()));
  }
  Range range = range_in(nb::cast<const PyRegion&>(memory), std::move(pinned));
  return unwrap(rpc::Attachment::of(std::move(range.memory), range.offset, range.length_bytes));
}

PyType_Slot kAttachmentSlots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(&PyAttachment::get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(&PyAttachment::release_buffer)},
    {0, nullptr}};

}  // namespace

// ------------------------------------------------------------------------------ memory of Python's

ReleaseQueue& ReleaseQueue::get() {
  static constinit PerProcess<ReleaseQueue> all;
  return all.get();
}

void ReleaseQueue::push(std::unique_ptr<PinnedMemory> memory) noexcept {
  bool wake = false;
  {
    const MutexLock lock(mutex_);
    left_.push_back(memory.release());
    wake = std::exchange(sleeps_, false);
  }
  if (wake) changed_.notify_one();
}

void ReleaseQueue::drain() {
  std::vector<PinnedMemory*> all;
  {
    const MutexLock lock(mutex_);
    all.swap(left_);
  }
  // Destroying the memory may run Python code, which may call drain() again: no lock is held here.
  for (PinnedMemory* const each : all) delete each;
}

void ReleaseQueue::have_waiter() {
  const bool waited_for = [this] {
    const MutexLock lock(mutex_);
    return waited_for_;
  }();
  if (!waited_for) nb::module_::import_("slime._attachments").attr("start_releaser")();
}

bool ReleaseQueue::wait() {
  const MutexLock lock(mutex_);
  waited_for_ = true;
  for (; !closed_ && left_.empty(); sleeps_ = false) {
    sleeps_ = true;
    changed_.wait(mutex_);
  }
  changed_.wait_for(mutex_, kReleaseDelay, [this]() SLIME_REQUIRES(mutex_) { return closed_; });
  return !closed_;
}

void ReleaseQueue::close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

std::shared_ptr<const void> keep(PinnedMemory memory) {
  struct Keeper {
    explicit Keeper(PinnedMemory of) : memory(std::make_unique<PinnedMemory>(std::move(of))) {}
    Keeper(const Keeper&) = delete;
    Keeper& operator=(const Keeper&) = delete;
    ~Keeper() {
      if (generation == fork_generation()) {
        queue.push(std::move(memory));
      } else {
        static_cast<void>(memory.release());  // belongs to the parent
      }
    }
    std::unique_ptr<PinnedMemory> memory;
    ReleaseQueue& queue = ReleaseQueue::get();
    const std::uint64_t generation = fork_generation();
  };
  return std::make_shared<const Keeper>(std::move(memory));
}

// ----------------------------------------------------------------------------------------- sending

rpc::Attachment lent(nb::handle object, nb::handle memory) {
  ReleaseQueue::get().have_waiter();
  return attachment_in(memory, PinnedMemory::of(object));
}

nb::bytes PyAttachedBody::add(nb::handle object, nb::handle memory, std::optional<std::string> dtype,
                              std::vector<std::uint64_t> shape) {
  rpc::Attachment attachment = lent(object, memory);
  if (dtype && (dtype->empty() || dtype->size() > rpc::limits::kDtypeBytes ||
                shape.size() > rpc::limits::kArrayDimensions))
    raise(Code::kInvalidArgument, "a dtype or a shape that is too long");
  if (dtype) attachment.set_array({.dtype = *std::move(dtype), .shape = std::move(shape)});
  const rpc::detail::AttachmentScope scope(attachments_);
  const ByteVector data = rpc::detail::pack_attachment(attachment);
  return nb::bytes(data.data(), data.size());
}

void PyAttachedBody::add_into(nb::handle object, nb::handle region) {
  PinnedMemory pinned = PinnedMemory::of(object);
  if (pinned.readonly()) raise(Code::kPermissionDenied, "`into` names memory that is read-only");
  if (region.is_none() || pinned.length_bytes() == 0) {
    const MutableBytes bytes(pinned.data(), pinned.length_bytes());
    into_.emplace_back(bytes, keep(std::move(pinned)));
    return;
  }
  Range range = range_in(nb::cast<const PyRegion&>(region), std::move(pinned));
  into_.push_back(unwrap(rpc::Destination::of(std::move(range.memory), range.offset, range.length_bytes)));
}

rpc::AttachedBody PyAttachedBody::take() {
  ReleaseQueue::get().drain();
  return {.body = {}, .attachments = std::exchange(attachments_, {}), .into = std::exchange(into_, {})};
}

rpc::AttachedBody PyAttachedBody::take(nb::handle body) {
  rpc::AttachedBody out = take();
  const PinnedMemory memory = PinnedMemory::of(body);
  out.body.assign(memory.bytes().begin(), memory.bytes().end());
  return out;
}

rpc::AttachedBody body_of(nb::handle body, PyAttachedBody* attached) {
  if (attached != nullptr) return attached->take(body);
  const PinnedMemory memory = PinnedMemory::of(body);
  return {ByteVector(memory.bytes().begin(), memory.bytes().end())};
}

// --------------------------------------------------------------------------------------- receiving

PyAttachment::PyAttachment(rpc::Attachment attachment)
    : attachment_(std::make_shared<rpc::Attachment>(std::move(attachment))),
      data_(const_cast<std::byte*>(attachment_->bytes().data())),
      size_(attachment_->size()) {}

const rpc::Attachment& PyAttachment::attachment() const {
  if (released_) raise(Code::kInvalidArgument, "the attachment was released");
  return *attachment_;
}

void PyAttachment::release() {
  if (exports_ != 0)
    raise(Code::kInvalidArgument, "arrays or views of the attachment are still there: drop them first");
  if (std::exchange(released_, true)) return;
  attachment_.reset();
  data_ = nullptr;
  size_ = 0;
}

void PyAttachment::discard() {
  if (!released_) attachment_->discard();
}

int PyAttachment::get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* attachment = nb::inst_ptr<PyAttachment>(self);
  if (attachment->released_) {
    PyErr_SetString(PyExc_BufferError, "the attachment was released");
    view->obj = nullptr;
    return -1;
  }
  static std::byte nothing{};  // avoids a null pointer for empty attachments
  std::byte* const data = attachment->size_ == 0 ? &nothing : attachment->data_;
  const int rc = PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(attachment->size_), 0, flags);
  if (rc == 0) ++attachment->exports_;
  return rc;
}

void PyAttachment::release_buffer(PyObject* self, Py_buffer* /*view*/) {
  --nb::inst_ptr<PyAttachment>(self)->exports_;
}

bool find_attachment(const rpc::Payload& payload, Bytes extension, rpc::Attachment& out) {
  msgpack::object object;
  object.type = msgpack::type::EXT;
  object.via.ext.ptr = reinterpret_cast<const char*>(extension.data());
  object.via.ext.size = static_cast<std::uint32_t>(extension.size() - 1);
  const rpc::detail::AttachmentScope scope(payload.attachments());
  return rpc::detail::unpack_attachment(object, out);
}

PyAttachment attachment_from(const rpc::Payload& payload, const nb::bytes& data) {
  std::string raw(1, static_cast<char>(rpc::detail::kAttachmentExtension));
  raw.append(data.c_str(), data.size());
  rpc::Attachment out;
  if (!find_attachment(payload, as_bytes(raw), out))
    raise(Code::kInvalidArgument, "an attachment that did not come with this body");
  return PyAttachment(std::move(out));
}

void bind_attachments(nb::module_& m) {
  m.def(
      "drain_released", [] { ReleaseQueue::get().drain(); },
      "Releases Python memory that was lent and is no longer in use.");
  m.def(
      "wait_released",
      [] {
        ReleaseQueue& queue = ReleaseQueue::get();
        const nb::gil_scoped_release unlocked;
        return queue.wait();
      },
      "Waits until drain_released() has memory to release. Returns False once closed.");
  m.def("close_released", [] { ReleaseQueue::get().close(); });

  nb::class_<PyAttachedBody>(m, "AttachedBody", "The attachments of the arguments or the result of a call.")
      .def(nb::init<>())
      .def("add", &PyAttachedBody::add, nb::arg("object").none(), nb::arg("memory").none(),
           nb::arg("dtype").none(), nb::arg("shape"),
           nb::sig("def add(self, object: typing.Any, memory: MemoryRegion | Attachment | None, "
                   "dtype: str | None, shape: collections.abc.Sequence[int]) -> bytes"),
           "Adds an attachment. Returns the data of the extension value that refers to it.")
      .def("add_into", &PyAttachedBody::add_into, nb::arg("object").none(), nb::arg("region").none(),
           nb::sig("def add_into(self, object: typing.Any, region: MemoryRegion | None) -> None"),
           "Names the memory into which the next attachment of the reply is read.");

  nb::class_<PyAttachment>(
      m, "Attachment", nb::type_slots(kAttachmentSlots),
      "An attachment of the arguments or the result of a call, in the memory where it was\n"
      "received. Has the buffer protocol. The memory is released by release(), or when this\n"
      "object and every view of it are gone.")
      .def("__len__", &PyAttachment::size)
      .def_prop_ro("nbytes", &PyAttachment::size)
      .def_prop_ro(
          "dtype",
          [](const PyAttachment& self) -> std::optional<std::string> {
            const rpc::ArrayType* const array = self.attachment().array();
            return array == nullptr ? std::nullopt : std::optional(array->dtype);
          },
          "The dtype of an array (\"<f4\"), as the sender gave it; None: plain bytes.")
      .def_prop_ro(
          "shape",
          [](const PyAttachment& self) {
            const rpc::ArrayType* const array = self.attachment().array();
            nb::list out;
            if (array != nullptr) {
              for (const std::uint64_t extent : array->shape) out.append(extent);
            }
            return nb::tuple(out);
          },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("released", &PyAttachment::released)
      .def("release", &PyAttachment::release,
           "Releases the memory now. Raises InvalidArgument while arrays or views of it exist.\n"
           "Idempotent.")
      .def("discard", &PyAttachment::discard,
           "Frees the pages of large received memory now, even while views exist: they read as zeros then. "
           "Memory\n"
           "that the call named (`into`) stays.")
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Attachment"))
      .def(
          "__exit__", [](PyAttachment& self, nb::args) { self.release(); },
          nb::sig("def __exit__(self, *args: typing.Any) -> None"))
      .def("__repr__", [](const PyAttachment& self) {
        return "<slime.Attachment " +
               (self.released() ? "released>" : std::to_string(self.size()) + " bytes>");
      });
}

}  // namespace slime::python

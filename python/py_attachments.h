#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "python/binding.h"
#include "python/py_memory.h"
#include "rpc/attachment.h"

namespace slime::python {

// Python's memory that C++ has no use for any more. A loop gives it up without the GIL; threads of Python
// that come by, or one that waits for this, let go of it. At the end of the process what is left stays.
class ReleaseQueue {
 public:
  // Of this process: a forked child has its own.
  static ReleaseQueue& get();
  // Thread: any, with the GIL or without.
  void push(std::unique_ptr<PinnedMemory> memory) noexcept;
  // Thread: holds the GIL.
  void drain();
  // Sees to it that somebody waits. Thread: holds the GIL.
  void have_waiter();
  // Waits until there is something that nobody else has taken for a while; false once closed. Thread: any,
  // without the GIL.
  bool wait();
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<PinnedMemory*> left_;
  bool waited_for_ = false;
  bool sleeps_ = false;  // who waits, until there is something
  bool closed_ = false;
};

// Keeps it until the last copy of the keeper is gone, on whichever thread that is.
std::shared_ptr<const void> keep(PinnedMemory memory);

// An object's memory, to be sent. `memory`: the MemoryRegion or the received Attachment that the object lies
// in, which is lent as it is; or None. Thread: holds the GIL.
rpc::Attachment lent(nb::handle object, nb::handle memory);

// _slime.AttachedBody: what goes beside a body that Python has encoded. Thread: holds the GIL.
class PyAttachedBody {
 public:
  // `memory`: the MemoryRegion or the received Attachment that the object lies in, which is lent as it is; or
  // None. Returns the data of the extension value.
  nb::bytes add(nb::handle object, nb::handle memory, std::optional<std::string> dtype,
                std::vector<std::uint64_t> shape);
  void add_into(nb::handle object, nb::handle region);
  // With the encoded body; empties this.
  rpc::AttachedBody take(nb::handle body);

 private:
  rpc::Attachments attachments_;
  rpc::Destinations into_;
};

// The body, with what goes beside it if that is not null, which it empties.
rpc::AttachedBody body_of(nb::handle body, PyAttachedBody* attached);

// slime.Attachment: bytes that came beside a body. Thread: holds the GIL.
class PyAttachment {
 public:
  explicit PyAttachment(rpc::Attachment attachment);
  PyAttachment(PyAttachment&&) = default;
  [[nodiscard]] const rpc::Attachment& attachment() const;
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool released() const { return released_; }
  void release();
  void discard();
  static int get_buffer(PyObject* self, Py_buffer* view, int flags);
  static void release_buffer(PyObject* self, Py_buffer* view);

 private:
  ForkGuarded<rpc::Attachment> attachment_;
  std::byte* data_;
  std::size_t size_;
  std::size_t exports_ = 0;
  bool released_ = false;
};

// The attachment that an extension value stands for, of which msgpack has the type, then the data. False:
// none that came with this payload.
bool find_attachment(const rpc::Payload& payload, Bytes extension, rpc::Attachment& out);
PyAttachment attachment_from(const rpc::Payload& payload, const nb::bytes& data);

}  // namespace slime::python

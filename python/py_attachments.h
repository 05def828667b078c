#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "python/binding.h"
#include "python/py_memory.h"
#include "rpc/attachment.h"

namespace slime::python {

// Queue of Python memory that C++ no longer uses. A loop pushes memory without the GIL. Python
// threads that call Slime, or one thread that waits for this purpose, release it. Memory that is
// still queued when the process ends is not released.
class ReleaseQueue {
 public:
  // Returns the queue of this process. A forked child has a queue of its own.
  static ReleaseQueue& get();
  // Thread: any, with the GIL or without.
  void push(std::unique_ptr<PinnedMemory> memory) noexcept;
  // Thread: holds the GIL.
  void drain();
  // Starts the thread that waits for memory and releases it, unless such a thread runs already.
  // Thread: holds the GIL.
  void have_waiter();
  // Waits until memory has been in the queue for a while without another thread taking it. Returns
  // false once the queue is closed. Thread: any, without the GIL.
  bool wait();
  void close();

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<PinnedMemory*> left_ SLIME_GUARDED_BY(mutex_);
  bool waited_for_ SLIME_GUARDED_BY(mutex_) = false;
  // true while the waiting thread sleeps because the queue is empty
  bool sleeps_ SLIME_GUARDED_BY(mutex_) = false;
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
};

// Returns a pointer whose copies keep the memory alive. The last copy may be destroyed on any
// thread.
std::shared_ptr<const void> keep(PinnedMemory memory);

// Makes an attachment of an object's memory. `memory`: the MemoryRegion or received Attachment that
// contains the object's memory, so that the memory is sent without a new registration; or None.
// Thread: holds the GIL.
rpc::Attachment lent(nb::handle object, nb::handle memory);

// _slime.AttachedBody: the attachments of a body that Python has encoded. Thread: holds the GIL.
class PyAttachedBody {
 public:
  // Adds the memory of `object` as an attachment. `memory`: as in lent(). Returns the data of the
  // msgpack extension value that refers to the attachment.
  nb::bytes add(nb::handle object, nb::handle memory, std::optional<std::string> dtype,
                std::vector<std::uint64_t> shape);
  void add_into(nb::handle object, nb::handle region);
  // Returns the encoded body together with the attachments, and leaves this object empty.
  rpc::AttachedBody take(nb::handle body);
  // The same, for messages: without a body.
  rpc::AttachedBody take();

 private:
  rpc::Attachments attachments_;
  rpc::Destinations into_;
};

// Returns `body` with the attachments of `attached`, and empties `attached`. Null: no attachments.
rpc::AttachedBody body_of(nb::handle body, PyAttachedBody* attached);

// slime.Attachment: bytes that arrived beside a body. Thread: holds the GIL.
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

// Finds the attachment that an extension value (type byte, then data) refers to. Returns false if
// `payload` has no such attachment.
bool find_attachment(const rpc::Payload& payload, Bytes extension, rpc::Attachment& out);
PyAttachment attachment_from(const rpc::Payload& payload, const nb::bytes& data);

}  // namespace slime::python

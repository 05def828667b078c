#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "python/binding.h"
#include "python/py_memory.h"
#include "rpc/attachment.h"

namespace slime::python {

// Python memory that C++ no longer uses. A loop pushes it without the GIL; Python threads that call
// Slime, or one that waits for this purpose, release it. Memory left at the end of the process
// stays.
class ReleaseQueue {
 public:
  // Returns the queue of this process; a forked child has its own.
  static ReleaseQueue& get();
  // Thread: any, with the GIL or without.
  void push(std::unique_ptr<PinnedMemory> memory) noexcept;
  // Thread: holds the GIL.
  void drain();
  // Starts the thread that waits for memory and releases it, unless one waits already. Thread:
  // holds the GIL.
  void have_waiter();
  // Waits until there is memory that no other thread has taken for a while. Returns false once
  // closed. Thread: any, without the GIL.
  bool wait();
  void close();

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<PinnedMemory*> left_ SLIME_GUARDED_BY(mutex_);
  bool waited_for_ SLIME_GUARDED_BY(mutex_) = false;
  bool sleeps_ SLIME_GUARDED_BY(mutex_) = false;  // the waiting thread sleeps until there is memory
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
};

// Keeps the memory until the last copy of the result is destroyed, on any thread.
std::shared_ptr<const void> keep(PinnedMemory memory);

// Makes an attachment of an object's memory. `memory`: the MemoryRegion or received Attachment that
// contains the object's memory, which is sent without a new registration; or None. Thread: holds
// the GIL.
rpc::Attachment lent(nb::handle object, nb::handle memory);

// _slime.AttachedBody: the attachments of a body that Python has encoded. Thread: holds the GIL.
class PyAttachedBody {
 public:
  // `memory`: as in lent(). Returns the data of the extension value.
  nb::bytes add(nb::handle object, nb::handle memory, std::optional<std::string> dtype,
                std::vector<std::uint64_t> shape);
  void add_into(nb::handle object, nb::handle region);
  // Returns the attachments with the encoded body; empties this.
  rpc::AttachedBody take(nb::handle body);

 private:
  rpc::Attachments attachments_;
  rpc::Destinations into_;
};

// Returns the body with the attachments of `attached`, if that is not null; empties it.
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
// this payload has no such attachment.
bool find_attachment(const rpc::Payload& payload, Bytes extension, rpc::Attachment& out);
PyAttachment attachment_from(const rpc::Payload& payload, const nb::bytes& data);

}  // namespace slime::python

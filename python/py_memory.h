#pragma once

#include <nanobind/ndarray.h>

#include <vector>

#include "agent/peer_agent.h"
#include "python/binding.h"

namespace slime::python {

// Memory that a Python object owns. Keeps the object alive, so the memory stays at its address.
// Thread: holds the GIL.
class PinnedMemory {
 public:
  // Returns the memory of an object with the buffer protocol, DLPack or __array_interface__. Raises
  // InvalidArgument for other objects and for memory that is not contiguous, Unimplemented for
  // memory that is not host memory.
  static PinnedMemory of(nb::handle object);
  // Returns memory by its address, which the caller keeps alive and in place. Raises
  // InvalidArgument for a range of which a part is not mapped or not readable at this moment.
  static PinnedMemory at(std::uint64_t address, std::uint64_t bytes);
  // Keeps `owner` alive, without memory.
  static PinnedMemory owned_by(nb::object owner);
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) = delete;
  ~PinnedMemory() { release(); }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t length_bytes() const { return length_bytes_; }
  [[nodiscard]] Bytes bytes() const { return {data_, length_bytes_}; }
  [[nodiscard]] bool readonly() const { return readonly_; }
  void release();
  int traverse(visitproc visit, void* arg) const;

 private:
  static PinnedMemory of_buffer(nb::handle object);
  static PinnedMemory of_dlpack(nb::handle object);
  static PinnedMemory of_array_interface(nb::handle object);

  std::byte* data_ = nullptr;
  std::size_t length_bytes_ = 0;
  bool readonly_ = false;
  bool has_view_ = false;
  Py_buffer view_{};           // pins an object with the buffer protocol
  nb::object owner_;           // the object, if its memory comes from __array_interface__ or from owned_by()
  nb::ndarray<nb::ro> array_;  // pins an object with DLPack
};

// slime.MemoryRegion. Memory that Slime allocated stays mapped until the region and every view of
// it are destroyed. Memory of other owners is released when the region is closed and has no view
// left. Thread: holds the GIL.
class PyRegion {
 public:
  PyRegion(MemoryRegion region, PinnedMemory pin);
  PyRegion(PyRegion&&) = default;
  ~PyRegion();

  [[nodiscard]] MemoryRegion& region() const { return *region_; }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t length_bytes() const { return length_bytes_; }
  [[nodiscard]] bool readonly() const { return readonly_; }
  [[nodiscard]] bool closed() const { return closed_; }
  void close(double timeout);

  static int get_buffer(PyObject* self, Py_buffer* view, int flags);
  static void release_buffer(PyObject* self, Py_buffer* view);
  static int traverse(PyObject* self, visitproc visit, void* arg);

 private:
  ForkGuarded<MemoryRegion> region_;
  PinnedMemory pin_;
  std::byte* data_;
  std::size_t length_bytes_;
  bool readonly_;
  bool closed_ = false;
  std::size_t exports_ = 0;
};

// The local side of a copy: a MemoryRegion, or an array from agent.empty() as its region and the
// array's place in that region.
struct Local {
  static Local of(nb::handle local);
  // Returns the offset in the region of byte `at` of the array. Raises InvalidArgument if the
  // `length` bytes from `at` are not all in the array.
  [[nodiscard]] std::uint64_t offset_of(std::uint64_t at, std::uint64_t length) const;

  nb::object region;
  std::uint64_t offset = 0;
  std::uint64_t length_bytes = UINT64_MAX;
};
// Returns the C++ region of a Python MemoryRegion. `fills_local`: the operation writes to the local
// memory, so read-only memory is refused.
MemoryRegion& local_from(nb::handle region, bool fills_local);
// Raises InvalidArgument if the object is no RemoteRegion.
const RemoteRegion& remote_from(nb::handle remote);

// slime.Copy. Keeps its regions.
struct PyCopy {
  nb::object local;
  std::uint64_t local_offset = 0;
  nb::object remote;
  std::uint64_t remote_offset = 0;
  std::uint64_t length_bytes = 0;
};

// Converts a Copy, a sequence of Copies, or a sequence of objects with the five attributes of Copy
// (a NamedTuple). The result refers to objects that `keep` keeps alive. `fills_local`: the
// operation writes to the local side, so read-only memory is refused.
std::vector<Copy> copies_from(nb::handle list, bool fills_local, nb::list& keep);

}  // namespace slime::python

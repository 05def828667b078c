#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "base/str.h"
#include "python/py_memory.h"

namespace slime::python {
namespace {

constexpr int kDlpackCpu = 1;
constexpr int kDlpackCudaHost = 3;  // pinned host memory

std::string kind_of(nb::handle object) { return nb::type_name(object.type()).c_str(); }

[[noreturn]] void raise_not_contiguous(nb::handle object) {
  raise(Code::kInvalidArgument,
        kind_of(object) + " is not contiguous: pass a contiguous copy, such as numpy.ascontiguousarray(it)");
}

[[noreturn]] void raise_not_host(nb::handle object) {
  raise(Code::kUnimplemented, kind_of(object) +
                                  " is not in host memory: only host memory can be registered "
                                  "so far; copy it to the CPU first");
}

// Returns and clears the text of the pending Python exception.
std::string take_python_error() {
  nb::python_error error;
  std::string text = error.what();
  const std::size_t end = text.find_last_not_of('\n');
  text.resize(end == std::string::npos ? 0 : end + 1);
  const std::size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

void refuse_device_memory(nb::handle object) {
  if (nb::hasattr(object, "__dlpack_device__")) {
    const nb::object device = object.attr("__dlpack_device__")();
    const int type = nb::cast<int>(nb::int_(device[0]));
    if (type != kDlpackCpu && type != kDlpackCudaHost) raise_not_host(object);
  } else if (nb::hasattr(object, "__cuda_array_interface__")) {
    raise_not_host(object);
  }
}

// Returns whether each page of the range is mapped and readable. Sets `writable` to whether each
// can be written, too.
bool is_mapped(std::uint64_t begin, std::uint64_t end, bool& writable) {
  std::ifstream maps("/proc/self/maps");
  writable = true;
  // Lines are in the order of addresses: "7f01c000-7f01f000 rw-p ...".
  for (std::string line; begin < end && std::getline(maps, line);) {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    const char* const stop = line.data() + line.size();
    const auto from = std::from_chars(line.data(), stop, first, 16);
    if (from.ec != std::errc() || from.ptr == stop) return false;
    const auto to = std::from_chars(from.ptr + 1, stop, last, 16);
    if (to.ec != std::errc() || stop - to.ptr < 3) return false;
    if (last <= begin) continue;
    if (first > begin || to.ptr[1] != 'r') return false;
    writable = writable && to.ptr[2] == 'w';
    begin = last;
  }
  return begin >= end;
}

}  // namespace

PinnedMemory PinnedMemory::at(std::uint64_t address, std::uint64_t bytes) {
  bool writable = false;
  const bool fits = bytes > 0 && bytes <= std::numeric_limits<std::uint64_t>::max() - address;
  if (!fits || !is_mapped(address, address + bytes, writable)) {
    raise(Code::kInvalidArgument, str("no memory of this process: ", bytes, " bytes at address ", address,
                                      ", of which a part is not mapped or not readable"));
  }
  PinnedMemory out;
  out.data_ = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
  out.length_bytes_ = static_cast<std::size_t>(bytes);
  out.readonly_ = !writable;
  return out;
}

PinnedMemory PinnedMemory::of(nb::handle object) {
  if (PyObject_CheckBuffer(object.ptr()) != 0) return of_buffer(object);
  refuse_device_memory(object);
  if (nb::hasattr(object, "__dlpack__")) return of_dlpack(object);
  if (nb::hasattr(object, "__array_interface__")) return of_array_interface(object);
  raise(Code::kInvalidArgument,
        kind_of(object) +
            " has no memory to use: pass something with the buffer protocol (bytearray, memoryview, "
            "a NumPy array), DLPack or __array_interface__");
}

PinnedMemory PinnedMemory::of_buffer(nb::handle object) {
  PinnedMemory out;
  if (PyObject_GetBuffer(object.ptr(), &out.view_, PyBUF_FULL_RO) != 0) {
    // Passes KeyboardInterrupt and SystemExit on unchanged: code of the object's class may have
    // raised them.
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw nb::python_error();
    raise(Code::kInvalidArgument, kind_of(object) + ": " + take_python_error());
  }
  out.has_view_ = true;
  if (PyBuffer_IsContiguous(&out.view_, 'A') == 0) raise_not_contiguous(object);
  if (out.view_.format != nullptr && std::strchr(out.view_.format, 'O') != nullptr) {
    raise(Code::kInvalidArgument, kind_of(object) + " holds Python objects, not bytes");
  }
  out.data_ = static_cast<std::byte*>(out.view_.buf);
  out.length_bytes_ = static_cast<std::size_t>(out.view_.len);
  out.readonly_ = out.view_.readonly != 0;
  return out;
}

PinnedMemory PinnedMemory::of_dlpack(nb::handle object) {
  PinnedMemory out;
  nb::ndarray<> writable;
  // Refuses a tensor that requires grad. torch's `__dlpack__` refuses it, too, but nanobind then
  // tries an older function of torch, which may not refuse it.
  if (nb::getattr(object, "requires_grad", nb::bool_(false)).is(nb::bool_(true))) {
    raise(Code::kInvalidArgument,
          kind_of(object) +
              " requires gradients, which writes of a peer would not be part of: pass tensor.detach()");
  }
  if (nb::try_cast(object, writable)) {
    out.array_ = nb::ndarray<nb::ro>(writable);
  } else if (nb::try_cast(object, out.array_)) {
    out.readonly_ = true;
  } else {
    raise(Code::kInvalidArgument, kind_of(object) + " gives no DLPack capsule");
  }
  const auto& array = out.array_;
  // Accepts C order and Fortran order.
  std::int64_t expected = 1;
  bool row_major = true;
  bool column_major = true;
  for (std::size_t i = array.ndim(); i-- > 0; expected *= static_cast<std::int64_t>(array.shape(i))) {
    row_major = row_major && (array.shape(i) == 1 || array.stride(i) == expected);
  }
  expected = 1;
  for (std::size_t i = 0; i < array.ndim(); expected *= static_cast<std::int64_t>(array.shape(i)), ++i) {
    column_major = column_major && (array.shape(i) == 1 || array.stride(i) == expected);
  }
  if (array.nbytes() != 0 && !row_major && !column_major) raise_not_contiguous(object);
  out.data_ = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(array.data())));
  out.length_bytes_ = array.nbytes();
  return out;
}

PinnedMemory PinnedMemory::of_array_interface(nb::handle object) {
  PinnedMemory out;
  out.owner_ = nb::borrow(object);
  const nb::object interface = object.attr("__array_interface__");
  if (!interface.attr("get")("strides").is_none()) {
    // The array interface leaves `strides` out for memory in C order. Memory with `strides` is
    // refused, even from a producer that sets them for C order.
    raise_not_contiguous(object);
  }
  const nb::object data = interface["data"];
  // A typestr such as "<f4" has the byte order, the kind, and the number of bytes of an item.
  const auto type = nb::cast<std::string>(interface["typestr"]);
  std::uint64_t length = 0;
  if (type.size() < 3 || type[1] == 'O' ||
      std::from_chars(type.data() + 2, type.data() + type.size(), length).ec != std::errc()) {
    raise(Code::kInvalidArgument, kind_of(object) + " has items of type '" + type + "', which are not bytes");
  }
  for (const nb::handle extent : interface["shape"]) length *= unsigned_from(extent, "an extent");
  out.data_ =
      reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(unsigned_from(data[0], "the address")));
  out.readonly_ = nb::cast<bool>(data[1]);
  out.length_bytes_ = length;
  return out;
}

PinnedMemory PinnedMemory::owned_by(nb::object owner) {
  PinnedMemory out;
  out.owner_ = std::move(owner);
  return out;
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      length_bytes_(std::exchange(other.length_bytes_, 0)),
      readonly_(other.readonly_),
      has_view_(std::exchange(other.has_view_, false)),
      view_(other.view_),
      owner_(std::move(other.owner_)),
      array_(std::move(other.array_)) {}

void PinnedMemory::release() {
  if (std::exchange(has_view_, false)) PyBuffer_Release(&view_);
  owner_.reset();
  array_ = {};
}

int PinnedMemory::traverse(visitproc visit, void* arg) const {
  if (has_view_) Py_VISIT(view_.obj);
  Py_VISIT(owner_.ptr());
  return 0;
}

}  // namespace slime::python

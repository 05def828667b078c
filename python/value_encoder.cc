#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "python/py_attachments.h"
#include "python/py_numpy.h"
#include "python/py_values.h"
#include "rpc/codec.h"
#include "rpc/limits.h"

namespace slime::python {
namespace {

// Most levels of nested containers that are encoded here. Python's msgpack encodes deeper values,
// with a limit of its own.
constexpr int kNested = 64;
// Bytes of at least this length become attachments. Equals slime._attachments.BYTES.
constexpr std::size_t kLongBytes = 64 * 1024;
// Largest array in bytes that is copied into the body, which costs less than an attachment. The
// total of copied arrays is bounded by the size of one message.
constexpr std::size_t kCopiedArray = 2048;
constexpr std::size_t kCopiedArrays = 6144;

// Holds the buffer of a Python object, in C order.
class View {
 public:
  explicit View(PyObject* object) : valid_(PyObject_GetBuffer(object, &view_, PyBUF_C_CONTIGUOUS) == 0) {
    if (!valid_) PyErr_Clear();
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  ~View() {
    if (valid_) PyBuffer_Release(&view_);
  }
  [[nodiscard]] bool valid() const { return valid_; }
  [[nodiscard]] Bytes bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }
  [[nodiscard]] std::size_t dimensions() const { return static_cast<std::size_t>(view_.ndim); }
  [[nodiscard]] std::vector<std::uint64_t> shape() const { return {view_.shape, view_.shape + view_.ndim}; }

 private:
  Py_buffer view_{};
  const bool valid_;
};

class Encoder {
 public:
  explicit Encoder(rpc::AttachedBody& out) : body_(out.body), scope_(out.attachments) { body_.reserve(128); }

  // Encodes the arguments, or the result.
  bool run(PyObject* value) {
    if (is_long(value)) return false;
    if (PyTuple_CheckExact(value)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
        if (is_long(PyTuple_GET_ITEM(value, i))) return false;
      }
    }
    return put(value, 0);
  }

 private:
  // Returns whether the bytes become an attachment.
  static bool is_long(PyObject* value) {
    if (PyBytes_CheckExact(value)) return static_cast<std::size_t>(PyBytes_GET_SIZE(value)) >= kLongBytes;
    return PyByteArray_CheckExact(value) &&
           static_cast<std::size_t>(PyByteArray_GET_SIZE(value)) >= kLongBytes;
  }

  bool put(PyObject* value, int depth) {
    if (PyUnicode_CheckExact(value)) return text(value);
    if (PyLong_CheckExact(value)) return integer(value);
    if (PyFloat_CheckExact(value)) return real(PyFloat_AS_DOUBLE(value));
    if (PyBytes_CheckExact(value)) return bytes(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    if (value == Py_None) return tag(0xc0);
    if (value == Py_True || value == Py_False) return tag(value == Py_True ? 0xc3 : 0xc2);
    if (PyByteArray_CheckExact(value))
      return bytes(PyByteArray_AS_STRING(value), PyByteArray_GET_SIZE(value));
    if (depth >= kNested) return false;
    if (PyTuple_CheckExact(value)) return tuple(value, depth);
    if (PyList_CheckExact(value)) return list(value, depth);
    if (PyDict_CheckExact(value)) return dict(value, depth);
    const Numpy* const numpy = Numpy::get();
    return numpy != nullptr && numpy->is_array(value) && array(*numpy, value);
  }

  bool tag(unsigned first) {
    body_.push_back(static_cast<std::byte>(first));
    return true;
  }
  // Writes a big-endian number, as in msgpack.
  bool number(unsigned first, std::uint64_t value, int width) {
    tag(first);
    for (int shift = 8 * (width - 1); shift >= 0; shift -= 8)
      tag(static_cast<unsigned>(value >> shift) & 0xffU);
    return true;
  }
  bool append(const void* data, std::size_t size) {
    append_bytes(body_, {static_cast<const std::byte*>(data), size});
    return true;
  }
  // Writes a length into the smallest length field that can hold it, after the tag of that field.
  // `width1`, `width2`, `width4`: tags of the length fields of 1, 2 and 4 bytes; 0: there is no
  // such field.
  bool length(std::size_t size, unsigned width1, unsigned width2, unsigned width4) {
    if (width1 != 0 && size <= 0xff) return number(width1, size, 1);
    if (size <= 0xffff) return number(width2, size, 2);
    return size <= std::numeric_limits<std::uint32_t>::max() && number(width4, size, 4);
  }

  bool integer(PyObject* value) {
    int overflow = 0;
    const long long small = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow < 0) return false;
    if (overflow == 0 && small < 0) return negative(small);
    auto big = static_cast<unsigned long long>(small);
    if (overflow > 0) {
      big = PyLong_AsUnsignedLongLong(value);
      if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        return false;
      }
    }
    if (big <= 0x7f) return tag(static_cast<unsigned>(big));
    if (big <= 0xff) return number(0xcc, big, 1);
    if (big <= 0xffff) return number(0xcd, big, 2);
    if (big <= 0xffffffff) return number(0xce, big, 4);
    return number(0xcf, big, 8);
  }
  bool negative(long long value) {
    const auto bits = static_cast<std::uint64_t>(value);
    if (value >= -32) return tag(static_cast<unsigned>(bits & 0xffU));
    if (value >= std::numeric_limits<std::int8_t>::min()) return number(0xd0, bits, 1);
    if (value >= std::numeric_limits<std::int16_t>::min()) return number(0xd1, bits, 2);
    if (value >= std::numeric_limits<std::int32_t>::min()) return number(0xd2, bits, 4);
    return number(0xd3, bits, 8);
  }
  bool real(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return number(0xcb, bits, 8);
  }
  bool text(PyObject* value) {
    Py_ssize_t size = 0;
    const char* const data = PyUnicode_AsUTF8AndSize(value, &size);
    if (data == nullptr) {
      PyErr_Clear();
      return false;
    }
    const auto count = static_cast<std::size_t>(size);
    const bool fits =
        count <= 31 ? tag(0xa0U | static_cast<unsigned>(count)) : length(count, 0xd9, 0xda, 0xdb);
    return fits && append(data, count);
  }
  bool bytes(const char* data, Py_ssize_t size) {
    const auto count = static_cast<std::size_t>(size);
    return length(count, 0xc4, 0xc5, 0xc6) && append(data, count);
  }
  bool container(Py_ssize_t size, unsigned fixed, unsigned width2, unsigned width4) {
    const auto count = static_cast<std::size_t>(size);
    return count <= 15 ? tag(fixed | static_cast<unsigned>(count)) : length(count, 0, width2, width4);
  }
  bool tuple(PyObject* value, int depth) {
    if (!container(PyTuple_GET_SIZE(value), 0x90, 0xdc, 0xdd)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
      if (!put(PyTuple_GET_ITEM(value, i), depth + 1)) return false;
    }
    return true;
  }
  // Checks the size of the list for each item, as dict() does: making an object for an array may
  // run the garbage collector, and with it Python code that changes the list.
  bool list(PyObject* value, int depth) {
    const Py_ssize_t size = PyList_GET_SIZE(value);
    if (!container(size, 0x90, 0xdc, 0xdd)) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (i >= PyList_GET_SIZE(value)) return false;
      const nb::object each = nb::borrow(PyList_GET_ITEM(value, i));
      if (!put(each.ptr(), depth + 1)) return false;
    }
    return true;
  }
  bool dict(PyObject* value, int depth) {
    const Py_ssize_t size = PyDict_GET_SIZE(value);
    if (!container(size, 0x80, 0xde, 0xdf)) return false;
    Py_ssize_t at = 0;
    Py_ssize_t count = 0;
    PyObject* key = nullptr;
    PyObject* item = nullptr;
    for (; PyDict_Next(value, &at, &key, &item) != 0; ++count) {
      const nb::object kept_key = nb::borrow(key);
      const nb::object kept_item = nb::borrow(item);
      if (count == size || !put(kept_key.ptr(), depth + 1) || !put(kept_item.ptr(), depth + 1)) return false;
    }
    return count == size;
  }

  bool array(const Numpy& numpy, PyObject* value) {
    const PlainDtype* const dtype = numpy.dtype_of(value);
    if (dtype == nullptr) return false;
    rpc::ArrayType type{std::string(dtype->text), {}};
    rpc::Attachment attachment;
    bool copied = false;
    {
      const View view(value);
      if (!view.valid() || view.dimensions() > rpc::limits::kArrayDimensions) return false;
      type.shape = view.shape();
      copied = view.bytes().size() <= kCopiedArray && copied_bytes_ + view.bytes().size() <= kCopiedArrays;
      if (copied) {
        copied_bytes_ += view.bytes().size();
        attachment = rpc::Attachment(ByteVector(view.bytes().begin(), view.bytes().end()));
      }
    }
    if (!copied) {
      nb::object memory;
      if (!lies_in(numpy, value, memory)) return false;
      attachment = lent(value, memory);
    }
    attachment.set_array(std::move(type));
    return extension(rpc::detail::pack_attachment(attachment));
  }

  bool extension(const ByteVector& data) {
    switch (data.size()) {
      case 1:
      case 2:
      case 4:
      case 8:
      case 16:
        tag(0xd4U + static_cast<unsigned>(std::bit_width(data.size()) - 1));
        break;
      default:
        length(data.size(), 0xc7, 0xc8, 0xc9);
    }
    tag(static_cast<unsigned>(rpc::detail::kAttachmentExtension));
    return append(data.data(), data.size());
  }

  // Sets `memory` to the region or attachment that contains the array and can be lent, or to None
  // if there is none. Returns false if only Python code can find the owner of the memory.
  static bool lies_in(const Numpy& numpy, PyObject* array, nb::object& memory) {
    memory = nb::none();
    nb::object base = numpy.base_of(array);
    while (base.is_valid() && !base.is_none()) {
      if (nb::isinstance<PyAttachment>(base)) {
        memory = std::move(base);
        return true;
      }
      if (nb::isinstance<PyRegion>(base)) {
        const auto& region = nb::cast<const PyRegion&>(base);
        if (!region.closed() && transport::allows(region.region().rights(), Rights::kRemoteRead))
          memory = std::move(base);
        return true;
      }
      if (numpy.is_array(base.ptr())) {
        base = numpy.base_of(base.ptr());
      } else if (PyMemoryView_Check(base.ptr())) {
        base = nb::borrow(PyMemoryView_GET_BASE(base.ptr()));
      } else {
        return PyBytes_CheckExact(base.ptr()) || PyByteArray_CheckExact(base.ptr());
      }
    }
    return true;
  }

  ByteVector& body_;
  const rpc::detail::AttachmentScope scope_;  // pack_attachment() finds them here
  std::size_t copied_bytes_ = 0;
};

}  // namespace

bool encode_value(nb::handle value, rpc::AttachedBody& out) {
  if (!Encoder(out).run(value.ptr())) return false;
  if (!out.attachments.empty()) ReleaseQueue::get().drain();
  return true;
}

}  // namespace slime::python

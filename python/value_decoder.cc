#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "python/py_attachments.h"
#include "python/py_numpy.h"
#include "python/py_values.h"
#include "rpc/codec.h"
#include "rpc/limits.h"

namespace slime::python {
namespace {

// Most levels of nested containers that are decoded here. Python's msgpack decodes deeper values,
// with a limit of its own.
constexpr int kDepth = 64;

// Decodes a body. Returns an invalid object, perhaps with a Python exception set, for values that
// are wrong or rare: Python's msgpack then decodes the body.
class Decoder {
 public:
  explicit Decoder(const rpc::Payload& payload)
      : rest_(payload.bytes()), objects_(payload.bytes().size()), payload_(payload) {}

  nb::object run() {
    nb::object value = get(0);
    return rest_.empty() ? std::move(value) : nb::object();
  }

 private:
  // Reads a big-endian number.
  bool number(std::size_t width, std::uint64_t& out) {
    if (rest_.size() < width) return false;
    out = 0;
    for (std::size_t i = 0; i < width; ++i) out = out << 8 | std::to_integer<std::uint8_t>(rest_[i]);
    rest_ = rest_.subspan(width);
    return true;
  }
  bool take(std::uint64_t size, Bytes& out) {
    if (size > rest_.size()) return false;
    out = rest_.first(static_cast<std::size_t>(size));
    rest_ = rest_.subspan(static_cast<std::size_t>(size));
    return true;
  }
  bool counted(std::size_t width, Bytes& out) {
    std::uint64_t size = 0;
    return number(width, size) && take(size, out);
  }

  nb::object get(int depth) {
    if (rest_.empty()) return {};
    const auto tag = std::to_integer<std::uint8_t>(rest_.front());
    rest_ = rest_.subspan(1);
    if (tag <= 0x7f) return nb::steal(PyLong_FromLong(tag));
    if (tag >= 0xe0) return nb::steal(PyLong_FromLong(static_cast<std::int8_t>(tag)));
    if (tag <= 0x8f) return dict(tag & 0xfU, depth);
    if (tag <= 0x9f) return list(tag & 0xfU, depth);
    Bytes data;
    if (tag <= 0xbf) return take(tag & 0x1fU, data) ? text(data) : nb::object();
    std::uint64_t value = 0;
    switch (tag) {
      case 0xc0:
        return nb::none();
      case 0xc2:
      case 0xc3:
        return nb::borrow(tag == 0xc3 ? Py_True : Py_False);
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return counted(std::size_t{1} << (tag - 0xc4), data) ? binary(data) : nb::object();
      case 0xc7:
      case 0xc8:
      case 0xc9:
        return number(std::size_t{1} << (tag - 0xc7), value) ? extension(value) : nb::object();
      case 0xca:
        if (!number(4, value)) return {};
        return nb::steal(PyFloat_FromDouble(std::bit_cast<float>(static_cast<std::uint32_t>(value))));
      case 0xcb:
        return number(8, value) ? nb::steal(PyFloat_FromDouble(std::bit_cast<double>(value))) : nb::object();
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        return number(std::size_t{1} << (tag - 0xcc), value) ? nb::steal(PyLong_FromUnsignedLongLong(value))
                                                             : nb::object();
      case 0xd0:
      case 0xd1:
      case 0xd2:
      case 0xd3:
        return signed_number(std::size_t{1} << (tag - 0xd0));
      case 0xd4:
      case 0xd5:
      case 0xd6:
      case 0xd7:
      case 0xd8:
        return extension(std::uint64_t{1} << (tag - 0xd4));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return counted(std::size_t{1} << (tag - 0xd9), data) ? text(data) : nb::object();
      case 0xdc:
      case 0xdd:
        return number(std::size_t{2} << (tag - 0xdc), value) ? list(value, depth) : nb::object();
      case 0xde:
      case 0xdf:
        return number(std::size_t{2} << (tag - 0xde), value) ? dict(value, depth) : nb::object();
      default:
        return {};
    }
  }

  nb::object signed_number(std::size_t width) {
    std::uint64_t value = 0;
    if (!number(width, value)) return {};
    const auto shift = static_cast<unsigned>(64 - 8 * width);
    return nb::steal(PyLong_FromLongLong(static_cast<std::int64_t>(value << shift) >> shift));
  }
  static nb::object text(Bytes data) {
    return nb::steal(PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(data.data()),
                                          static_cast<Py_ssize_t>(data.size()), nullptr));
  }
  static nb::object binary(Bytes data) {
    return nb::steal(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(data.data()),
                                               static_cast<Py_ssize_t>(data.size())));
  }

  // Counts the objects that the bytes announce. Each object, containers too, takes at least one
  // byte, so memory is allocated for no more objects than there are bytes.
  bool admit(std::uint64_t objects) {
    if (objects > objects_) return false;
    objects_ -= objects;
    return true;
  }
  nb::object list(std::uint64_t count, int depth) {
    if (depth >= kDepth || !admit(count)) return {};
    nb::object out = nb::steal(PyList_New(static_cast<Py_ssize_t>(count)));
    if (!out.is_valid()) return {};
    for (std::uint64_t i = 0; i < count; ++i) {
      nb::object each = get(depth + 1);
      if (!each.is_valid()) return {};
      PyList_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(i), each.release().ptr());
    }
    return out;
  }
  nb::object dict(std::uint64_t count, int depth) {
    if (depth >= kDepth || count > objects_ / 2 || !admit(2 * count)) return {};
    nb::object out = nb::steal(PyDict_New());
    if (!out.is_valid()) return {};
    for (std::uint64_t i = 0; i < count; ++i) {
      // Does not intern the key: interned strings stay in memory, and a peer could always send new
      // ones.
      const nb::object key = get(depth + 1);
      if (!key.is_valid()) return {};
      const nb::object value = get(depth + 1);
      if (!value.is_valid() || PyDict_SetItem(out.ptr(), key.ptr(), value.ptr()) != 0) return {};
    }
    return out;
  }

  // Decodes only arrays in valid positions.
  nb::object extension(std::uint64_t size) {
    Bytes whole;  // the type, and the data
    rpc::Attachment attachment;
    if (!take(size + 1, whole) || !find_attachment(payload_, whole, attachment)) return {};
    const rpc::ArrayType* const array = attachment.array();
    const Numpy* const numpy = Numpy::get();
    if (array == nullptr || numpy == nullptr) return {};
    if (!taken_.insert(attachment.bytes().data()).second) return {};
    const PlainDtype* const dtype = numpy->dtype_named(array->dtype);
    if (dtype == nullptr || attachment.size() == 0) return {};
    std::uint64_t bytes = dtype->item_bytes;
    for (const std::uint64_t extent : array->shape) {
      if (extent != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / extent) return {};
      bytes *= extent;
    }
    if (bytes != attachment.size()) return {};
    const std::vector<std::uint64_t> shape = array->shape;
    const nb::object memory = nb::cast(PyAttachment(std::move(attachment)));
    return numpy->view(memory, *dtype, shape);
  }

  Bytes rest_;
  std::uint64_t objects_;  // objects that may still be announced
  const rpc::Payload& payload_;
  // Attachments that the value has used. Each may be used once, because repeated references to
  // copied bytes could multiply their memory.
  std::set<const std::byte*> taken_;
};

}  // namespace

nb::object decode_value(const rpc::Payload& payload) {
  nb::object value = Decoder(payload).run();
  if (!value.is_valid()) PyErr_Clear();
  return value;
}

}  // namespace slime::python

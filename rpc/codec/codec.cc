#include "rpc/codec.h"

#include <array>
#include <bit>
#include <cstdint>
#include <msgpack/unpack.hpp>

#include "base/str.h"

namespace slime::rpc {
namespace {

// Checks one msgpack object with an explicit stack of open containers, so that deep nesting needs
// no memory and no deep recursion.
class Validator {
 public:
  explicit Validator(Bytes bytes) : bytes_(bytes) {}

  Status run() {
    push(1);
    while (depth_ > 0) {
      if (pending_[depth_ - 1] == 0) {
        --depth_;
        continue;
      }
      --pending_[depth_ - 1];
      if (++objects_ > limits::kMsgpackObjects) return bad("too many objects");
      SLIME_TRY(object());
    }
    if (at_ != bytes_.size()) return bad("bytes after the end of the object");
    return {};
  }

 private:
  Status bad(std::string_view what) const {
    return Status(Code::kInvalidArgument,
                  str("not msgpack: ", what, " at byte ", at_, " of ", bytes_.size()));
  }
  void push(std::uint64_t objects) { pending_[depth_++] = objects; }
  [[nodiscard]] std::size_t remaining() const { return bytes_.size() - at_; }

  // Reads a big-endian length of `width` bytes. Returns false if the bytes end before that.
  bool length(std::size_t width, std::uint64_t& out) {
    if (remaining() < width) return false;
    out = 0;
    for (std::size_t i = 0; i < width; ++i) out = out << 8 | std::to_integer<std::uint8_t>(bytes_[at_++]);
    return true;
  }
  Status skip(std::uint64_t size) {
    if (size > remaining()) return bad("a length beyond the end");
    at_ += static_cast<std::size_t>(size);
    return {};
  }
  Status raw(std::size_t width, std::uint64_t extra) {
    std::uint64_t size = 0;
    if (!length(width, size)) return bad("a cut-off length");
    return skip(size + extra);
  }
  // Begins a container of `objects` objects, each of which takes at least one byte.
  Status container(std::uint64_t objects) {
    if (objects > remaining()) return bad("a length beyond the end");
    if (depth_ > limits::kMsgpackDepth) return bad("nested too deep");
    push(objects);
    return {};
  }
  Status counted_container(std::size_t width, std::uint64_t factor) {
    std::uint64_t size = 0;
    if (!length(width, size)) return bad("a cut-off length");
    return container(size * factor);
  }

  Status object() {
    if (remaining() == 0) return bad("an object is missing");
    const auto tag = std::to_integer<std::uint8_t>(bytes_[at_++]);
    if (tag <= 0x7f || tag >= 0xe0) return {};                         // fixint
    if (tag <= 0x8f) return container(2 * std::uint64_t{tag & 0xfU});  // fixmap
    if (tag <= 0x9f) return container(tag & 0xfU);                     // fixarray
    if (tag <= 0xbf) return skip(tag & 0x1fU);                         // fixstr
    switch (tag) {
      case 0xc0:  // nil
      case 0xc2:  // false
      case 0xc3:  // true
        return {};
      case 0xc4:  // bin 8, 16, 32
      case 0xc5:
      case 0xc6:
        return raw(std::size_t{1} << (tag - 0xc4), 0);
      case 0xc7:  // ext 8, 16, 32: a type byte precedes the data
      case 0xc8:
      case 0xc9:
        return raw(std::size_t{1} << (tag - 0xc7), 1);
      case 0xca:  // float 32
        return skip(4);
      case 0xcb:  // float 64
        return skip(8);
      case 0xcc:  // uint 8 to 64
      case 0xcd:
      case 0xce:
      case 0xcf:
        return skip(std::uint64_t{1} << (tag - 0xcc));
      case 0xd0:  // int 8 to 64
      case 0xd1:
      case 0xd2:
      case 0xd3:
        return skip(std::uint64_t{1} << (tag - 0xd0));
      case 0xd4:  // fixext 1 to 16
      case 0xd5:
      case 0xd6:
      case 0xd7:
      case 0xd8:
        return skip((std::uint64_t{1} << (tag - 0xd4)) + 1);
      case 0xd9:  // str 8, 16, 32
      case 0xda:
      case 0xdb:
        return raw(std::size_t{1} << (tag - 0xd9), 0);
      case 0xdc:  // array 16, 32
      case 0xdd:
        return counted_container(std::size_t{2} << (tag - 0xdc), 1);
      case 0xde:  // map 16, 32
      case 0xdf:
        return counted_container(std::size_t{2} << (tag - 0xde), 2);
      default:  // 0xc1
        return bad("a tag that is never used");
    }
  }

  const Bytes bytes_;
  std::size_t at_ = 0;
  std::uint64_t objects_ = 0;
  std::array<std::uint64_t, limits::kMsgpackDepth + 1> pending_{};  // root and open containers
  std::size_t depth_ = 0;
};

}  // namespace

Status validate_msgpack(Bytes bytes) { return Validator(bytes).run(); }

namespace detail {

namespace {

// A free zone of this thread, for reuse. One is enough: most threads unpack one object at a time.
thread_local std::unique_ptr<msgpack::zone> spare_zone;

}  // namespace

Unpacked::Unpacked() : zone_(spare_zone ? std::move(spare_zone) : std::make_unique<msgpack::zone>()) {}

Unpacked::~Unpacked() {
  if (zone_ == nullptr || spare_zone != nullptr) return;
  zone_->clear();  // keeps its first chunk
  spare_zone = std::move(zone_);
}

Result<Unpacked> unpack(Bytes bytes) {
  SLIME_TRY(validate_msgpack(bytes));
  try {
    const auto by_reference = [](msgpack::type::object_type, std::size_t, void*) { return true; };
    Unpacked out;
    out.object_ =
        msgpack::unpack(*out.zone_, reinterpret_cast<const char*>(bytes.data()), bytes.size(), by_reference);
    return out;
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "no memory to unpack msgpack");
  } catch (const std::exception& error) {
    return Status(Code::kInvalidArgument, str("not msgpack: ", error.what()));
  }
}

bool FlatReader::tag(std::uint8_t& out) {
  if (rest_.empty()) return false;
  out = std::to_integer<std::uint8_t>(rest_.front());
  rest_ = rest_.subspan(1);
  return true;
}

bool FlatReader::number(std::size_t width, std::uint64_t& out) {
  if (rest_.size() < width) return false;
  out = 0;
  for (std::size_t i = 0; i < width; ++i) out = out << 8 | std::to_integer<std::uint8_t>(rest_[i]);
  rest_ = rest_.subspan(width);
  return true;
}

bool FlatReader::take(std::uint64_t size, Bytes& out) {
  if (size > rest_.size()) return false;
  out = rest_.first(static_cast<std::size_t>(size));
  rest_ = rest_.subspan(static_cast<std::size_t>(size));
  return true;
}

bool FlatReader::array(std::size_t elements) {
  std::uint8_t first = 0;
  return elements <= 0xf && tag(first) && first == (0x90 | elements);
}

bool FlatReader::read(bool& out) {
  std::uint8_t first = 0;
  if (!tag(first)) return false;
  out = first == 0xc3;
  return out || first == 0xc2;
}

bool FlatReader::read(std::string_view& out) {
  std::uint8_t first = 0;
  if (!tag(first)) return false;
  std::uint64_t size = first & 0x1fU;
  const bool fixed = (first & 0xe0U) == 0xa0;
  const bool counted = first >= 0xd9 && first <= 0xdb && number(std::size_t{1} << (first - 0xd9), size);
  Bytes bytes;
  if (!(fixed || counted) || !take(size, bytes)) return false;
  out = as_text(bytes);
  return true;
}

bool FlatReader::read(Bytes& out) {
  std::uint8_t first = 0;
  std::uint64_t size = 0;
  return tag(first) && first >= 0xc4 && first <= 0xc6 && number(std::size_t{1} << (first - 0xc4), size) &&
         take(size, out);
}

bool FlatReader::integer(std::uint64_t& value, bool& negative) {
  std::uint8_t first = 0;
  if (!tag(first)) return false;
  negative = false;
  if (first <= 0x7f) {
    value = first;
    return true;
  }
  if (first >= 0xe0) {
    value = static_cast<std::uint64_t>(static_cast<std::int8_t>(first));
    negative = true;
    return true;
  }
  if (first < 0xcc || first > 0xd3) return false;
  const bool is_signed = first >= 0xd0;
  const std::size_t width = std::size_t{1} << (first - (is_signed ? 0xd0 : 0xcc));
  if (!number(width, value)) return false;
  if (!is_signed) return true;
  const auto shift = static_cast<unsigned>(64 - 8 * width);
  const auto extended = static_cast<std::int64_t>(value << shift) >> shift;
  value = static_cast<std::uint64_t>(extended);
  negative = extended < 0;
  return true;
}

std::string describe(const msgpack::object& object) {
  switch (object.type) {
    case msgpack::type::NIL:
      return "nil";
    case msgpack::type::BOOLEAN:
      return "a bool";
    case msgpack::type::POSITIVE_INTEGER:
      return "an integer";
    case msgpack::type::NEGATIVE_INTEGER:
      return "a negative integer";
    case msgpack::type::FLOAT32:
    case msgpack::type::FLOAT64:
      return "a float";
    case msgpack::type::STR:
      return "a string";
    case msgpack::type::BIN:
      return "bytes";
    case msgpack::type::ARRAY:
      return str("an array of ", object.via.array.size);
    case msgpack::type::MAP:
      return str("a map of ", object.via.map.size);
    case msgpack::type::EXT:
      return str("an extension of type ", static_cast<int>(object.via.ext.type()));
  }
  return "an unknown type";
}

}  // namespace detail
}  // namespace slime::rpc

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/future.h"
#include "base/result.h"
#include "base/str.h"
#include "rpc/attachment.h"
#include "rpc/codec/body_pool.h"
#include "rpc/limits.h"
#include "rpc/msgpack_types.h"
#include "rpc/payload.h"

// Bodies are msgpack: a request is an array of the arguments, a reply is one value. Types that can
// be encoded and decoded: numbers, bool, std::string, bytes as ByteVector or Bytes (bin),
// containers, std::tuple, std::optional (nil), structs with MSGPACK_DEFINE (arrays) or
// MSGPACK_DEFINE_MAP (maps; a dict in Python), and Attachment (an extension value that refers to
// bytes sent beside the body).
namespace slime::rpc {

// Checks bytes from a peer without allocating memory: they must be exactly one object, with nesting
// and number of objects within the limits, and each length within the bytes. The text of
// kInvalidArgument names the fault and its position.
Status validate_msgpack(Bytes bytes);

namespace detail {

// Output stream for msgpack's packer. Floats are always written as floats, never as integers (see
// packed_float).
class ByteSink {
 public:
  explicit ByteSink(ByteVector& out) : out_(out) {}
  void write(const char* data, std::size_t size) {
    const auto* first = reinterpret_cast<const std::byte*>(data);
    if (size == 1) {  // most writes are tags
      out_.push_back(*first);
    } else {
      append_bytes(out_, {first, size});
    }
  }

 private:
  ByteVector& out_;
};

// Output stream for values that may have attachments, which go to the AttachmentScope of this
// thread.
class AttachingSink : public ByteSink {
 public:
  using ByteSink::ByteSink;
};

// Replaces msgpack-c's packing of floats, which writes a float with an integral value as an
// integer: the reader would then get another type, and -0.0 would lose its sign.
inline std::array<char, 9> packed_float(double value) {
  std::array<char, 9> bytes{static_cast<char>(0xcb)};
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (std::size_t i = 0; i < 8; ++i) bytes[1 + i] = static_cast<char>(bits >> (56 - 8 * i));
  return bytes;
}
inline std::array<char, 5> packed_float(float value) {
  std::array<char, 5> bytes{static_cast<char>(0xca)};
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (std::size_t i = 0; i < 4; ++i) bytes[1 + i] = static_cast<char>(bits >> (24 - 8 * i));
  return bytes;
}

}  // namespace detail
}  // namespace slime::rpc

template <>
inline msgpack::packer<slime::rpc::detail::ByteSink>&
msgpack::packer<slime::rpc::detail::ByteSink>::pack_double(double value) {
  const auto bytes = slime::rpc::detail::packed_float(value);
  append_buffer(bytes.data(), bytes.size());
  return *this;
}
template <>
inline msgpack::packer<slime::rpc::detail::ByteSink>&
msgpack::packer<slime::rpc::detail::ByteSink>::pack_float(float value) {
  const auto bytes = slime::rpc::detail::packed_float(value);
  append_buffer(bytes.data(), bytes.size());
  return *this;
}
template <>
inline msgpack::packer<slime::rpc::detail::AttachingSink>&
msgpack::packer<slime::rpc::detail::AttachingSink>::pack_double(double value) {
  const auto bytes = slime::rpc::detail::packed_float(value);
  append_buffer(bytes.data(), bytes.size());
  return *this;
}
template <>
inline msgpack::packer<slime::rpc::detail::AttachingSink>&
msgpack::packer<slime::rpc::detail::AttachingSink>::pack_float(float value) {
  const auto bytes = slime::rpc::detail::packed_float(value);
  append_buffer(bytes.data(), bytes.size());
  return *this;
}

namespace slime::rpc {
namespace detail {

// An unpacked object, and the memory of its containers, which the thread uses again for later
// objects.
class Unpacked {
 public:
  Unpacked();
  Unpacked(Unpacked&&) noexcept = default;
  Unpacked& operator=(Unpacked&&) = delete;
  ~Unpacked();
  [[nodiscard]] const msgpack::object& get() const { return object_; }

 private:
  friend Result<Unpacked> unpack(Bytes bytes);
  std::unique_ptr<msgpack::zone> zone_;
  msgpack::object object_;
};
// Checks the bytes, then unpacks them. Strings and binaries in the result are views of `bytes`.
Result<Unpacked> unpack(Bytes bytes);
// Describes an object for error texts: "a string", "an array of 3", ...
std::string describe(const msgpack::object& object);

// Returns the name of T as the compiler spells it.
template <class T>
std::string_view type_name() {
  constexpr std::string_view kText = __PRETTY_FUNCTION__;
  constexpr std::size_t kStart = kText.find("T = ") + 4;
  constexpr std::size_t kEnd = kText.find_first_of(";]", kStart);
  return kText.substr(kStart, kEnd - kStart);
}

// Type number of the msgpack extension value that refers to an attachment.
inline constexpr std::int8_t kAttachmentExtension = 1;

// While the scope is alive, this thread packs or unpacks a body with the attachments of the scope.
// Scopes nest; the innermost one is used.
class AttachmentScope {
 public:
  explicit AttachmentScope(Attachments& packed) : AttachmentScope(&packed, {}) {}
  explicit AttachmentScope(std::span<const Attachment> unpacked) : AttachmentScope(nullptr, unpacked) {}
  AttachmentScope(const AttachmentScope&) = delete;
  AttachmentScope& operator=(const AttachmentScope&) = delete;
  ~AttachmentScope();

 private:
  friend ByteVector pack_attachment(const Attachment& attachment);
  friend bool unpack_attachment(const msgpack::object& object, Attachment& out);
  AttachmentScope(Attachments* packed, std::span<const Attachment> unpacked);
  Attachments* const packed_;
  const std::span<const Attachment> unpacked_;
  AttachmentScope* const outer_;
};
// Adds an attachment to this thread's scope. Returns the data of the extension value that refers to
// the attachment.
ByteVector pack_attachment(const Attachment& attachment);
// Finds the attachment that an extension value refers to. Returns false if the body has no such
// attachment.
bool unpack_attachment(const msgpack::object& object, Attachment& out);

// Converts an object to T. If T is a type of bytes, also accepts an attachment, because the caller
// decides what it sends as an attachment.
template <class T>
T from_object(const msgpack::object& object) {
  if constexpr (std::is_same_v<T, ByteVector> || std::is_same_v<T, Bytes>) {
    Attachment attachment;
    if (unpack_attachment(object, attachment)) return T(attachment.bytes().begin(), attachment.bytes().end());
  }
  return object.as<T>();
}

// Converts elements[index]. Sets `at` to `index` first, so that an error text can name the element.
template <class T>
T convert_at(const msgpack::object* elements, std::size_t index, std::size_t& at) {
  at = index;
  return from_object<T>(elements[index]);
}

template <class R>
struct ValueOf {
  using Type = R;
};
template <>
struct ValueOf<void> {
  using Type = None;
};

}  // namespace detail
}  // namespace slime::rpc

namespace msgpack {
MSGPACK_API_VERSION_NAMESPACE(MSGPACK_DEFAULT_API_NS) {
  namespace adaptor {

  template <>
  struct pack<slime::rpc::Attachment> {
    template <class Stream>
    packer<Stream>& operator()(packer<Stream>& out, const slime::rpc::Attachment& attachment) const {
      static_assert(std::is_same_v<Stream, slime::rpc::detail::AttachingSink>,
                    "an Attachment travels in the arguments or the result of a call, not in a message of a "
                    "stream; bytes are encoded with encode_attached_arguments() or encode_attached_value()");
      const slime::ByteVector data = slime::rpc::detail::pack_attachment(attachment);
      out.pack_ext(data.size(), slime::rpc::detail::kAttachmentExtension);
      out.pack_ext_body(reinterpret_cast<const char*>(data.data()), static_cast<std::uint32_t>(data.size()));
      return out;
    }
  };

  template <>
  struct convert<slime::rpc::Attachment> {
    const msgpack::object& operator()(const msgpack::object& object, slime::rpc::Attachment& out) const {
      if (object.type == msgpack::type::BIN) {  // the sender did not use an attachment
        out = slime::rpc::Attachment(object.as<slime::ByteVector>());
      } else if (!slime::rpc::detail::unpack_attachment(object, out)) {
        throw msgpack::type_error();
      }
      return object;
    }
  };

  }  // namespace adaptor
}
}  // namespace msgpack

namespace slime::rpc {

namespace detail {

// Returns the size of the value if it is a string or bytes; 0 for other types.
template <class T>
std::size_t long_bytes(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return std::string_view(value).size();
  } else if constexpr (std::is_convertible_v<const T&, Bytes>) {
    return value.size();
  } else {
    return 0;
  }
}
// Returns memory for the encoded values.
template <class... T>
ByteVector body_for(const T&... values) {
  const std::size_t bytes = (std::size_t{0} + ... + long_bytes(values));
  if (bytes < limits::kLargeBody) [[likely]]
    return take_body();
  return take_body(bytes + 16 * (sizeof...(T) + 1));  // and msgpack's tags
}

template <class Sink, class... A>
ByteVector pack_arguments(const A&... arguments) {
  ByteVector out = body_for(arguments...);
  Sink sink(out);
  msgpack::packer<Sink> packer(sink);
  packer.pack_array(sizeof...(A));
  (packer.pack(arguments), ...);
  return out;
}

template <class Sink, class T>
ByteVector pack_value(const T& value) {
  ByteVector out = body_for(value);
  Sink sink(out);
  msgpack::packer<Sink> packer(sink);
  if constexpr (std::is_same_v<T, None>) {
    packer.pack_nil();
  } else {
    packer.pack(value);
  }
  return out;
}

// Reads simple values directly from a peer's bytes, without msgpack. Returns false for other values
// and for invalid bytes: the caller must then use unpack(), which reads the value or reports the
// fault. Each value that FlatReader reads equals the value that unpack() would read.
class FlatReader {
 public:
  explicit FlatReader(Bytes bytes) : rest_(bytes) {}

  template <class T>
  static constexpr bool kCharacter =
      std::is_same_v<T, char> || std::is_same_v<T, wchar_t> || std::is_same_v<T, char8_t> ||
      std::is_same_v<T, char16_t> || std::is_same_v<T, char32_t>;
  template <class T>
  static constexpr bool kReads =
      (std::is_integral_v<T> && !kCharacter<T>) || std::is_same_v<T, std::string> ||
      std::is_same_v<T, std::string_view> || std::is_same_v<T, ByteVector> || std::is_same_v<T, Bytes>;

  // Reads the header of an array. Returns false if the array has not exactly `elements` elements.
  bool array(std::size_t elements);
  bool read(bool& out);
  bool read(std::string_view& out);
  bool read(Bytes& out);
  bool read(std::string& out) {
    std::string_view text;
    if (!read(text)) return false;
    out = text;
    return true;
  }
  bool read(ByteVector& out) {
    Bytes bytes;
    if (!read(bytes)) return false;
    out.clear();
    append_bytes(out, bytes);
    return true;
  }
  // Like read(), but large bytes are read into memory of the body pool. Give that memory back with
  // give_value().
  template <class T>
  bool read_kept(T& out) {
    return read(out);
  }
  bool read_kept(ByteVector& out) {
    Bytes bytes;
    if (!read(bytes)) return false;
    if (bytes.size() >= limits::kLargeBody) [[unlikely]]
      out = take_body(bytes.size());
    out.clear();
    append_bytes(out, bytes);
    return true;
  }
  template <class T>
  requires std::is_integral_v<T>
  bool read(T& out) {
    std::uint64_t value = 0;
    bool negative = false;
    if (!integer(value, negative)) return false;
    const bool fits = negative ? std::in_range<T>(static_cast<std::int64_t>(value)) : std::in_range<T>(value);
    out = static_cast<T>(value);
    return fits;
  }
  [[nodiscard]] bool done() const { return rest_.empty(); }

 private:
  bool tag(std::uint8_t& out);
  // Reads a big-endian number of `width` bytes.
  bool number(std::size_t width, std::uint64_t& out);
  bool take(std::uint64_t size, Bytes& out);
  bool integer(std::uint64_t& value, bool& negative);

  Bytes rest_;
};

// Returns the arguments of a request if all of them are simple values. Otherwise returns nullopt,
// and the caller must use decode_arguments(). Call give_value() for each argument after use.
template <class... T>
std::optional<std::tuple<T...>> flat_arguments(Bytes bytes) {
  std::optional<std::tuple<T...>> out;
  if constexpr ((FlatReader::kReads<T> && ...)) {
    FlatReader reader(bytes);
    if (!reader.array(sizeof...(T))) return out;
    out.emplace();
    if (!std::apply([&](T&... each) { return (reader.read_kept(each) && ...); }, *out) || !reader.done())
      out.reset();
  }
  return out;
}

// Gives the memory of large bytes in `value` back to the body pool.
template <class T>
void give_value(T& value) noexcept {
  if constexpr (std::is_same_v<T, ByteVector>) {
    if (value.capacity() >= limits::kLargeBody) [[unlikely]]
      give_body(std::move(value));
  }
}

}  // namespace detail

// Encodes the arguments as a msgpack array. Does not compile if one of them is an Attachment.
template <class... A>
ByteVector encode_arguments(const A&... arguments) {
  return detail::pack_arguments<detail::ByteSink>(arguments...);
}
// Returns one msgpack value; None is nil.
template <class T>
ByteVector encode_value(const T& value) {
  return detail::pack_value<detail::ByteSink>(value);
}

// True if a value of one of these types may have attachments. Numbers, strings and bytes never
// have.
template <class... T>
inline constexpr bool kMayAttach = ((!detail::FlatReader::kReads<T> && !std::is_arithmetic_v<T> &&
                                     !std::is_enum_v<T> && !std::is_same_v<T, None> &&
                                     !std::is_convertible_v<const T&, std::string_view>) ||
                                    ...);

// Like encode_arguments() and encode_value(), for values that may have attachments.
template <class... A>
AttachedBody encode_attached_arguments(const A&... arguments) {
  AttachedBody out;
  if constexpr (kMayAttach<A...>) {
    const detail::AttachmentScope scope(out.attachments);
    out.body = detail::pack_arguments<detail::AttachingSink>(arguments...);
  } else {
    out.body = encode_arguments(arguments...);
  }
  return out;
}
template <class T>
AttachedBody encode_attached_value(const T& value) {
  AttachedBody out;
  if constexpr (kMayAttach<T>) {
    const detail::AttachmentScope scope(out.attachments);
    out.body = detail::pack_value<detail::AttachingSink>(value);
  } else {
    out.body = encode_value(value);
  }
  return out;
}

// Decodes one msgpack value. Returns kInvalidArgument if the bytes are not msgpack, or the value
// does not convert to R. If R is None, accepts any value.
template <class R>
Result<R> decode_value(Bytes bytes, std::span<const Attachment> attachments = {}) {
  if constexpr (detail::FlatReader::kReads<R>) {
    R flat{};
    detail::FlatReader reader(bytes);
    if (reader.read(flat) && reader.done()) return flat;
  }
  auto handle = detail::unpack(bytes);
  if (!handle) return handle.error();
  const detail::AttachmentScope scope(attachments);
  if constexpr (std::is_same_v<R, None>) {
    return None{};
  } else {
    try {
      return detail::from_object<R>(handle->get());
    } catch (const std::exception&) {
      return Status(Code::kInvalidArgument,
                    str("cannot convert ", detail::describe(handle->get()), " to ", detail::type_name<R>()));
    }
  }
}

// Decodes the arguments of a request to a tuple. Returns kInvalidArgument, whose text names the
// expected types, if they do not convert. `where` ("calc.add") is for that text. Views among the
// arguments point into `bytes`.
template <class... T>
Result<std::tuple<T...>> decode_arguments(Bytes bytes, std::string_view where,
                                          std::span<const Attachment> attachments = {}) {
  const auto bad = [where](const auto&... what) {
    return Status(Code::kInvalidArgument, str("bad arguments for ", where, ": ", what...));
  };
  auto handle = detail::unpack(bytes);
  if (!handle) return bad(handle.error().text());
  const msgpack::object& root = handle->get();
  if (root.type != msgpack::type::ARRAY) return bad("expected an array, got ", detail::describe(root));
  if (root.via.array.size != sizeof...(T)) {
    std::string types;
    ((types += types.empty() ? "" : ", ", types += detail::type_name<T>()), ...);
    return bad("takes ", sizeof...(T), " (", types, "), got ", root.via.array.size);
  }
  [[maybe_unused]] const msgpack::object* const elements = root.via.array.ptr;
  std::size_t at = 0;
  const detail::AttachmentScope scope(attachments);
  try {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::tuple<T...>{detail::convert_at<T>(elements, I, at)...};
    }
    (std::index_sequence_for<T...>{});
  } catch (const std::exception&) {
    static constexpr std::size_t kCount = sizeof...(T) == 0 ? 1 : sizeof...(T);
    const std::array<std::string_view, kCount> names{detail::type_name<T>()...};
    return bad("argument ", at + 1, " is ", detail::describe(elements[at]), ", expected ", names[at]);
  }
}

// Returns "service.method" for an error text.
inline std::string method_label(std::string_view service, std::string_view method) {
  std::string out;
  out.reserve(service.size() + 1 + method.size());
  return out.append(service).append(1, '.').append(method);
}

namespace detail {

// For Future::map().
template <class Value>
Result<Value> decode_reply(Result<Payload>&& payload, const slime::detail::FutureCore& core) {
  if (!payload) return std::move(payload).error();
  auto value = decode_value<Value>(payload->bytes(), payload->attachments());
  if (value) return value;
  const std::string of = core.label();
  return Status(Code::kInternal, str("bad reply", of.empty() ? "" : " of ", of, ": ", value.error().text()))
      .with_maybe_executed(true);
}

}  // namespace detail

// Returns a future of the decoded reply. The thread that takes the value decodes it. If the value
// does not convert to R, the error is kInternal with maybe_executed(), and its text names the
// method, if the reply's state has it as its label.
template <class R>
Future<typename detail::ValueOf<R>::Type> decode_future(Future<Payload> reply) {
  using Value = typename detail::ValueOf<R>::Type;
  if (!reply.valid()) return Future<Value>::ready(Status(Code::kInvalidArgument, "an empty future"));
  return std::move(reply).map<Value, &detail::decode_reply<Value>>();
}

}  // namespace slime::rpc

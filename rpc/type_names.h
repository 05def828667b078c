#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "base/status.h"
#include "rpc/attachment.h"

// Names of C++ types on the wire, which other languages use as well: bool, int, float, str, bytes,
// none, list[T], map[K, V], optional[T] (T or none), tuple[A, B]; and any, for structs and all
// other types.
namespace slime::rpc {

namespace detail {

template <class T, template <class...> class Of>
inline constexpr bool kIsOf = false;
template <template <class...> class Of, class... A>
inline constexpr bool kIsOf<Of<A...>, Of> = true;

// Structs that define their conversion (MSGPACK_DEFINE).
template <class T>
concept Defined = requires {
  &T::msgpack_unpack;
};
template <class T>
concept MapLike = requires {
  typename T::key_type;
  typename T::mapped_type;
};
template <class T>
concept ListLike = requires(const T& list) {
  typename T::value_type;
  list.begin();
  list.end();
};
// Memory of single bytes: msgpack's bin.
template <class T>
concept BytesLike = ListLike<T> && requires(const T& bytes) {
  bytes.data();
} &&(std::is_same_v<typename T::value_type, std::byte> || std::is_same_v<typename T::value_type, char> ||
     std::is_same_v<typename T::value_type, unsigned char>);

}  // namespace detail

template <class T>
std::string wire_type();

namespace detail {

template <class T>
struct ElementsOf;
template <template <class...> class Of, class... A>
struct ElementsOf<Of<A...>> {
  static std::string text() {
    std::string out;
    ((out.append(out.empty() ? "" : ", ").append(wire_type<A>())), ...);
    return out;
  }
};

// Returns the wire type of a container; "any" for all other types.
template <class T>
std::string container_type() {
  if constexpr (BytesLike<T>) {
    return "bytes";
  } else if constexpr (MapLike<T>) {
    return "map[" + wire_type<typename T::key_type>() + ", " + wire_type<typename T::mapped_type>() + "]";
  } else if constexpr (ListLike<T>) {
    return "list[" + wire_type<typename T::value_type>() + "]";
  } else if constexpr (kIsOf<T, std::optional>) {
    return "optional[" + wire_type<typename T::value_type>() + "]";
  } else if constexpr (kIsOf<T, std::shared_ptr> || kIsOf<T, std::unique_ptr>) {
    return "optional[" + wire_type<typename T::element_type>() + "]";
  } else if constexpr (kIsOf<T, std::tuple> || kIsOf<T, std::pair>) {
    return "tuple[" + ElementsOf<T>::text() + "]";
  } else {
    return "any";
  }
}

}  // namespace detail

template <class T>
std::string wire_type() {
  if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return "int";
  } else if constexpr (std::is_floating_point_v<T>) {
    return "float";
  } else if constexpr (std::is_void_v<T> || std::is_same_v<T, None> || std::is_same_v<T, Status>) {
    return "none";
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return "str";
  } else if constexpr (std::is_same_v<T, Attachment>) {
    return "bytes";
  } else if constexpr (detail::Defined<T>) {
    return "any";
  } else {
    return detail::container_type<T>();
  }
}

}  // namespace slime::rpc

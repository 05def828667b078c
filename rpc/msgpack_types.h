#pragma once

// Includes msgpack's headers for packing, for objects, and for the types that rpc/README.md lists.
// The rest of <msgpack.hpp> would take a sixth of the compile time of a file that includes
// rpc/service.h. A file that packs another type, such as std::complex or std::wstring, must also
// include the header of that type (<msgpack/adaptor/complex.hpp>, or <msgpack.hpp>).
#include <msgpack/object.hpp>
#include <msgpack/pack.hpp>
#include <msgpack/zone.hpp>

// Headers for numbers, enums (MSGPACK_ADD_ENUM), nil, and structs (MSGPACK_DEFINE,
// MSGPACK_DEFINE_MAP).
#include <msgpack/adaptor/bool.hpp>
#include <msgpack/adaptor/define.hpp>
#include <msgpack/adaptor/float.hpp>
#include <msgpack/adaptor/int.hpp>
#include <msgpack/adaptor/nil.hpp>

// Strings and bytes.
#include <msgpack/adaptor/carray.hpp>
#include <msgpack/adaptor/char_ptr.hpp>
#include <msgpack/adaptor/cpp11/array_char.hpp>
#include <msgpack/adaptor/cpp11/array_unsigned_char.hpp>
#include <msgpack/adaptor/cpp17/array_byte.hpp>
#include <msgpack/adaptor/cpp17/byte.hpp>
#include <msgpack/adaptor/cpp17/carray_byte.hpp>
#include <msgpack/adaptor/cpp17/string_view.hpp>
#include <msgpack/adaptor/cpp17/vector_byte.hpp>
#include <msgpack/adaptor/cpp20/span.hpp>
#include <msgpack/adaptor/raw.hpp>
#include <msgpack/adaptor/string.hpp>
#include <msgpack/adaptor/vector_char.hpp>
#include <msgpack/adaptor/vector_unsigned_char.hpp>

// Containers.
#include <msgpack/adaptor/cpp11/array.hpp>
#include <msgpack/adaptor/cpp11/forward_list.hpp>
#include <msgpack/adaptor/cpp11/tuple.hpp>
#include <msgpack/adaptor/cpp11/unordered_map.hpp>
#include <msgpack/adaptor/cpp11/unordered_set.hpp>
#include <msgpack/adaptor/deque.hpp>
#include <msgpack/adaptor/list.hpp>
#include <msgpack/adaptor/map.hpp>
#include <msgpack/adaptor/pair.hpp>
#include <msgpack/adaptor/set.hpp>
#include <msgpack/adaptor/vector.hpp>
#include <msgpack/adaptor/vector_bool.hpp>

// Optional values, pointers and references.
#include <msgpack/adaptor/cpp11/reference_wrapper.hpp>
#include <msgpack/adaptor/cpp11/shared_ptr.hpp>
#include <msgpack/adaptor/cpp11/unique_ptr.hpp>
#include <msgpack/adaptor/cpp17/optional.hpp>

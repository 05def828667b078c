#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/str.h"
#include "python/binding.h"

namespace slime::python {

using AnyArray = nb::ndarray<nb::ro, nb::device::cpu>;

template <class Item, class Number>
void append_items(const AnyArray& array, const char* name, std::vector<Number>& out) {
  const auto* data = static_cast<const Item*>(array.data());
  const std::int64_t stride = array.stride(0);
  for (std::size_t i = 0; i < array.shape(0); ++i) {
    const Item item = data[static_cast<std::int64_t>(i) * stride];
    if (!std::in_range<Number>(item))
      raise(Code::kInvalidArgument, str(name, "[", i, "] is ", +item, ": it has to be from 0 to ",
                                        std::numeric_limits<Number>::max()));
    out.push_back(static_cast<Number>(item));
  }
}

template <class Number>
std::vector<Number> numbers_of(const AnyArray& array, const char* name) {
  std::vector<Number> out;
  if (array.ndim() != 1)
    raise(Code::kInvalidArgument, str(name, " has ", array.ndim(), " dimensions, not 1"));
  out.reserve(array.shape(0));
  const nb::dlpack::dtype type = array.dtype();
  if (type == nb::dtype<std::int64_t>()) {
    append_items<std::int64_t>(array, name, out);
  } else if (type == nb::dtype<std::uint64_t>()) {
    append_items<std::uint64_t>(array, name, out);
  } else if (type == nb::dtype<std::int32_t>()) {
    append_items<std::int32_t>(array, name, out);
  } else if (type == nb::dtype<std::uint32_t>()) {
    append_items<std::uint32_t>(array, name, out);
  } else {
    raise(Code::kInvalidArgument, str(name, " has to be an array of int64, uint64, int32 or uint32"));
  }
  return out;
}

// Converts an iterable of numbers. Reads a one-dimensional array of int64, uint64, int32 or uint32
// without making a Python object for each number, and refuses arrays of other types or dimensions.
template <class Number>
std::vector<Number> numbers_from(nb::handle list, const char* name) {
  AnyArray array;
  if (nb::try_cast(list, array, false)) return numbers_of<Number>(array, name);
  std::vector<Number> out;
  const Py_ssize_t hint = PyObject_LengthHint(list.ptr(), 8);
  if (hint < 0) throw nb::python_error();
  out.reserve(static_cast<std::size_t>(hint));
  for (const nb::handle item : nb::iter(list)) {
    const std::uint64_t number = unsigned_from(item, name);
    if (!std::in_range<Number>(number))
      raise(Code::kInvalidArgument,
            str(name, " has ", number, ": it has to be from 0 to ", std::numeric_limits<Number>::max()));
    out.push_back(static_cast<Number>(number));
  }
  return out;
}

}  // namespace slime::python

#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "python/binding.h"

namespace slime::python {

// A NumPy dtype of plain numbers in the byte order of this machine. NumPy has one object per dtype.
struct PlainDtype {
  std::string_view text;  // NumPy's name: "<f4"
  std::size_t item_bytes = 0;
  PyObject* dtype = nullptr;
};

// The objects and functions of NumPy that encoding and decoding use. Thread: holds the GIL.
class Numpy {
 public:
  // Returns null until the process has imported numpy. The object lives as long as the process.
  static const Numpy* get();
  // Returns true if the object's type is exactly numpy.ndarray, not a derived class.
  [[nodiscard]] bool is_array(PyObject* object) const {
    return reinterpret_cast<PyObject*>(Py_TYPE(object)) == array_;
  }
  // Returns null for another dtype.
  [[nodiscard]] const PlainDtype* dtype_of(PyObject* array) const;
  [[nodiscard]] const PlainDtype* dtype_named(std::string_view text) const;
  [[nodiscard]] nb::object base_of(PyObject* array) const;
  // Returns an array over the buffer of `memory`. If the buffer is too small, returns an invalid
  // object and sets a Python exception.
  [[nodiscard]] nb::object view(nb::handle memory, const PlainDtype& dtype,
                                const std::vector<std::uint64_t>& shape) const;

 private:
  explicit Numpy(nb::handle module);
  PyObject* array_;  // numpy.ndarray
  PyObject* dtype_name_;
  PyObject* base_name_;
  std::array<PlainDtype, 14> dtypes_;
};

}  // namespace slime::python

#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "python/binding.h"

namespace slime::python {

// A dtype of plain numbers in this machine's byte order. NumPy has one object for each.
struct PlainDtype {
  std::string_view text;  // NumPy's name: "<f4"
  std::size_t item_bytes = 0;
  PyObject* dtype = nullptr;
};

// The parts of NumPy that values need. Thread: holds the GIL.
class Numpy {
 public:
  // Returns null until the process has imported numpy. Lives as long as the process.
  static const Numpy* get();
  // Returns true for numpy.ndarray itself, not for derived types.
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

#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "python/binding.h"

namespace slime::python {

// A dtype of plain numbers in this machine's byte order, of which NumPy has one object.
struct PlainDtype {
  std::string_view text;  // as NumPy spells it: "<f4"
  std::size_t item_bytes = 0;
  PyObject* dtype = nullptr;
};

// NumPy, as far as values need it. Thread: holds the GIL.
class Numpy {
 public:
  // Null as long as nobody in this process has imported it. Lives as long as the process.
  static const Numpy* get();
  // Of that type itself, not of one that derives from it.
  [[nodiscard]] bool is_array(PyObject* object) const {
    return reinterpret_cast<PyObject*>(Py_TYPE(object)) == array_;
  }
  // Null: another dtype.
  [[nodiscard]] const PlainDtype* dtype_of(PyObject* array) const;
  [[nodiscard]] const PlainDtype* dtype_named(std::string_view text) const;
  [[nodiscard]] nb::object base_of(PyObject* array) const;
  // A view of the buffer that `memory` has. Invalid, and a Python exception is set, where it is too small.
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

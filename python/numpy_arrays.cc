#include <algorithm>

#include "python/py_numpy.h"

namespace slime::python {
namespace {

constexpr std::array<std::string_view, 14> kTexts = {"|u1", "<f4", "<f8", "<i8", "<i4", "|i1", "|b1",
                                                     "<f2", "<u8", "<u4", "<i2", "<u2", "<c8", "<c16"};

// Keeps the object until the process ends: an array may be sent while the interpreter ends.
PyObject* for_ever(nb::object object) { return object.release().ptr(); }

}  // namespace

const Numpy* Numpy::get() {
  static const Numpy* known = nullptr;
  if (known != nullptr) return known;
  const nb::str name("numpy");
  const nb::object module = nb::steal(PyImport_GetModule(name.ptr()));
  if (!module.is_valid() || module.is_none()) {
    PyErr_Clear();
    return nullptr;
  }
  try {
    known = new Numpy(module);
  } catch (nb::python_error&) {
    return nullptr;  // another thread is importing it
  }
  return known;
}

Numpy::Numpy(nb::handle module)
    : array_(for_ever(module.attr("ndarray"))),
      dtype_name_(PyUnicode_InternFromString("dtype")),
      base_name_(PyUnicode_InternFromString("base")) {
  const nb::object make = module.attr("dtype");
  for (std::size_t i = 0; i < kTexts.size(); ++i) {
    nb::object dtype = make(nb::str(kTexts[i].data(), kTexts[i].size()));
    dtypes_[i] = {kTexts[i], nb::cast<std::size_t>(dtype.attr("itemsize")), for_ever(dtype)};
  }
}

const PlainDtype* Numpy::dtype_of(PyObject* array) const {
  const nb::object dtype = nb::steal(PyObject_GetAttr(array, dtype_name_));
  if (!dtype.is_valid()) PyErr_Clear();
  const auto found = std::find_if(dtypes_.begin(), dtypes_.end(),
                                  [&](const auto& each) { return each.dtype == dtype.ptr(); });
  return found == dtypes_.end() ? nullptr : &*found;
}

const PlainDtype* Numpy::dtype_named(std::string_view text) const {
  const auto found =
      std::find_if(dtypes_.begin(), dtypes_.end(), [&](const auto& each) { return each.text == text; });
  return found == dtypes_.end() ? nullptr : &*found;
}

nb::object Numpy::base_of(PyObject* array) const {
  nb::object base = nb::steal(PyObject_GetAttr(array, base_name_));
  if (!base.is_valid()) PyErr_Clear();
  return base;
}

nb::object Numpy::view(nb::handle memory, const PlainDtype& dtype,
                       const std::vector<std::uint64_t>& shape) const {
  const nb::object extents = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  if (!extents.is_valid()) return {};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyObject* const extent = PyLong_FromUnsignedLongLong(shape[i]);
    if (extent == nullptr) return {};
    PyTuple_SET_ITEM(extents.ptr(), static_cast<Py_ssize_t>(i), extent);
  }
  std::array<PyObject*, 3> arguments = {extents.ptr(), dtype.dtype, memory.ptr()};
  return nb::steal(PyObject_Vectorcall(array_, arguments.data(), arguments.size(), nullptr));
}

}  // namespace slime::python

#pragma once

// Included before each source of the extension and of nanobind (CMakeLists.txt) with CPython older
// than 3.11. There PyObject_Vectorcall is an inline function of the header, which has no symbol
// that the linker could wrap (gil.cc).

#include <Python.h>

#include <cstddef>

#if PY_VERSION_HEX < 0x030B0000
// Like PyObject_Vectorcall, but parks a thread that the interpreter's end would unwind.
extern "C" PyObject* slime_vectorcall(PyObject* f, PyObject* const* args, std::size_t count, PyObject* names);
#define PyObject_Vectorcall slime_vectorcall
#endif

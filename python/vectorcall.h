#pragma once

// Included before each source of the extension and of nanobind (CMakeLists.txt) where CPython is older than
// 3.11: there PyObject_Vectorcall is an inline function of the header, so that calls of Python's functions
// have no name that the linker could wrap (gil.cc).

#include <Python.h>

#include <cstddef>

#if PY_VERSION_HEX < 0x030B0000
// PyObject_Vectorcall, out of which no thread is unwound at the interpreter's end.
extern "C" PyObject* slime_vectorcall(PyObject* f, PyObject* const* args, std::size_t count, PyObject* names);
#define PyObject_Vectorcall slime_vectorcall
#endif

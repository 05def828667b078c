#pragma once

// With CPython older than 3.11, PyObject_Vectorcall is an inline function of Python's header,
// without a symbol that the linker could wrap (gil.cc). CMakeLists.txt therefore includes this
// header before each source of the extension and of nanobind.

#include <Python.h>

#include <cstddef>

#if PY_VERSION_HEX < 0x030B0000
// Like PyObject_Vectorcall, but if CPython ends the calling thread, stops it forever instead of
// unwinding its stack.
extern "C" PyObject* slime_vectorcall(PyObject* f, PyObject* const* args, std::size_t count, PyObject* names);
#define PyObject_Vectorcall slime_vectorcall
#endif

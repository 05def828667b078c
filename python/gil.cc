#include <Python.h>
#include <unistd.h>

#include <type_traits>

// Wraps the Python C API functions that this extension calls, so that a thread that CPython ends
// never unwinds C++ frames.
//
// CPython before 3.14 ends a thread that asks for the GIL while the interpreter ends: it calls
// pthread_exit, which unwinds the stack like an exception. Unwinding C++ frames would run
// destructors, which release Python objects without the GIL, and would abort the process at a
// `noexcept` or `catch (...)` (nanobind has both around each function). So each wrapper stops the
// unwinding in front of the first C++ frame and parks the thread forever, as CPython does from 3.14
// on. The process ends without the thread.
//
// The linker option --wrap puts the wrappers between Python and the whole extension, nanobind
// included. CMakeLists.txt reads their names from this file. Each Python function that may ask for
// the GIL needs a wrapper: functions that release and take the GIL, functions that run Python code,
// and, in some versions, functions that allocate, because the garbage collector runs Python code.
// `catch (...)` catches nothing else, since none of these functions throws. A destructor instead of
// `catch (...)` would not work: within a `noexcept` function gcc calls std::terminate() before it.
namespace {

[[noreturn]] void park() noexcept {
  while (true) ::pause();
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker's names
#define SLIME_BOUNDARY(result, name, parameters, arguments)               \
  extern "C" result __real_##name parameters;                             \
  extern "C" result __wrap_##name parameters;                             \
  static_assert(std::is_same_v<decltype(__real_##name), decltype(name)>); \
  extern "C" result __wrap_##name parameters {                            \
    try {                                                                 \
      return __real_##name arguments;                                     \
    } catch (...) {                                                       \
      park();                                                             \
    }                                                                     \
  }

// The GIL, and signal handlers.
SLIME_BOUNDARY(void, PyEval_RestoreThread, (PyThreadState * state), (state))
SLIME_BOUNDARY(PyGILState_STATE, PyGILState_Ensure, (), ())
SLIME_BOUNDARY(int, PyErr_CheckSignals, (), ())

// Calls.
SLIME_BOUNDARY(PyObject*, PyObject_Call, (PyObject * f, PyObject* args, PyObject* keywords),
               (f, args, keywords))
SLIME_BOUNDARY(PyObject*, PyObject_CallObject, (PyObject * f, PyObject* args), (f, args))
SLIME_BOUNDARY(PyObject*, PyVectorcall_Call, (PyObject * f, PyObject* args, PyObject* keywords),
               (f, args, keywords))
SLIME_BOUNDARY(PyObject*, PyObject_VectorcallMethod,
               (PyObject * name, PyObject* const* args, std::size_t count, PyObject* names),
               (name, args, count, names))
#if PY_VERSION_HEX >= 0x030B0000
SLIME_BOUNDARY(PyObject*, PyObject_Vectorcall,
               (PyObject * f, PyObject* const* args, std::size_t count, PyObject* names),
               (f, args, count, names))
#else
// Python's header defines PyObject_Vectorcall as an inline function, which the linker cannot wrap.
// vectorcall.h makes callers use the function below instead.
#undef PyObject_Vectorcall
PyObject* slime_vectorcall(PyObject* f, PyObject* const* args, std::size_t count, PyObject* names) {
  try {
    return PyObject_Vectorcall(f, args, count, names);
  } catch (...) {
    park();
  }
}
#endif
SLIME_BOUNDARY(PyObject*, PyEval_EvalCode, (PyObject * code, PyObject* globals, PyObject* locals),
               (code, globals, locals))
SLIME_BOUNDARY(PyObject*, PyImport_ImportModule, (const char* name), (name))
SLIME_BOUNDARY(PyObject*, PyImport_GetModule, (PyObject * name), (name))

// Wrappers for attributes, items and other operations that a class can define in Python code.
SLIME_BOUNDARY(PyObject*, PyObject_GetAttr, (PyObject * o, PyObject* name), (o, name))
SLIME_BOUNDARY(PyObject*, PyObject_GetAttrString, (PyObject * o, const char* name), (o, name))
SLIME_BOUNDARY(PyObject*, PyObject_GenericGetAttr, (PyObject * o, PyObject* name), (o, name))
SLIME_BOUNDARY(int, PyObject_HasAttr, (PyObject * o, PyObject* name), (o, name))
SLIME_BOUNDARY(int, PyObject_HasAttrString, (PyObject * o, const char* name), (o, name))
SLIME_BOUNDARY(int, PyObject_SetAttr, (PyObject * o, PyObject* name, PyObject* value), (o, name, value))
SLIME_BOUNDARY(int, PyObject_SetAttrString, (PyObject * o, const char* name, PyObject* value),
               (o, name, value))
#if PY_VERSION_HEX >= 0x030D0000
SLIME_BOUNDARY(int, PyObject_GetOptionalAttr, (PyObject * o, PyObject* name, PyObject** value),
               (o, name, value))
SLIME_BOUNDARY(int, PyDict_GetItemRef, (PyObject * dict, PyObject* key, PyObject** value), (dict, key, value))
SLIME_BOUNDARY(int, PyDict_SetDefaultRef, (PyObject * dict, PyObject* key, PyObject* other, PyObject** value),
               (dict, key, other, value))
#elif !defined(Py_LIMITED_API)
SLIME_BOUNDARY(int, _PyObject_LookupAttr, (PyObject * o, PyObject* name, PyObject** value), (o, name, value))
#endif
SLIME_BOUNDARY(PyObject*, PyObject_GetItem, (PyObject * o, PyObject* key), (o, key))
SLIME_BOUNDARY(int, PyObject_SetItem, (PyObject * o, PyObject* key, PyObject* value), (o, key, value))
SLIME_BOUNDARY(PyObject*, PyObject_GetIter, (PyObject * o), (o))
SLIME_BOUNDARY(PyObject*, PyIter_Next, (PyObject * iterator), (iterator))
SLIME_BOUNDARY(PyObject*, PyObject_Repr, (PyObject * o), (o))
SLIME_BOUNDARY(PyObject*, PyObject_Str, (PyObject * o), (o))
SLIME_BOUNDARY(Py_hash_t, PyObject_Hash, (PyObject * o), (o))
SLIME_BOUNDARY(int, PyObject_IsTrue, (PyObject * o), (o))
SLIME_BOUNDARY(int, PyObject_IsInstance, (PyObject * o, PyObject* type), (o, type))
SLIME_BOUNDARY(int, PyObject_IsSubclass, (PyObject * o, PyObject* type), (o, type))
SLIME_BOUNDARY(PyObject*, PyObject_RichCompare, (PyObject * a, PyObject* b, int how), (a, b, how))
SLIME_BOUNDARY(int, PyObject_RichCompareBool, (PyObject * a, PyObject* b, int how), (a, b, how))
SLIME_BOUNDARY(Py_ssize_t, PyObject_Size, (PyObject * o), (o))
SLIME_BOUNDARY(Py_ssize_t, PyObject_LengthHint, (PyObject * o, Py_ssize_t otherwise), (o, otherwise))
SLIME_BOUNDARY(int, PyObject_GetBuffer, (PyObject * o, Py_buffer* view, int flags), (o, view, flags))
SLIME_BOUNDARY(void, PyBuffer_Release, (Py_buffer * view), (view))
SLIME_BOUNDARY(Py_ssize_t, PySequence_Size, (PyObject * o), (o))
SLIME_BOUNDARY(PyObject*, PySequence_GetItem, (PyObject * o, Py_ssize_t at), (o, at))
SLIME_BOUNDARY(PyObject*, PySequence_Tuple, (PyObject * o), (o))
SLIME_BOUNDARY(PyObject*, PySequence_List, (PyObject * o), (o))
SLIME_BOUNDARY(PyObject*, PySequence_Fast, (PyObject * o, const char* text), (o, text))
SLIME_BOUNDARY(PyObject*, PyNumber_Index, (PyObject * o), (o))
SLIME_BOUNDARY(PyObject*, PyNumber_Long, (PyObject * o), (o))
SLIME_BOUNDARY(PyObject*, PyNumber_Float, (PyObject * o), (o))
SLIME_BOUNDARY(PyObject*, PyNumber_InPlaceOr, (PyObject * a, PyObject* b), (a, b))
SLIME_BOUNDARY(double, PyFloat_AsDouble, (PyObject * o), (o))
SLIME_BOUNDARY(PyObject*, PyDict_GetItemWithError, (PyObject * dict, PyObject* key), (dict, key))
SLIME_BOUNDARY(int, PyDict_Contains, (PyObject * dict, PyObject* key), (dict, key))
SLIME_BOUNDARY(int, PyDict_SetItem, (PyObject * dict, PyObject* key, PyObject* value), (dict, key, value))

// Wrappers for functions that set or clear the current error. Setting an error may construct an
// exception object, and destroys the earlier one.
SLIME_BOUNDARY(void, PyErr_SetObject, (PyObject * type, PyObject* value), (type, value))
SLIME_BOUNDARY(void, PyErr_SetString, (PyObject * type, const char* text), (type, text))
SLIME_BOUNDARY(void, PyErr_Clear, (), ())
SLIME_BOUNDARY(void, PyErr_Restore, (PyObject * type, PyObject* value, PyObject* trace), (type, value, trace))
SLIME_BOUNDARY(void, PyErr_NormalizeException, (PyObject * *type, PyObject** value, PyObject** trace),
               (type, value, trace))
SLIME_BOUNDARY(void, PyErr_WriteUnraisable, (PyObject * where), (where))
#if PY_VERSION_HEX >= 0x030C0000
SLIME_BOUNDARY(void, PyErr_SetRaisedException, (PyObject * error), (error))
#endif

// Destruction and allocation of objects.
SLIME_BOUNDARY(void, _Py_Dealloc, (PyObject * o), (o))
SLIME_BOUNDARY(void, PyObject_ClearWeakRefs, (PyObject * o), (o))
SLIME_BOUNDARY(PyObject*, PyWeakref_NewRef, (PyObject * o, PyObject* callback), (o, callback))
SLIME_BOUNDARY(PyObject*, PyTuple_New, (Py_ssize_t size), (size))
SLIME_BOUNDARY(PyObject*, PyList_New, (Py_ssize_t size), (size))
SLIME_BOUNDARY(PyObject*, PyDict_New, (), ())
SLIME_BOUNDARY(PyObject*, _PyObject_GC_New, (PyTypeObject * type), (type))
SLIME_BOUNDARY(PyObject*, PyType_GenericAlloc, (PyTypeObject * type, Py_ssize_t items), (type, items))
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

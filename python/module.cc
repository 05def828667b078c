#include <array>

#include "python/binding.h"
#include "python/py_values.h"

namespace {

// Raises an error in every interpreter except the main one. nanobind keeps its types in global
// variables: a second interpreter would overwrite the variables and break the first.
int refuse_other_interpreters(PyObject* /*module*/) {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return 0;
  PyErr_SetString(PyExc_ImportError,
                  "slime works in the main interpreter only, not in a subinterpreter: use it there, or in "
                  "processes of their own (multiprocessing)");
  return -1;
}

}  // namespace

// Defines the module under another name: PyInit__slime() below checks the interpreter first.
NB_MODULE(_slime_checked, m) {
  m.doc() = "The C++ side of the package slime. Use the package.";
  m.def("version", [] { return SLIME_VERSION; });
  // Turns off nanobind's leak warnings: objects of an ordinary script live until the interpreter
  // ends. The tests count regions to find leaks.
  nanobind::set_leak_warnings(false);
  slime::python::bind_base(m);
  slime::python::bind_future(m);
  slime::python::bind_memory(m);
  slime::python::bind_agent(m);
  slime::python::bind_rpc(m);
  slime::python::bind_attachments(m);
  slime::python::bind_values(m);
  slime::python::bind_cache(m);
  slime::python::bind_kv(m);
  slime::python::bind_devices(m);
}

// Checks the interpreter before nanobind is set up. CPython up to 3.12 calls this function in the
// interpreter that imports the module. From 3.13 on CPython calls it in the main interpreter, and
// runs only the slots of the module's definition in the importing interpreter, so the first slot
// makes the check, too.
PyMODINIT_FUNC PyInit__slime() {
  if (refuse_other_interpreters(nullptr) != 0) return nullptr;
  PyObject* const made = PyInit__slime_checked();
  if (made == nullptr) return nullptr;
  static_assert(NB_VERSION_MAJOR > 2 || NB_VERSION_MINOR >= 8, "before 2.8 it makes no module's definition");
  static std::array<PyModuleDef_Slot, 8> slots = {};
  auto* const definition = reinterpret_cast<PyModuleDef*>(made);
  if (definition->m_slots == slots.data()) return made;
  slots[0] = {Py_mod_exec, reinterpret_cast<void*>(&refuse_other_interpreters)};
  for (std::size_t i = 0; definition->m_slots[i].slot != 0; ++i) slots.at(i + 1) = definition->m_slots[i];
  definition->m_slots = slots.data();
  return made;
}

#include "python/binding.h"
#include "python/py_values.h"

NB_MODULE(_slime, m) {
  m.doc() = "The C++ side of the package slime. Use the package.";
  m.def("version", [] { return SLIME_VERSION; });
  // Objects that live until the interpreter ends are normal in scripts; the tests count regions instead.
  nanobind::set_leak_warnings(false);
  slime::python::bind_base(m);
  slime::python::bind_future(m);
  slime::python::bind_memory(m);
  slime::python::bind_agent(m);
  slime::python::bind_rpc(m);
  slime::python::bind_attachments(m);
  slime::python::bind_values(m);
  slime::python::bind_cache(m);
}

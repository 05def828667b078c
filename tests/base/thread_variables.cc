// A module with thread-local variables. Loaded at run time, they are allocated for each thread that
// uses them.
namespace {
thread_local char variables[600];
}  // namespace

extern "C" int use_thread_variables() { return ++variables[0]; }

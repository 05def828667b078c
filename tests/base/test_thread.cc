#include <dlfcn.h>
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/str.h"
#include "base/thread.h"
#include "tests/support/forked.h"

using namespace slime;

namespace {

// The modules with thread-local variables. The test loads them, because the variables of a program
// and its libraries lie on each thread's stack, and need no memory of their own.
class Modules {
 public:
  Modules() {
    for (std::size_t i = 0; i < uses_.size(); ++i) {
      const std::string path = str(SLIME_TEST_MODULES, "/libtest_base_variables_", i, ".so");
      void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      REQUIRE_MESSAGE(module != nullptr, path);
      uses_[i] = reinterpret_cast<int (*)()>(::dlsym(module, "use_thread_variables"));
      REQUIRE((uses_[i] != nullptr));
    }
  }
  void use() const {
    for (const auto each : uses_) each();
  }

 private:
  std::array<int (*)(), SLIME_TEST_MODULE_COUNT> uses_{};
};

// Starts a thread with thread-local variables, and waits for its end.
void start_and_end(const Modules& modules) {
  make_thread([&] { modules.use(); }).join();
}

}  // namespace

// With std::thread in place of make_thread() 2 to 4 of 1,000 children end with a corrupted heap.
TEST_CASE("a child of fork() starts threads, whatever threads of its parent were starting") {
  const Modules modules;
  std::atomic<bool> stop{false};
  std::vector<std::thread> starters;
  for (int i = 0; i < 2; ++i) {
    starters.emplace_back([&] {
      while (!stop) start_and_end(modules);
    });
  }
  const auto start_some = [&] {
    for (int i = 0; i < 3; ++i) {
      start_and_end(modules);
      for (std::size_t bytes = 16; bytes < 2048; bytes += 40) ::operator delete(::operator new(bytes));
    }
    return true;
  };
  const int children = test::scaled(2000);
  int good = 0;
  for (int tried = 0; tried < children && good == tried; ++tried) good += test::forked(start_some);
  stop = true;
  for (std::thread& starter : starters) starter.join();
  CHECK(good == children);
}

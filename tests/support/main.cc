// main() of every test program. Fails if no test case passes the filter: a CTest entry of a renamed
// file would otherwise pass.
#define DOCTEST_CONFIG_IMPLEMENT
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLIME_TEST_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLIME_TEST_SANITIZER
#endif
// doctest's signal handlers would replace those of a sanitizer, which print the stack.
#ifdef SLIME_TEST_SANITIZER
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#endif
#include <doctest/doctest.h>
#if defined(SLIME_TEST_SANITIZER) && defined(DOCTEST_CONFIG_POSIX_SIGNALS)
#error "doctest.h was included before: compile this file without the precompiled headers"
#endif

#include <cstdio>
#include <iostream>

namespace {

unsigned chosen = 0;

// Counts the test cases that pass the filters; prints nothing.
struct Counter : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions& /*options*/) {}
  void report_query(const doctest::QueryData& /*in*/) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    chosen = stats.numTestCasesPassingFilters;
  }
  void test_case_start(const doctest::TestCaseData& /*in*/) override {}
  void test_case_reenter(const doctest::TestCaseData& /*in*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& /*in*/) override {}
  void test_case_exception(const doctest::TestCaseException& /*in*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*in*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*in*/) override {}
  void log_message(const doctest::MessageData& /*in*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*in*/) override {}
};

REGISTER_LISTENER("chosen", 0, Counter);

}  // namespace

int main(int argc, char** argv) {
  std::cout << std::unitbuf;  // so that the output of a crashed program names its test case
  doctest::Context context(argc, argv);
  const int status = context.run();
  if (context.shouldExit()) return status;  // --help or a list
  if (chosen == 0) {
    std::fputs("no test case passes the filters\n", stderr);
    return 1;
  }
  return status;
}

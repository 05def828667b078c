// The conformance suite of every provider, for verbs over the fake fabric.
#include <doctest/doctest.h>

#include "tests/transport/verbs/fake_fixture.h"

namespace slime::transport::testing {

TEST_CASE("verbs keeps every promise of the transport") {
  run_conformance([] { return std::make_unique<FakeVerbsFixture>(); });
}

TEST_CASE("so it does where completions of a destroyed queue pair stay in the queue") {
  FakeOptions fabric = FakeOptions::roce();
  fabric.keep_stale = true;
  run_conformance([&] { return std::make_unique<FakeVerbsFixture>(verbs::Options{}, fabric); });
}

TEST_CASE("and with one data queue pair, a short send queue and nothing inline, on InfiniBand") {
  verbs::Options options;
  options.data_queue_pairs = 1;
  options.send_queue_depth = 64;
  options.max_inline = 0;
  FakeOptions fabric = FakeOptions::infiniband();
  run_conformance([&] { return std::make_unique<FakeVerbsFixture>(options, fabric); });
}

}  // namespace slime::transport::testing

// Calls that an agent admits until it is closed.
#include <doctest/doctest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "agent/admission.h"

namespace slime::agent {
namespace {

TEST_CASE("an open agent admits several calls at once and has no refusal") {
  Admission admission("a");
  const Admission::Pass first(admission);
  const Admission::Pass second(admission);
  CHECK(static_cast<bool>(first));
  CHECK(static_cast<bool>(second));
  CHECK(admission.refusal().ok());
  CHECK(admission.open());
}

TEST_CASE("a closed agent admits no call, and its refusal names it") {
  Admission admission("worker:0");
  admission.close();
  const Admission::Pass pass(admission);
  CHECK_FALSE(static_cast<bool>(pass));
  CHECK_FALSE(admission.open());
  CHECK(admission.refusal().to_string() == "unavailable: agent worker:0 is closed");
}

TEST_CASE("closing returns only after the last admitted call has left") {
  Admission admission("a");
  std::optional<Admission::Pass> pass(std::in_place, admission);
  std::atomic<bool> left{false};
  std::thread closing([&] {
    admission.close();
    CHECK(left.load());
  });
  while (admission.refusal().ok()) std::this_thread::yield();
  left = true;
  SUBCASE("by its end") { pass.reset(); }
  SUBCASE("early") {
    pass->leave();
    CHECK_FALSE(static_cast<bool>(*pass));
  }
  closing.join();
}

}  // namespace
}  // namespace slime::agent

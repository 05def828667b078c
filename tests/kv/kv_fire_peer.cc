// The other end of the transfers of test_fire.cc, to be killed and stopped.
//
//   kv_fire_peer PLAN...
//
// Prints READY, its address, and the addresses of its memory: of the arena, or of each layer. If
// the plan says that it begins, reads the address of the other end, prints BEGIN, makes the call,
// and prints its outcome. When its stdin ends, drops everything, and prints CLOSED and the longest
// time of a destructor in nanoseconds.
#include <cstdio>
#include <iostream>
#include <string>

#include "base/str.h"
#include "tests/kv/fire.h"
#include "tests/support/settings.h"

namespace {

using namespace slime::kv::fire;

int fail(const slime::Status& status) {
  std::printf("ERROR %s\n", status.to_string().c_str());
  return 1;
}
void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const Plan plan = Plan::of(argv + 1);
  auto side = Side::start(plan);
  if (!side) return fail(side.status());
  fill(plan, (*side)->layers, plan.child_is_source() ? plan.source_seed() : plan.target_seed());
  std::string ready = "READY " + (*side)->agent->address();
  if (plan.allocated) {
    for (std::byte* layer : (*side)->layers)
      ready += slime::str(" ", reinterpret_cast<std::uintptr_t>(layer));
  } else {
    ready += slime::str(" ", reinterpret_cast<std::uintptr_t>((*side)->arena.base()));
  }
  say(ready);
  Route route;
  std::string line;
  if (plan.child_begins && std::getline(std::cin, line)) {
    const Lists lists(plan);
    auto made = connect(**side, plan, line, slime::test::patient(std::chrono::seconds(10)));
    if (!made) return fail(made.status());
    route = std::move(*made);
    if (auto status = make_wrong_calls(**side, route, plan); !status.ok()) return fail(status);
    say("BEGIN");
    say(transfer(**side, route, plan, lists).encode());
  }
  while (std::getline(std::cin, line)) {
  }
  say(slime::str("CLOSED ", destroy(**side, std::move(route)).count()));
  return 0;
}

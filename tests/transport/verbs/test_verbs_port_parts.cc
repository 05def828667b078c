// Parts of a verbs port, without endpoints.
#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "base/random.h"
#include "tests/transport/verbs/watched_device.h"
#include "transport/verbs/buffers.h"
#include "transport/verbs/port_queues.h"
#include "transport/verbs/receive_targets.h"
#include "transport/verbs/turn_queue.h"
#include "transport/verbs/work_budget.h"
#include "transport/verbs/work_id.h"

namespace slime::transport::testing::verbs_port_parts_test {
namespace {

using limits::kReservedWorkRequests;
using verbs::ReceiveTargets;
using verbs::WorkBudget;
using verbs::WorkId;

// Addresses that are compared only.
template <class T>
T* some(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

struct Turn {
  std::vector<Turn*>* ran = nullptr;
  verbs::TurnQueue<Turn>* queue = nullptr;
  Turn* adds = nullptr;
  Turn* forgets = nullptr;
  void run() {
    ran->push_back(this);
    if (adds != nullptr) queue->add(*adds);
    if (forgets != nullptr) queue->forget(*forgets);
  }
};

}  // namespace

// -------------------------------------------------------------------------------------- WorkBudget

TEST_CASE("an endpoint posts its reserve, and beyond it what all share") {
  WorkBudget budget(2 * kReservedWorkRequests + 10);
  REQUIRE(budget.reserve());
  CHECK(budget.free() == kReservedWorkRequests + 10);
  CHECK(budget.may_post(0, 8) == 8);
  CHECK(budget.may_post(0, 1000) == 2 * kReservedWorkRequests + 10);
  budget.took(0, kReservedWorkRequests);
  CHECK(budget.free() == kReservedWorkRequests + 10);
  budget.took(kReservedWorkRequests, 12);
  CHECK(budget.free() == kReservedWorkRequests - 2);
  CHECK_FALSE(budget.reserve());
  budget.gave_back(kReservedWorkRequests + 12, 12);
  CHECK(budget.free() == kReservedWorkRequests + 10);
  budget.gave_back(kReservedWorkRequests, kReservedWorkRequests);
  REQUIRE(budget.reserve());
  CHECK(budget.free() == 10);
  CHECK(budget.may_post(kReservedWorkRequests, 100) == 10);
  budget.unreserve();
  budget.unreserve();
  CHECK(budget.free() == 2 * kReservedWorkRequests + 10);
}

TEST_CASE("what an endpoint leaves in flight counts until the queue was seen empty") {
  for (const std::uint32_t left : {0U, 5U, kReservedWorkRequests, kReservedWorkRequests + 7}) {
    CAPTURE(left);
    const std::uint32_t entries = 3 * kReservedWorkRequests;
    WorkBudget budget(entries);
    REQUIRE(budget.reserve());
    budget.took(0, left);
    budget.retire(left);
    CHECK(budget.retired() == left);
    CHECK(budget.free() == entries - left);
    budget.release_retired();
    CHECK(budget.free() == entries);
    CHECK(budget.retired() == 0);
  }
}

TEST_CASE("work requests that were taken never exceed the entries, whatever endpoints do") {
  std::uint64_t seed = 0;
  random_bytes(std::as_writable_bytes(std::span(&seed, 1)));
  INFO("seed ", seed);
  Rng rng(seed);
  const std::uint32_t entries = 10 * kReservedWorkRequests;
  WorkBudget budget(entries);
  std::vector<std::uint32_t> in_flight(4, 0);
  for (std::size_t i = 0; i < in_flight.size(); ++i) REQUIRE(budget.reserve());
  for (int step = 0; step < 10'000; ++step) {
    std::uint32_t& mine = in_flight[rng.next() % in_flight.size()];
    if (rng.next() % 2 == 0) {
      const std::uint32_t most = budget.may_post(mine, 1 + static_cast<std::uint32_t>(rng.next() % 64));
      budget.took(mine, most);
      mine += most;
    } else if (mine > 0) {
      const std::uint32_t count = 1 + static_cast<std::uint32_t>(rng.next() % mine);
      budget.gave_back(mine, count);
      mine -= count;
    }
    std::uint32_t held = 0;
    for (const std::uint32_t each : in_flight) held += std::max(each, kReservedWorkRequests);
    REQUIRE(held + budget.free() == entries);
  }
}

// --------------------------------------------------------------------------------------- TurnQueue

TEST_CASE("turns come when a poll finds nothing, or is urgent, or after some polls that found something") {
  std::vector<Turn*> ran;
  verbs::TurnQueue<Turn> queue;
  Turn turn{&ran, &queue};
  CHECK(queue.empty());
  queue.add(turn);
  CHECK_FALSE(queue.empty());
  CHECK(queue.due(false));
  CHECK_FALSE(queue.due(true));
  queue.hurry();
  CHECK(queue.due(true));
  queue.run();
  CHECK(queue.empty());
  CHECK(ran.size() == 1);
  queue.add(turn);
  for (int i = 1; i < limits::kPatientPolls; ++i) CHECK_FALSE(queue.due(true));
  CHECK(queue.due(true));
}

TEST_CASE("a member that a turn adds waits for the next turns; one that a turn ends has none") {
  std::vector<Turn*> ran;
  verbs::TurnQueue<Turn> queue;
  Turn last{&ran, &queue};
  Turn ended{&ran, &queue};
  Turn first{&ran, &queue, &last, &ended};
  queue.add(first);
  queue.add(ended);
  queue.run();
  CHECK(ran == std::vector<Turn*>{&first});
  queue.run();
  CHECK(ran == std::vector<Turn*>{&first, &last});
  queue.add(last);
  queue.forget(last);
  queue.run();
  CHECK(ran.size() == 2);
}

// ---------------------------------------------------------------------------------- ReceiveTargets

TEST_CASE("a receive belongs to the newest queue pair with its number") {
  ReceiveTargets targets;
  auto* const old_group = some<verbs::PairGroup>(0x100);
  auto* const new_group = some<verbs::PairGroup>(0x200);
  targets.add(7, {some<verbs::VerbsEndpoint>(0x10), old_group, 0});
  targets.add(8, {some<verbs::VerbsEndpoint>(0x10), old_group, 1});
  REQUIRE(targets.find(8) != nullptr);
  CHECK(targets.find(8)->queue_pair == 1);
  CHECK(targets.find(9) == nullptr);
  targets.drop_endpoint(*old_group);
  REQUIRE(targets.find(7) != nullptr);
  CHECK(targets.find(7)->endpoint == nullptr);
  // The device gives the number of a destroyed queue pair to a new one.
  targets.add(7, {some<verbs::VerbsEndpoint>(0x20), new_group, 0});
  targets.remove(*old_group);
  REQUIRE(targets.find(7) != nullptr);
  CHECK(targets.find(7)->endpoint == some<verbs::VerbsEndpoint>(0x20));
  CHECK(targets.find(8) == nullptr);
  targets.clear();
  CHECK(targets.find(7) == nullptr);
}

// ------------------------------------------------------------------------------------------ WorkId

TEST_CASE("the id of a work request keeps its endpoint, queue pair and place") {
  const WorkId id{0xfffff, 0x12345, 9, 0x1abcdef};
  const WorkId back = WorkId::unpack(id.pack());
  CHECK((id.pack() & verbs::kReceiveBit) == 0);
  CHECK(back.index == 0xfffff);
  CHECK(back.generation == (0x12345 & WorkId::kGenerationMask));
  CHECK(back.queue_pair == 9);
  CHECK(back.place == 0xabcdef);
}

// ------------------------------------------------------------------------------------- PortQueues

TEST_CASE("the queues of a port keep to the device's limits, or are refused") {
  FakeOptions fabric = FakeOptions::roce(1);
  ibv_device_attr& attributes = fabric.devices[0].attributes;
  attributes.max_sge = 3;
  attributes.max_sge_rd = 30;
  PortOptions options;
  options.pool_slots = 100;
  SUBCASE("as asked") {
    attributes.max_cqe = 1100;
    attributes.max_qp_wr = 4000;
    WatchedDevice device(fabric);
    {
      auto queues = verbs::PortQueues::create(device.state->context(), options);
      REQUIRE_MESSAGE(queues.has_value(), queues.status().text());
      CHECK((*queues)->work_requests() == 1000);
      CHECK((*queues)->data_depth() <= 500);
      CHECK((*queues)->max_gather() == 3);
      CHECK((*queues)->max_scatter() == 3);
      CHECK(device.fabric.objects().completion_queues == 1);
      CHECK(device.fabric.objects().receive_queues == 1);
    }
    CHECK(device.fabric.objects().completion_queues == 0);
    CHECK(device.fabric.objects().receive_queues == 0);
    CHECK(device.fabric.objects().channels == 0);
  }
  SUBCASE("too many slots for a receive queue") {
    attributes.max_srq_wr = 99;
    WatchedDevice device(fabric);
    CHECK(verbs::PortQueues::create(device.state->context(), options).status().code() ==
          Code::kInvalidArgument);
  }
  SUBCASE("too many slots for a completion queue") {
    attributes.max_cqe = 100 + 4 * static_cast<int>(limits::kReservedWorkRequests) - 1;
    WatchedDevice device(fabric);
    CHECK(verbs::PortQueues::create(device.state->context(), options).status().code() ==
          Code::kInvalidArgument);
  }
  SUBCASE("a call that fails leaves nothing") {
    WatchedDevice device(fabric);
    device.fabric.fail_call(Call::kCreateSrq, ENOMEM);
    CHECK(verbs::PortQueues::create(device.state->context(), options).status().code() ==
          Code::kResourceExhausted);
    CHECK(device.fabric.objects().completion_queues == 0);
  }
}

}  // namespace slime::transport::testing::verbs_port_parts_test

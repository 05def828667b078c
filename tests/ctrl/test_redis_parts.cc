#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ctrl/store/command_queue.h"
#include "ctrl/store/snapshot_schedule.h"

// The parts of the engine on Redis, without Redis.
namespace slime::ctrl::redis_parts_test {
namespace {

using namespace std::chrono_literals;
using Waiter = CommandQueue::Waiter;

EncodedEntry entry(std::string head, std::size_t body = 0) {
  return {std::move(head), std::string(body, 'b')};
}

std::vector<std::string> taken(CommandQueue& queue) {
  std::vector<EncodedEntry> entries;
  queue.take(entries);
  std::vector<std::string> out;
  for (const EncodedEntry& each : entries) out.push_back(each.head);
  return out;
}

TEST_CASE("commands leave the queue in order, and each outcome reaches its waiter once") {
  CommandQueue queue;
  Waiter first, second;
  const std::uint64_t one = queue.next_number();
  const std::uint64_t two = queue.next_number();
  CHECK(two == one + 1);
  queue.add(one, entry("one"), first);
  queue.add(two, entry("two"), second);
  CHECK_FALSE(queue.empty());
  CHECK(taken(queue) == std::vector<std::string>{"one", "two"});
  CHECK(queue.empty());
  Outcome out;
  out.lease.incarnation = 7;
  queue.finish(two, out);
  CHECK_FALSE(first.outcome);
  REQUIRE(second.outcome);
  CHECK(second.outcome->lease.incarnation == 7);
  queue.finish(two, Outcome());
  CHECK(second.outcome->lease.incarnation == 7);
  queue.finish(99, Outcome());  // an entry without a waiter
}

TEST_CASE("a removed command had no effect only if its entry was still queued") {
  CommandQueue queue;
  Waiter sent, unsent;
  queue.add(1, entry("sent"), sent);
  CHECK(taken(queue) == std::vector<std::string>{"sent"});
  queue.add(2, entry("unsent"), unsent);
  CHECK_FALSE(queue.remove(1));
  CHECK(queue.remove(2));
  CHECK(queue.empty());
  queue.finish(1, Outcome());
  CHECK_FALSE(sent.outcome);
}

TEST_CASE("when the log is lost, commands that were sent may have been executed") {
  CommandQueue queue;
  Waiter sent, unsent;
  queue.add(1, entry("sent"), sent);
  CHECK(taken(queue).size() == 1);
  queue.add(2, entry("unsent"), unsent);
  queue.fail_all({Code::kUnavailable, "gone"});
  CHECK(queue.empty());
  REQUIRE(sent.outcome);
  REQUIRE(unsent.outcome);
  CHECK(sent.outcome->status.code() == Code::kUnavailable);
  CHECK(sent.outcome->status.maybe_executed());
  CHECK(unsent.outcome->status.text() == "gone");
  CHECK_FALSE(unsent.outcome->status.maybe_executed());
}

TEST_CASE("a full queue refuses commands until entries leave it") {
  CommandQueue queue;
  std::vector<Waiter> waiters(4096);
  for (std::uint64_t i = 0; i < waiters.size(); ++i) {
    REQUIRE(queue.check_room().ok());
    queue.add(i + 1, entry("small"), waiters[i]);
  }
  CHECK(queue.check_room().code() == Code::kResourceExhausted);
  CHECK(taken(queue).size() == 512);
  CHECK(queue.check_room().ok());
}

TEST_CASE("an append takes few large entries, and their bytes fill the queue") {
  CommandQueue queue;
  std::vector<Waiter> waiters(32);
  for (std::uint64_t i = 0; i < waiters.size(); ++i) {
    REQUIRE(queue.check_room().ok());
    queue.add(i + 1, entry("large", std::size_t{2} << 20), waiters[i]);
  }
  CHECK(queue.check_room().code() == Code::kResourceExhausted);
  CHECK(taken(queue).size() == 2);
  CHECK(queue.check_room().ok());
  CHECK(queue.remove(3));
  queue.fail_all({Code::kUnavailable, "gone"});
  CHECK(queue.check_room().ok());
}

SnapshotHead head_at(std::uint64_t ms, std::uint64_t entries) { return {"lineage", {ms, 0}, entries, {}}; }
Replay replay_at(std::uint64_t ms, std::uint64_t entries) { return {{ms, 0}, entries}; }

TEST_CASE("a snapshot is due after enough entries, with a random delay of up to half of that") {
  SnapshotSchedule schedule({.entries = 100, .bytes = 1'000'000, .interval = 60s}, 1);
  const SnapshotHead head = head_at(1000, 10);
  schedule.restart(head, 10);
  CHECK(schedule.entries() == 10);
  schedule.note_batch(head, 0, replay_at(1001, 109));
  CHECK_FALSE(schedule.due());
  schedule.note_batch(head, 0, replay_at(1001, 160));
  CHECK(schedule.due());
  schedule.clear();
  CHECK_FALSE(schedule.due());
  // Another engine has written one: count from there.
  schedule.note_batch(head_at(1001, 150), 0, replay_at(1002, 200));
  CHECK(schedule.entries() == 150);
  CHECK_FALSE(schedule.due());
}

TEST_CASE("a snapshot is due after enough bytes of entries since the last one") {
  SnapshotSchedule schedule({.entries = 100, .bytes = 1000, .interval = 60s}, 1);
  schedule.restart(head_at(1000, 10), 10);
  schedule.note_batch(head_at(1000, 10), 900, replay_at(1001, 11));
  CHECK_FALSE(schedule.due());
  schedule.note_batch(head_at(1000, 10), 600, replay_at(1001, 12));
  CHECK(schedule.due());
  schedule.note_batch(head_at(1001, 12), 600, replay_at(1002, 13));
  CHECK_FALSE(schedule.due());
}

TEST_CASE("a snapshot is due after the interval only if an entry changed the registry") {
  SnapshotSchedule schedule({.entries = 1'000'000, .bytes = 1'000'000, .interval = 1s}, 1);
  const SnapshotHead head = head_at(1000, 10);
  schedule.restart(head, 10);
  schedule.note_batch(head, 10, replay_at(5000, 20));
  CHECK_FALSE(schedule.due());
  schedule.note_change(20);
  schedule.note_batch(head, 10, replay_at(1500, 20));
  CHECK_FALSE(schedule.due());
  schedule.note_batch(head, 10, replay_at(2500, 20));
  CHECK(schedule.due());
}

}  // namespace
}  // namespace slime::ctrl::redis_parts_test

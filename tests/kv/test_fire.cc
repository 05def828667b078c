// Integrity under fire: an end of a transfer of random blocks is killed or frozen at a random
// moment. Exactly the target blocks have the new bytes, or the call has failed; no other byte
// changes; every call ends by its deadline, every destructor within two seconds. SLIME_FIRE_ROUNDS,
// SLIME_FIRE_BLOCKS and SLIME_FIRE_LAYERS say how much.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/random.h"
#include "base/str.h"
#include "tests/kv/child_memory.h"
#include "tests/kv/fire.h"
#include "tests/support/bytes.h"
#include "tests/support/eventually.h"
#include "tests/support/process.h"
#include "tests/support/settings.h"

namespace slime::kv::fire_test {
namespace {

using namespace slime::kv::fire;
using slime::test::patient;
using slime::test::Process;
using std::chrono::milliseconds;
using std::chrono::seconds;

const Nanos kSoon = patient(seconds(30));  // a bound that only a failure reaches
const Nanos kSlack = patient(seconds(1));  // beyond a deadline
const Nanos kDestructor = patient(seconds(2));
constexpr std::uint64_t kOtherSeed = 1'000'000'007;  // of bytes that a test writes later

template <class T>
T take(Result<T> result) {
  INFO(result.status().to_string());
  REQUIRE(result.has_value());
  return std::move(*result);
}

enum class Strike : std::uint8_t { kNone, kKill, kFreeze };

// What a target may have where its call has failed.
enum class Failed : std::uint8_t { kOldOrNew, kAnything };

// The bytes that a block of a fill() has.
class Expected {
 public:
  Expected(const Plan& plan, std::uint64_t seed) : plan_(plan), seed_(seed), block_(kBlockBytes) {}
  const std::byte* at(std::uint32_t layer, std::uint64_t block) {
    fill_block(plan_, block_.data(), seed_, layer, block);
    return block_.data();
  }

 private:
  const Plan plan_;
  const std::uint64_t seed_;
  ByteVector block_;
};

bool equal(const std::byte* a, const std::byte* b) { return std::memcmp(a, b, kBlockBytes) == 0; }

bool each_is_one_of(const std::byte* is, const std::byte* a, const std::byte* b) {
  for (std::uint64_t i = 0; i < kBlockBytes; ++i)
    if (is[i] != a[i] && is[i] != b[i]) return false;
  return true;
}

// Checks the memory of the target: blocks that are no target have their old bytes, targets the new
// ones where `whole` is true. Returns for each layer whether all targets have the new bytes.
std::vector<bool> check_target(const Plan& plan, const Lists& lists, const Layers& memory,
                               const std::vector<bool>& whole, Failed failed, std::uint64_t source_seed) {
  Expected old(plan, plan.target_seed());
  Expected source(plan, source_seed);
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  Ids source_of(plan.pool(), kNone);
  for (std::size_t i = 0; i < lists.targets.size(); ++i) source_of[lists.targets[i]] = lists.sources[i];
  std::vector<bool> out(plan.layers, true);
  std::uint64_t changed = 0, missing = 0, foreign = 0;
  for (std::uint32_t layer = 0; layer < plan.layers; ++layer)
    for (std::uint64_t block = 0; block < plan.pool(); ++block) {
      const std::byte* const is = memory[layer] + block * kBlockBytes;
      if (source_of[block] == kNone) {
        changed += equal(is, old.at(layer, block)) ? 0 : 1;
        continue;
      }
      const std::byte* const wanted = source.at(layer, source_of[block]);
      if (equal(is, wanted)) continue;
      out[layer] = false;
      if (whole[layer]) ++missing;
      if (failed == Failed::kOldOrNew && !each_is_one_of(is, wanted, old.at(layer, block))) ++foreign;
    }
  CHECK_MESSAGE(changed == 0, changed, " blocks that are no targets were changed");
  CHECK_MESSAGE(missing == 0, missing, " blocks do not have the bytes of a call that succeeded");
  CHECK_MESSAGE(foreign == 0, foreign, " blocks have bytes that are neither old nor new");
  return out;
}

void check_filled(const Plan& plan, const Layers& memory, std::uint64_t seed, const char* what) {
  Expected wanted(plan, seed);
  std::uint64_t wrong = 0;
  for (std::uint32_t layer = 0; layer < plan.layers; ++layer)
    for (std::uint64_t block = 0; block < plan.pool(); ++block)
      wrong += equal(memory[layer] + block * kBlockBytes, wanted.at(layer, block)) ? 0 : 1;
  CHECK_MESSAGE(wrong == 0, wrong, " blocks are wrong in ", what);
}

std::vector<bool> successes(const Outcome& outcome) {
  std::vector<bool> out;
  for (std::uint32_t layer = 0; layer < outcome.codes.size(); ++layer) out.push_back(outcome.ok(layer));
  return out;
}

// The test's end and the child's, whose memory the test sees.
class World {
 public:
  explicit World(const Plan& its_plan)
      : plan(its_plan), lists(plan), side(take(Side::start(plan))), child(spawn(plan)) {
    const std::string ready = take(child.read_line(kSoon));
    REQUIRE_MESSAGE(ready.starts_with("READY "), ready);
    std::istringstream words(ready.substr(6));
    words >> address;
    for (std::uint64_t place = 0; words >> place;)
      views_.push_back(take(
          SharedView::of(child.pid(), place, plan.allocated ? plan.layer_bytes() : Arena::size_of(plan))));
    if (plan.allocated)
      for (const SharedView& view : views_) theirs.push_back(view.bytes().data());
    else
      theirs = Arena::layers_at(plan, views_.front().bytes().data());
    REQUIRE(theirs.size() == plan.layers);
    fill(plan, side->layers, plan.child_is_source() ? plan.target_seed() : plan.source_seed());
    side->agent->on_disconnect([this](const std::string&, std::uint64_t) { disconnected_.store(true); });
  }
  [[nodiscard]] const Layers& target() const { return plan.child_is_source() ? side->layers : theirs; }
  [[nodiscard]] const Layers& source() const { return plan.child_is_source() ? theirs : side->layers; }
  [[nodiscard]] bool disconnected() const { return disconnected_.load(); }
  [[nodiscard]] bool margins_are_whole() const {
    return plan.allocated || (Arena::margins_are_whole(plan, side->arena.view()) &&
                              Arena::margins_are_whole(plan, views_.front().bytes().data()));
  }
  // Ends this end. Memory of Slime is gone then, memory of the test stays.
  void drop(Route route = {}) {
    if (!side->agent) return;
    CHECK(margins_are_whole());
    check_destructors(destroy(*side, std::move(route)));
  }
  // Lets the child end, which must not be dead or stopped.
  void end_child() {
    child.close_stdin();
    const std::string line = take(child.read_line(kSoon));
    REQUIRE_MESSAGE(line.starts_with("CLOSED "), line);
    check_destructors(Nanos(std::stoll(line.substr(7))));
    CHECK(take(child.wait(kSoon)).success());
  }

  const Plan plan;
  const Lists lists;
  Nanos longest_destructor{};

 private:
  std::atomic<bool> disconnected_{false};  // destroyed after the agent

 public:
  std::unique_ptr<Side> side;
  Process child;
  std::string address;
  Layers theirs;

 private:
  static Process spawn(const Plan& plan) {
    std::vector<std::string> command{slime::test::program_beside_this("kv_fire_peer")};
    for (std::string& each : plan.arguments()) command.push_back(std::move(each));
    return take(Process::spawn(std::move(command)));
  }
  void check_destructors(Nanos longest) {
    longest_destructor = std::max(longest_destructor, longest);
    CHECK_MESSAGE(longest <= kDestructor, "a destructor took ", longest.count() / 1'000'000, " ms");
  }
  std::vector<SharedView> views_;
};

// What happened in the rounds of one kind of strike.
struct Score {
  int rounds = 0, all = 0, some = 0, none = 0;  // by the layers that succeeded
  std::map<std::string_view, int> codes{};      // of rounds in which a layer failed
  void add(const Outcome& outcome) {
    ++rounds;
    const std::uint32_t succeeded = outcome.succeeded();
    ++(succeeded == outcome.codes.size() ? all : succeeded == 0 ? none : some);
    for (const Code code : outcome.codes)
      if (code != Code::kOk) {
        ++codes[code_name(code)];
        break;
      }
  }
  [[nodiscard]] std::string to_string() const {
    std::string out = str(rounds, " rounds: ", all, " succeeded, ", none + some, " failed (", some,
                          " in some of the layers;");
    for (const auto& [name, count] : codes) out += str(" ", name, ": ", count);
    return out + ")";
  }
};

// A round: one World, one transfer, one strike at a random moment.
class Round {
 public:
  Round(const Plan& plan, Strike strike, Nanos delay, Rng& rng)
      : world_(plan), strike_(strike), delay_(delay), rng_(rng) {}
  Outcome run() {
    Outcome out = world_.plan.child_begins ? child_begins() : test_begins();
    if (strike_ == Strike::kNone) CHECK_MESSAGE(out.succeeded() == world_.plan.layers, out.text);
    return out;
  }
  [[nodiscard]] Nanos longest_destructor() const { return world_.longest_destructor; }

 private:
  void strike() {
    struck_ = steady_clock().now();
    if (strike_ == Strike::kKill) CHECK(world_.child.kill().ok());
    if (strike_ == Strike::kFreeze) CHECK(world_.child.stop().ok());
  }
  void resume() {
    if (strike_ == Strike::kFreeze) REQUIRE(world_.child.resume().ok());
  }
  void end_child() {
    if (strike_ == Strike::kKill)
      CHECK(take(world_.child.wait(kSoon)).signaled);
    else
      world_.end_child();
  }
  void check_end(const Outcome& outcome, Nanos stopped, bool closed) {
    const Nanos late = outcome.took - stopped - world_.plan.timeout();
    CHECK_MESSAGE(late <= kSlack, "the call ended ", late.count() / 1'000'000, " ms after its deadline");
    for (const Code code : outcome.codes) {
      const bool said =
          code == Code::kOk || code == Code::kUnavailable || code == Code::kDeadlineExceeded ||
          // verbs tells kPermissionDenied, since adapters know keys, not names
          (closed && (code == Code::kNotFound || code == Code::kAborted || code == Code::kPermissionDenied));
      CHECK_MESSAGE(said, outcome.text);
    }
  }
  std::vector<bool> check(const std::vector<bool>& whole, Failed failed = Failed::kOldOrNew) {
    return check_target(world_.plan, world_.lists, world_.target(), whole, failed, world_.plan.source_seed());
  }

  Outcome test_begins();
  void write_again(Route route);
  Outcome child_begins();
  Outcome child_outcome();
  void child_goes_on(const Outcome& outcome);
  Outcome close_before_the_child_goes_on();
  std::vector<bool> arrived_layers();

  World world_;
  const Strike strike_;
  const Nanos delay_;
  Rng& rng_;
  TimePoint struck_{};
};

Outcome Round::test_begins() {
  const Plan& plan = world_.plan;
  Route route = take(connect(*world_.side, plan, world_.address, kSoon));
  const Status refused = make_wrong_calls(*world_.side, route, plan);
  REQUIRE_MESSAGE(refused.ok(), refused.to_string());
  check_filled(plan, world_.target(), plan.target_seed(), "a target after calls that were refused");
  const TimePoint moment = steady_clock().now() + delay_;
  std::thread striker([&] {
    std::this_thread::sleep_until(moment);
    strike();
  });
  Outcome out = transfer(*world_.side, route, plan, world_.lists);
  striker.join();
  check_end(out, {}, false);
  if (strike_ == Strike::kKill) end_child();  // from here on nothing moves
  check(successes(out));
  check_filled(plan, world_.source(), plan.source_seed(), "a source");
  if (plan.write && strike_ == Strike::kFreeze && rng_.chance(1, 2)) {
    write_again(std::move(route));
    return out;
  }
  if (!plan.write) {
    // The call has ended, so this memory belongs to the test.
    fill(plan, world_.side->layers, kOtherSeed);
  } else if (rng_.chance(1, 2)) {
    world_.drop(std::exchange(route, Route()));  // the peer is dead or frozen
  }
  resume();
  if (strike_ != Strike::kKill) end_child();
  if (plan.write)
    check(successes(out));
  else
    check_filled(plan, world_.side->layers, kOtherSeed, "memory of a read that had ended");
  world_.drop(std::move(route));
  return out;
}

// Writes other bytes to the same targets, until that succeeds: bytes of the first write that arrive
// later must not replace them.
void Round::write_again(Route route) {
  const Plan& plan = world_.plan;
  fill(plan, world_.side->layers, kOtherSeed);
  resume();
  route = Route();
  REQUIRE(slime::test::eventually(
      [&] {
        auto again = connect(*world_.side, plan, world_.address, plan.timeout());
        if (!again) return false;
        route = std::move(*again);
        return transfer(*world_.side, route, plan, world_.lists).succeeded() == plan.layers;
      },
      kSoon));
  const std::vector<bool> all(plan.layers, true);
  check_target(plan, world_.lists, world_.target(), all, Failed::kOldOrNew, kOtherSeed);
  end_child();
  check_target(plan, world_.lists, world_.target(), all, Failed::kOldOrNew, kOtherSeed);
  world_.drop(std::move(route));
}

// The child's own word on its call; if it had none, the call has failed.
Outcome Round::child_outcome() {
  const Plan& plan = world_.plan;
  const auto line = world_.child.read_line(plan.timeout() + kSoon);
  if (!line) return Outcome::unknown(plan, Code::kUnavailable);
  REQUIRE_MESSAGE(line->starts_with("ENDED "), *line);
  Outcome out = Outcome::decode(*line);
  REQUIRE(out.codes.size() == plan.layers);
  return out;
}

// The layers that this end was told of: their bytes must be there.
std::vector<bool> Round::arrived_layers() {
  std::vector<bool> out;
  for (std::uint32_t layer = 0; layer < world_.plan.layers; ++layer)
    out.push_back(world_.plan.told && world_.side->cache.wait_layer(kRequest, layer, Nanos(1)).ok());
  return out;
}

Outcome Round::child_begins() {
  REQUIRE(world_.child.write_line(world_.side->agent->address()).ok());
  const std::string begin = take(world_.child.read_line(kSoon));
  REQUIRE_MESSAGE(begin == "BEGIN", begin);
  std::this_thread::sleep_for(delay_);  // waits for nothing: the moment is a random one
  strike();
  if (strike_ == Strike::kFreeze && rng_.chance(1, 2)) return close_before_the_child_goes_on();
  resume();
  Outcome out = child_outcome();
  if (strike_ == Strike::kKill)
    end_child();
  else
    check_end(out, steady_clock().now() - struck_, false);
  child_goes_on(out);
  return out;
}

// Checks the memory after a call of the child has ended, or the child has.
void Round::child_goes_on(const Outcome& outcome) {
  const Plan& plan = world_.plan;
  std::vector<bool> whole = successes(outcome);
  check(whole);
  if (strike_ != Strike::kKill) end_child();
  if (plan.write) {
    // Bytes of a call that failed may arrive until its connection has ended, or the region.
    const std::vector<bool> arrived = arrived_layers();
    std::transform(whole.begin(), whole.end(), arrived.begin(), whole.begin(), std::logical_or<>());
    if (rng_.chance(1, 2))
      REQUIRE(slime::test::eventually([&] { return world_.disconnected(); }, kSoon));
    else
      CHECK(world_.side->cache.close().ok());
    check(whole);
    fill(plan, world_.side->layers, kOtherSeed);
    check_filled(plan, world_.side->layers, kOtherSeed, "memory of a writer that has ended");
  } else {
    check_filled(plan, world_.source(), plan.source_seed(), "a source");
  }
  world_.drop();
}

// The child is frozen within its call. Once this end has closed its regions, or has ended, the test
// writes there itself, and none of these bytes may be replaced when the child goes on.
Outcome Round::close_before_the_child_goes_on() {
  const Plan& plan = world_.plan;
  const std::vector<bool> arrived = arrived_layers();
  bool mine = true;  // the memory is still there
  if (rng_.chance(1, 2)) {
    const Nanos bound = milliseconds(500);
    const TimePoint began = steady_clock().now();
    world_.side->cache.close(bound).ignore();  // the child may be in the middle of a copy
    const Nanos took = steady_clock().now() - began;
    CHECK_MESSAGE(took <= bound + kSlack, "close took ", took.count() / 1'000'000, " ms");
  } else {
    world_.drop();
    mine = !plan.allocated;
  }
  std::vector<bool> whole;
  if (mine && plan.write) whole = check(arrived);
  if (mine) fill(plan, world_.side->layers, kOtherSeed);
  resume();
  Outcome out = child_outcome();
  check_end(out, steady_clock().now() - struck_, true);
  end_child();
  if (!plan.write) {
    check(successes(out), Failed::kAnything);
  } else if (mine) {
    for (std::uint32_t layer = 0; layer < plan.layers; ++layer) CHECK((!out.ok(layer) || whole[layer]));
  }
  if (mine) check_filled(plan, world_.side->layers, kOtherSeed, "memory of a region that was closed");
  world_.drop();
  return out;
}

// The settings of a run, and the seed of each round.
class Fire {
 public:
  explicit Fire(std::uint64_t seed) : rng_(seed) {
    const std::uint64_t bytes = blocks_ * layers_ * kBlockBytes;
    timeout_ms_ =
        static_cast<std::uint64_t>(patient(milliseconds(500 + bytes / 200'000)).count()) / 1'000'000;
  }
  // One transfer of each kind without a strike, for the span in which to strike.
  void calibrate() {
    for (const bool child_begins : {false, true})
      for (const bool write : {false, true})
        span(child_begins, write) = round(child_begins, write, Strike::kNone, {}).took;
  }
  void strike() {
    const bool child_begins = rng_.chance(1, 2);
    const bool write = rng_.chance(1, 2);
    const auto delay =
        rng_.below(static_cast<std::uint64_t>(span(child_begins, write).count()) * 13 / 10 + 1);
    round(child_begins, write, rng_.chance(1, 2) ? Strike::kKill : Strike::kFreeze,
          Nanos(static_cast<std::int64_t>(delay)));
  }
  void report() const {
    MESSAGE(blocks_, " blocks of ", kBlockBytes, " bytes, ", layers_, " layers, deadline ", timeout_ms_,
            " ms, over ", slime::test::provider());
    MESSAGE("undisturbed: ", scores_[0].to_string());
    MESSAGE("killed: ", scores_[1].to_string());
    MESSAGE("frozen: ", scores_[2].to_string());
    MESSAGE("longest destructor: ", longest_destructor_.count() / 1'000'000, " ms");
  }

 private:
  Nanos& span(bool child_begins, bool write) { return spans_[(child_begins ? 2 : 0) + (write ? 1 : 0)]; }
  Outcome round(bool child_begins, bool write, Strike strike, Nanos delay) {
    Plan plan{.seed = rng_.below(1 << 30),
              .blocks = blocks_,
              .layers = layers_,
              .child_begins = child_begins,
              .write = write,
              .kv = rng_.chance(1, 2),
              .timeout_ms = timeout_ms_};
    plan.told = plan.kv && write && rng_.chance(1, 2);
    // Only memory that others on this host can map is seen here when its owner is dead.
    const std::string provider = slime::test::provider();
    plan.allocated = rng_.chance(1, 2) && (provider == "auto" || provider == "shm");
    const int number = static_cast<int>(strike);
    const int rounds = rounds_++;
    INFO("round ", rounds, ": ", plan.to_string(), "; strike ", number, " after ", delay.count() / 1000,
         " us");
    Round it(plan, strike, delay, rng_);
    Outcome out = it.run();
    scores_[number].add(out);
    longest_destructor_ = std::max(longest_destructor_, it.longest_destructor());
    return out;
  }

  Rng rng_;
  const std::uint64_t blocks_ = slime::test::setting("SLIME_FIRE_BLOCKS", 96);
  const std::uint32_t layers_ = static_cast<std::uint32_t>(slime::test::setting("SLIME_FIRE_LAYERS", 61));
  std::uint64_t timeout_ms_ = 0;
  Nanos spans_[4]{};
  Score scores_[3];
  Nanos longest_destructor_{};
  int rounds_ = 0;
};

}  // namespace

TEST_CASE("an end that is killed or frozen leaves the target blocks whole, or a call that failed") {
  const std::int64_t seed =
      slime::test::setting("SLIME_TEST_SEED", steady_clock().now().time_since_epoch().count() % 1'000'000);
  MESSAGE("SLIME_TEST_SEED=", seed);
  Fire fire(static_cast<std::uint64_t>(seed));
  fire.calibrate();
  const std::int64_t rounds = slime::test::setting("SLIME_FIRE_ROUNDS", 10);
  for (std::int64_t i = 0; i < rounds; ++i) fire.strike();
  fire.report();
}

}  // namespace slime::kv::fire_test

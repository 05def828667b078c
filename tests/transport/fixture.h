#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "tests/support/bytes.h"
#include "tests/support/settings.h"
#include "transport/endpoint.h"
#include "transport/provider.h"

namespace slime::transport::testing {

using test::same;

// Two connected endpoints; side 0 is `a`, side 1 is `b`.
struct Pair {
  std::unique_ptr<Endpoint> a;
  std::unique_ptr<Endpoint> b;
  std::uint64_t link = 0;  // the fixture's name for the connection
};

// Gives the conformance suite what it needs of a provider: two sides (0 and 1), each with a device
// and a port, and progress. Each test makes a new fixture.
class Fixture {
 public:
  virtual ~Fixture() = default;
  // Opens both ports; before anything else, once.
  virtual void open(PortOptions options) = 0;
  virtual Device& device(int side) = 0;
  virtual Port& port(int side) = 0;
  virtual Loop& loop(int side) = 0;
  virtual Result<Pair> connect() = 0;
  // A bounded piece of progress on both sides, or on the one that is not frozen.
  virtual void step() = 0;
  // Lets `span` pass on the fixture's clock while both sides make progress.
  virtual void pass(Nanos span) = 0;
  [[nodiscard]] virtual TimePoint now() = 0;
  // Cuts the connection without a goodbye, as a dying process does.
  virtual void cut(const Pair& pair) = 0;
  // Side 1 makes no progress from now on, as a stopped process.
  virtual void freeze_b(const Pair& pair) = 0;
  virtual void thaw_b(const Pair& pair) = 0;
  // Whether one-sided work goes on while neither side is driven, as between real adapters: it may
  // then succeed, whole, where a peer that is cut or stopped would have ended it.
  [[nodiscard]] virtual bool works_alone() const { return false; }
  // Whether one-sided work has stopped when cut() returns. An adapter goes on with what it has
  // until another thread has failed its queue pair.
  [[nodiscard]] virtual bool cut_stops_work() const { return !works_alone(); }
  // Whether the target compares the id of a descriptor, too. An adapter knows keys only.
  [[nodiscard]] virtual bool checks_region_ids() const { return true; }

  // Steps until `done()`; false when that took too long (60 s of the fixture's time, and 20 s of
  // ours, or what patience makes of them).
  template <class F>
  bool until(F done) {
    const TimePoint end = now() + test::patient(std::chrono::seconds(60));
    const TimePoint our_end = steady_clock().now() + test::patient(std::chrono::seconds(20));
    while (!done()) {
      if (now() >= end || steady_clock().now() >= our_end) return done();
      step();
    }
    return true;
  }
  // Lets what is under way arrive: 20 ms of the fixture's time.
  void settle() { pass(std::chrono::milliseconds(20)); }
};

// Records everything that an endpoint tells its receiver. Keeps messages as copies, or holds their
// slots.
class Recorder final : public Receiver {
 public:
  void on_message(Message message) noexcept override {
    messages.emplace_back(message.bytes().begin(), message.bytes().end());
    events.push_back("message");
    if (hold) held.push_back(std::move(message));
    if (on_message_hook) on_message_hook();
  }
  void on_imm(std::uint32_t imm) noexcept override {
    imms.push_back(imm);
    events.push_back("imm");
    if (on_imm_hook) on_imm_hook();
  }
  void on_ready() noexcept override { ++ready; }
  void on_closed(const Status& reason) noexcept override {
    ++closed;
    close_reason = reason;
    events.push_back("closed");
  }

  bool hold = false;
  std::deque<Message> held;
  std::vector<ByteVector> messages;
  std::vector<std::uint32_t> imms;
  std::vector<std::string> events;
  int ready = 0;
  int closed = 0;
  Status close_reason;
  UniqueFunction<void()> on_message_hook;
  UniqueFunction<void()> on_imm_hook;
};

// Counts its completions.
class TestOperation final : public Operation {
 public:
  TestOperation() = default;
  void complete(Status status) noexcept override {
    ++completions;
    last = std::move(status);
    if (hook) hook();
  }
  [[nodiscard]] bool done() const { return completions > 0; }
  int completions = 0;
  Status last;
  UniqueFunction<void()> hook;
};

// A connected pair with receivers, ready for use. Closes before the recorders go.
struct Connection {
  explicit Connection(Fixture& f);
  ~Connection();
  Fixture& fixture;
  Recorder receiver_a;
  Recorder receiver_b;
  Pair pair;
  Endpoint& a() { return *pair.a; }
  Endpoint& b() { return *pair.b; }
};

// A region over memory of its own, with guard bytes on both sides that must never change. In a
// scope of AllocatedMemory the device allocates it, and the guard is the rest of its last page.
class GuardedRegion {
 public:
  GuardedRegion(Device& device, std::size_t bytes, Rights rights, std::uint64_t seed);
  ~GuardedRegion();  // checks the guards
  DeviceRegion region;
  [[nodiscard]] MutableBytes bytes() {
    return {memory_.empty() ? region.data() : memory_.data() + kGuard, size_};
  }
  [[nodiscard]] ByteVector copy() { return {bytes().begin(), bytes().end()}; }
  [[nodiscard]] bool guards_intact() const;

 private:
  static constexpr std::size_t kGuard = 4096;
  std::size_t size_;
  ByteVector memory_;  // empty: the device's
};

// While there is one, the memory of guarded regions is allocated by their device.
class AllocatedMemory {
 public:
  AllocatedMemory() { ++count; }
  ~AllocatedMemory() { --count; }
  AllocatedMemory(const AllocatedMemory&) = delete;
  AllocatedMemory& operator=(const AllocatedMemory&) = delete;
  static inline int count = 0;
};

ByteVector random_data(std::size_t size, std::uint64_t seed);
// Binds what side `owner`'s region describes to the other side's endpoint.
RemoteRegion share(Endpoint& user, const DeviceRegion& region);
Status send(Endpoint& endpoint, Bytes bytes, Operation& operation, SendOptions options = {});

// One promise as a test. Collected by CONFORMANCE, run by run_conformance on every provider.
struct ConformanceTest {
  const char* name;
  void (*run)(Fixture&);
  PortOptions options;
};
std::vector<ConformanceTest>& conformance_tests();

// Runs every test as a doctest subcase on a new fixture. Call inside a TEST_CASE.
void run_conformance(const UniqueFunction<std::unique_ptr<Fixture>()>& make);

struct ConformanceRegistrar {
  explicit ConformanceRegistrar(ConformanceTest test) { conformance_tests().push_back(test); }
};

}  // namespace slime::transport::testing

#define SLIME_JOIN2(a, b) a##b
#define SLIME_JOIN(a, b) SLIME_JOIN2(a, b)
// CONFORMANCE("text") { ... uses `fixture` ... }; CONFORMANCE_WITH takes the port options, too.
#define CONFORMANCE_WITH(text, ...)                                                               \
  static void SLIME_JOIN(conformance_, __LINE__)(::slime::transport::testing::Fixture & fixture); \
  static const ::slime::transport::testing::ConformanceRegistrar SLIME_JOIN(                      \
      registrar_, __LINE__)({text, &SLIME_JOIN(conformance_, __LINE__), __VA_ARGS__});            \
  static void SLIME_JOIN(conformance_,                                                            \
                         __LINE__)([[maybe_unused]] ::slime::transport::testing::Fixture & fixture)
#define CONFORMANCE(text) CONFORMANCE_WITH(text, ::slime::transport::PortOptions{})

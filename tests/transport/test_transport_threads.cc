// Regions and messages are used by any thread while loops with threads of their own move data. On
// the provider that SLIME_TEST_PROVIDER names.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/settings.h"
#include "tests/transport/fixture.h"
#include "transport/provider.h"

namespace slime::transport::testing {
namespace {

using std::chrono::seconds;
using test::eventually;

// Two ends of a TCP connection over loopback.
std::pair<UniqueFd, UniqueFd> socket_pair() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(listener.get(), any, size) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), any, &size) == 0);
  UniqueFd one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(one.get(), any, size) == 0);
  REQUIRE(::fcntl(one.get(), F_SETFL, O_NONBLOCK) == 0);
  UniqueFd two(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  REQUIRE(two.valid());
  return {std::move(one), std::move(two)};
}

// A port on a loop with a thread.
struct Worker {
  Worker(Device& device, PortOptions options) {
    auto made = Loop::create();
    REQUIRE(made.has_value());
    loop = std::move(*made);
    auto opened = device.open_port(*loop, options);
    REQUIRE(opened.has_value());
    port = std::move(*opened);
    loop->start_thread();
  }
  ~Worker() {
    loop->stop();
    endpoint.reset();
    port.reset();
  }
  std::shared_ptr<Loop> loop;
  std::unique_ptr<Port> port;
  std::unique_ptr<Endpoint> endpoint;
  Recorder recorder;
};

std::unique_ptr<Device> open_device() {
  auto provider = make_provider(test::endpoint_provider());
  REQUIRE(provider.has_value());
  auto device = (*provider)->open_device();
  REQUIRE(device.has_value());
  return std::move(*device);
}

// Each worker's endpoint is made on its own loop.
void connect(Worker& a, Worker& b, Receiver& receiver_a, Receiver& receiver_b) {
  auto [socket_a, socket_b] = socket_pair();
  auto prepare = [](Worker& worker) {
    return worker.loop->run([&] {
      auto pending = worker.port->prepare();
      SLIME_CHECK(pending.has_value());
      return std::shared_ptr<PendingEndpoint>(std::move(*pending));
    });
  };
  const auto pending_a = prepare(a);
  const auto pending_b = prepare(b);
  auto finish = [](Worker& worker, const std::shared_ptr<PendingEndpoint>& pending, PendingEndpoint& other,
                   UniqueFd& socket, Receiver& receiver, bool initiator) {
    const ByteVector parameters = other.parameters();
    worker.loop->run([&] {
      auto made = pending->finish(parameters, std::move(socket), {"here", "there", initiator});
      SLIME_CHECK(made.has_value());
      worker.endpoint = std::move(*made);
      worker.endpoint->set_receiver(receiver);
    });
  };
  finish(a, pending_a, *pending_b, socket_a, receiver_a, true);
  finish(b, pending_b, *pending_a, socket_b, receiver_b, false);
}

// An operation on the peer's region that is posted over and over until it is told to stop.
class Repeated : public Operation {
 public:
  void aim(const RegionDescriptor& target) {
    worker_.loop->run([&] {
      auto region = worker_.endpoint->import_region(target);
      SLIME_CHECK(region.has_value());
      next_ = *region;
      if (!posted()) repeat();
    });
  }
  void stop() {
    stopping_ = true;
    REQUIRE(eventually([&] { return worker_.loop->run([&] { return !posted(); }); }));
  }
  void complete(Status status) noexcept final {
    if (status.ok()) ++succeeded;
    ++completed;
    if (!stopping_) repeat();
  }
  std::atomic<std::uint64_t> completed{0};
  std::atomic<std::uint64_t> succeeded{0};

 protected:
  explicit Repeated(Worker& worker) : worker_(worker) {}
  ~Repeated() = default;
  virtual void post(Endpoint& endpoint, const RemoteRegion& target) = 0;

 private:
  void repeat() {
    target_ = next_;
    post(*worker_.endpoint, target_);
  }
  Worker& worker_;
  RemoteRegion target_;
  RemoteRegion next_;
  std::atomic<bool> stopping_{false};
};

class Writer final : public Repeated {
 public:
  Writer(Worker& worker, const DeviceRegion& source, std::uint64_t target_offset)
      : Repeated(worker), source_(source), target_offset_(target_offset) {}

 private:
  void post(Endpoint& endpoint, const RemoteRegion& target) override {
    copy_ = {&source_, 0, &target, target_offset_, source_.length_bytes()};
    endpoint.write(std::span(&copy_, 1), *this).ignore();
  }
  const DeviceRegion& source_;
  const std::uint64_t target_offset_;
  CopyBlock copy_;
};

// Adds 1 to a number of the peer.
class Adder final : public Repeated {
 public:
  Adder(Worker& worker, const DeviceRegion& result, std::size_t place)
      : Repeated(worker), result_(result), place_(place) {}

 private:
  void post(Endpoint& endpoint, const RemoteRegion& target) override {
    SLIME_CHECK(endpoint.fetch_add({&result_, 8 * place_, &target, 0}, 1, *this).ok());
  }
  const DeviceRegion& result_;
  const std::size_t place_;
};

}  // namespace

TEST_CASE("atomics of several loops on one number lose nothing, and end with the close of its region") {
  constexpr std::size_t kLoops = 3;
  const auto target_device = open_device();
  const auto source_device = open_device();
  alignas(8) std::uint64_t number = 0;
  std::uint64_t results[kLoops] = {};
  auto result_region = source_device->register_memory(results, sizeof results, Rights::kLocal);
  REQUIRE(result_region.has_value());
  std::deque<Worker> targets;
  std::deque<Worker> sources;
  std::deque<Adder> adders;
  for (std::size_t i = 0; i < kLoops; ++i) {
    targets.emplace_back(*target_device, PortOptions{});
    sources.emplace_back(*source_device, PortOptions{});
    connect(sources[i], targets[i], sources[i].recorder, targets[i].recorder);
    adders.emplace_back(sources[i], *result_region, i);
  }
  const auto all_complete = [&](std::uint64_t more) {
    std::vector<std::uint64_t> goals;
    for (const Adder& adder : adders) goals.push_back(adder.completed + more);
    return eventually([&] {
      for (std::size_t i = 0; i < kLoops; ++i) {
        if (adders[i].completed < goals[i]) return false;
      }
      return true;
    });
  };
  for (int round = 0; round < 10; ++round) {
    number = 0;
    std::uint64_t added_before = 0;
    for (const Adder& adder : adders) added_before += adder.succeeded;
    auto region = target_device->register_memory(&number, sizeof number, Rights::kReadWrite);
    REQUIRE(region.has_value());
    for (Adder& adder : adders) adder.aim(region->describe());
    REQUIRE(all_complete(200));
    CHECK(region->close().ok());
    // From here on the number is ours: the thread sanitizer would see any access of a loop.
    const std::uint64_t at_close = number;
    REQUIRE(all_complete(3));
    CHECK(number == at_close);
    std::uint64_t added = 0;
    for (const Adder& adder : adders) added += adder.succeeded;
    CHECK(added - added_before == at_close);
  }
  for (Adder& adder : adders) adder.stop();
  CHECK(result_region->close().ok());
}

TEST_CASE(
    "bulk data goes on whenever the way to the peer was full, although both loops sleep when they can") {
  constexpr std::size_t kBytes = 4 << 20;
  const auto target_device = open_device();
  const auto source_device = open_device();
  auto target = target_device->allocate(kBytes, Rights::kReadWrite);
  auto source = source_device->allocate(kBytes, Rights::kLocal);
  REQUIRE(target.has_value());
  REQUIRE(source.has_value());
  Worker a(*source_device, {});
  Worker b(*target_device, {});
  connect(a, b, a.recorder, b.recorder);
  std::deque<Writer> writers;
  for (int i = 0; i < 4; ++i) writers.emplace_back(a, *source, 0).aim(target->describe());
  const auto goal = static_cast<std::uint64_t>(test::scaled(50));
  CHECK(eventually([&] {
    return std::all_of(writers.begin(), writers.end(),
                       [&](Writer& writer) { return writer.succeeded > goal; });
  }));
  for (Writer& writer : writers) writer.stop();
  CHECK(source->close().ok());
}

TEST_CASE("a region closed on one thread holds its bytes, while two loops go on writing to it") {
  constexpr std::size_t kBytes = 512 * 1024;
  const auto target_device = open_device();
  const auto source_device = open_device();
  ByteVector target(kBytes);
  ByteVector source(kBytes / 2, std::byte{1});
  auto source_region = source_device->register_memory(source.data(), source.size(), Rights::kLocal);
  REQUIRE(source_region.has_value());
  Worker targets[2] = {{*target_device, {}}, {*target_device, {}}};
  Worker sources[2] = {{*source_device, {}}, {*source_device, {}}};
  for (int i = 0; i < 2; ++i) connect(sources[i], targets[i], sources[i].recorder, targets[i].recorder);
  // Each writes a half of the target.
  Writer writers[2] = {{sources[0], *source_region, 0}, {sources[1], *source_region, kBytes / 2}};
  for (int round = 0; round < 20; ++round) {
    std::fill(target.begin(), target.end(), std::byte{0});
    auto region = target_device->register_memory(target.data(), kBytes, Rights::kRemoteWrite);
    REQUIRE(region.has_value());
    const std::uint64_t written = writers[0].succeeded + writers[1].succeeded;
    for (Writer& writer : writers) writer.aim(region->describe());
    REQUIRE(eventually([&] { return writers[0].succeeded + writers[1].succeeded > written; }));
    CHECK(region->close().ok());
    // From here on the memory is ours: the thread sanitizer would see any access of a loop.
    std::fill(target.begin(), target.end(), std::byte{9});
    const std::uint64_t completed[2] = {writers[0].completed, writers[1].completed};
    REQUIRE(eventually(
        [&] { return writers[0].completed > completed[0] + 2 && writers[1].completed > completed[1] + 2; }));
    CHECK(std::all_of(target.begin(), target.end(), [](std::byte value) { return value == std::byte{9}; }));
  }
  for (Writer& writer : writers) writer.stop();
  CHECK(source_region->close().ok());
}

TEST_CASE(
    "closing a local region on another thread ends the operations that use it, then the memory is ours") {
  constexpr std::size_t kBytes = 4 << 20;
  const auto target_device = open_device();
  const auto source_device = open_device();
  ByteVector target(kBytes);
  ByteVector source(kBytes, std::byte{1});
  auto target_region = target_device->register_memory(target.data(), kBytes, Rights::kReadWrite);
  REQUIRE(target_region.has_value());
  for (const Nanos bound : {Nanos(0), Nanos(seconds(10))}) {
    Worker a(*source_device, {});
    Worker b(*target_device, {});
    connect(a, b, a.recorder, b.recorder);
    auto region = source_device->register_memory(source.data(), kBytes, Rights::kLocal);
    REQUIRE(region.has_value());
    TestOperation operations[2];
    RemoteRegion remote;
    CopyBlock copies[2];
    a.loop->run([&] {
      auto imported = a.endpoint->import_region(target_region->describe());
      SLIME_CHECK(imported.has_value());
      remote = *imported;
      copies[0] = {&*region, 0, &remote, 0, kBytes / 2};
      copies[1] = {&*region, kBytes / 2, &remote, 0, kBytes / 2};
      SLIME_CHECK(a.endpoint->write(std::span(&copies[0], 1), operations[0]).ok());
      SLIME_CHECK(a.endpoint->read(std::span(&copies[1], 1), operations[1]).ok());
    });
    const Status closed = region->close(bound);
    std::fill(source.begin(), source.end(), std::byte{3});
    CHECK((closed.ok() || closed.code() == Code::kDeadlineExceeded));
    if (bound > Nanos(0)) CHECK(closed.ok());
    REQUIRE(eventually(
        [&] { return a.loop->run([&] { return operations[0].done() && operations[1].done(); }); }));
    CHECK(std::all_of(source.begin(), source.end(), [](std::byte value) { return value == std::byte{3}; }));
  }
}

TEST_CASE("messages released on another thread give their credits back") {
  constexpr int kMessages = 3000;
  // Hands messages to a consumer thread, in order.
  class Handover final : public Receiver {
   public:
    void on_message(Message message) noexcept override {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(message));
      changed_.notify_one();
    }
    void on_imm(std::uint32_t) noexcept override {}
    void on_ready() noexcept override {}
    void on_closed(const Status&) noexcept override {}
    bool take(Message& out) {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, seconds(20), [&] { return !queue_.empty(); })) return false;
      out = std::move(queue_.front());
      queue_.pop_front();
      return true;
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Message> queue_;
  };
  // Sends its number again and again, as fast as credits allow.
  class Sender final : public Receiver, public Operation {
   public:
    explicit Sender(Worker& worker) : worker_(worker) {}
    void on_message(Message) noexcept override {}
    void on_imm(std::uint32_t) noexcept override {}
    void on_ready() noexcept override { more(); }
    void on_closed(const Status&) noexcept override {}
    void complete(Status status) noexcept override {
      SLIME_CHECK(status.ok());
      more();
    }
    void more() {
      if (posted() || next_ == kMessages) return;
      const Bytes part = std::as_bytes(std::span(&next_, 1));
      if (worker_.endpoint->send(std::span(&part, 1), *this).ok()) ++next_;
    }

   private:
    Worker& worker_;
    int next_ = 0;
  };
  const auto device = open_device();
  const PortOptions options{.pool_slots = 32, .base_credits = 4, .max_credits = 16};
  Worker a(*device, options);
  Worker b(*device, options);
  Sender sender(a);
  Handover handover;
  connect(a, b, sender, handover);
  std::atomic<int> in_order{0};
  std::thread consumer([&] {
    for (int i = 0; i < kMessages; ++i) {
      Message message;
      if (!handover.take(message)) return;
      int number = -1;
      std::memcpy(&number, message.bytes().data(), sizeof number);
      if (number == i) ++in_order;
    }
  });
  a.loop->run([&] { sender.more(); });
  consumer.join();
  CHECK(in_order == kMessages);
  const bool all_back = eventually([&] {
    return b.loop->run([&] { return b.port->free_slots() >= options.pool_slots - options.max_credits; });
  });
  CHECK(all_back);
  for (Worker* worker : {&a, &b}) worker->loop->stop();  // the receivers go before the workers
}

}  // namespace slime::transport::testing

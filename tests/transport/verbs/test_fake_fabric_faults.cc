#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "tests/transport/verbs/fake_node.h"

// The fake fabric's notifications, queues, faults and threads.
namespace slime::transport::testing::fake_fabric_faults_test {
namespace {

using Misuses = std::vector<std::string>;

// ---- notifications

// Takes and acknowledges the events of the node's channel.
int take_notifications(FakeNode& node) {
  int got = 0;
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  while (node.f.get_cq_event(node.channel, &cq, &user) == 0) {
    CHECK(cq == node.cq);
    CHECK(user == &node);
    node.f.ack_cq_events(cq, 1);
    ++got;
  }
  CHECK(errno == EAGAIN);
  return got;
}

TEST_CASE("a request for notification is good for one, and not for what came before") {
  FakeFabric fabric;
  FakeLink link(fabric);
  const auto write = [&] { REQUIRE(link.a.post(link.write(1, 0), {link.at_a(0, 8)}) == 0); };
  write();
  CHECK(take_notifications(link.a) == 0);  // not requested
  REQUIRE(link.a.f.req_notify_cq(link.a.cq, 0) == 0);
  CHECK_FALSE(FakeNode::readable(link.a.channel->fd));  // the completion came before the request
  write();
  CHECK(FakeNode::readable(link.a.channel->fd));
  write();
  CHECK(take_notifications(link.a) == 1);
  CHECK_FALSE(FakeNode::readable(link.a.channel->fd));
  write();
  CHECK(take_notifications(link.a) == 0);
  CHECK(link.a.poll().size() == 4);
  CHECK(fabric.counters("fake0").notifications == 1);
}

TEST_CASE("who asks for solicited completions hears of those and of errors") {
  FakeFabric fabric;
  FakeLink link(fabric);
  for (int i = 0; i < 2; ++i) REQUIRE(link.b.post_receive(1, {link.at_b(0, 8)}) == 0);
  REQUIRE(link.b.f.req_notify_cq(link.b.cq, 1) == 0);
  REQUIRE(link.a.post(make_work(1, IBV_WR_SEND), {link.at_a(0, 8)}) == 0);
  CHECK(take_notifications(link.b) == 0);
  REQUIRE(link.a.post(make_work(1, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), {link.at_a(0, 8)}) ==
          0);
  CHECK(take_notifications(link.b) == 1);
  REQUIRE(link.b.f.req_notify_cq(link.b.cq, 1) == 0);
  FakeNode::Path path;
  REQUIRE(link.b.modify(IBV_QPS_ERR, path, 0) == 0);
  REQUIRE(link.b.post(make_work(1, IBV_WR_SEND), {}) == 0);
  CHECK(take_notifications(link.b) == 1);
}

// ---- completion and receive queues

TEST_CASE("a completion queue that overflows is broken, and a misuse") {
  FakeFabric fabric;
  FakeLink link(fabric, {.cq_entries = 2});
  for (int i = 0; i < 3; ++i) REQUIRE(link.a.post(link.write(1, 0), {link.at_a(0, 8)}) == 0);
  CHECK(link.a.take_events() == std::vector<ibv_event_type>{IBV_EVENT_CQ_ERR});
  CHECK(fabric.counters("fake0").cq_high_water == 2);
  CHECK(link.a.poll().size() == 2);
  ibv_wc wc{};
  CHECK(link.a.f.poll_cq(link.a.cq, 1, &wc) < 0);
  CHECK(fabric.take_misuses() == Misuses{"completion queue of fake0 overflowed: more than 2 completions"});
}

TEST_CASE("a receive slot is free once its completion has been polled") {
  FakeFabric fabric;
  FakeLink link(fabric, {.receives = 1});
  REQUIRE(link.b.post_receive(1, {link.at_b(0, 8)}) == 0);
  CHECK(link.b.post_receive(2, {link.at_b(0, 8)}) == ENOMEM);
  REQUIRE(link.a.post(make_work(1, IBV_WR_SEND), {link.at_a(0, 8)}) == 0);
  CHECK(link.b.post_receive(2, {link.at_b(0, 8)}) == ENOMEM);
  CHECK(link.b.poll().size() == 1);
  CHECK(link.b.post_receive(2, {link.at_b(0, 8)}) == 0);
  CHECK(link.b.post_receive(3, {link.at_b(0, 1), link.at_b(1, 1), link.at_b(2, 1)}) == EINVAL);
}

TEST_CASE("completions of a destroyed queue pair go with it, or stay if asked to") {
  for (const bool keep : {false, true}) {
    CAPTURE(keep);
    FakeOptions options = FakeOptions::roce();
    options.keep_stale = keep;
    FakeFabric fabric(options);
    FakeLink link(fabric);
    REQUIRE(link.a.post(link.write(7, 0), {link.at_a(0, 8)}) == 0);
    const std::uint32_t number = link.a.qp->qp_num;
    link.a.f.destroy_qp(std::exchange(link.a.qp, nullptr));
    const auto got = link.a.poll();
    REQUIRE(got.size() == (keep ? 1 : 0));
    if (keep) CHECK(got[0].qp_num == number);
  }
}

TEST_CASE("what a queue pair had not done goes with it") {
  FakeFabric fabric;
  FakeLink link(fabric);
  fabric.freeze("fake1");
  REQUIRE(link.a.post(link.write(7, 0), {link.at_a(0, 8)}) == 0);
  link.a.f.destroy_qp(std::exchange(link.a.qp, nullptr));
  fabric.freeze("fake1", false);
  CHECK_FALSE(fabric.progress(10));
  CHECK(link.a.poll().empty());
  CHECK(link.bytes_b[0] == std::byte{0});
}

// ---- faults

TEST_CASE("the nth call of a kind fails, and only that") {
  FakeFabric fabric;
  FakeNode node(fabric.functions(), 0);
  ByteVector bytes(64);
  fabric.fail_call(Call::kRegister, ENOMEM, 2);
  CHECK(node.add_region(bytes, 0) != nullptr);
  CHECK(node.add_region(bytes, 0) == nullptr);
  CHECK(errno == ENOMEM);
  CHECK(node.add_region(bytes, 0) != nullptr);
  CHECK(fabric.faults_left() == 0);
  fabric.fail_call(Call::kAny, EAGAIN);
  FakeNode::Path path;
  CHECK(node.to_init(path) == EAGAIN);
  CHECK(node.to_init(path) == 0);
}

TEST_CASE("a post can fail in the middle of a chain") {
  FakeFabric fabric;
  FakeLink link(fabric);
  fabric.fail_call(Call::kPostSend, EIO, 2);
  ibv_sge sge = link.at_a(0, 8);
  ibv_send_wr second = link.write(2, 8);
  second.sg_list = &sge;
  second.num_sge = 1;
  ibv_send_wr first = link.write(1, 0);
  first.sg_list = &sge;
  first.num_sge = 1;
  first.next = &second;
  ibv_send_wr* bad = nullptr;
  CHECK(link.a.f.post_send(link.a.qp, &first, &bad) == EIO);
  CHECK(bad == &second);
  const auto got = link.a.poll();
  REQUIRE(got.size() == 1);
  CHECK(got[0].wr_id == 1);
}

TEST_CASE("the nth matching work request completes with the status that the test wants") {
  FakeFabric fabric;
  FakeLink link(fabric);
  fabric.fail_work(IBV_WC_LOC_QP_OP_ERR, 2, {.device = "fake0", .opcode = IBV_WR_RDMA_WRITE});
  REQUIRE(link.a.post(link.write(1, 0, 0), {link.at_a(0, 8)}) == 0);
  REQUIRE(link.a.post(make_work(2, IBV_WR_RDMA_READ, link.bytes_b.data(), link.mr_b->rkey, 0),
                      {link.at_a(0, 8)}) == 0);
  REQUIRE(link.a.post(link.write(3, 100, 0), {link.at_a(0, 8)}) == 0);
  const auto got = link.a.poll();
  REQUIRE(statuses(got) == Statuses{IBV_WC_LOC_QP_OP_ERR});
  CHECK(got[0].wr_id == 3);
  CHECK(link.bytes_b[101] == std::byte{0});
  CHECK(fabric.queue_pairs("fake0").at(0).attributes.qp_state == IBV_QPS_ERR);
}

TEST_CASE("held completions come later, in order") {
  FakeFabric fabric;
  FakeLink link(fabric);
  fabric.hold_completions("fake0");
  REQUIRE(link.a.f.req_notify_cq(link.a.cq, 0) == 0);
  for (std::uint64_t i = 1; i <= 2; ++i) REQUIRE(link.a.post(link.write(i, 0), {link.at_a(0, 8)}) == 0);
  CHECK(link.a.poll().empty());
  CHECK(take_notifications(link.a) == 0);
  CHECK(link.arrived(0, 0, 8));
  fabric.hold_completions("fake0", false);
  CHECK(take_notifications(link.a) == 1);
  const auto got = link.a.poll();
  REQUIRE(got.size() == 2);
  CHECK(got[0].wr_id == 1);
  CHECK(got[1].wr_id == 2);
}

TEST_CASE("a device that dies flushes its work, says so and refuses everything but destruction") {
  FakeFabric fabric;
  FakeLink link(fabric);
  fabric.freeze("fake0");
  REQUIRE(link.a.post(link.write(1, 0), {link.at_a(0, 8)}) == 0);
  fabric.kill("fake0");
  CHECK(statuses(link.a.poll()) == Statuses{IBV_WC_WR_FLUSH_ERR});
  const auto events = link.a.take_events();
  REQUIRE_FALSE(events.empty());
  CHECK(events.back() == IBV_EVENT_DEVICE_FATAL);
  CHECK(link.a.post(link.write(2, 0), {link.at_a(0, 8)}) == EIO);
  CHECK(link.a.add_region(link.bytes_a, 0) == nullptr);
  CHECK(errno == EIO);
  FakeNode::Path path;
  CHECK(link.a.modify(IBV_QPS_RESET, path, 0) == EIO);
}

TEST_CASE("infinite retries are infinite") {
  FakeFabric fabric;
  FakeNode a(fabric.functions(), 0);
  FakeNode b(fabric.functions(), 1);
  FakeNode::Path path = a.path_to(b);
  path.attributes.timeout = 0;
  path.attributes.rnr_retry = 7;
  a.connect(path);
  b.connect(b.path_to(a));
  REQUIRE(a.post(make_work(1, IBV_WR_SEND), {}) == 0);
  fabric.progress(10'000);
  fabric.set_link("fake0", "fake1", LinkState::kDown);
  fabric.progress(10'000);
  CHECK(a.poll().empty());
  fabric.set_link("fake0", "fake1", LinkState::kUp);
  REQUIRE(b.post_receive(1, {}) == 0);
  fabric.settle();
  fabric.progress(10);
  CHECK(statuses(a.poll()) == Statuses{IBV_WC_SUCCESS});
}

TEST_CASE("partitions that differ do not meet") {
  FakeOptions options = FakeOptions::roce();
  options.devices[1].ports[0].pkeys = {0x8001};
  FakeFabric fabric(options);
  FakeLink link(fabric);
  REQUIRE(link.a.post(link.write(1, 0), {link.at_a(0, 8)}) == 0);
  CHECK(fabric.queue_pairs("fake0").at(0).silence == "the partition keys differ");
}

TEST_CASE("a number can come back at once, with another queue pair") {
  FakeOptions options = FakeOptions::roce();
  options.reuse_numbers = true;
  options.keep_stale = true;
  FakeFabric fabric(options);
  FakeLink link(fabric);
  REQUIRE(link.a.post(link.write(7, 0), {link.at_a(0, 8)}) == 0);
  const std::uint32_t number = link.a.qp->qp_num;
  link.a.f.destroy_qp(link.a.qp);
  link.a.qp = link.a.make_qp();
  CHECK(link.a.qp->qp_num == number);
  const auto stale = link.a.poll();
  REQUIRE(stale.size() == 1);
  CHECK(stale[0].qp_num == number);
  CHECK(fabric.queue_pairs("fake0").at(0).occupied == 0);
}

TEST_CASE("the loss of every answer still lets an atomic happen once") {
  FakeFabric fabric;
  FakeLink link(fabric);
  auto* word = reinterpret_cast<std::uint64_t*>(link.bytes_b.data());
  *word = 5;
  ibv_send_wr add = make_work(1, IBV_WR_ATOMIC_FETCH_AND_ADD);
  add.wr.atomic.remote_addr = reinterpret_cast<std::uintptr_t>(word);
  add.wr.atomic.rkey = link.mr_b->rkey;
  add.wr.atomic.compare_add = 1;
  const ByteVector before = link.bytes_a;
  fabric.set_link("fake0", "fake1", LinkState::kAcksLost);
  REQUIRE(link.a.post(add, {link.at_a(0, 8)}) == 0);
  fabric.progress(10);
  CHECK(*word == 6);
  CHECK(link.bytes_a == before);
  fabric.set_link("fake0", "fake1", LinkState::kUp);
  CHECK(statuses(link.a.poll()) == Statuses{IBV_WC_SUCCESS});
  CHECK(*word == 6);
  CHECK(link.bytes_a[0] == std::byte{5});
}

TEST_CASE("what is left over at the end fails the test" * doctest::should_fail()) {
  FakeFabric fabric;
  ibv_device** list = fabric.functions().get_device_list(nullptr);
  CHECK(fabric.functions().open_device(list[0]) != nullptr);
  fabric.functions().free_device_list(list);
}

TEST_CASE("a misuse that nobody took fails the test" * doctest::should_fail()) {
  FakeFabric fabric;
  CHECK(fabric.functions().dealloc_pd(nullptr) == EINVAL);
}

// ---- threads

// Waits for the next completions as a sleeping loop does.
std::vector<ibv_wc> sleep_until_completion(FakeNode& node) {
  for (;;) {
    auto got = node.poll();
    if (!got.empty()) return got;
    REQUIRE(node.f.req_notify_cq(node.cq, 0) == 0);
    got = node.poll();  // completions from before the request
    if (!got.empty()) return got;
    pollfd entry{.fd = node.channel->fd, .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, 10'000) != 1) return {};
    take_notifications(node);
  }
}

// Completions that one side still waits for. May be negative when completions came early, such as
// the peer's next message.
struct Awaited {
  int sends = 0;
  int receives = 0;
};

// Sleeps until that many more of each kind have completed; false: an error, or nothing came.
bool sleep_until(FakeNode& node, Awaited& awaited, int sends, int receives) {
  awaited.sends += sends;
  awaited.receives += receives;
  while (awaited.sends > 0 || awaited.receives > 0) {
    const auto got = sleep_until_completion(node);
    if (got.empty()) return false;
    for (const ibv_wc& wc : got) {
      if (wc.status != IBV_WC_SUCCESS) return false;
      ((wc.opcode & IBV_WC_RECV) != 0 ? awaited.receives : awaited.sends) -= 1;
    }
  }
  return true;
}

TEST_CASE("two threads that sleep between messages wake each other, also through large transfers") {
  FakeOptions options = FakeOptions::roce();
  options.pump_thread = true;
  options.step_on_calls = false;  // only the pump thread runs steps
  FakeFabric fabric(options);
  FakeLink link(fabric);
  constexpr int kRounds = 50;
  constexpr std::size_t kHalf = FakeLink::kBytes / 2;
  std::atomic<bool> good{true};
  REQUIRE(link.b.post_receive(0, {link.at_b(FakeLink::kBytes - 8, 8)}) == 0);
  std::thread other([&] {
    Awaited awaited;
    for (int i = 0; i < kRounds && good; ++i) {
      if (!sleep_until(link.b, awaited, 0, 1) || !link.arrived(0, 0, kHalf)) good = false;
      if (link.b.post_receive(0, {link.at_b(FakeLink::kBytes - 8, 8)}) != 0) good = false;
      if (link.b.post(make_work(1, IBV_WR_RDMA_READ, link.bytes_a.data(), link.mr_a->rkey),
                      {link.at_b(kHalf, 64)}) != 0 ||
          link.b.post(make_work(2, IBV_WR_SEND), {link.at_b(kHalf, 64)}) != 0 ||
          !sleep_until(link.b, awaited, 2, 0)) {
        good = false;
      }
    }
  });
  Awaited awaited;
  for (int i = 0; i < kRounds && good; ++i) {
    link.bytes_a[0] = static_cast<std::byte>(i);
    if (link.a.post_receive(0, {link.at_a(kHalf, 64)}) != 0 ||
        link.a.post(link.write(1, 0, 0), {link.at_a(0, kHalf)}) != 0 ||
        link.a.post(make_work(2, IBV_WR_SEND), {link.at_a(0, 8)}) != 0 ||
        !sleep_until(link.a, awaited, 1, 1) || link.bytes_a[kHalf] != static_cast<std::byte>(i)) {
      good = false;
    }
  }
  other.join();
  CHECK(good);
}

}  // namespace
}  // namespace slime::transport::testing::fake_fabric_faults_test

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "base/str.h"
#include "rpc/codec/received.h"
#include "tests/rpc/channel_fixture.h"
#include "tests/rpc/device_regions.h"
#include "tests/support/bytes.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace channel_attachments_test {
namespace {

using test::all_are;
using test::same;

struct Picture {
  std::string name;
  std::vector<Attachment> layers;
  MSGPACK_DEFINE(name, layers)
};

// A link whose service "pictures" takes and gives attachments, inline.
struct Pictures : Link {
  explicit Pictures(Fixture& f, LinkOptions link_options = {}) : Link(f, std::move(link_options)) {
    Service service("pictures");
    const MethodOptions inline_run{Run::kInline};
    const auto added = [](const Status& status) { REQUIRE_MESSAGE(status.ok(), status.to_string()); };
    added(service.add(
        "echo", [](Attachment a) { return a; }, inline_run));
    added(service.add(
        "picture", [](Picture p) { return p; }, inline_run));
    added(service.add(
        "size", [](const Attachment& a) { return a.size(); }, inline_run));
    added(service.add(
        "bytes", [](ByteVector bytes) { return bytes.size(); }, inline_run));
    added(service.add(
        "make", [](std::size_t size) { return Attachment(pattern(size)); }, inline_run));
    added(servers[1]->add(service));
  }
  Ticket begin(Reply& reply, std::string_view method, AttachedBody request, Nanos within = 20s) {
    return a().call_attached({"pictures", method, in(within)}, std::move(request), reply.handler());
  }
  Result<Payload> ask(std::string_view method, AttachedBody request) {
    Reply reply;
    begin(reply, method, std::move(request));
    REQUIRE(until([&] { return reply.done(); }));
    return std::move(*reply.value);
  }
  template <class R, class... A>
  Result<R> get(std::string_view method, const A&... arguments) {
    const auto reply = ask(method, encode_attached_arguments(arguments...));
    if (!reply) return reply.error();
    return decode_value<R>(reply->bytes(), reply->attachments());
  }
  template <class R, class... A>
  R must(std::string_view method, const A&... arguments) {
    auto out = get<R>(method, arguments...);
    REQUIRE_MESSAGE(out.has_value(), out.status().to_string());
    return std::move(*out);
  }
  void check_quiet() {
    REQUIRE(until([&] { return a().idle() && b().idle(); }));
    CHECK(a().counters().lent_buffers == 0);
    CHECK(b().counters().lent_buffers == 0);
  }
};

AttachedBody make_into(std::size_t size, Destinations into) {
  AttachedBody request = encode_attached_arguments(size);
  request.into = std::move(into);
  return request;
}

// Bytes between two guards.
struct Guarded {
  explicit Guarded(std::size_t size) : all(size + 2 * kGuard, std::byte{0xa5}) {}
  MutableBytes inside() { return MutableBytes(all).subspan(kGuard, all.size() - 2 * kGuard); }
  bool intact() const { return all_are(all, std::byte{0xa5}); }
  bool guarded() const {
    const Bytes bytes = all;
    return all_are(bytes.first(kGuard), std::byte{0xa5}) && all_are(bytes.last(kGuard), std::byte{0xa5});
  }
  static constexpr std::size_t kGuard = 64;
  ByteVector all;
};

constexpr std::size_t kSomePieces = 3 * rpc::limits::kPullBytes;

}  // namespace

TEST_CASE("attachments of any size come back as they were: inline, lent, and beyond a read") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  const std::size_t slot = link.a().endpoint().max_message_bytes();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, slot - 200, slot - 100, slot, slot + 1,
                                 std::size_t{1} << 20, rpc::limits::kPullBytes + 12345}) {
    CAPTURE(size);
    const ByteVector bytes = pattern(size);
    const auto back = link.get<Attachment>("echo", Attachment(bytes));
    REQUIRE_MESSAGE(back.has_value(), back.status().to_string());
    CHECK(same(back->bytes(), bytes));
  }
  link.check_quiet();
}

TEST_CASE("what is lent is copied by nobody, what is inline is counted") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  CHECK(link.must<std::size_t>("size", Attachment(pattern(100))) == 100);
  CHECK(link.a().counters().copied_bytes == 100);
  CHECK(link.b().counters().copied_bytes == 100);
  CHECK(link.b().counters().pulled_bytes == 0);
  REQUIRE(link.get<Attachment>("echo", Attachment(pattern(1 << 20))).has_value());
  CHECK(link.a().counters().copied_bytes == 100);
  CHECK(link.b().counters().copied_bytes == 100);
  CHECK(link.a().counters().pulled_bytes == 1 << 20);
  CHECK(link.b().counters().pulled_bytes == 1 << 20);
}

TEST_CASE("many attachments of one body, small and large, inside of a struct, go under one lease") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  Picture picture{"many", {}};
  for (std::size_t i = 0; i < 700; ++i) picture.layers.emplace_back(pattern(i * 3, i));
  picture.layers[5].set_array({"<f4", {3, 5}});
  sim.freeze_b(link.pair);
  Reply reply;
  link.begin(reply, "picture", encode_attached_arguments(picture));
  CHECK(link.a().counters().lent_buffers == 1);
  sim.thaw_b(link.pair);
  REQUIRE(link.until([&] { return reply.done(); }));
  REQUIRE_MESSAGE(reply.value->has_value(), reply.status().to_string());
  const auto back = decode_value<Picture>((*reply.value)->bytes(), (*reply.value)->attachments());
  REQUIRE(back.has_value());
  REQUIRE(back->layers.size() == 700);
  for (std::size_t i = 0; i < 700; ++i) CHECK(same(back->layers[i].bytes(), pattern(i * 3, i)));
  REQUIRE(back->layers[5].array() != nullptr);
  CHECK(*back->layers[5].array() == ArrayType{"<f4", {3, 5}});
  CHECK(back->layers[6].array() == nullptr);
  link.check_quiet();
}

TEST_CASE("bytes and attachments stand for each other where one of them is expected") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  CHECK(link.must<std::size_t>("bytes", Attachment(pattern(20'000))) == 20'000);
  CHECK(link.must<std::size_t>("size", pattern(30'000)) == 30'000);
  CHECK(link.must<ByteVector>("make", 40'000) == pattern(40'000));
}

TEST_CASE("registered memory is lent as it is, if it may be read") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  const auto readable = allocate(sim, 0, 100'000, transport::Rights::kRemoteRead);
  Rng(kSeed).fill(readable->bytes());
  auto part = Attachment::of(readable, 10'000, 50'000);
  REQUIRE(part.has_value());
  const auto back = link.get<Attachment>("echo", *part);
  REQUIRE_MESSAGE(back.has_value(), back.status().to_string());
  CHECK(same(back->bytes(), readable->bytes().subspan(10'000, 50'000)));
  CHECK(Attachment::of(readable, 10'000, 90'001).status().code() == Code::kInvalidArgument);
  CHECK(Attachment::of(nullptr, 0, 0).status().code() == Code::kInvalidArgument);
  const auto local = allocate(sim, 0, 100'000, transport::Rights::kLocal);
  const std::uint64_t requests = link.b().counters().requests;
  const Status refused = link.get<Attachment>("echo", *Attachment::of(local, 0, 100'000)).status();
  CHECK(refused.code() == Code::kPermissionDenied);
  CHECK(!refused.maybe_executed());
  link.check_quiet();
  CHECK(link.b().counters().requests == requests);
}

TEST_CASE("too many attachments, or more than the peer takes, are refused here") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.b.max_payload_bytes = 50'000;
  Pictures link(sim, options);
  const Picture many{"many", std::vector<Attachment>(rpc::limits::kMaxAttachments + 1)};
  CHECK(link.get<Picture>("picture", many).status().code() == Code::kInvalidArgument);
  const Picture large{"large", std::vector<Attachment>(3, Attachment(pattern(20'000)))};
  const Status refused = link.get<Picture>("picture", large).status();
  CHECK(refused.code() == Code::kInvalidArgument);
  CHECK(refused.text().starts_with("a payload of 600"));  // 60000 and the bytes of the message
  CHECK(refused.text().ends_with(" takes at most 50000 (its max_payload_bytes)"));
  CHECK(!refused.maybe_executed());
  CHECK(link.must<std::size_t>("size", Attachment(pattern(40'000))) == 40'000);
  link.check_quiet();
}

TEST_CASE("attachments under way together stay below the limit of one payload") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.b.max_payload_bytes = 100'000;
  Pictures link(sim, options);
  Reply replies[2];
  for (Reply& reply : replies)
    link.begin(reply, "size", encode_attached_arguments(Attachment(pattern(60'000))));
  REQUIRE(link.until([&] { return replies[0].done() && replies[1].done(); }));
  CHECK(replies[0].value->has_value());
  CHECK(replies[1].status().code() == Code::kResourceExhausted);
  CHECK(!replies[1].status().maybe_executed());
  link.check_quiet();
}

TEST_CASE("the reply is read into memory that the call names, plain or registered, and nowhere else") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  for (const std::size_t size : {std::size_t{10}, std::size_t{100'000}}) {
    CAPTURE(size);
    Guarded plain(size);
    auto reply = link.ask("make", make_into(size, {Destination(plain.inside())}));
    REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    CHECK(reply->attachments()[0].bytes().data() == plain.inside().data());
    CHECK(same(plain.inside(), pattern(size)));
    CHECK(plain.guarded());
    const auto region = allocate(sim, 0, size + 2000, transport::Rights::kLocal);
    reply = link.ask("make", make_into(size, {*Destination::of(region, 1000, size + 500)}));
    REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    CHECK(reply->attachments()[0].bytes().data() == region->bytes().data() + 1000);
    CHECK(same(region->bytes().subspan(1000, size), pattern(size)));
    CHECK(all_are(region->bytes().first(1000), std::byte{0}));
    CHECK(all_are(region->bytes().subspan(1000 + size), std::byte{0}));
  }
  link.check_quiet();
}

TEST_CASE("a reply that does not fit where it should go is an error, and nothing is written") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  for (const std::size_t size : {std::size_t{10}, std::size_t{100'000}}) {
    CAPTURE(size);
    Guarded memory(size - 1);
    const Status status = link.ask("make", make_into(size, {Destination(memory.inside())})).status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK_MESSAGE(status.text().find(str(size, " bytes")) != std::string::npos, status.text());
    CHECK(status.maybe_executed());
    CHECK(memory.intact());
  }
  link.check_quiet();
}

TEST_CASE("a call that is cancelled while its reply is read into its memory ends when the read has") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  ByteVector memory(kSomePieces);
  Reply reply;
  const Ticket ticket = link.begin(reply, "make", make_into(kSomePieces, {Destination(memory)}), 600s);
  REQUIRE(link.until([&] { return link.a().endpoint().counters().reads == 1; }));
  link.a().cancel(ticket);
  link.a().cancel(ticket);
  sim.freeze_b(link.pair);
  sim.pass(1s);
  CHECK(!reply.done());
  sim.thaw_b(link.pair);
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().code() == Code::kCancelled);
  CHECK(reply.status().maybe_executed());
  std::fill(memory.begin(), memory.end(), std::byte{1});
  link.check_quiet();
  sim.pass(5s);
  CHECK(all_are(memory, std::byte{1}));
  CHECK(link.a().endpoint().counters().reads == 1);
  CHECK(reply.calls == 1);
}

TEST_CASE("a deadline that passes while the reply is read ends the call so, too") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  ByteVector memory(kSomePieces);
  Reply reply;
  link.begin(reply, "make", make_into(kSomePieces, {Destination(memory)}), 2s);
  REQUIRE(link.until([&] { return link.a().endpoint().counters().reads == 1; }));
  sim.freeze_b(link.pair);
  sim.pass(4s);
  CHECK(!reply.done());
  sim.thaw_b(link.pair);
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().code() == Code::kDeadlineExceeded);
  link.check_quiet();
}

TEST_CASE("a lost connection, or the end of the channel, ends a call that is read into its memory") {
  for (const bool cut : {true, false}) {
    SimFixture sim(kSeed);
    Pictures link(sim);
    ByteVector memory(kSomePieces);
    Reply reply;
    link.begin(reply, "make", make_into(kSomePieces, {Destination(memory)}));
    REQUIRE(link.until([&] { return link.a().endpoint().counters().reads == 1; }));
    if (cut) {
      sim.cut(link.pair);
      REQUIRE(link.until([&] { return reply.done(); }));
    } else {
      link.channels[0].reset();
      REQUIRE(reply.done());
    }
    CHECK(reply.status().code() == Code::kUnavailable);
    std::fill(memory.begin(), memory.end(), std::byte{1});
    sim.pass(5s);
    CHECK(all_are(memory, std::byte{1}));
  }
}

TEST_CASE("what is lent is kept until the peer has read it, or its connection is over") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  const auto lend = [](std::weak_ptr<ByteVector>& watched) {
    auto bytes = std::make_shared<ByteVector>(pattern(100'000));
    watched = bytes;
    return encode_attached_arguments(Attachment(*bytes, bytes));
  };
  std::weak_ptr<ByteVector> read, timed_out, lost;
  CHECK(link.ask("size", lend(read)).has_value());
  CHECK(read.expired());
  sim.freeze_b(link.pair);
  Reply reply;
  link.begin(reply, "size", lend(timed_out), 1s);
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().code() == Code::kDeadlineExceeded);
  sim.pass(5s);
  CHECK(!timed_out.expired());
  sim.thaw_b(link.pair);
  link.check_quiet();
  CHECK(timed_out.expired());
  sim.freeze_b(link.pair);
  Reply last;
  link.begin(last, "size", lend(lost));
  CHECK(!lost.expired());
  sim.cut(link.pair);
  REQUIRE(link.until([&] { return last.done(); }));
  REQUIRE(link.until([&] { return link.a().closed(); }));
  CHECK(lost.expired());
}

TEST_CASE("a cancel gives what was lent back after the piece that is being read") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  auto bytes = std::make_shared<ByteVector>(kSomePieces);
  const std::weak_ptr<ByteVector> watched = bytes;
  Reply reply;
  const Ticket ticket = link.begin(reply, "size", encode_attached_arguments(Attachment(*bytes, bytes)), 600s);
  bytes.reset();
  REQUIRE(link.until([&] { return link.b().endpoint().counters().reads == 1; }));
  link.a().cancel(ticket);
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().code() == Code::kCancelled);
  CHECK(!watched.expired());
  link.check_quiet();
  CHECK(watched.expired());
  CHECK(link.b().endpoint().counters().reads < 3);
}

TEST_CASE("what was received is held by whoever keeps it, and given up at once by who does not") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  auto back = link.get<Attachment>("make", 100'000);
  REQUIRE(back.has_value());
  Attachment kept = *back;
  back->release();
  CHECK(back->size() == 0);
  link.channels[0].reset();
  CHECK(same(kept.bytes(), pattern(100'000)));
}

TEST_CASE(
    "large memory reads zeros once it is given back, but not while others have it, nor what a call named") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  constexpr std::size_t kSize = 300'000;
  const ByteVector bytes = pattern(kSize);
  for (int i = 0; i < 3; ++i) {  // in memory that is kept, then in a block
    CAPTURE(i);
    auto received = link.get<Attachment>("make", kSize);
    REQUIRE(received.has_value());
    Attachment other = *received;
    received->discard();
    CHECK(same(other.bytes(), bytes));
    // Named once more, it is its owner's, whatever it lies in.
    const MutableBytes named{const_cast<std::byte*>(other.bytes().data()), kSize};
    other.release();
    auto again = link.ask("make", make_into(kSize, {Destination(named, std::make_shared<int>())}));
    REQUIRE_MESSAGE(again.has_value(), again.status().to_string());
    Attachment filled = again->attachments()[0];
    again->drop_attachments();
    filled.discard();
    CHECK(same(received->bytes(), bytes));
    // So is what its owner lends, even as bytes of no known memory.
    Attachment(received->bytes(), std::make_shared<int>()).discard();
    CHECK(same(received->bytes(), bytes));
    received->discard();
    CHECK(same(received->bytes(), ByteVector(kSize)));
  }
}

TEST_CASE("memory that is lent to a peer, which has not read it, is not given back") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  for (int i = 0; i < 3; ++i) {
    CAPTURE(i);
    auto received = link.get<Attachment>("make", 300'000);
    REQUIRE(received.has_value());
    sim.freeze_b(link.pair);
    Reply reply;
    link.begin(reply, "echo", encode_attached_arguments(*received));
    received->discard();
    sim.thaw_b(link.pair);
    REQUIRE(link.until([&] { return reply.done(); }));
    REQUIRE_MESSAGE(reply.value->has_value(), reply.status().to_string());
    CHECK(same((*reply.value)->attachments()[0].bytes(), pattern(300'000)));
  }
}

TEST_CASE("one attachment that is larger than all that is kept drives nothing out") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  REQUIRE(link.get<Attachment>("make", 100'000).has_value());
  const std::uint64_t kept = kept_received_bytes();
  CHECK(kept >= 100'000);
  { const Received large = make_received(rpc::limits::kReceivedKeptBytes + 1); }
  CHECK(kept_received_bytes() == kept);
}

TEST_CASE("memory that the peer may map is made for what was read before, one block a body, and used again") {
  SimFixture sim(kSeed);
  Pictures link(sim);
  const auto in_blocks = [](const std::vector<Attachment>& all) {
    return std::ranges::count_if(all, [](const Attachment& a) { return a.memory() != nullptr; });
  };
  const std::vector<Attachment> ones(3, Attachment(pattern(1 << 20)));
  // Nothing was read that was as large, then nothing that was as small.
  CHECK(in_blocks(link.must<Picture>("picture", Picture{"large", {Attachment(pattern(5 << 20))}}).layers) ==
        0);
  CHECK(in_blocks(link.must<Picture>("picture", Picture{"first", ones}).layers) == 0);
  const std::vector<Attachment> both = {Attachment(pattern(5 << 20)), Attachment(pattern(1 << 20))};
  CHECK(in_blocks(link.must<Picture>("picture", Picture{"both", both}).layers) == 1);
  std::vector<Attachment> kept;
  for (int i = 0; i < 3; ++i) {
    const Picture back = link.must<Picture>("picture", Picture{"again", ones});
    CHECK(in_blocks(back.layers) == 1);
    for (const Attachment& each : back.layers) kept.push_back(each);
  }
  kept.clear();
  CHECK(in_blocks(link.must<Picture>("picture", Picture{"idle", ones}).layers) == 3);
}

}  // namespace channel_attachments_test

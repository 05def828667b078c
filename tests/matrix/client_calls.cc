// Contents of calls: values, structs, metadata, traces; interceptors; durations.
#include <array>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rpc/tracing.h"
#include "tests/matrix/client.h"

namespace slime::matrix {
namespace {

void call_ints(Run& run) {
  using Limits = std::numeric_limits<std::int64_t>;
  std::vector<std::int64_t> values{Limits::min(), Limits::max(), -1, 0, 1};
  for (const int bits : {5, 7, 8, 15, 16, 31, 32, 62}) {
    const std::int64_t edge = std::int64_t{1} << bits;
    for (const std::int64_t delta : {-1, 0, 1}) {
      values.push_back(edge + delta);
      values.push_back(-edge + delta);
    }
  }
  for (const std::int64_t value : values)
    expect_equal(run.ask<std::int64_t>("echo_int", value), value, "an int");
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{0}})
    expect_equal(run.ask<std::uint64_t>("echo_uint", value), value, "an unsigned int");
  for (const bool value : {false, true}) expect_equal(run.ask<bool>("echo_bool", value), value, "a bool");
}

void call_floats(Run& run) {
  using Limits = std::numeric_limits<double>;
  for (const double value : {0.0, 1.5, -2.25, 0.1, Limits::max(), Limits::lowest(), Limits::min(),
                             Limits::denorm_min(), Limits::infinity(), -Limits::infinity()})
    expect_equal(run.ask<double>("echo_float", value), value, "a float");
  expect(std::signbit(run.ask<double>("echo_float", -0.0)), "minus zero keeps its sign");
  expect(std::isnan(run.ask<double>("echo_float", Limits::quiet_NaN())), "NaN is one");
}

void call_texts(Run& run) {
  using namespace std::string_literals;
  for (const std::string& text :
       {""s, "a"s, "in\0side"s, "gr\u00fc\u00dfe \u65e5\u672c \U0001f98e"s, std::string(31, 'x'),
        std::string(32, 'y'), std::string(256, 'z'), std::string(70'000, 'w')})
    expect_equal(run.ask<std::string>("echo_str", text), text, "a text");
}

void call_bytes(Run& run) {
  ByteVector all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<std::byte>(i));
  for (const std::size_t size : {0, 1, 255, 256, 5000}) {
    ByteVector bytes;
    while (bytes.size() < size) bytes.push_back(all[bytes.size() % all.size()]);
    expect_equal(run.ask<ByteVector>("echo_bytes", bytes), bytes, "bytes");
  }
}

void call_none(Run& run) {
  using Optional = std::optional<std::int64_t>;
  expect(!run.ask<Optional>("echo_optional", Optional()), "none stays none");
  expect(run.ask<Optional>("echo_optional", Optional(7)) == 7, "a value stays one");
  run.ask<void>("nothing");
}

void call_nested(Run& run) {
  using Nested = std::vector<std::map<std::string, std::vector<std::int64_t>>>;
  Nested nested;
  for (std::int64_t i = 0; i < 100; ++i)
    nested.push_back({{"", {}}, {"odd", {i, -i, i * i}}, {str("key ", i), std::vector<std::int64_t>(20, i)}});
  expect_equal(run.ask<Nested>("echo_nested", nested), nested, "a list of maps of lists");
  expect(run.ask<Nested>("echo_nested", Nested()).empty(), "an empty list");
  const std::map<std::int64_t, std::string> numbered{{-1, "a"}, {0, ""}, {1'000'000, "b"}};
  using Numbered = std::map<std::int64_t, std::string>;
  expect_equal(run.ask<Numbered>("echo_numbered", numbered), numbered, "a map by number");
}

void call_kinds(Run& run) {
  const auto kinds = run.ask<std::vector<std::string>>(
      "kinds", std::optional<int>(), true, 5, -5, 1.0, std::string("text"), ByteVector(3),
      std::vector<int>{1}, std::map<std::string, int>{{"a", 1}});
  const std::vector<std::string> expected{"none", "bool",  "int",  "int", "float",
                                          "str",  "bytes", "list", "map"};
  expect_equal(kinds, expected, "the kinds of values");
}

// The server's Point with its fields in another order, and with an additional field.
struct Place3 {
  std::string name;
  std::map<std::string, std::int64_t> tags;
  double z = 0;
  double y = 0;
  double x = 0;
  MSGPACK_DEFINE_MAP(name, tags, z, y, x)
};
struct Point {
  double x = 0;
  double y = 0;
  std::string name;
  std::map<std::string, std::int64_t> tags;
  MSGPACK_DEFINE_MAP(x, y, name, tags)
};

void call_struct(Run& run) {
  const auto point = run.ask<Point>("mirror", Place3{"here", {{"n", 3}}, 9, 2.5, -1});
  expect_equal(point.x, 2.5, "x");
  expect_equal(point.y, -1.0, "y");
  expect_equal(point.name, "here'", "name");
  expect(point.tags == std::map<std::string, std::int64_t>{{"n", 3}}, "tags");
}

void metadata(Run& run) {
  using Optional = std::optional<std::string>;
  const Peer peer = run.peer.with_metadata("token", "s\u00e9cret").with_metadata("empty", "");
  const auto get = [&](Peer at, const std::string& key) {
    return take(at.call<Optional>("Matrix", "metadata", key).wait(kSoon), "metadata");
  };
  expect(get(peer, "token") == "s\u00e9cret", "a text comes as it was sent");
  expect(get(peer, "empty") == "", "so does an empty one");
  expect(!get(peer, "other"), "what was not sent is not there");
  expect(!get(run.peer, "token"), "nor in the call of a peer without");
}

void metadata_limit(Run& run) {
  Peer large = run.peer.with_metadata("much", std::string(4097, 'x'));
  const auto refused = large.call<std::int64_t>("Matrix", "bump", run.key).wait(kSoon);
  expect(!error_of(refused, Code::kResourceExhausted, "too much metadata").maybe_executed(), "not executed");
  expect_equal(run.ask<std::int64_t>("count", run.key), 0, "executions");
}

void signature(Run& run) {
  const rpc::Method<std::int64_t(std::int64_t, std::int64_t)> add("Matrix", "add");
  expect_equal(take(run.peer.call(add, 1, 2).wait(kSoon), "add"), 3, "the sum");
  const rpc::Method<std::int64_t(std::int64_t)> bump("Matrix", "bump");
  const auto refused = run.peer.call(bump, 1).wait(kSoon);
  const Status error = error_of(refused, Code::kUnimplemented, "a method that is another one");
  for (const std::string_view part : {"called as (int) -> int", "Matrix.bump is (str) -> int here"})
    expect(error.text().find(part) != std::string_view::npos, str(part, " in ", error.text()));
  expect(!error.maybe_executed(), "not executed");
  expect_equal(run.ask<std::int64_t>("count", run.key), 0, "executions");
}

void trace(Run& run) {
  const std::string parent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01";
  const std::string seen =
      take(run.peer.with_metadata("traceparent", parent).call<std::string>("Matrix", "trace").wait(kSoon));
  expect_equal(seen.substr(0, 36), parent.substr(0, 36), "the trace");
  expect(seen.size() == 55 && seen.substr(36, 16) != parent.substr(36, 16), "with a span of its own");
  run.agent->add_interceptor(rpc::client_tracing());
  const auto context = rpc::TraceContext::create();
  const rpc::TraceScope scope(context);
  expect_equal(run.ask<std::string>("trace").substr(0, 36), context.traceparent().substr(0, 36),
               "the current trace");
}

void interceptors_server(Run& run) {
  Peer watched = run.peer.with_metadata("watch", run.key);
  const auto stamp = watched.call<std::optional<std::string>>("Matrix", "metadata", "stamp").wait(kSoon);
  expect(take(stamp) == "by the server", "the handler sees what an interceptor added");
  expect_code(watched.call<void>("Matrix", "fail", 10, "x").wait(kSoon), Code::kAborted, "fail");
  const auto refused =
      watched.with_metadata("refuse", "").call<std::int64_t>("Matrix", "bump", run.key).wait(kSoon);
  expect(!error_of(refused, Code::kPermissionDenied, "a refused call").maybe_executed(), "not executed");
  expect_equal(run.ask<std::int64_t>("count", run.key), 0, "executions");
  const std::vector<std::string> expected{"before metadata", "after metadata ok", "before fail",
                                          "after fail aborted"};
  expect_equal(run.ask<std::vector<std::string>>("notes", run.key), expected,
               "what the server's interceptor saw");
}

class Recorder final : public rpc::ClientInterceptor {
 public:
  Status before(rpc::ClientCall& call) override {
    if (call.method == "add") return {Code::kUnauthenticated, "not this one"};
    return call.metadata.set("stamp", "by the client");
  }
  void after(const rpc::ClientCall& call, const Status& outcome, const rpc::CallTiming&) override {
    const std::lock_guard lock(mutex_);
    seen_.push_back(str(call.service, ".", call.method, " ", code_name(outcome.code())));
    changed_.notify_all();
  }
  std::vector<std::string> await(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSoon, [&] { return seen_.size() >= count; });
    return seen_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> seen_;
};

void interceptors_client(Run& run) {
  const auto recorder = std::make_shared<Recorder>();
  run.agent->add_interceptor(recorder);
  expect(run.ask<std::optional<std::string>>("metadata", "stamp") == "by the client",
         "what it added travels");
  expect_code(run.peer.call<void>("Matrix", "fail", 10, "x").wait(kSoon), Code::kAborted, "fail");
  expect_code(run.peer.call<std::int64_t>("Matrix", "add", 1, 2).wait(kSoon), Code::kUnauthenticated,
              "what it refuses");
  const std::vector<std::string> expected{"Matrix.metadata ok", "Matrix.fail aborted"};
  expect_equal(recorder->await(2), expected, "what it saw");
}

void timing(Run& run) {
  const auto timing = std::make_shared<rpc::CallTiming>();
  take(run.peer.with_timing(timing).call<void>("Matrix", "take_ms", 20).wait(kSoon));
  expect(timing->split, "the server told its part");
  expect(timing->handler >= std::chrono::milliseconds(19), "the handler's time");
  expect_equal((timing->queue + timing->handler + timing->network).count(), timing->total.count(), "the sum");
  expect(timing->queue.count() >= 0 && timing->network.count() >= 0, "no part is negative");
}

constexpr std::array kCallFeatures{
    Feature{"call_ints", call_ints},
    Feature{"call_floats", call_floats},
    Feature{"call_texts", call_texts},
    Feature{"call_bytes", call_bytes},
    Feature{"call_none", call_none},
    Feature{"call_nested", call_nested},
    Feature{"call_kinds", call_kinds},
    Feature{"call_struct", call_struct},
    Feature{"metadata", metadata},
    Feature{"metadata_limit", metadata_limit},
    Feature{"signature", signature},
    Feature{"trace", trace},
    Feature{"interceptors_server", interceptors_server},
    Feature{"interceptors_client", interceptors_client},
    Feature{"timing", timing},
};

}  // namespace

std::span<const Feature> call_features() { return kCallFeatures; }

}  // namespace slime::matrix

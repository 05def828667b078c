// Calls that end without a plain answer: errors, deadlines, cancelling; calls without replies.
#include <array>
#include <string>
#include <vector>

#include "tests/matrix/client.h"
#include "tests/support/eventually.h"

namespace slime::matrix {
namespace {

using std::chrono::milliseconds;

void error_codes(Run& run) {
  for (int number = 1; number < kCodeCount; ++number) {
    const std::string text = str("t\u00e9xt of ", number);
    const auto failed = run.peer.call<void>("Matrix", "fail", number, text).wait(kSoon);
    const Status status = error_of(failed, static_cast<Code>(number), "its code");
    expect(status.text().find(text) != std::string::npos, str("the text: ", status.text()));
    expect(status.maybe_executed(), "the handler ran");
  }
}

void error_thrown(Run& run) {
  const auto failed = run.peer.call<void>("Matrix", "throws", "of all things").wait(kSoon);
  const Status status = error_of(failed, Code::kInternal, "what throws");
  expect(status.text().find("of all things") != std::string::npos, str("the text: ", status.text()));
  expect(status.maybe_executed(), "it ran");
  expect_equal(run.ask<std::int64_t>("add", 1, 2), 3, "the next call");
}

void error_unknown(Run& run) {
  for (const auto& [service, method] : {std::pair("Matrix", "nowhere"), std::pair("Nobody", "add")}) {
    const auto failed = run.peer.call<void>(service, method, 1).wait(kSoon);
    const Status status = error_of(failed, Code::kNotFound, "what is not there");
    expect(!status.maybe_executed(), "not executed");
    const std::string_view missing = std::string_view(service) == "Matrix" ? method : service;
    expect(status.text().find(missing) != std::string::npos, str("names it: ", status.text()));
  }
}

void error_arguments(Run& run) {
  const auto refused = [](const auto& result, std::string_view what) {
    expect(!error_of(result, Code::kInvalidArgument, what).maybe_executed(), "not executed");
  };
  refused(run.peer.call<std::int64_t>("Matrix", "add", 1).wait(kSoon), "one too few");
  refused(run.peer.call<std::int64_t>("Matrix", "add", 1, 2, 3).wait(kSoon), "one too many");
  refused(run.peer.raw().call("Matrix", "add", rpc::encode_value(5)).wait(kSoon), "no array");
  refused(run.peer.raw().call("Matrix", "add", ByteVector{std::byte{0xc1}}).wait(kSoon), "no msgpack");
  expect_equal(run.ask<std::int64_t>("add", 1, 2), 3, "the next call");
}

void deadline_expires(Run& run) {
  take(run.peer.connect().wait(kSoon), "connect");  // connecting counts towards the deadline
  const Nanos timeout = test::patient(milliseconds(30));
  auto late = run.peer.with_timeout(timeout).call<void>("Matrix", "wait_cancel", run.key);
  const auto ended = late.wait(kSoon);
  expect(error_of(ended, Code::kDeadlineExceeded, "a call that takes too long").maybe_executed(),
         "it may have run");
  expect_equal(run.ask<std::int64_t>("add", 1, 2), 3, "the next call");
}

void deadline_travels(Run& run) {
  const auto left = [&](Nanos timeout) {
    return take(run.peer.with_timeout(timeout).call<std::int64_t>("Matrix", "left_ms").wait(kSoon));
  };
  const std::int64_t minute = left(std::chrono::seconds(60));
  expect(minute > 30'000 && minute <= 60'000, str("of a minute are left: ", minute, " ms"));
  const std::int64_t hour = left(std::chrono::hours(1));
  expect(hour > 3'500'000 && hour <= 3'600'000, str("of an hour are left: ", hour, " ms"));
}

void deadline_drops_queued(Run& run) {
  Peer small = run.start_small(1, 8);
  auto enter = small.call<void>("Small", "enter", run.key);
  run.await_count(str("entered:", run.key), 1);
  const auto late =
      small.with_timeout(milliseconds(30)).call<void>("Small", "mark", run.key, "late").wait(kSoon);
  expect_code(late, Code::kDeadlineExceeded, "what waits behind it");
  // The call has arrived (this reply came after it), and its deadline has passed by the server's
  // clock, too.
  take(small.call<std::string>("slime.Health", "check", "").wait(kSoon), "health");
  run.ask<void>("take_ms", 40);
  run.ask<void>("open", run.key);
  take(enter.wait(kSoon), "enter");
  take(small.call<void>("Small", "mark", run.key, "next").wait(kSoon), "the next call");
  expect_equal(run.ask<std::vector<std::string>>("notes", run.key), std::vector<std::string>{"next"},
               "what ran");
}

void cancel(Run& run) {
  auto call = run.peer.call<void>("Matrix", "wait_cancel", run.key);
  run.await_count(str("waiting:", run.key), 1);
  call.cancel();
  expect_code(call.wait(kSoon), Code::kCancelled, "a call that was cancelled");
  run.await_count(str("cancelled:", run.key), 1);
  expect_equal(run.ask<std::int64_t>("add", 1, 2), 3, "the next call");
}

void cancel_by_disconnect(Run& run) {
  auto other = run.start();
  auto call = run.peer_of(*other).call<void>("Matrix", "wait_cancel", run.key);
  run.await_count(str("waiting:", run.key), 1);
  other->close(milliseconds(1)).ignore();  // aborts its call
  expect(!call.wait(kSoon).has_value(), "the call ends with its agent");
  run.await_count(str("cancelled:", run.key), 1);
}

void one_way(Run& run) {
  for (int i = 0; i < 10; ++i) take(run.peer.one_way("Matrix", "bump", run.key).wait(kSoon), "one_way");
  run.await_count(run.key, 10);
  expect_equal(counter(run.peer, "one_way_failed"), 0, "failures");
}

void one_way_failure(Run& run) {
  take(run.peer.one_way("Matrix", "bump_and_fail", run.key).wait(kSoon), "it has left");
  take(run.peer.one_way("Matrix", "nowhere").wait(kSoon), "it has left");
  run.await_count(run.key, 1);
  expect(test::eventually([&] { return counter(run.peer, "one_way_failed") == 2; }),
         "both failures are counted");
}

constexpr std::array kEndingFeatures{
    Feature{"error_codes", error_codes},
    Feature{"error_thrown", error_thrown},
    Feature{"error_unknown", error_unknown},
    Feature{"error_arguments", error_arguments},
    Feature{"deadline_expires", deadline_expires},
    Feature{"deadline_travels", deadline_travels},
    Feature{"deadline_drops_queued", deadline_drops_queued},
    Feature{"cancel", cancel},
    Feature{"cancel_by_disconnect", cancel_by_disconnect},
    Feature{"one_way", one_way},
    Feature{"one_way_failure", one_way_failure},
};

}  // namespace

std::span<const Feature> ending_features() { return kEndingFeatures; }

}  // namespace slime::matrix

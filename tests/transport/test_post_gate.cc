// Which posts an endpoint takes, and when refused ones may be tried again, without an endpoint.
#include <doctest/doctest.h>

#include "transport/endpoint/post_gate.h"

namespace slime::transport::testing {
namespace {

struct Gated {
  const int device = 0;
  const PostChecks checks{&device, 7, "worker:7"};
  EndpointLife life{EndpointLife::State::kOpen};
  SendCredits credits{2};
  PostGate gate{checks, life, credits};
};

}  // namespace

TEST_CASE("posts are taken while the endpoint is open and has room") {
  Gated end;
  CHECK(end.gate.refusal(0).ok());
  CHECK(end.gate.messages(0) == 2);
  CHECK(end.gate.messages(limits::kMaxOperations - 1) == 1);
  CHECK(end.gate.refusal(limits::kMaxOperations - 1).ok());
  CHECK_FALSE(end.gate.wants_room());
  CHECK(end.gate.refusal(limits::kMaxOperations).code() == Code::kResourceExhausted);
  CHECK(end.gate.wants_room());
  CHECK_FALSE(end.gate.has_room(limits::kMaxOperations));
}

TEST_CASE("an endpoint that closes or broke takes no post, and says why") {
  Gated end;
  SUBCASE("closed here") {
    REQUIRE(end.life.close(TimePoint{}));
    CHECK(end.gate.refusal(0).code() == Code::kCancelled);
  }
  SUBCASE("broken") {
    REQUIRE(end.life.break_with(Status(Code::kCorrupt, "first")));
    CHECK(end.gate.refusal(0).code() == Code::kCorrupt);
    CHECK(end.gate.closed().text() == "first");
  }
  CHECK_FALSE(end.gate.has_room(0));
  CHECK(end.gate.messages(0) == 0);
  CHECK_FALSE(end.gate.wants_room());
}

TEST_CASE("a refused post may be tried again once, when there is room or the credits are free") {
  Gated end;
  CHECK_FALSE(end.gate.reopen(false));
  end.gate.want_room();
  CHECK(end.gate.reopen(false));
  CHECK_FALSE(end.gate.reopen(false));
  end.credits.use();
  end.credits.use();
  CHECK(end.gate.refuse_for_credit(0).code() == Code::kResourceExhausted);
  CHECK_FALSE(end.gate.reopen(end.credits.wanted_are_free()));
  REQUIRE(end.credits.raise(3) == SendCredits::Raise::kRaised);
  CHECK(end.gate.reopen(end.credits.wanted_are_free()));
  CHECK(end.credits.wanted() == 0);
}

TEST_CASE("room that comes before the credits leaves the wish for credits") {
  Gated end;
  end.credits.use();
  end.credits.use();
  end.gate.want_room();
  end.gate.refuse_for_credit(0).ignore();
  CHECK(end.gate.reopen(end.credits.wanted_are_free()));
  CHECK(end.credits.wanted() == 1);
}

}  // namespace slime::transport::testing

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/endpoint/credit_ledger.h"
#include "transport/endpoint/life.h"
#include "transport/endpoint/post_checks.h"

namespace slime::transport {

// Accepts or refuses the posts of an endpoint. Remembers refusals, so that the receiver can be told
// when to try again. Thread: the loop.
class PostGate {
 public:
  // Borrows all three.
  PostGate(const PostChecks& checks, const EndpointLife& life, SendCredits& credits)
      : checks_(checks), life_(life), credits_(credits) {}

  // Returns OK if the endpoint takes a post while `in_flight` operations are in flight, else the
  // reason why not.
  Status refusal(std::size_t in_flight) { return has_room(in_flight) ? Status() : explain(); }
  // Returns the error of posts to an endpoint that is closed or broken.
  [[nodiscard]] Status closed() const { return life_.error().ok() ? checks_.closed_here() : life_.error(); }
  // Returns the error of a post that was refused because no more than `reserve` credits are free,
  // and remembers the refusal.
  Status refuse_for_credit(std::uint64_t reserve) {
    credits_.want(reserve);
    return checks_.no_credit();
  }
  // Remembers that a post was refused because too many operations were in flight or queues were
  // full.
  void want_room() { wants_room_ = true; }
  [[nodiscard]] bool wants_room() const { return wants_room_; }

  // Returns whether the endpoint takes a post while `in_flight` operations are in flight.
  [[nodiscard]] bool has_room(std::size_t in_flight) const {
    return life_.takes_posts() && in_flight < limits::kMaxOperations;
  }
  // Returns how many messages the endpoint would accept now.
  [[nodiscard]] std::uint64_t messages(std::size_t in_flight) const {
    if (!life_.takes_posts()) return 0;
    return std::min<std::uint64_t>(credits_.free(), limits::kMaxOperations - in_flight);
  }
  // Returns true if refused posts may be tried again now, and forgets the refusals. Call while the
  // endpoint has room. `credit`: the credits that refused posts needed are free.
  bool reopen(bool credit) {
    if (!wants_room_ && !credit) return false;
    wants_room_ = false;
    if (credit) credits_.forget_wanted();
    return true;
  }

 private:
  Status explain() {
    if (!life_.takes_posts()) return closed();
    wants_room_ = true;
    return checks_.too_many();
  }

  const PostChecks& checks_;
  const EndpointLife& life_;
  SendCredits& credits_;
  bool wants_room_ = false;
};

}  // namespace slime::transport

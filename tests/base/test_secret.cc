#include <doctest/doctest.h>

#include <utility>

#include "base/secret.h"

namespace slime {
namespace {

TEST_CASE("secrets are compared, copied and moved as their bytes are, and random ones differ") {
  const Secret one(as_bytes("one"));
  Secret same = one;
  CHECK(same == one);
  CHECK_FALSE(one == Secret(as_bytes("two")));
  CHECK_FALSE(one == Secret(as_bytes("one and more")));
  const Secret moved = std::move(same);
  CHECK(moved == one);
  same = Secret(as_bytes("again"));
  CHECK(as_text(same.bytes()) == "again");
  CHECK(Secret().empty());
  CHECK(Secret::from_hex("6f6e65", 3) == one);
  CHECK_FALSE(Secret::from_hex("6f6e65", 4));
  CHECK_FALSE(Secret::from_hex("6f6e6z", 3));
  CHECK(Secret::random(32).size() == 32);
  CHECK_FALSE(Secret::random(32) == Secret::random(32));
}

}  // namespace
}  // namespace slime

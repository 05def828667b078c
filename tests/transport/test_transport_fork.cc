#include <doctest/doctest.h>
#include <openssl/evp.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/str.h"
#include "tests/support/forked.h"
#include "tests/support/settings.h"
#include "tests/transport/handshake_sides.h"

namespace slime::transport::testing {

TEST_CASE("a child of fork() proves a token, whatever other threads of its parent were asking OpenSSL for") {
  std::atomic<bool> stop{false};
  std::thread fetcher([&stop] {
    // OpenSSL holds a lock while it looks up a query that is new to it. Each query here is new.
    for (unsigned i = 0; !stop; ++i)
      ::EVP_MAC_free(::EVP_MAC_fetch(nullptr, "HMAC", str("?number=", i).c_str()));
  });
  const int children = slime::test::scaled(200);
  int good = 0;
  int tried = 0;
  for (; tried < children && good == tried; ++tried) {
    good += slime::test::forked([] {
      Sides s = sides(config("a", 1, "secret"), config("b", 2, "secret"));
      run(s.a, s.b);
      return s.a.state() == State::kDone && s.b.state() == State::kDone;
    });
  }
  stop = true;
  fetcher.join();
  CHECK(good == children);
}

}  // namespace slime::transport::testing

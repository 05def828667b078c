// Tests nanoctrl's front without free descriptors. A separate program, because the limit is per
// process.
#include <doctest/doctest.h>
#include <poll.h>
#include <time.h>

#include "ctrl/http/front.h"
#include "tests/ctrl/raw_http.h"
#include "tests/support/descriptors.h"

namespace slime::ctrl {
namespace {

ApiReply empty_object(const ApiRequest&) {
  ApiReply out;
  out.status = 200;
  out.body = "{}";
  return out;
}

FrontOptions options() {
  FrontOptions out;
  out.host = "127.0.0.1";
  out.threads = 1;
  out.limits.connections = 8;
  return out;
}

// Returns the processor time of this process.
Nanos cpu_time() {
  timespec now{};
  REQUIRE(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  return std::chrono::seconds(now.tv_sec) + Nanos(now.tv_nsec);
}

}  // namespace

TEST_CASE("a front that finds no descriptor is an error, and is made later") {
  int failed = 0;
  for (int spare = 0; spare < 6; ++spare) {
    CAPTURE(spare);
    const slime::test::FewDescriptors few(spare);
    const auto front = Front::bind(options(), &empty_object);
    if (front) continue;
    ++failed;
    const Code code = front.status().code();
    CHECK_MESSAGE((code == Code::kResourceExhausted || code == Code::kUnavailable),
                  front.status().to_string());
  }
  CHECK(failed >= 3);  // listener, epoll, mailbox
  CHECK(Front::bind(options(), &empty_object).has_value());
}

TEST_CASE(
    "a front without descriptors leaves connections in the backlog, without spinning, and takes them later") {
  auto front = Front::bind(options(), &empty_object);
  REQUIRE_MESSAGE(front.has_value(), front.status().to_string());
  (*front)->start();
  UniqueFd waiting(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = test::loopback((*front)->port());
  const std::string request = test::get("/", "Connection: close\r\n");
  pollfd answered{waiting.get(), POLLIN, 0};
  {
    const slime::test::FewDescriptors none(0);
    REQUIRE(::connect(waiting.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    REQUIRE(::send(waiting.get(), request.data(), request.size(), 0) == static_cast<ssize_t>(request.size()));
    const Nanos before = cpu_time();
    CHECK(::poll(&answered, 1, 1000) == 0);
    const Nanos used = cpu_time() - before;
    MESSAGE("used ", std::chrono::duration_cast<std::chrono::milliseconds>(used).count(), " ms in a second");
    CHECK(used < std::chrono::milliseconds(100));
  }
  REQUIRE(::poll(&answered, 1, 20'000) == 1);
  std::array<char, 12> begin{};
  REQUIRE(::recv(waiting.get(), begin.data(), begin.size(), MSG_WAITALL) == 12);
  CHECK(std::string_view(begin.data(), begin.size()) == "HTTP/1.1 200");
}

}  // namespace slime::ctrl

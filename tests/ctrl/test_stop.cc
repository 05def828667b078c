#include <poll.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tests/ctrl/nanoctrl.h"
#include "tests/ctrl/raw_http.h"

// SIGTERM, as service managers send it, to a busy nanoctrl.
namespace slime::ctrl {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using slime::test::patient;
using test::get;
using test::has;
using test::Nanoctrl;
using test::RawConnection;

std::string register_at(std::uint16_t port, std::string_view instance) {
  return test::post(
      "/v1/peers", str(R"({"name":"a","instance":")", instance, R"(","address":"127.0.0.1:)", port, R"("})"));
}

// The address of a peer that accepts probes and never answers.
class SilentPeer {
 public:
  SilentPeer() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = test::loopback(0);
    socklen_t size = sizeof at;
    REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at), size) == 0);
    REQUIRE(::listen(fd_.get(), 8) == 0);
    REQUIRE(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port = ntohs(at.sin_port);
  }
  void wait_until_asked() {
    pollfd entry{fd_.get(), POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 30000) == 1);
  }
  std::uint16_t port = 0;

 private:
  UniqueFd fd_;
};

TEST_CASE("SIGTERM answers what is under way and what waits, closes idle connections, and is a success") {
  Nanoctrl nanoctrl("memory");
  SilentPeer holder;
  RawConnection idle(nanoctrl.port());
  idle.send(register_at(holder.port, "00000000000000000000000000000001"));
  REQUIRE(idle.read_reply().starts_with("HTTP/1.1 200"));

  const std::unique_ptr<Client> client = nanoctrl.client();
  const Result<ServerStatus> before = client->server_status();
  REQUIRE(before);
  const std::string watch = get(str("/v1/watch?scope=quiet&wait_ms=30000&since=", before->server_epoch));
  std::vector<std::unique_ptr<RawConnection>> watches;
  for (int i = 0; i < 20; ++i) {
    watches.push_back(std::make_unique<RawConnection>(nanoctrl.port()));
    watches.back()->send(watch);
  }
  REQUIRE(eventually([&] {
    const Result<ServerStatus> status = client->server_status();
    return status && status->watchers == 20;
  }));
  RawConnection under_way(nanoctrl.port());
  under_way.send(register_at(holder.port, "00000000000000000000000000000002"));
  holder.wait_until_asked();

  REQUIRE(nanoctrl.process().terminate().ok());
  CHECK(under_way.read_reply().starts_with("HTTP/1.1 409"));
  for (const auto& one : watches) {
    const std::string answer = one->read_all();
    CHECK(answer.starts_with("HTTP/1.1 503"));
    CHECK(has(answer, "nanoctrl is shutting down"));
  }
  CHECK(idle.closed());
  const Result<slime::test::ExitState> exit = nanoctrl.process().wait(patient(30s));
  REQUIRE(exit);
  CHECK(exit->success());
}

TEST_CASE("SIGTERM waits neither for an incomplete request nor for a reply that the client does not take") {
  Nanoctrl nanoctrl("memory");
  RawConnection half(nanoctrl.port());
  half.send("POST /v1/peers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  RawConnection deaf(nanoctrl.port());
  std::string requests;
  for (int i = 0; i < 2000; ++i) requests += get("/metrics");
  deaf.send(requests);
  REQUIRE(nanoctrl.process().terminate().ok());
  const Result<slime::test::ExitState> exit = nanoctrl.process().wait(patient(30s));
  REQUIRE(exit);
  CHECK(exit->success());
}

}  // namespace
}  // namespace slime::ctrl

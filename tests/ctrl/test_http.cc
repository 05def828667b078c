#include <doctest/doctest.h>

#include <utility>

#include "base/probe.h"
#include "base/str.h"
#include "ctrl/api/prober.h"
#include "ctrl/server.h"
#include "tests/ctrl/fake_agent.h"
#include "tests/ctrl/raw_http.h"
#include "tests/ctrl/samples.h"

namespace slime::ctrl::http_test {
namespace {

using namespace std::chrono_literals;

using Fixture = test::HttpServer;
using test::enroll;
using test::FakeAgent;
using test::get;
using test::has;
using test::loopback;
using test::post;
using test::RawConnection;

TEST_CASE("replies are sent as they are, whatever compression their reader knows") {
  Fixture f;
  RawConnection connection(f.server->port());
  for (const char* known : {"gzip, deflate, br, zstd", "br", "gzip", "*"}) {
    CAPTURE(known);
    REQUIRE(connection.send(get("/v1/peers", str("Accept-Encoding: ", known, "\r\n"))));
    const std::string reply = connection.read_reply();
    CHECK(!has(reply, "Content-Encoding"));
    CHECK(has(reply, "\"peers\":[]"));
  }
}

TEST_CASE("every refusal has the one shape of an error") {
  Fixture f;
  const std::string tail = " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
  struct Case {
    std::string request;
    std::string_view status;
  };
  std::string many_headers;
  while (many_headers.size() < limits::kHeaderBytes)
    many_headers += str("A: ", std::string(1000, 'x'), "\r\n");
  const Case cases[] = {
      {"nonsense\r\n\r\n", "400"},
      {"FOO /v1/peers" + tail + "\r\n", "405"},
      {"GET /" + std::string(3000, 'x') + tail + "\r\n", "414"},
      {"GET /" + std::string(9000, 'x') + tail + "\r\n", "414"},
      {"GET /nothing" + tail + "\r\n", "404"},
      {"PATCH /v1/peers" + tail + "Content-Length: 0\r\n\r\n", "405"},
      {"OPTIONS /v1/peers" + tail + "\r\n", "405"},
      {"POST /v1/peers" + tail + "Content-Length: 2\r\n\r\n{}", "415"},
      {"POST /v1/peers" + tail + "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", "400"},
      {"POST /v1/peers" + tail + "Content-Type: application/json\r\nContent-Length: 9999999999\r\n\r\n{",
       "413"},
      {"POST /v1/peers" + tail +
           "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: "
           "40\r\n\r\n--x\r\nContent-Disposition: "
           "form-data; name=\"a\"",
       "415"},
      {"GET /healthz" + tail + str("A: ", std::string(9000, 'x'), "\r\n\r\n"), "431"},
      {"GET /healthz" + tail + many_headers + "\r\n", "431"},
      {"GET /healthz HTTP/2.0\r\n\r\n", "400"},
      {"GET /healthz HTTP/1.1\nHost: localhost\n\n", "400"},
      {"GET /healthz" + tail + "A: b\r\n folded\r\n\r\n", "400"},
      {"GET /healthz" + tail + "Content-Length : 1\r\n\r\n", "400"},
      {"POST /v1/peers" + tail + "Content-Length: +1\r\n\r\n", "400"},
      {"POST /v1/peers" + tail + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "400"},
      {"POST /v1/peers" + tail + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
      {"POST /v1/peers" + tail + "Transfer-Encoding: chunked\r\n\r\n", "411"},
      {"GET /healthz" + tail + "Authorization: a\r\nAuthorization: b\r\n\r\n", "400"},
      {"GET /healthz" + tail + "Content-Type: a\r\nContent-Type: b\r\n\r\n", "400"},
      {"GET /healthz" + tail + "Slime-Session: a\r\nSlime-Session: b\r\n\r\n", "400"},
      {"\x16\x03\x01", "400"},
      // The HELLO of an agent begins like a method. The agent waits for an answer, so refuse at
      // once.
      {std::string("SLHS\1\0", 6), "400"},
      {std::string(40, 'A'), "400"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.request.substr(0, 60));
    const std::string answer = f.exchange(c.request);
    CHECK_MESSAGE(answer.starts_with(str("HTTP/1.1 ", c.status)), answer.substr(0, 100));
    CHECK(has(answer, "\"code\":"));
    CHECK(has(answer, "\"message\":"));
  }
}

TEST_CASE("a body that goes on after its refusal is cut off") {
  Fixture f;
  RawConnection connection(f.server->port());
  connection.send(
      "POST /v1/peers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = str("10000\r\n", std::string(0x10000, ' '), "\r\n");
  // Far more than the sockets' buffers hold before the close is noticed.
  constexpr std::size_t kMuch = 16 * limits::kBodyBytes;
  bool open = true;
  for (std::size_t sent = 0; open && sent < kMuch; sent += 0x10000) open = connection.send(chunk);
  CHECK_FALSE(open);
}

TEST_CASE("a client that sends all of a body that is too large can still read the refusal") {
  Fixture f;
  const std::string answer = f.exchange(post("/v1/peers", std::string(limits::kBodyBytes + 1, ' ')));
  CHECK(answer.starts_with("HTTP/1.1 413"));
  CHECK(has(answer, "Connection: close"));
}

TEST_CASE("a connection serves one request after another, and those that were sent ahead in their order") {
  Fixture f;
  RawConnection connection(f.server->port());
  connection.send(get("/healthz"));
  CHECK(connection.read_reply().starts_with("HTTP/1.1 200"));
  connection.send(enroll("a") + get("/v1/peers/a") + get("/v1/peers/b") + "\r\n" + get("/healthz"));
  CHECK(has(connection.read_reply(), "\"incarnation\""));
  CHECK(has(connection.read_reply(), "\"name\":\"a\""));
  CHECK(connection.read_reply().starts_with("HTTP/1.1 404"));
  CHECK(has(connection.read_reply(), "\"ok\""));
}

TEST_CASE("a request may come in single bytes") {
  Fixture f;
  RawConnection connection(f.server->port());
  for (const char c : enroll("a")) CHECK(connection.send({&c, 1}));
  CHECK(connection.read_reply().starts_with("HTTP/1.1 200"));
}

TEST_CASE("HEAD is answered like GET without the body, refusals too") {
  Fixture f;
  RawConnection connection(f.server->port());
  connection.send("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + get("/healthz") +
                  "HEAD /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string head = connection.read_reply(true);
  CHECK(head.starts_with("HTTP/1.1 200"));
  CHECK(has(head, "Content-Length: 15"));
  CHECK(has(connection.read_reply(), "\r\n\r\n{\"status\":\"ok\"}"));
  const std::string refusal = connection.read_all();
  CHECK(refusal.starts_with("HTTP/1.1 411"));
  CHECK(refusal.ends_with("\r\n\r\n"));
}

TEST_CASE("a sender that waits for a word before the body gets it; one that does not wait is spared it") {
  Fixture f;
  RawConnection connection(f.server->port());
  const std::string request = enroll("a");
  const std::string header = request.substr(0, request.find("\r\n\r\n")) + "\r\nExpect: 100-continue\r\n\r\n";
  const std::string body = request.substr(request.find("\r\n\r\n") + 4);
  connection.send(header);
  CHECK(connection.read_reply() == "HTTP/1.1 100 Continue\r\n\r\n");
  connection.send(body);
  CHECK(connection.read_reply().starts_with("HTTP/1.1 200"));
  connection.send(header + body);
  CHECK(connection.read_reply().starts_with("HTTP/1.1 200"));
}

TEST_CASE("a sender that says that it is done still gets its answers") {
  Fixture f;
  RawConnection connection(f.server->port());
  connection.send(get("/healthz") + get("/v1/status"));
  connection.finish();
  const std::string answers = connection.read_all();
  CHECK(has(answers, "\"ok\""));
  CHECK(has(answers, "\"watchers\""));
}

TEST_CASE("HTTP/1.0 is closed after its answer, if it does not ask to stay") {
  Fixture f;
  const std::string closed = f.exchange("GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n");
  CHECK(closed.starts_with("HTTP/1.1 200"));
  CHECK(has(closed, "Connection: close"));
  RawConnection connection(f.server->port());
  for (int i = 0; i < 2; ++i) {
    connection.send("GET /healthz HTTP/1.0\r\nHost: localhost\r\nConnection: Keep-Alive\r\n\r\n");
    const std::string kept = connection.read_reply();
    CHECK(kept.starts_with("HTTP/1.1 200"));
    CHECK(has(kept, "Connection: keep-alive"));
  }
}

TEST_CASE("Connection is a list, in which a word may end the connection") {
  Fixture f;
  const std::string answer = f.exchange(get("/healthz", "Connection: x, CLOSE\r\n"));
  CHECK(answer.starts_with("HTTP/1.1 200"));
  CHECK(has(answer, "Connection: close"));
}

TEST_CASE("a DELETE without a body does not wait for one") {
  Fixture f;
  const std::string answer =
      f.exchange("DELETE /v1/peers/a?incarnation=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  CHECK(answer.starts_with("HTTP/1.1 404"));
}

TEST_CASE("two sessions in the header of a request are refused") {
  Fixture f;
  const std::string session = str("Slime-Session: ", test::kSession, "\r\n");
  const std::string line = "DELETE /v1/peers/a?incarnation=1 HTTP/1.1\r\nHost: localhost\r\n";
  CHECK(f.exchange(line + session + test::kClose + "\r\n").starts_with("HTTP/1.1 404"));
  CHECK(f.exchange(line + session + session + test::kClose + "\r\n").starts_with("HTTP/1.1 400"));
}

TEST_CASE("a name with slashes is one part of the path") {
  Fixture f;
  const std::string body =
      R"({"name":"ns/w","instance":"00000000000000000000000000000001","address":"127.0.0.1:1"})";
  const std::string tail = " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
  CHECK(f.exchange(str("POST /v1/peers", tail,
                       "Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n", body))
            .starts_with("HTTP/1.1 200"));
  CHECK(f.exchange("GET /v1/peers/ns%2Fw" + tail + "\r\n").starts_with("HTTP/1.1 200"));
  CHECK(f.exchange("GET /v1/peers/ns/w" + tail + "\r\n").starts_with("HTTP/1.1 404"));
}

TEST_CASE("a second server on a port is refused, not half of one") {
  Fixture f;
  ServerOptions options;
  options.port = f.server->port();
  const Result<std::unique_ptr<Server>> second = Server::bind(options);
  REQUIRE_FALSE(second);
  CHECK(second.error().code() == Code::kUnavailable);
  CHECK(has(second.error().text(), std::to_string(options.port)));
}

TEST_CASE("a non-loopback address needs a flag or tokens") {
  ServerOptions options;
  options.host = "0.0.0.0";
  options.port = 0;
  const auto start = [&] {
    Result<std::unique_ptr<Server>> bound = Server::bind(options);
    REQUIRE(bound);
    return (*bound)->start();
  };
  CHECK(start().code() == Code::kPermissionDenied);
  CHECK(has(start().text(), "--insecure"));
  options.insecure = true;
  CHECK(start().ok());
  options.insecure = false;
  options.api.admin_token = make_token(Role::kAdmin, "*", "", 0, 0).record;
  for (const bool insecure : {false, true}) {
    // Where there are tokens, --insecure does not allow sending them unencrypted.
    options.insecure = insecure;
    CHECK(start().code() == Code::kPermissionDenied);
    for (const char* way : {"--tls-cert", "--tls-key", "--insecure-plaintext"})
      CHECK(has(start().text(), way));
  }
  options.insecure_plaintext = true;
  CHECK(start().ok());
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) CHECK(is_loopback(host));
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org", "128.0.0.1"})
    CHECK_FALSE(is_loopback(host));
}

TEST_CASE("a server that was bound and never started, or stopped twice, goes away quietly") {
  ServerOptions options;
  options.port = 0;
  Result<std::unique_ptr<Server>> server = Server::bind(options);
  REQUIRE(server);
  (*server)->stop();
  (*server)->stop();
}

TEST_CASE("the probe tells same, gone and silent apart") {
  const InstanceId id = test::instance(5);
  {
    FakeAgent same(std::string("SLP1\x01", 5));
    CHECK(probe_instance(same.address, id, 10s) == ProbeResult::kSame);
    same.join();
    CHECK(same.request.magic == kProbeMagic);
    CHECK(same.request.instance == id.bytes);
  }
  FakeAgent other(std::string("SLP1\x00", 5));
  CHECK(probe_instance(other.address, id, 10s) == ProbeResult::kGone);
  FakeAgent stranger("HTTP/1.1 400 Bad Request\r\n");
  CHECK(probe_instance(stranger.address, id, 10s) == ProbeResult::kSilent);
  FakeAgent cut("SL");
  CHECK(probe_instance(cut.address, id, 10s) == ProbeResult::kSilent);
  const FakeAgent frozen("");
  CHECK(probe_instance(frozen.address, id, 20ms) == ProbeResult::kSilent);
  std::string closed;
  {
    const FakeAgent gone("");
    closed = gone.address;
  }
  CHECK(probe_instance(closed, id, 10s) == ProbeResult::kGone);
  CHECK(probe_instance("a-name.invalid:80", id, 10s) == ProbeResult::kSilent);
}

}  // namespace
}  // namespace slime::ctrl::http_test

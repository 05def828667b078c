#include <fstream>
#include <memory>
#include <thread>

#include "base/str.h"
#include "ctrl/client.h"
#include "tests/ctrl/certificates.h"
#include "tests/ctrl/raw_http.h"
#include "tests/ctrl/samples.h"
#include "tests/support/folder.h"
#include "tests/support/settings.h"

namespace slime::ctrl::tls_test {
namespace {

using namespace std::chrono_literals;
using test::get;
using test::has;
using test::HttpServer;
using test::RawConnection;
using test::registration;

// A CA of this test, and a server with a certificate of that CA.
struct Secure {
  explicit Secure(const char* names = "IP:127.0.0.1,DNS:localhost")
      : authority(test::make_identity("test authority", nullptr, nullptr)),
        identity(test::make_identity("nanoctrl", names, &authority)),
        ca_file(write_certificate(folder, "ca.pem", authority)) {
    options.tls = {write_certificate(folder, "server.pem", identity), write_key(folder, "key.pem", identity)};
  }
  [[nodiscard]] std::unique_ptr<Client> client(const std::string& url, const std::string& ca) const {
    Result<std::unique_ptr<Client>> made =
        Client::create({.url = url, .timeout = slime::test::patient(20s), .ca_file = ca});
    REQUIRE_MESSAGE(made, made.status().to_string());
    return std::move(*made);
  }
  slime::test::Folder folder;
  test::Identity authority;
  test::Identity identity;
  std::string ca_file;
  ServerOptions options = test::small_server();
};

TEST_CASE("a registry over https: requests, long lists, watches, a restart") {
  Secure s;
  auto f = std::make_unique<HttpServer>(s.options);
  const std::string url = f->server->url();
  CHECK(url.starts_with("https://"));
  const auto client = s.client(url, s.ca_file);
  Registration r = registration("a", 1);
  for (int k = 0; k < 31; ++k) r.metadata[str("key", k)] = std::string(1000, 'v');
  for (int i = 0; i < 40; ++i) {
    r.name = str("peer", i);
    const Result<Lease> lease = client->register_peer(r);
    REQUIRE_MESSAGE(lease, lease.status().to_string());
  }
  const Result<PeerList> list = client->list_peers();
  REQUIRE_MESSAGE(list, list.status().to_string());
  CHECK(list->peers.size() == 40);

  Result<Changes> changes = Status(Code::kInternal, "not run");
  std::thread watcher([&] { changes = client->watch("default", list->revision, 30s); });
  CHECK(f->has_watchers(1));
  CHECK(client->register_peer(registration("b", 2)));
  watcher.join();
  REQUIRE_MESSAGE(changes, changes.status().to_string());
  CHECK(changes->events.at(0).name == "b");

  s.options.port = f->server->port();
  f.reset();
  f = std::make_unique<HttpServer>(s.options);
  CHECK(client->server_status());
}

TEST_CASE("a server with a certificate of another CA, or for another name, is not trusted") {
  const Secure s;
  const Secure other;
  const Secure elsewhere("DNS:elsewhere.example");
  const HttpServer f(s.options);
  const HttpServer g(elsewhere.options);
  for (const Status& status : {s.client(f.server->url(), other.ca_file)->server_status().status(),
                               s.client(g.server->url(), elsewhere.ca_file)->server_status().status(),
                               s.client(f.server->url(), "")->server_status().status()}) {
    CHECK(status.code() == Code::kUnauthenticated);
    CHECK(has(status.text(), "certificate"));
  }
  const Status unnamed = s.client(f.server->url(), "")->server_status().status();
  CHECK(has(unnamed.text(), "name its CA file in ctrl_ca_file or $SLIME_CTRL_CA_FILE"));
}

TEST_CASE("http to a port of https, and https to one of http, say so") {
  const Secure s;
  const HttpServer secure(s.options);
  const HttpServer plain;
  const std::string answer = secure.exchange(get("/healthz"));
  CHECK(answer.starts_with("HTTP/1.1 400"));
  CHECK(has(answer, "https://"));
  const auto to_secure = s.client(str("http://127.0.0.1:", secure.server->port()), "");
  const Status status = to_secure->server_status().error();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(has(status.text(), "https://"));
  const auto to_plain = s.client(str("https://127.0.0.1:", plain.server->port()), s.ca_file);
  const Status refused = to_plain->server_status().error();
  CHECK(refused.code() == Code::kUnavailable);
  CHECK(has(refused.text(), "http there, not https"));
}

TEST_CASE("off loopback tokens are taken over TLS without another word") {
  Secure s;
  s.options.host = "0.0.0.0";
  s.options.api.require_token = true;
  s.options.api.admin_token = make_token(Role::kAdmin, "*", "", 0, 0).record;
  const HttpServer f(s.options);
  CHECK(f.server->url().starts_with("https://"));
}

TEST_CASE("half a handshake is closed after its time") {
  Secure s;
  s.options.limits.request_time = 100ms;
  const HttpServer f(s.options);
  RawConnection silent(f.server->port());
  RawConnection slow(f.server->port());
  slow.send("\x16\x03\x01");
  CHECK(slow.closed());
  CHECK(silent.closed());
}

TEST_CASE("files that do not make a server are refused, and the error names them") {
  const Secure s;
  const Secure other;
  const auto refused = [](TlsFiles files) {
    ServerOptions options = test::small_server();
    options.tls = std::move(files);
    const Status status = Server::bind(options).status();
    CHECK(status.code() == Code::kInvalidArgument);
    return status.text();
  };
  CHECK(has(refused({s.options.tls.certificate, ""}), "key file"));
  CHECK(has(refused({"", s.options.tls.key}), "certificate file"));
  CHECK(has(refused({s.folder.file("none.pem"), s.options.tls.key}), "none.pem"));
  CHECK(has(refused({s.options.tls.certificate, s.folder.file("none.pem")}), "none.pem"));
  CHECK(has(refused({s.options.tls.key, s.options.tls.key}), "cannot use the certificate file"));
  CHECK(has(refused({s.options.tls.certificate, other.options.tls.key}), other.options.tls.key));
}

TEST_CASE("a CA file that is none is refused") {
  const Secure s;
  const HttpServer f(s.options);
  const ClientOptions missing{.url = f.server->url(), .ca_file = s.folder.file("none.pem")};
  CHECK(missing.validate().code() == Code::kInvalidArgument);
  CHECK(has(missing.validate().text(), "none.pem"));
  const std::string empty = s.folder.file("empty.pem");
  std::ofstream(empty) << "nothing\n";
  const Status status = s.client(f.server->url(), empty)->server_status().error();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(has(status.text(), "empty.pem"));
}

}  // namespace
}  // namespace slime::ctrl::tls_test

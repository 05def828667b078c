// The store in Redis over TLS: verification by each side, and the error when it fails.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "ctrl/store/engine.h"
#include "tests/ctrl/certificates.h"
#include "tests/ctrl/redis_server.h"
#include "tests/ctrl/samples.h"
#include "tests/support/eventually.h"

namespace slime::ctrl::redis_tls_test {
namespace {

using namespace std::chrono_literals;
using test::Identity;
using test::RedisServer;

// The files of a Redis that requires client certificates, as it does by default, and those of a
// client.
struct Files {
  test::Folder folder;
  Identity authority = test::make_identity("authority", nullptr, nullptr);
  Identity server = test::make_identity("server", "IP:127.0.0.1", &authority);
  Identity client = test::make_identity("client", nullptr, &authority);
  std::string ca = test::write_certificate(folder, "ca.pem", authority);
  std::string certificate = test::write_certificate(folder, "server.pem", server);
  std::string key = test::write_key(folder, "server.key", server);
  std::string client_certificate = test::write_certificate(folder, "client.pem", client);
  std::string client_key = test::write_key(folder, "client.key", client);

  [[nodiscard]] std::vector<std::string> options() const {
    return {"--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", ca};
  }
  [[nodiscard]] std::string trust() const { return str("ca=", ca); }
  [[nodiscard]] std::string proof() const { return str("cert=", client_certificate, "&key=", client_key); }
};

Result<std::unique_ptr<Engine>> open(const std::string& url) {
  return open_engine(url, {.ttl = 60s, .epoch = 1}, steady_clock());
}

TEST_CASE("a registry in a Redis that speaks TLS and wants certificates is shared") {
  const Files files;
  const RedisServer server(files.options(), str(files.trust(), "&", files.proof()));
  const Result<std::unique_ptr<Engine>> a = open(server.url());
  REQUIRE_MESSAGE(a, a.status().to_string());
  const Result<std::unique_ptr<Engine>> b = open(server.url());
  REQUIRE_MESSAGE(b, b.status().to_string());
  const Outcome joined = (*a)->submit(RegisterCommand{test::registration("a", 1), 0, Proof::trusted()});
  REQUIRE_MESSAGE(joined.status.ok(), joined.status.to_string());
  CHECK(slime::test::eventually(
      [&] { return (*b)->read([](const Registry& registry) { return registry.peer_count(); }) == 1; }));
}

TEST_CASE("a Redis whose certificate is not trusted, or that does not trust us, is refused with the reason") {
  const Files files;
  const RedisServer server(files.options(), str(files.trust(), "&", files.proof()));
  const Identity other = test::make_identity("other", nullptr, nullptr);
  const std::string other_ca = test::write_certificate(files.folder, "other.pem", other);
  const auto error = [&](const std::string& host, const std::string& parameters) {
    return open(str("rediss://", host, ":", server.port(), "?", parameters)).status();
  };
  const auto says = [](const Status& status, Code code, std::string_view text) {
    CAPTURE(status.to_string());
    CHECK(status.code() == code);
    CHECK(status.text().find(text) != std::string::npos);
  };
  says(error("127.0.0.1", str("ca=", other_ca, "&", files.proof())), Code::kUnavailable, "its certificate: ");
  says(error("localhost", str(files.trust(), "&", files.proof())), Code::kUnavailable, "hostname mismatch");
  says(error("127.0.0.1", files.trust()), Code::kUnavailable, "may want a certificate from us");
  says(error("127.0.0.1", "ca=/nowhere"), Code::kInvalidArgument,
       "cannot use the CA file '/nowhere': No such file or directory");
  says(error("127.0.0.1", str(files.trust(), "&cert=/nowhere&key=/nowhere")), Code::kInvalidArgument,
       "cannot use the certificate file");
  says(error("127.0.0.1", str(files.trust(), "&cert=", files.client_certificate, "&key=", files.key)),
       Code::kInvalidArgument, "cannot use the key file");
  says(open(str("redis://127.0.0.1:", server.port())).status(), Code::kUnavailable, "");
  const RedisServer plain;
  says(open(str("rediss://127.0.0.1:", plain.port(), "?", files.trust())).status(), Code::kUnavailable,
       "no TLS with it");
}

TEST_CASE("a Redis with TLS that is killed and comes back is used again, once the files can be read, too") {
  const Files files;
  std::vector<std::string> options = files.options();
  options.insert(options.end(), test::kDurable.begin(), test::kDurable.end());
  RedisServer server(options, str(files.trust(), "&", files.proof()));
  const std::string certificate = files.folder.file("replaced.pem");
  std::filesystem::copy_file(files.client_certificate, certificate);
  const Result<std::unique_ptr<Engine>> engine =
      open(str("rediss://127.0.0.1:", server.port(), "?", files.trust(), "&cert=", certificate,
               "&key=", files.client_key));
  REQUIRE_MESSAGE(engine, engine.status().to_string());
  const auto join = [&](const std::string& name, std::uint8_t number) {
    return (*engine)->submit(RegisterCommand{test::registration(name, number), 0, Proof::trusted()}).status;
  };
  CHECK(join("a", 1).ok());
  server.kill();
  CHECK(slime::test::eventually([&] { return join("a", 1).code() == Code::kUnavailable; }));
  std::filesystem::remove(certificate);
  server.start();
  CHECK(slime::test::eventually([&] {
    const Status status = (*engine)->writable();
    return status.code() == Code::kUnavailable && status.text().find("certificate file") != std::string::npos;
  }));
  std::filesystem::copy_file(files.client_certificate, certificate);
  CHECK(slime::test::eventually([&] { return join("b", 2).ok(); }));
  CHECK((*engine)->read([](const Registry& registry) { return registry.peer_count(); }) == 2);
}

}  // namespace
}  // namespace slime::ctrl::redis_tls_test

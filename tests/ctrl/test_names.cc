#include "tests/ctrl/raw_http.h"

// The Host and Origin names that a nanoctrl accepts. While no token is needed, it accepts only
// names of its own machine. Otherwise a web page could resolve its own name to this machine (DNS
// rebinding), and its script would be an administrator.
namespace slime::ctrl::names_test {
namespace {

using test::has;
using test::HttpServer;
using test::RawConnection;

// Returns a request for the route, with these headers instead of a Host.
std::string request_of(const Route& route, std::string_view headers) {
  std::string path(route.path);
  for (std::size_t at = path.find('{'); at != std::string::npos; at = path.find('{'))
    path.replace(at, path.find('}') - at + 1, "x");
  const bool body = route.method == "POST" || route.method == "PUT";
  return str(route.method, " ", path, " HTTP/1.1\r\n", headers,
             body ? "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}" : "\r\n");
}

// Checks the status of each route's reply, over one connection each.
void every_route_answers(const HttpServer& server, std::string_view headers, std::string_view status) {
  for (const Route& route : all_routes()) {
    CAPTURE(route.method);
    CAPTURE(route.path);
    RawConnection connection(server.server->port());
    connection.send(request_of(route, headers));
    const std::string answer = connection.read_reply();
    CHECK_MESSAGE(answer.starts_with(str("HTTP/1.1 ", status)), answer);
  }
}

TEST_CASE("a server without tokens answers no request by a name that is not of its machine") {
  const HttpServer server;
  every_route_answers(server, "Host: evil.example\r\n", "403");
  every_route_answers(server, "Host: evil.example:4479\r\n", "403");
  every_route_answers(server, "Host: 127.0.0.1.evil.example\r\n", "403");
  every_route_answers(server, "Host: [::2]:4479\r\n", "403");
}

TEST_CASE("a server without tokens answers no page of another site") {
  const HttpServer server;
  every_route_answers(server, "Host: localhost\r\nOrigin: http://evil.example\r\n", "403");
  every_route_answers(server, "Host: localhost\r\nOrigin: https://localhost.evil.example\r\n", "403");
  every_route_answers(server, "Host: localhost\r\nOrigin: null\r\n", "403");
}

TEST_CASE("every request names the server, once") {
  const HttpServer server;
  every_route_answers(server, "", "400");
  every_route_answers(server, "Host: localhost\r\nHost: localhost\r\n", "400");
  every_route_answers(server, "Host: localhost\r\nOrigin: http://a\r\nOrigin: http://b\r\n", "400");
  CHECK(server.exchange("GET /healthz HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 400"));
}

TEST_CASE("by any name of its machine, and for its pages, a server without tokens answers") {
  const HttpServer server;
  for (const std::string_view headers :
       {"Host: localhost\r\n", "Host: LocalHost:4479\r\n", "Host: 127.0.0.1\r\n", "Host: 127.1.2.3:80\r\n",
        "Host: [::1]:4479\r\n", "Host: localhost\r\nOrigin: http://localhost:4479\r\n",
        "Host: localhost\r\nOrigin: https://127.0.0.1\r\n",
        "Host: localhost\r\nOrigin: http://[::1]:80\r\n"}) {
    CAPTURE(headers);
    RawConnection connection(server.server->port());
    connection.send(str("GET /v1/peers HTTP/1.1\r\n", headers, "\r\n"));
    CHECK(connection.read_reply().starts_with("HTTP/1.1 200"));
  }
}

TEST_CASE("where tokens are needed a server answers by any name") {
  ServerOptions options = test::small_server();
  const NewToken admin = make_token(Role::kAdmin, "*", "", 0, 0);
  options.api.admin_token = admin.record;
  const HttpServer server(options);
  const std::string headers =
      str("Host: nanoctrl.example\r\nOrigin: http://nanoctrl.example\r\nAuthorization: Bearer ", admin.text,
          "\r\n");
  RawConnection connection(server.server->port());
  connection.send(str("GET /v1/peers HTTP/1.1\r\n", headers, "\r\n"));
  CHECK(connection.read_reply().starts_with("HTTP/1.1 200"));
}

}  // namespace
}  // namespace slime::ctrl::names_test

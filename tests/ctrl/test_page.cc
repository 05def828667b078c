#include <doctest/doctest.h>

#include <algorithm>

#include "base/str.h"
#include "ctrl/api/api.h"
#include "ctrl/api/page.h"
#include "tests/ctrl/raw_http.h"

// The page for operators, as it is served. tests/page tests it in a browser.
namespace slime::ctrl::page_test {
namespace {

using test::has;
using test::RawConnection;

class Fixture {
 public:
  explicit Fixture(ApiOptions options = {})
      : api(std::move(options), std::make_unique<MemoryEngine>(RegistryOptions{}, clock), clock,
            [](const std::string&, const InstanceId&) { return ProbeResult::kSilent; }) {}

  ApiReply send(std::string_view method, std::string_view target) {
    return api.handle({.method = method, .target = target, .content_type = "", .body = ""});
  }
  ApiReply get(std::string_view target, std::string_view if_none_match = {}) {
    return api.handle(
        {.method = "GET", .target = target, .content_type = "", .body = "", .if_none_match = if_none_match});
  }
  ApiReply root(std::string_view accept) {
    return api.handle({.method = "GET", .target = "/", .content_type = "", .body = "", .accept = accept});
  }

  ManualClock clock;
  Api api;
};

std::string header(const ApiReply& reply, std::string_view name) {
  const auto it = std::find_if(reply.headers.begin(), reply.headers.end(),
                               [&](const auto& header) { return header.first == name; });
  return it == reply.headers.end() ? "" : it->second;
}

std::vector<std::string> targets() {
  std::vector<std::string> out{"/ui"};
  for (const PageFile& file : page_files()) {
    if (file.name != "index.html") out.push_back(str("/ui/", file.name));
  }
  return out;
}

TEST_CASE("every file of the page has its type, and headers that let nothing else in") {
  Fixture f;
  REQUIRE(targets().size() >= 3);
  for (const std::string& target : targets()) {
    CAPTURE(target);
    const ApiReply reply = f.get(target);
    CHECK(reply.status == 200);
    CHECK(!reply.body.empty());
    CHECK(header(reply, "Content-Security-Policy") ==
          "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
          "img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'");
    CHECK(header(reply, "X-Content-Type-Options") == "nosniff");
    CHECK(header(reply, "Referrer-Policy") == "no-referrer");
    CHECK(header(reply, "Cache-Control") == "no-cache");
    CHECK(header(reply, "ETag").size() > 2);
  }
  CHECK(f.get("/ui").content_type == "text/html; charset=utf-8");
  CHECK(f.get("/ui/page.css").content_type == "text/css; charset=utf-8");
  CHECK(f.get("/ui/page.js").content_type == "text/javascript; charset=utf-8");
}

TEST_CASE("the page is whole: it names the files that there are, and no other host") {
  Fixture f;
  const std::string html = f.get("/ui").body;
  CHECK(html.starts_with("<!doctype html>"));
  CHECK(html.ends_with("</html>\n"));
  CHECK(has(html, "href=\"ui/page.css\""));
  CHECK(has(html, "src=\"ui/page.js\""));
  for (const std::string& target : targets()) {
    CAPTURE(target);
    const std::string body = f.get(target).body;
    CHECK(!has(body, "https://"));
    CHECK(!has(body, "innerHTML"));
    CHECK(!has(body, "style=\""));
  }
}

TEST_CASE("the page needs no token, and what it shows does") {
  Fixture f({.require_token = true});
  for (const std::string& target : targets()) CHECK(f.get(target).status == 200);
  CHECK(f.root("text/html").status == 302);
  CHECK(f.get("/v1/peers").status == 401);
  CHECK(f.get("/v1/status").status == 401);
}

TEST_CASE("a file that the browser has is not sent again") {
  Fixture f;
  const std::string etag = header(f.get("/ui/page.js"), "ETag");
  const std::string known[] = {etag, str("W/", etag), str("\"x\", ", etag), "*"};
  for (const std::string& tags : known) {
    CAPTURE(tags);
    const ApiReply reply = f.get("/ui/page.js", tags);
    CHECK(reply.status == 304);
    CHECK(reply.body.empty());
    CHECK(header(reply, "ETag") == etag);
    CHECK(!header(reply, "Content-Security-Policy").empty());
  }
  CHECK(f.get("/ui/page.js", "\"another\"").status == 200);
  CHECK(f.get("/ui/page.css", etag).status == 200);
}

TEST_CASE("what is no file of the page is 404, and other methods are 405") {
  Fixture f;
  for (const char* target :
       {"/ui/nothing.js", "/ui/index.html", "/ui/page.js/", "/ui/..%2Fpage.js", "/ui//", "/UI"}) {
    CAPTURE(target);
    CHECK(f.get(target).status == 404);
  }
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH"}) {
    CAPTURE(method);
    const ApiReply reply = f.send(method, "/ui/page.js");
    CHECK(reply.status == 405);
    CHECK(reply.allow == "GET");
  }
  CHECK(f.send("HEAD", "/ui").status == 200);
}

TEST_CASE("browsers that ask for the root are sent to the page, programs are not") {
  Fixture f;
  for (const char* accept : {"text/html", "text/html,application/xhtml+xml,*/*;q=0.8",
                             "*/*, Text/HTML ; q=0.9", "text/plain;q=0.5,text/html"}) {
    CAPTURE(accept);
    const ApiReply reply = f.root(accept);
    CHECK(reply.status == 302);
    CHECK(header(reply, "Location") == "/ui");
  }
  for (const char* accept : {"", "*/*", "application/json", "text/html;q=0", "text/html;q=0.2,text/plain",
                             "text/html;q=0.000", "text/htmlx", "text/*", ";,;q=,text/plain"}) {
    CAPTURE(accept);
    const ApiReply reply = f.root(accept);
    CHECK(reply.status == 200);
    CHECK(reply.body == "nanoctrl is running\n");
  }
  const ApiReply slash = f.get("/ui/");
  CHECK(slash.status == 302);
  CHECK(header(slash, "Location") == "/ui");
}

TEST_CASE("over HTTP: the headers arrive, HEAD has no body, and 304 is believed") {
  test::HttpServer f;
  RawConnection connection(f.server->port());
  REQUIRE(connection.send("HEAD /ui/page.css HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  const std::string head = connection.read_reply(true);
  CHECK(head.starts_with("HTTP/1.1 200 "));
  CHECK(has(head, "X-Content-Type-Options: nosniff\r\n"));
  const std::size_t begin = head.find("ETag: ") + 6;
  const std::string etag = head.substr(begin, head.find("\r\n", begin) - begin);
  REQUIRE(connection.send(
      str("GET /ui/page.css HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: ", etag, "\r\n\r\n")));
  const std::string known = connection.read_reply();
  CHECK(known.starts_with("HTTP/1.1 304 "));
  CHECK(has(known, str("ETag: ", etag)));
  // The connection stays open.
  REQUIRE(connection.send("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n"));
  const std::string moved = connection.read_reply();
  CHECK(moved.starts_with("HTTP/1.1 302 "));
  CHECK(has(moved, "Location: /ui\r\n"));
  REQUIRE(connection.send("GET /ui HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  CHECK(has(connection.read_reply(), "</html>\n"));
}

}  // namespace
}  // namespace slime::ctrl::page_test

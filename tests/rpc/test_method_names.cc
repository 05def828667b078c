#include <doctest/doctest.h>

#include <string>

#include "rpc/channel/method_names.h"
#include "rpc/limits.h"
#include "tests/support/bytes.h"

using namespace slime;
using namespace slime::rpc;

namespace {

PeerMethod* found_method(MethodNames& names, std::string_view service, std::string_view method) {
  PeerMethod* found = nullptr;
  const Status status = names.find(service, method, found);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  return found;
}

// A request that names its method, and perhaps a signature.
struct NamedRequest {
  NamedRequest(std::string_view service, std::string_view method, std::uint64_t signature = 0)
      : text(wire::encode_names(service, method)) {
    if (signature != 0) ByteWriter(text).write(signature);
    frame.header.type = wire::FrameType::kRequest;
    frame.text = text;
    frame.service = service;
    frame.method = method;
  }
  ByteVector text;
  wire::Frame frame;
};

wire::Frame numbered_request(std::uint32_t id) {
  wire::Frame frame;
  frame.header.type = wire::FrameType::kRequest;
  frame.header.method = id;
  return frame;
}

void serve_one(Server& server) {
  Service service("s");
  REQUIRE(service.add("one", [] { return 1; }, {Run::kInline}).ok());
  REQUIRE(server.add(service).ok());
}

}  // namespace

TEST_CASE("a method of the peer is found again, also by the number that the peer gave it") {
  MethodNames names("peer", nullptr);
  PeerMethod* const first = found_method(names, "s", "first");
  PeerMethod* const second = found_method(names, "s", "second");
  REQUIRE(first != second);
  CHECK(found_method(names, "s", "first") == first);
  CHECK(names.numbered(0) == nullptr);
  CHECK(names.numbered(7) == nullptr);
  second->id = 7;
  CHECK(names.numbered(7) == second);
  CHECK(found_method(names, "s", "second")->id == 7);
}

TEST_CASE("names that are none are refused, and more methods than the limit are not kept") {
  MethodNames names("peer", nullptr);
  PeerMethod* found = nullptr;
  CHECK(names.find("", "m", found).code() == Code::kInvalidArgument);
  CHECK(names.find("s", "a\nb", found).code() == Code::kInvalidArgument);
  for (std::size_t i = 0; i < rpc::limits::kMaxMethods; ++i)
    REQUIRE(found_method(names, "s", std::to_string(i)) != nullptr);
  CHECK(found_method(names, "s", "one more") == nullptr);
  CHECK(found_method(names, "s", "0") != nullptr);
}

TEST_CASE("callers with a signature have numbers of their own, for a bounded number of signatures") {
  MethodNames names("peer", nullptr);
  PeerMethod& method = *found_method(names, "s", "m");
  PeerMethod* const one = MethodNames::find_by_signature(method, 1);
  PeerMethod* const two = MethodNames::find_by_signature(method, 2);
  REQUIRE(one != two);
  CHECK(one->method == "m");
  CHECK(one->signature == 1);
  CHECK(MethodNames::find_by_signature(method, 1) == one);
  two->id = 5;
  CHECK(names.numbered(5) == two);
  for (std::uint64_t i = 3; i <= rpc::limits::kSignatures; ++i)
    REQUIRE(MethodNames::find_by_signature(method, i) != nullptr);
  CHECK(MethodNames::find_by_signature(method, rpc::limits::kSignatures + 1) == nullptr);
}

TEST_CASE("a served method gets a number with its first request, which stands for its names") {
  Server server;
  serve_one(server);
  MethodNames names("peer", &server);
  ServedMethod unnumbered;
  std::uint32_t id = 0;
  const NamedRequest request("s", "one");
  const auto named = names.identify(request.frame, unnumbered, id);
  REQUIRE(named.has_value());
  CHECK(id == 1);
  CHECK((*named)->names->peer == "peer");
  CHECK((*named)->names->method == "one");
  std::uint32_t again = 0;
  CHECK(*names.identify(request.frame, unnumbered, again) == *named);
  CHECK(again == 1);
  std::uint32_t unchanged = 0;
  CHECK(*names.identify(numbered_request(1), unnumbered, unchanged) == *named);
  CHECK(unchanged == 0);
}

TEST_CASE("a method that is not served has no number; a number or a name that is none is corrupt") {
  Server server;
  serve_one(server);
  MethodNames names("peer", &server);
  ServedMethod unnumbered;
  std::uint32_t id = 0;
  const NamedRequest unknown("s", "two");
  const auto found = names.identify(unknown.frame, unnumbered, id);
  REQUIRE(found.has_value());
  CHECK(*found == &unnumbered);
  CHECK(unnumbered.names->method == "two");
  CHECK(id == 0);
  CHECK(names.identify(numbered_request(1), unnumbered, id).status().code() == Code::kCorrupt);
  const NamedRequest bad("", "one");
  CHECK(names.identify(bad.frame, unnumbered, id).status().code() == Code::kCorrupt);
}

TEST_CASE("a request with another signature than its method's gets no number") {
  Server server;
  serve_one(server);
  MethodNames names("peer", &server);
  ServedMethod unnumbered;
  std::uint32_t id = 0;
  const NamedRequest wrong("s", "one", 12345);
  CHECK(names.identify(wrong.frame, unnumbered, id).status().code() == Code::kUnimplemented);
  CHECK(id == 0);
}

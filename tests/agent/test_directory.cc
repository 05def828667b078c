#include <doctest/doctest.h>

#include "agent/limits.h"
#include "agent/registry/directory.h"
#include "base/str.h"

namespace slime::agent {
namespace {

ctrl::Event event(ctrl::EventKind kind, std::uint64_t incarnation, const char* address) {
  ctrl::Event out;
  out.kind = kind;
  out.name = "worker:0";
  out.incarnation = incarnation;
  out.address = address;
  return out;
}

TEST_CASE("a new owner of a known name replaces the old one, an older owner does not") {
  Directory directory;
  directory.remember("worker:0", {"a:1", {}, 5});
  directory.apply(event(ctrl::EventKind::kRegistered, 6, "b:2"));
  CHECK(directory.find("worker:0")->address == "b:2");
  directory.apply(event(ctrl::EventKind::kRegistered, 5, "a:1"));
  CHECK(directory.find("worker:0")->address == "b:2");
}

TEST_CASE("the end of an earlier owner leaves the present one") {
  Directory directory;
  directory.remember("worker:0", {"b:2", {}, 6});
  directory.apply(event(ctrl::EventKind::kExpired, 5, "a:1"));
  CHECK(directory.find("worker:0").has_value());
  directory.apply(event(ctrl::EventKind::kDeregistered, 6, "b:2"));
  CHECK_FALSE(directory.find("worker:0").has_value());
}

TEST_CASE("changes of names that were not looked up are not kept") {
  Directory directory;
  directory.apply(event(ctrl::EventKind::kRegistered, 6, "b:2"));
  CHECK(directory.size() == 0);
}

TEST_CASE("the directory does not grow without end") {
  Directory directory;
  for (std::size_t i = 0; i < 2 * limits::kRememberedPeers; ++i)
    directory.remember(str("w", i), {"a:1", {}, 1});
  CHECK(directory.size() == limits::kRememberedPeers);
}

}  // namespace
}  // namespace slime::agent

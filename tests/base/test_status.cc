#include <doctest/doctest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

#include "base/result.h"
#include "base/status.h"

using slime::Code;
using slime::Result;
using slime::Status;

TEST_CASE("a default status is OK and says nothing") {
  const Status ok;
  CHECK(ok.ok());
  CHECK(static_cast<bool>(ok));
  CHECK(ok.code() == Code::kOk);
  CHECK(ok.text().empty());
  CHECK_FALSE(ok.maybe_executed());
  CHECK(ok.to_string() == "ok");
}

TEST_CASE("a status made with kOk is OK whatever its text") {
  const Status ok(Code::kOk, "nothing to see");
  CHECK(ok.ok());
  CHECK(ok.text().empty());
}

TEST_CASE("a failure keeps its code, text and flag through copies and moves") {
  Status original = Status(Code::kUnavailable, "worker:0 is gone").with_maybe_executed(true);
  Status copy = original;
  CHECK(copy.code() == Code::kUnavailable);
  CHECK(copy.text() == "worker:0 is gone");
  CHECK(copy.maybe_executed());

  copy = Status();
  CHECK(copy.ok());
  CHECK_FALSE(original.ok());

  const Status moved = std::move(original);
  CHECK(moved.to_string() == "unavailable: worker:0 is gone");

  Status self(Code::kCorrupt, "bad frame");
  const Status& alias = self;
  self = alias;
  CHECK(self.text() == "bad frame");
}

TEST_CASE("context goes before the text and leaves OK alone") {
  CHECK(Status(Code::kNotFound, "no such peer").with_context("peers").text() == "peers: no such peer");
  CHECK(Status().with_context("peers").ok());
  CHECK_FALSE(Status().with_maybe_executed(true).maybe_executed());
}

TEST_CASE("every code has a name of its own") {
  std::set<std::string> names;
  for (std::uint8_t i = 0; i < slime::kCodeCount; ++i) {
    names.insert(std::string(slime::code_name(static_cast<Code>(i))));
  }
  CHECK(names.size() == slime::kCodeCount);
  CHECK(slime::code_name(Code::kDeadlineExceeded) == "deadline_exceeded");
  CHECK(slime::code_name(static_cast<Code>(200)) == "internal");
}

TEST_CASE("a number from the wire is always an error") {
  CHECK(slime::error_code_from_wire(0) == Code::kInternal);
  CHECK(slime::error_code_from_wire(slime::kCodeCount) == Code::kInternal);
  CHECK(slime::error_code_from_wire(255) == Code::kInternal);
  for (std::uint8_t i = 1; i < slime::kCodeCount; ++i) {
    CHECK(slime::error_code_from_wire(i) == static_cast<Code>(i));
  }
}

TEST_CASE("errno becomes what the caller should do next") {
  CHECK(slime::from_errno("connect", ECONNREFUSED).code() == Code::kUnavailable);
  CHECK(slime::from_errno("open", EMFILE).code() == Code::kResourceExhausted);
  CHECK(slime::from_errno("open", EACCES).code() == Code::kPermissionDenied);
  CHECK(slime::from_errno("open", ENOENT).code() == Code::kNotFound);
  CHECK(slime::from_errno("bind", EADDRINUSE).code() == Code::kAlreadyExists);
  CHECK(slime::from_errno("bind", EINVAL).code() == Code::kInvalidArgument);
  CHECK(slime::from_errno("odd", EXDEV).code() == Code::kInternal);
  CHECK(slime::from_errno("connect 127.0.0.1:1", ECONNREFUSED).text() ==
        "connect 127.0.0.1:1: Connection refused");
}

namespace {

Status fail_when(bool bad) {
  if (bad) return {Code::kInvalidArgument, "bad"};
  return {};
}

Result<int> half(int value) {
  SLIME_TRY(fail_when(value % 2 != 0));
  return value / 2;
}

}  // namespace

TEST_CASE("SLIME_TRY returns the failure and passes success on") {
  CHECK(*half(8) == 4);
  const Result<int> odd = half(7);
  REQUIRE_FALSE(odd.has_value());
  CHECK(odd.error().code() == Code::kInvalidArgument);
}

TEST_CASE("a result holds a value or an error, never both") {
  const Result<std::string> value(std::string("slab"));
  CHECK(value.has_value());
  CHECK(value->size() == 4);
  CHECK(value.status().ok());
  CHECK(value.value_or("other") == "slab");

  const Result<std::string> error(Status(Code::kNotFound, "no slab"));
  CHECK_FALSE(static_cast<bool>(error));
  CHECK(error.status().code() == Code::kNotFound);
  CHECK(error.value_or("other") == "other");
}

TEST_CASE("a result can hold what only moves") {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = *std::move(result);
  CHECK(*taken == 7);
}

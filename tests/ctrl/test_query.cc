// The parameters of one request, and the permissions of its sender.
#include <doctest/doctest.h>

#include "ctrl/api/query.h"
#include "ctrl/client.h"

namespace slime::ctrl::query_test {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

const Principal kJoinsA{"token-1", Role::kJoin, "a"};

TEST_CASE("a route that checks no permission answers an internal error") {
  Query query({}, kJoinsA);
  CHECK(query.finish().code() == Code::kInternal);
}

TEST_CASE("a scope is the default one unless it is named, and the sender must have the role in it") {
  Query own(Pairs{{"scope", "a"}}, kJoinsA);
  CHECK(own.scope(Role::kJoin) == "a");
  CHECK(own.finish().ok());

  Query fallback({}, kJoinsA);
  CHECK(fallback.scope(Role::kRead) == "default");
  CHECK(fallback.finish().code() == Code::kPermissionDenied);

  Query more(Pairs{{"scope", "a"}}, kJoinsA);
  more.scope(Role::kAdmin);
  CHECK(more.finish().code() == Code::kPermissionDenied);
}

TEST_CASE("a parameter that is not read, or that is there twice, is a problem") {
  Query unknown(Pairs{{"limit", "1"}}, kJoinsA);
  unknown.permit_all();
  CHECK(unknown.finish().text() == "unknown query parameter 'limit'");

  Query twice(Pairs{{"kind", "x"}, {"kind", "y"}}, kJoinsA);
  twice.permit_all();
  CHECK(twice.text("kind") == "x");
  CHECK(twice.finish().text() == "query parameter 'kind' appears twice");
}

TEST_CASE("a refusal comes before a problem, and the first problem is the one that is told") {
  Query query(Pairs{{"limit", "x"}, {"since", "y"}}, kJoinsA);
  query.permit(Role::kRead, "b");
  query.integer("limit", 10);
  CHECK(query.finish().code() == Code::kPermissionDenied);

  Query allowed(Pairs{{"limit", "x"}, {"since", "y"}}, kJoinsA);
  allowed.permit(Role::kRead, "a");
  allowed.integer("limit", 10);
  allowed.integer("since", 10);
  CHECK(allowed.finish().text() == "query parameter 'limit' is not an integer from 0 to 10");
}

TEST_CASE("an integer is digits alone, up to its largest value") {
  for (const char* text : {"", "-1", "1 ", "11", "0x1", "99999999999999999999"}) {
    CAPTURE(text);
    Query query(Pairs{{"limit", text}}, kJoinsA);
    query.permit_all();
    query.integer("limit", 10);
    CHECK(query.finish().code() == Code::kInvalidArgument);
  }
  Query query(Pairs{{"limit", "10"}}, kJoinsA);
  query.permit_all();
  CHECK(query.integer("limit", 10) == 10u);
  CHECK_FALSE(query.integer("since", 10).has_value());
  CHECK(query.finish().ok());
}

TEST_CASE("labels are pairs with commas between them") {
  Query query(Pairs{{"labels", "a=1,b=x=y"}, {"wrong", "a,b=1"}}, kJoinsA);
  query.permit_all();
  CHECK(query.labels("labels") == Labels{{"a", "1"}, {"b", "x=y"}});
  query.labels("wrong");
  CHECK(query.finish().text() == "query parameter 'wrong' is not like \"key=value,key=value\"");
}

TEST_CASE(
    "an administrator's request without a session is trusted, and on a server without tokens where any "
    "sender is") {
  const Secret session = new_session();
  const Query member({}, kJoinsA);
  CHECK(member.proof_or_admin({}, true).kind == Proof::Kind::kSession);
  CHECK(member.proof(session).owner.session_sha256 == session_sha256(session));
  CHECK(member.proof(session).owner.token_id == "token-1");

  const Principal admin{"token-2", Role::kAdmin, "a"};
  CHECK(Query({}, admin).proof_or_admin({}, false).kind == Proof::Kind::kTrusted);
  CHECK(Query({}, admin).proof_or_admin(session, false).kind == Proof::Kind::kSession);

  const Principal unidentified;
  CHECK(Query({}, unidentified).proof_or_admin({}, false).kind == Proof::Kind::kSession);
  CHECK(Query({}, unidentified).proof_or_admin({}, true).kind == Proof::Kind::kTrusted);
}

}  // namespace
}  // namespace slime::ctrl::query_test

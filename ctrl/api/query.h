#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ctrl/api/auth.h"
#include "ctrl/registry/registry.h"
#include "ctrl/types.h"

namespace slime::ctrl {

// The query parameters and the sender of one request. A repeated parameter is a problem. Keeps the
// first problem: a route reads all parameters, then checks finish(). Thread: one.
class Query {
 public:
  // `principal` outlives this.
  Query(std::vector<std::pair<std::string, std::string>> pairs, const Principal& principal)
      : pairs_(std::move(pairs)), principal_(principal) {}

  // Returns the value of the parameter "scope", and requires that the sender has the role `needed`
  // in that scope.
  std::string scope(Role needed);
  // Requires that the sender has the role `needed` in `scope`; "*": in all scopes. For requests
  // that name the scope elsewhere, such as in the body.
  void permit(Role needed, std::string_view scope);
  // Allows every sender that Access accepted.
  void permit_all() { checked_ = true; }
  [[nodiscard]] const Principal& principal() const { return principal_; }

  // Sets the name of the peer that the request concerns, for the log. For requests whose path does
  // not contain the name.
  void about(std::string_view peer) { peer_ = peer; }
  [[nodiscard]] const std::string& scope_asked() const { return scope_; }
  [[nodiscard]] const std::string& peer_asked() const { return peer_; }

  // Returns the proof that the sender owns a record: the hash of `session`, which may be empty, and
  // the sender's token id.
  [[nodiscard]] Proof proof(const Secret& session) const;
  // Like proof(), but an administrator's request without a session gets a proof that is always
  // accepted. On a server that requires no tokens, every request without a session gets this proof,
  // but only with `without_tokens`.
  [[nodiscard]] Proof proof_or_admin(const Secret& session, bool without_tokens) const;

  // Returns the parameter's value; empty when absent. Keeps a reference to `key`, which must be a
  // literal.
  std::string text(std::string_view key);
  // Returns whether the parameter is present, with or without a value.
  [[nodiscard]] bool has(std::string_view key) const;
  std::string name(std::string_view key, std::string fallback);
  // "key=value,key=value"; a value has no comma.
  Labels labels(std::string_view key);
  std::optional<std::uint64_t> integer(std::string_view key, std::uint64_t max);
  // Records a problem with a parameter.
  void problem(std::string text);
  // Returns the first problem. A parameter that no function has read is a problem too. kInternal if
  // the route has not checked a permission.
  Status finish();

 private:
  std::vector<std::pair<std::string, std::string>> pairs_;
  std::set<std::string_view> known_;
  const Principal& principal_;
  bool checked_ = false;
  std::string scope_, peer_;
  Status denied_;
  Status status_;
};

}  // namespace slime::ctrl

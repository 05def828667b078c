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

// The query parameters and the sender of one request. Each parameter may appear once. Keeps the
// first problem: a route reads all parameters, then checks finish(). Thread: one.
class Query {
 public:
  // `principal` outlives this.
  Query(std::vector<std::pair<std::string, std::string>> pairs, const Principal& principal)
      : pairs_(std::move(pairs)), principal_(principal) {}

  // Returns the parameter "scope" and requires the role in that scope.
  std::string scope(Role needed);
  // Requires the role in a scope that the request names elsewhere; "*": in all scopes.
  void permit(Role needed, std::string_view scope);
  // Allows every sender that Access accepted.
  void permit_all() { checked_ = true; }
  [[nodiscard]] const Principal& principal() const { return principal_; }

  // Names the peer that the request is about, for the log, if the path does not.
  void about(std::string_view peer) { peer_ = peer; }
  [[nodiscard]] const std::string& scope_asked() const { return scope_; }
  [[nodiscard]] const std::string& peer_asked() const { return peer_; }

  // Returns the proof that the request may change a record: its session, which may be empty.
  [[nodiscard]] Proof proof(const Secret& session) const;
  // Like proof(), but trusts an administrator's request without a session. On a server without
  // tokens only if `without_tokens`.
  [[nodiscard]] Proof proof_or_admin(const Secret& session, bool without_tokens) const;

  // Returns the parameter's value; empty when absent. `key` is a literal.
  std::string text(std::string_view key);
  // Returns whether the parameter is present, also without a value.
  [[nodiscard]] bool has(std::string_view key) const;
  std::string name(std::string_view key, std::string fallback);
  // "key=value,key=value"; a value has no comma.
  Labels labels(std::string_view key);
  std::optional<std::uint64_t> integer(std::string_view key, std::uint64_t max);
  // Records a problem with a parameter.
  void problem(std::string text);
  // Returns the first problem. A parameter that was not read is a problem; a route that checked no
  // permission is kInternal.
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

#include "ctrl/api/query.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/str.h"

namespace slime::ctrl {

std::string Query::scope(Role needed) {
  std::string value = name("scope", "default");
  permit(needed, value);
  return value;
}

void Query::permit(Role needed, std::string_view scope) {
  checked_ = true;
  scope_ = scope;
  if (Status status = principal_.may(needed, scope); denied_.ok()) denied_ = std::move(status);
}

Proof Query::proof(const Secret& session) const {
  return {Proof::Kind::kSession,
          {session.empty() ? std::string() : session_sha256(session), principal_.token_id}};
}

Proof Query::proof_or_admin(const Secret& session, bool without_tokens) const {
  Proof out = proof(session);
  const bool admin = principal_.role == Role::kAdmin && (without_tokens || !principal_.token_id.empty());
  if (session.empty() && admin) out.kind = Proof::Kind::kTrusted;
  return out;
}

std::string Query::text(std::string_view key) {
  known_.insert(key);
  const auto is_key = [key](const auto& pair) { return pair.first == key; };
  const auto it = std::find_if(pairs_.begin(), pairs_.end(), is_key);
  if (it == pairs_.end()) return {};
  if (std::find_if(std::next(it), pairs_.end(), is_key) != pairs_.end())
    problem(str("query parameter '", key, "' appears twice"));
  return it->second;
}

bool Query::has(std::string_view key) const {
  return std::any_of(pairs_.begin(), pairs_.end(), [key](const auto& pair) { return pair.first == key; });
}

std::string Query::name(std::string_view key, std::string fallback) {
  std::string value = text(key);
  if (value.empty() && !has(key)) return fallback;
  if (Status status = check_name(key, value); !status.ok()) problem(status.text());
  return value;
}

Labels Query::labels(std::string_view key) {
  Labels out;
  const std::string value = text(key);
  for (std::size_t from = 0; from < value.size();) {
    const std::size_t to = std::min(value.find(',', from), value.size());
    const std::size_t equals = value.find('=', from);
    if (equals >= to || equals == from) {
      problem(str("query parameter '", key, "' is not like \"key=value,key=value\""));
      return out;
    }
    out.insert_or_assign(value.substr(from, equals - from), value.substr(equals + 1, to - equals - 1));
    from = to + 1;
  }
  return out;
}

std::optional<std::uint64_t> Query::integer(std::string_view key, std::uint64_t max) {
  const std::string value = text(key);
  if (value.empty() && !has(key)) return std::nullopt;
  std::uint64_t out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (error != std::errc() || end != value.data() + value.size() || out > max)
    problem(str("query parameter '", key, "' is not an integer from 0 to ", max));
  return out;
}

void Query::problem(std::string text) {
  if (status_.ok()) status_ = Status(Code::kInvalidArgument, std::move(text));
}

Status Query::finish() {
  if (!checked_) return {Code::kInternal, "this route checks no permission"};
  if (!denied_.ok()) return std::move(denied_);
  for (const auto& [key, value] : pairs_) {
    if (!known_.contains(key)) problem(str("unknown query parameter '", key.substr(0, 64), "'"));
  }
  return std::move(status_);
}

}  // namespace slime::ctrl

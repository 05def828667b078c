#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/str.h"
#include "ctrl/api/api.h"
#include "ctrl/api/auth.h"
#include "ctrl/wire/wire.h"

// What the routes have in common. Private to api*.cc.
namespace slime::ctrl {

inline int http_status(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
    case Code::kUnimplemented:
      return 404;
    case Code::kAlreadyExists:
      return 409;
    case Code::kAborted:
      return 410;
    case Code::kResourceExhausted:
      return 429;
    case Code::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

inline std::string_view hint_for(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "fix the request; docs/nanoctrl-api.md has an example of each";
    case Code::kUnauthenticated:
      return "programs send the one in $SLIME_CTRL_TOKEN_FILE, others the header Authorization: Bearer "
             "TOKEN; nanoctrl token create makes one";
    case Code::kPermissionDenied:
      return "use another token, or the session of the registration";
    case Code::kNotFound:
      return "register again: the lease ran out, or nanoctrl restarted";
    case Code::kAborted:
      return "another instance owns the name now; use a different name";
    case Code::kResourceExhausted:
      return "a limit of this nanoctrl; remove what is not needed or use another one";
    default:
      return "";
  }
}

inline ApiReply reply_error(Status status, std::string_view hint) {
  return Api::error(http_status(status.code()), status.code(), status.text(), std::string(hint));
}
inline ApiReply reply_error(Status status) {
  const std::string_view hint = hint_for(status.code());
  return reply_error(std::move(status), hint);
}
inline ApiReply reply_ok(std::string body) { return {.status = 200, .body = std::move(body)}; }

inline ApiReply wrong_method(std::string_view method, std::string allowed) {
  ApiReply out = Api::error(405, Code::kUnimplemented, str(method, " is not possible here"),
                            str("this route has ", allowed));
  out.allow = std::move(allowed);
  return out;
}

inline ApiReply no_route() {
  return Api::error(404, Code::kUnimplemented, "there is no such route",
                    "docs/nanoctrl-api.md lists them; a '/' inside a name is written %2F");
}

// The query parameters of one request, each at most once, and who sends it. The first problem sticks.
class Api::Query {
 public:
  Query(std::vector<std::pair<std::string, std::string>> pairs, const Principal& principal)
      : pairs_(std::move(pairs)), principal_(principal) {}

  // The scope that the request is about, where its sender must be allowed that much.
  std::string scope(Role needed) {
    std::string value = name("scope", "default");
    permit(needed, value);
    return value;
  }
  // The same of a scope that is named elsewhere; "*": all.
  void permit(Role needed, std::string_view scope) {
    checked_ = true;
    scope_ = scope;
    if (Status status = principal_.may(needed, scope); denied_.ok()) denied_ = std::move(status);
  }
  // Which peer it is about, where the path does not say so.
  void about(std::string_view peer) { peer_ = peer; }
  // For the log.
  [[nodiscard]] const std::string& scope_asked() const { return scope_; }
  [[nodiscard]] const std::string& peer_asked() const { return peer_; }
  // Whoever has a token at all may.
  void permit_all() { checked_ = true; }
  [[nodiscard]] const Principal& principal() const { return principal_; }
  // By what right the request changes a record: the session that it has, or none.
  [[nodiscard]] Proof proof(const Secret& session) const {
    return {Proof::Kind::kSession,
            {session.empty() ? std::string() : session_sha256(session), principal_.token_id}};
  }
  // Of a request without a session an administrator of the scope may do it, and on a server without tokens
  // `anybody`.
  [[nodiscard]] Proof proof_or_admin(const Secret& session, bool anybody) const {
    Proof out = proof(session);
    const bool admin = principal_.role == Role::kAdmin && (anybody || !principal_.token_id.empty());
    if (session.empty() && admin) out.kind = Proof::Kind::kTrusted;
    return out;
  }

  // Empty when absent.
  std::string text(std::string_view key) {
    known_.insert(key);
    const auto is_key = [key](const auto& pair) { return pair.first == key; };
    const auto it = std::find_if(pairs_.begin(), pairs_.end(), is_key);
    if (it == pairs_.end()) return {};
    if (std::find_if(std::next(it), pairs_.end(), is_key) != pairs_.end())
      problem(str("query parameter '", key, "' appears twice"));
    return it->second;
  }
  // Also of one without a value.
  [[nodiscard]] bool has(std::string_view key) const {
    return std::any_of(pairs_.begin(), pairs_.end(), [key](const auto& pair) { return pair.first == key; });
  }
  std::string name(std::string_view key, std::string fallback) {
    std::string value = text(key);
    if (value.empty() && !has(key)) return fallback;
    if (Status status = check_name(key, value); !status.ok()) problem(status.text());
    return value;
  }
  // "key=value,key=value"; a value has no comma.
  Labels labels(std::string_view key) {
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
  std::optional<std::uint64_t> integer(std::string_view key, std::uint64_t max) {
    const std::string value = text(key);
    if (value.empty() && !has(key)) return std::nullopt;
    std::uint64_t out = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (error != std::errc() || end != value.data() + value.size() || out > max)
      problem(str("query parameter '", key, "' is not an integer from 0 to ", max));
    return out;
  }
  void problem(std::string text) {
    if (status_.ok()) status_ = Status(Code::kInvalidArgument, std::move(text));
  }
  // After everything was read: a parameter that nobody asked for is a problem too.
  // Every route says what it needs: one that forgot does not answer.
  Status finish() {
    if (!checked_) return {Code::kInternal, "this route does not say who may use it"};
    if (!denied_.ok()) return std::move(denied_);
    for (const auto& [key, value] : pairs_) {
      if (!known_.contains(key)) problem(str("unknown query parameter '", key.substr(0, 64), "'"));
    }
    return std::move(status_);
  }

 private:
  std::vector<std::pair<std::string, std::string>> pairs_;
  std::set<std::string_view> known_;  // the literals of the callers
  const Principal& principal_;
  bool checked_ = false;
  std::string scope_, peer_;
  Status denied_;
  Status status_;
};

// A request that found its route.
struct Api::Call {
  const ApiRequest& request;
  const std::vector<std::string>& path;  // its parts, decoded
  Query& query;
};

struct Api::Route {
  enum Traits : unsigned { kNone = 0, kOpen = 1, kCompat = 2, kRest = 4, kScan = 8 };

  std::string_view method;
  std::string_view path;  // as in RouteName
  // kOpen: without a token. kCompat: errors look like NanoCtrl's. kRest: the last part of the path may have
  // slashes. kScan: Api::is_scan().
  unsigned traits = kNone;
  ApiReply (*handle)(Api& api, const Call& call) = nullptr;
};

struct Api::Match {
  const Route* route = nullptr;     // none has this method, or this path
  std::string_view path = "other";  // of few: what metrics have
  bool open = false;
  bool compat = false;
  std::string allowed;  // the methods of the path; empty: there is no such path
};

}  // namespace slime::ctrl

#include "ctrl/api/api.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include "base/str.h"
#include "ctrl/api/context.h"
#include "ctrl/api/resources.h"
#include "ctrl/compat/entities.h"
#include "ctrl/http/replies.h"
#include "ctrl/limits.h"
#include "ctrl/wire/json_bodies.h"

namespace slime::ctrl {
namespace {

std::string_view method_of(std::string_view method) {
  static constexpr std::string_view kMethods[] = {"GET", "HEAD", "POST", "PUT", "DELETE"};
  const auto* it = std::find(std::begin(kMethods), std::end(kMethods), method);
  return it == std::end(kMethods) ? "other" : *it;
}

// Returns whether the Content-Type of a body is JSON. Other types are refused: a browser sends them
// to other origins without a preflight request, so any web page could register peers at this
// nanoctrl.
bool json_type(std::string_view type) {
  constexpr std::string_view kJson = "application/json";
  return type.starts_with(kJson) &&
         (type.size() == kJson.size() || type[kJson.size()] == ';' || type[kJson.size()] == ' ');
}

ApiReply wrong_method(std::string_view method, std::string allowed) {
  ApiReply out = reply_error(405, Code::kUnimplemented, str(method, " is not possible here"),
                             str("this route has ", allowed));
  out.allow = std::move(allowed);
  return out;
}

ApiReply too_long(std::string_view what, std::size_t most) {
  return reply_error(414, Code::kInvalidArgument, str("the ", what, " has more than ", most, " bytes"), "");
}

}  // namespace

Api::Api(ApiOptions options, std::unique_ptr<Engine> engine, const Clock& clock, Prober prober)
    : context_(std::make_unique<Context>(std::move(options), std::move(engine), clock)),
      resources_(std::make_unique<Resources>(*context_, std::move(prober))) {}

Api::~Api() = default;

void Api::set_admin_token(TokenRecord token) { context_->access().set_admin_token(std::move(token)); }

void Api::stop() { context_->stop(); }

std::uint64_t Api::epoch() const { return context_->engine().epoch(); }

Nanos Api::tick() {
  const Nanos next = context_->engine().tick();
  resources_->admin.expire_backup();
  resources_->keys.rotate();
  return next;
}

ApiReply Api::handle(const ApiRequest& request) {
  const TimePoint begin = steady_clock().now();
  const std::optional<Target> target = parse_target(request.target.substr(0, limits::kTargetBytes));
  const Match found = target ? match_route(request.method, target->path) : Match{};
  ApiReply reply = answer(request, target, found);
  if (!reply.parked)
    context_->metrics().observe(method_of(request.method), found.path, reply.status,
                                steady_clock().now() - begin);
  return reply;
}

ApiReply Api::answer(const ApiRequest& request, const std::optional<Target>& target, const Match& match) {
  if (request.target.size() > limits::kTargetBytes) return too_long("URL", limits::kTargetBytes);
  if (request.target.substr(0, request.target.find('?')).size() > limits::kPathBytes)
    return too_long("path", limits::kPathBytes);
  if (!target)
    return reply_error(400, Code::kInvalidArgument, "the URL has a bad % escape, or is not UTF-8", "");
  ApiReply reply = respond(request, *target, match);
  if (reply.status >= 400 && match.compat) compat::translate_error(reply);
  return reply;
}

ApiReply Api::respond(const ApiRequest& request, const Target& target, const Match& match) try {
  if (request.body.size() > limits::kBodyBytes)
    return reply_error(413, Code::kInvalidArgument,
                       str("the body has more than ", limits::kBodyBytes, " bytes"),
                       "publish in several requests");
  if (context_->stopped()) return reply_error(Status(Code::kUnavailable, "nanoctrl is shutting down"));
  // Identifies the sender before the body is parsed.
  Access& access = context_->access();
  Result<Principal> principal = match.open ? Principal{} : access.identify(request);
  std::string token_id = principal ? principal->token_id : std::string();
  // With a token, any Host is accepted.
  if (principal && token_id.empty()) {
    if (Status status = access.check_names(request, match.open); !status.ok()) principal = std::move(status);
  }
  if (principal && !request.again) {
    if (Status status = access.take_turn(*principal); !status.ok()) principal = std::move(status);
  }
  const Principal unidentified;
  Query query(target.query, principal ? *principal : unidentified);
  const Call call{request, target.path, query};
  ApiReply reply = principal ? route(call, match) : reply_error(principal.error());
  if (reply.status == 401 || reply.status == 403 || reply.status == 409 || reply.status == 429)
    note_refusal(call, reply);
  reply.token_id = std::move(token_id);
  return reply;
} catch (const std::exception& e) {
  return reply_error(500, Code::kInternal, str("unexpected: ", e.what()), "report this as a bug");
}

ApiReply Api::route(const Call& call, const Match& match) {
  if (match.allowed.empty()) return reply_no_route();
  if (match.route == nullptr) return wrong_method(call.request.method, match.allowed);
  const bool body = match.route->method == "POST" || match.route->method == "PUT";
  if (body && !json_type(call.request.content_type))
    return reply_error(415, Code::kInvalidArgument, "the body is not declared as JSON",
                       "send the header Content-Type: application/json");
  if (match.path.starts_with("/v1/peers/{name}")) {
    if (Status status = check_name("name", call.path[2]); !status.ok()) return reply_error(std::move(status));
  }
  return match.route->handle(*resources_, call);
}

// Logs a refused request, without its token. Even an unknown token may be a valid token with a
// typing error, and the path of a request that revokes a token may contain the token.
void Api::note_refusal(const Call& call, const ApiReply& reply) {
  const std::optional<wire::Error> error = wire::decode_error(reply.body);
  const std::string_view target = call.request.target;
  const bool of_token = call.path.size() > 2 && call.path[1] == "tokens";
  const std::string_view path = of_token ? "/v1/tokens/..." : target.substr(0, target.find('?'));
  const bool of_peer = call.path.size() > 2 && call.path[1] == "peers";
  const std::string& scope = call.query.scope_asked();
  refusals_("refused", {{"status", std::to_string(reply.status)},
                        {"method", std::string(call.request.method.substr(0, 16))},
                        {"path", std::string(path.substr(0, limits::kNameBytes))},
                        {"client", std::string(call.request.client)},
                        {"scope", scope.empty() ? call.query.text("scope") : scope},
                        {"peer", of_peer ? call.path[2] : call.query.peer_asked()},
                        {"token_id", call.query.principal().token_id},
                        {"reason", error ? error->message : ""}});
}

}  // namespace slime::ctrl

#include "ctrl/client.h"

#include <algorithm>
#include <utility>

#include "base/str.h"
#include "ctrl/client/http_client.h"
#include "ctrl/limits.h"
#include "ctrl/wire/json_bodies.h"
#include "ctrl/wire/url.h"

namespace slime::ctrl {
namespace {

std::string scope_query(std::string_view scope) { return str("?scope=", percent_encode(scope)); }
std::string peer_target(std::string_view scope, std::string_view name, std::string_view tail = {}) {
  return str("/v1/peers/", percent_encode(name), tail, scope_query(scope));
}

// Replaces the error of an old nanoctrl that refuses the unknown field "session" with an error that
// asks for an upgrade. Returns other errors unchanged.
Status earlier_server(const Status& status) {
  const bool earlier = status.code() == Code::kInvalidArgument &&
                       status.text().find("unknown field \"session\"") != std::string::npos;
  if (!earlier) return status;
  return {Code::kInvalidArgument,
          "this nanoctrl is of an earlier version, which knows no sessions; upgrade it before its agents"};
}

}  // namespace

// The routes over HTTP.
class Client::Impl : public HttpClient {
 public:
  using HttpClient::HttpClient;
};

Secret new_session() { return Secret::random(limits::kSessionBytes); }

Result<std::unique_ptr<Client>> Client::create(ClientOptions options) {
  SLIME_TRY(options.validate());
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(std::move(options))));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() { stop(); }
void Client::stop() { impl_->stop(); }
const std::string& Client::url() const { return impl_->options().url; }

Result<Lease> Client::register_peer(const Registration& registration, const Secret& session, bool takeover) {
  SLIME_TRY(check_registration(registration));
  // Adds kProbeTimeout to the timeout: before it replies, the server may probe the peer that has
  // the name.
  const Result<std::string> reply =
      impl_->call("POST", "/v1/peers", wire::encode(wire::RegisterRequest{registration, takeover, session}),
                  limits::kProbeTimeout);
  if (!reply) return earlier_server(reply.error());
  return wire::decode_lease(*reply);
}

Result<Changes> Client::heartbeat(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                                  const Secret& session, std::optional<std::uint64_t> since,
                                  const std::optional<Report>& report,
                                  std::optional<std::uint64_t> keys_have) {
  const Result<std::string> reply =
      impl_->call("POST", peer_target(scope, name, "/heartbeat"),
                  wire::encode(wire::HeartbeatRequest{incarnation, since, report, keys_have, session}));
  if (!reply) return reply.error();
  return wire::decode_changes(*reply);
}

Result<Heartbeats> Client::heartbeats(std::string_view scope, std::span<const PeerRef> peers,
                                      std::optional<std::uint64_t> since) {
  const wire::HeartbeatsRequest request{since, {peers.begin(), peers.end()}};
  const Result<std::string> reply =
      impl_->call("POST", str("/v1/heartbeats", scope_query(scope)), wire::encode(request));
  if (!reply) return reply.error();
  return wire::decode_heartbeats_reply(*reply);
}

Status Client::deregister(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                          const Secret& session) {
  return impl_->call("DELETE", str(peer_target(scope, name), "&incarnation=", incarnation), {}, {}, session)
      .status();
}

Status Client::update_regions(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                              const Secret& session, std::span<const RegionInfo> publish,
                              std::span<const std::string> unpublish) {
  const wire::RegionsRequest request{
      incarnation, {publish.begin(), publish.end()}, {unpublish.begin(), unpublish.end()}, session};
  return impl_->call("POST", peer_target(scope, name, "/regions"), wire::encode(request)).status();
}

Status Client::update_services(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                               const Secret& session, std::span<const ServiceInfo> publish,
                               std::span<const std::string> unpublish) {
  const wire::ServicesRequest request{
      incarnation, {publish.begin(), publish.end()}, {unpublish.begin(), unpublish.end()}, session};
  return impl_->call("POST", peer_target(scope, name, "/services"), wire::encode(request)).status();
}

Status Client::set_links(std::string_view scope, std::string_view name, std::span<const std::string> targets,
                         const Secret& session) {
  return impl_
      ->call("PUT", peer_target(scope, name, "/links"),
             wire::encode(wire::LinksRequest{{targets.begin(), targets.end()}, session}))
      .status();
}

Result<std::vector<std::string>> Client::get_links(std::string_view scope, std::string_view name) {
  const Result<std::string> reply = impl_->call("GET", peer_target(scope, name, "/links"));
  if (!reply) return reply.error();
  return wire::decode_links(*reply);
}

Result<PeerInfo> Client::get_peer(std::string_view scope, std::string_view name) {
  const Result<std::string> reply = impl_->call("GET", peer_target(scope, name));
  if (!reply) return reply.error();
  return wire::decode_peer(*reply);
}

namespace {

// Reads all pages of a list and passes each to `decode`. Returns the head of the first page: events
// after its revision include all changes made while the later pages were read.
template <class Call, class Decode>
Result<wire::PageHead> read_pages(const std::string& target, Call call, Decode decode) {
  std::optional<wire::PageHead> first;
  std::string after;
  while (true) {
    const Result<std::string> reply =
        call(after.empty() ? target : str(target, "&after=", percent_encode(after)));
    if (!reply) return reply.error();
    Result<wire::PageHead> head = decode(*reply);
    if (!head) return head.error();
    const std::optional<std::string> next = head->next;
    if (!first) first = std::move(*head);
    if (!next) return std::move(*first);
    if (*next <= after) return Status(Code::kCorrupt, "the pages of a list do not advance");
    after = *next;
  }
}

std::string filter_query(std::string_view key, std::string_view value) {
  return value.empty() ? std::string() : str("&", key, "=", percent_encode(value));
}
std::string labels_query(const Labels& labels) {
  std::string text;
  for (const auto& [key, value] : labels) text += str(text.empty() ? "" : ",", key, "=", value);
  return filter_query("labels", text);
}

}  // namespace

Result<PeerList> Client::list_peers(const PeerFilter& filter) {
  PeerList out;
  const Result<wire::PageHead> head = read_pages(
      str("/v1/peers", scope_query(filter.scope), filter_query("kind", filter.kind),
          labels_query(filter.labels)),
      [this](const std::string& target) { return impl_->call("GET", target); },
      [&out](const std::string& body) { return wire::decode_peer_page(body, out.peers); });
  if (!head) return head.error();
  out.server_epoch = head->server_epoch;
  out.revision = head->revision;
  return out;
}

Result<ServiceList> Client::list_services(const ServiceFilter& filter) {
  ServiceList out;
  const Result<wire::PageHead> head = read_pages(
      str("/v1/services", scope_query(filter.scope), filter_query("kind", filter.kind),
          filter_query("name", filter.name), labels_query(filter.labels),
          filter_query("health", filter.health ? health_name(*filter.health) : "")),
      [this](const std::string& target) { return impl_->call("GET", target); },
      [&out](const std::string& body) { return wire::decode_service_page(body, out.services); });
  if (!head) return head.error();
  out.server_epoch = head->server_epoch;
  out.revision = head->revision;
  return out;
}

Result<std::vector<RegionEntry>> Client::list_regions(std::string_view scope, std::string_view peer) {
  std::vector<RegionEntry> out;
  const Result<wire::PageHead> head = read_pages(
      str("/v1/regions", scope_query(scope), filter_query("peer", peer)),
      [this](const std::string& target) { return impl_->call("GET", target); },
      [&out](const std::string& body) { return wire::decode_region_page(body, out); });
  if (!head) return head.error();
  return out;
}

Result<std::vector<LinkInfo>> Client::list_links(std::string_view scope) {
  std::vector<LinkInfo> out;
  const Result<wire::PageHead> head = read_pages(
      str("/v1/links", scope_query(scope)),
      [this](const std::string& target) { return impl_->call("GET", target); },
      [&out](const std::string& body) { return wire::decode_link_page(body, out); });
  if (!head) return head.error();
  return out;
}

Result<Changes> Client::watch(std::string_view scope, std::uint64_t since, Nanos wait) {
  const Nanos bounded = std::clamp(wait, Nanos::zero(), limits::kWatchWaitMax);
  const auto wait_ms = std::chrono::duration_cast<std::chrono::milliseconds>(bounded).count();
  const Result<std::string> reply = impl_->call(
      "GET", str("/v1/watch", scope_query(scope), "&since=", since, "&wait_ms=", wait_ms), {}, bounded);
  if (!reply) return reply.error();
  return wire::decode_changes(*reply);
}

Result<std::vector<ScopeInfo>> Client::list_scopes() {
  const Result<std::string> reply = impl_->call("GET", "/v1/scopes");
  if (!reply) return reply.error();
  return wire::decode_scopes(*reply);
}

Result<std::string> Client::backup_page(std::string_view after) {
  return impl_->call("GET", after.empty() ? "/v1/backup" : str("/v1/backup?after=", percent_encode(after)));
}

Result<TokenInfo> Client::create_token(const TokenRequest& request) {
  const Result<std::string> reply = impl_->call_once("POST", "/v1/tokens", wire::encode(request));
  if (!reply) return reply.error();
  return wire::decode_token_info(*reply);
}

Result<std::vector<TokenInfo>> Client::list_tokens() {
  const Result<std::string> reply = impl_->call("GET", "/v1/tokens");
  if (!reply) return reply.error();
  return wire::decode_tokens(*reply);
}

Status Client::revoke_token(std::string_view id) {
  return impl_->call_once("DELETE", str("/v1/tokens/", percent_encode(id))).status();
}

Result<ServerStatus> Client::server_status() {
  const Result<std::string> reply = impl_->call("GET", "/v1/status");
  if (!reply) return reply.error();
  return wire::decode_status(*reply);
}

Status Client::health() { return impl_->call("GET", "/healthz").status(); }

}  // namespace slime::ctrl

#include "ctrl/client.h"

#include <httplib.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

#include "base/str.h"
#include "ctrl/limits.h"
#include "ctrl/url.h"
#include "ctrl/wire.h"

namespace slime::ctrl {
namespace {

using std::chrono::microseconds;

Result<HostPort> parse_url(const std::string& url) {
  constexpr std::string_view kHttp = "http://";
  std::string_view rest = url;
  if (rest.starts_with("https://"))
    return Status(Code::kUnimplemented, str("'", url, "': nanoctrl speaks http, not https"));
  if (rest.starts_with(kHttp)) {
    rest.remove_prefix(kHttp.size());
    if (rest.ends_with('/')) rest.remove_suffix(1);
    if (std::optional<HostPort> out = parse_host_port(rest)) return std::move(*out);
  }
  return Status(Code::kInvalidArgument, str("'", url, "' is not like \"http://127.0.0.1:4479\""));
}

// The code of an answer that has none of its own, from a proxy perhaps.
Code code_for(int http_status) {
  switch (http_status) {
    case 404:
      return Code::kUnimplemented;  // such a server does not know the route: it is not a missing peer
    case 401:
      return Code::kUnauthenticated;
    case 403:
      return Code::kPermissionDenied;
    case 429:
      return Code::kResourceExhausted;
    case 502:
    case 503:
    case 504:
      return Code::kUnavailable;
    default:
      return Code::kCorrupt;
  }
}

std::string scope_query(std::string_view scope) { return str("?scope=", percent_encode(scope)); }
std::string peer_target(std::string_view scope, std::string_view name, std::string_view tail = {}) {
  return str("/v1/peers/", percent_encode(name), tail, scope_query(scope));
}

}  // namespace

Status ClientOptions::validate() const {
  const Result<HostPort> parsed = parse_url(url);
  if (!parsed) return parsed.error();
  if (connect_timeout <= Nanos::zero() || timeout <= Nanos::zero())
    return {Code::kInvalidArgument, "the timeouts of a nanoctrl client must be positive"};
  return {};
}

class Client::Impl {
 public:
  Impl(ClientOptions options, HostPort server) : options_(std::move(options)), server_(std::move(server)) {}

  // One request; the body of a 200 answer. `extra` is waited for in addition to the timeout.
  Result<std::string> call(const char* method, std::string target, std::string body = {}, Nanos extra = {}) {
    httplib::Client http(server_.host, server_.port);
    const Nanos timeout = options_.timeout + std::max(extra, Nanos::zero());
    http.set_connection_timeout(std::chrono::duration_cast<microseconds>(options_.connect_timeout));
    http.set_read_timeout(std::chrono::duration_cast<microseconds>(timeout));
    http.set_write_timeout(std::chrono::duration_cast<microseconds>(timeout));
    http.set_url_encode(false);
    http.set_tcp_nodelay(true);

    std::string answer;
    httplib::Request request;
    request.method = method;
    request.path = std::move(target);
    request.set_header("Accept-Encoding", "identity");
    if (!options_.token.empty()) request.set_header("Authorization", "Bearer " + options_.token);
    if (!body.empty()) request.set_header("Content-Type", "application/json");
    request.body = std::move(body);
    request.content_receiver = [&answer](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
      if (answer.size() + size > limits::kReplyBytes) return false;
      answer.append(data, size);
      return true;
    };
    const TimePoint start = steady_clock().now();
    if (!enter(http)) return stopped_error();
    const httplib::Result result = http.send(request);
    leave(http);
    if (!result)
      return transport_error(result.error(), steady_clock().now() - start >= timeout, answer.size());
    if (result->status == 200) return answer;
    return server_error(result->status, answer);
  }

  void stop() {
    std::unique_lock lock(mutex_);
    stopped_ = true;
    // Repeated, because a call that has entered may not have opened its socket yet.
    while (!active_.empty()) {
      for (httplib::Client* http : active_) http->stop();
      idle_.wait_for(lock, std::chrono::milliseconds(5));
    }
  }

  const ClientOptions& options() const { return options_; }

 private:
  bool enter(httplib::Client& http) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return false;
    active_.insert(&http);
    return true;
  }
  void leave(httplib::Client& http) {
    const std::lock_guard lock(mutex_);
    active_.erase(&http);
    idle_.notify_all();
  }
  Status stopped_error() const {
    return {Code::kCancelled, str("the client of ", options_.url, " was stopped")};
  }

  Status transport_error(httplib::Error error, bool timed_out, std::size_t received_bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return stopped_error();
    }
    const std::string hint = str("is nanoctrl running? Start it with: nanoctrl start --port ", server_.port);
    if (error == httplib::Error::Connection || error == httplib::Error::ConnectionTimeout)
      return {Code::kUnavailable, str("cannot connect to nanoctrl at ", options_.url, "; ", hint)};
    if (received_bytes >= limits::kReplyBytes - CPPHTTPLIB_RECV_BUFSIZ)
      return {Code::kCorrupt,
              str("the answer of ", options_.url, " exceeds ", limits::kReplyBytes, " bytes")};
    if (timed_out)
      return Status(Code::kDeadlineExceeded, str("nanoctrl at ", options_.url, " did not answer in time"))
          .with_maybe_executed(true);
    return Status(Code::kUnavailable, str("the connection to nanoctrl at ", options_.url, " broke (",
                                          httplib::to_string(error), "); ", hint))
        .with_maybe_executed(true);
  }

  Status server_error(int http_status, const std::string& body) const {
    const std::optional<wire::Error> error = wire::decode_error(body);
    if (!error)
      return {code_for(http_status),
              str(options_.url, " answered HTTP ", http_status, ", not as nanoctrl does; check the address")};
    return {error->code, error->hint.empty() ? error->message : str(error->message, "; ", error->hint)};
  }

  const ClientOptions options_;
  const HostPort server_;
  std::mutex mutex_;
  std::condition_variable idle_;
  bool stopped_ = false;
  std::set<httplib::Client*> active_;
};

Result<std::unique_ptr<Client>> Client::create(ClientOptions options) {
  SLIME_TRY(options.validate());
  Result<HostPort> server = parse_url(options.url);
  auto impl = std::make_unique<Impl>(std::move(options), std::move(*server));
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() { stop(); }
void Client::stop() { impl_->stop(); }
const std::string& Client::url() const { return impl_->options().url; }

Result<Lease> Client::register_peer(const Registration& registration, bool takeover) {
  SLIME_TRY(check_registration(registration));
  // The server may probe the holder of the name before it answers.
  const Result<std::string> reply =
      impl_->call("POST", "/v1/peers", wire::encode(wire::RegisterRequest{registration, takeover}),
                  limits::kProbeTimeout);
  if (!reply) return reply.error();
  return wire::decode_lease(*reply);
}

Result<Changes> Client::heartbeat(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                                  std::optional<std::uint64_t> since) {
  const Result<std::string> reply = impl_->call("POST", peer_target(scope, name, "/heartbeat"),
                                                wire::encode(wire::HeartbeatRequest{incarnation, since}));
  if (!reply) return reply.error();
  return wire::decode_changes(*reply);
}

Status Client::deregister(std::string_view scope, std::string_view name, std::uint64_t incarnation) {
  return impl_->call("DELETE", str(peer_target(scope, name), "&incarnation=", incarnation)).status();
}

Status Client::update_regions(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                              std::span<const RegionInfo> publish, std::span<const std::string> unpublish) {
  const wire::RegionsRequest request{
      incarnation, {publish.begin(), publish.end()}, {unpublish.begin(), unpublish.end()}};
  return impl_->call("POST", peer_target(scope, name, "/regions"), wire::encode(request)).status();
}

Status Client::update_services(std::string_view scope, std::string_view name, std::uint64_t incarnation,
                               std::span<const ServiceInfo> publish, std::span<const std::string> unpublish) {
  const wire::ServicesRequest request{
      incarnation, {publish.begin(), publish.end()}, {unpublish.begin(), unpublish.end()}};
  return impl_->call("POST", peer_target(scope, name, "/services"), wire::encode(request)).status();
}

Status Client::set_links(std::string_view scope, std::string_view name,
                         std::span<const std::string> targets) {
  return impl_
      ->call("PUT", peer_target(scope, name, "/links"),
             wire::encode_targets({targets.begin(), targets.end()}))
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

// All pages of a list. The head is the first page's: changes since its revision cover whatever changed while
// the later pages were read.
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
      [this](std::string target) { return impl_->call("GET", std::move(target)); },
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
      [this](std::string target) { return impl_->call("GET", std::move(target)); },
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
      [this](std::string target) { return impl_->call("GET", std::move(target)); },
      [&out](const std::string& body) { return wire::decode_region_page(body, out); });
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

Result<TokenInfo> Client::create_token(const TokenRequest& request) {
  const Result<std::string> reply = impl_->call("POST", "/v1/tokens", wire::encode(request));
  if (!reply) return reply.error();
  return wire::decode_token_info(*reply);
}

Result<std::vector<TokenInfo>> Client::list_tokens() {
  const Result<std::string> reply = impl_->call("GET", "/v1/tokens");
  if (!reply) return reply.error();
  return wire::decode_tokens(*reply);
}

Status Client::revoke_token(std::string_view id) {
  return impl_->call("DELETE", str("/v1/tokens/", percent_encode(id))).status();
}

Result<ServerStatus> Client::server_status() {
  const Result<std::string> reply = impl_->call("GET", "/v1/status");
  if (!reply) return reply.error();
  return wire::decode_status(*reply);
}

}  // namespace slime::ctrl

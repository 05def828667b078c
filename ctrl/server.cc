#include "ctrl/server.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/str.h"
#include "base/thread.h"

namespace slime::ctrl {
namespace {

constexpr Nanos kTickMax = std::chrono::seconds(1);
constexpr Nanos kTickMin = std::chrono::milliseconds(5);

// Writes an audit line about a change of a peer, such as its registration or expiry.
void log_event(Audit& audit, const ScopedEvent& e) {
  audit(event_kind_name(e.event.kind), {{"scope", e.scope},
                                        {"peer", e.event.name},
                                        {"instance", e.event.instance.to_string()},
                                        {"incarnation", std::to_string(e.event.incarnation)},
                                        {"address", e.event.address},
                                        {"token_id", e.token_id}});
}

std::string bracketed(const std::string& host) {
  return host.find(':') == std::string::npos ? host : str("[", host, "]");
}

FrontOptions front_options(const ServerOptions& options) {
  return {options.host, options.port, options.threads, options.tls, options.limits};
}

}  // namespace

std::uint64_t wall_clock_epoch() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(1, micros));
}

Status ServerOptions::validate() const {
  if (host.empty()) return {Code::kInvalidArgument, "host is empty"};
  SLIME_TRY(front_options(*this).validate());
  return registry.validate();
}

class Server::Impl {
 public:
  Impl(ServerOptions options, const Clock& clock) : options_(std::move(options)), clock_(clock) {}
  ~Impl() { stop(); }

  Status bind() {
    Result<std::unique_ptr<Front>> bound = Front::bind(
        front_options(options_), [this](const ApiRequest& request) { return api_->handle(request); },
        &is_scan);
    if (!bound) return std::move(bound).error();
    front_ = std::move(*bound);
    options_.port = front_->port();
    return {};
  }

  Status start() {
    Result<std::unique_ptr<Engine>> engine = open_engine(options_.store, options_.registry, clock_);
    if (!engine) return engine.error();
    options_.store = (*engine)->describe();  // without a password from here on
    SLIME_TRY(check_exposure(**engine));
    api_ = std::make_unique<Api>(api_options(options_.api), std::move(*engine), clock_,
                                 [](const auto& address, const auto& id) {
                                   return probe_instance(address, id, limits::kProbeTimeout);
                                 });
    ticker_ = make_thread([this] { tick_until_stopped(); });
    front_->start();
    return {};
  }

  void stop() {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(stopped_, true)) return;
    }
    stop_ticker_.notify_all();
    if (api_) api_->stop();
    if (front_) front_->stop();
    if (ticker_.joinable()) ticker_.join();
  }

  const ServerOptions& options() const { return options_; }
  Api& api() { return *api_; }
  Status reload_tls() { return front_->reload_tls(); }

 private:
  // Checks a server that other machines can reach: it must require tokens, unless `insecure`, and
  // must use TLS if it has tokens, unless `insecure_plaintext`.
  Status check_exposure(const Engine& engine) {
    if (is_loopback(options_.host)) return {};
    const bool tokens = options_.api.admin_token ||
                        engine.look([](const Registry& registry) { return !registry.tokens().empty(); });
    if (!options_.insecure) options_.api.require_token = true;
    if (!tokens && !options_.insecure) return no_token(engine);
    if (!options_.api.require_token && !tokens) return {};
    if (options_.tls.enabled() || options_.insecure_plaintext) return {};
    return {Code::kPermissionDenied,
            str("host ", options_.host,
                " is not a loopback address, and without TLS the network can read the tokens and the keys of "
                "agents. Give --tls-cert and --tls-key, or --insecure-plaintext on a trusted network")};
  }

  Status no_token(const Engine& engine) const {
    const std::string store = engine.describe();  // without Redis' password
    const std::string in_store = store == "memory"
                                     ? std::string()
                                     : str(", or make the first one with nanoctrl token create --store ",
                                           store, " --role admin --scope '*'");
    return {
        Code::kPermissionDenied,
        str("host ", options_.host,
            " is not a loopback address, and there is no token yet. Give --admin-token-file (nanoctrl token "
            "new makes a token for it)",
            in_store, "; or give --insecure on a trusted network")};
  }

  ApiOptions api_options(ApiOptions options) {
    options.only_loopback_names = is_loopback(options_.host);
    options.on_event = [this](const ScopedEvent& event) {
      log_event(changes_, event);
      if (front_) front_->wake(event.scope);
    };
    options.on_reset = [this] {
      if (front_) front_->wake_all();
    };
    options.connections = [this] { return front_ ? front_->connections() : 0; };
    options.refused = [this] { return front_ ? front_->refused() : 0; };
    options.parked = [this] { return front_ ? front_->parked() : 0; };
    return options;
  }

  void tick_until_stopped() {
    MutexLock lock(mutex_);
    while (!stopped_) {
      // tick() may wait for the store, and stop() must get the lock meanwhile
      lock.unlock();
      const Nanos next = std::clamp(api_->tick(), kTickMin, kTickMax);
      lock.lock();
      stop_ticker_.wait_for(mutex_, next, [this]() SLIME_REQUIRES(mutex_) { return stopped_; });
    }
  }

  ServerOptions options_;
  Audit changes_{Audit::kChanges};
  // ^declared before api_, whose events use front_; the threads of front_ end in stop()
  std::unique_ptr<Front> front_;
  const Clock& clock_;
  std::unique_ptr<Api> api_;
  Mutex mutex_;
  CondVar stop_ticker_;
  bool stopped_ SLIME_GUARDED_BY(mutex_) = false;
  std::thread ticker_;
};

Result<std::unique_ptr<Server>> Server::bind(ServerOptions options, const Clock& clock) {
  SLIME_TRY(options.validate());
  auto impl = std::make_unique<Impl>(std::move(options), clock);
  SLIME_TRY(impl->bind());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { stop(); }
Status Server::start() { return impl_->start(); }
void Server::stop() { impl_->stop(); }
std::uint16_t Server::port() const { return impl_->options().port; }
const std::string& Server::store() const { return impl_->options().store; }
Status Server::reload_tls() { return impl_->reload_tls(); }
void Server::set_admin_token(TokenRecord token) { impl_->api().set_admin_token(std::move(token)); }
Api& Server::api() { return impl_->api(); }
std::string Server::url() const {
  return str(impl_->options().tls.enabled() ? "https://" : "http://", bracketed(impl_->options().host), ":",
             impl_->options().port);
}

}  // namespace slime::ctrl

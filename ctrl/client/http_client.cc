#include "ctrl/client/http_client.h"

#include <httplib.h>
#include <netdb.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/str.h"
#include "ctrl/limits.h"
#include "ctrl/wire/json_bodies.h"
#include "ctrl/wire/url.h"

namespace slime::ctrl {
namespace {

using std::chrono::microseconds;

struct Endpoint {
  HostPort at;
  bool tls = false;
  std::string url;  // as given in the options
};

Result<Endpoint> parse_endpoint(std::string_view url) {
  for (const auto& [scheme, tls] :
       {std::pair<std::string_view, bool>{"http://", false}, {"https://", true}}) {
    if (!url.starts_with(scheme)) continue;
    std::string_view rest = url.substr(scheme.size());
    if (rest.ends_with('/')) rest.remove_suffix(1);
    if (std::optional<HostPort> at = parse_host_port(rest))
      return Endpoint{std::move(*at), tls, std::string(url)};
  }
  return Status(Code::kInvalidArgument,
                str("'", url, "' is not like \"http://127.0.0.1:4479\" or \"https://node7.example:4479\""));
}

// Parses "http://a:1,http://b:2".
Result<std::vector<Endpoint>> parse_endpoints(std::string_view urls) {
  std::vector<Endpoint> out;
  while (true) {
    const std::size_t comma = std::min(urls.find(','), urls.size());
    Result<Endpoint> one = parse_endpoint(urls.substr(0, comma));
    if (!one) return std::move(one).error();
    out.push_back(std::move(*one));
    if (comma == urls.size()) return out;
    urls.remove_prefix(comma + 1);
  }
}

// Returns the error code for a reply whose body is not nanoctrl's, perhaps that of a proxy.
Code code_for(int http_status) {
  switch (http_status) {
    case 404:
      // The server does not have this route. A missing peer also gives 404, but with a body from
      // nanoctrl.
      return Code::kUnimplemented;
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

Status server_error(const std::string& url, int http_status, const std::string& body) {
  const std::optional<wire::Error> error = wire::decode_error(body);
  if (!error)
    return {code_for(http_status),
            str(url, " answered HTTP ", http_status, ", not as nanoctrl does; check the address")};
  return {error->code, error->hint.empty() ? error->message : str(error->message, "; ", error->hint)};
}

// Blocks SIGPIPE in this thread during its lifetime. Otherwise a write of the HTTP library
// or of OpenSSL to a broken connection would end the process instead of failing.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigemptyset(&broken_pipe_);
    sigaddset(&broken_pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
  }
  ~NoBrokenPipe() {
    const timespec now{};
    if (!was_pending_) {
      while (::sigtimedwait(&broken_pipe_, nullptr, &now) == SIGPIPE) {
      }
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t broken_pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

// A client of the HTTP library for one endpoint, which opens its connection with the first request.
struct Connection {
  std::unique_ptr<httplib::ClientImpl> http;
  std::size_t endpoint = 0;
  bool used = false;  // a reply has arrived on it
};

// One request.
struct Call {
  const char* method;
  const std::string& target;
  const std::string& body;
  Nanos extra;
  const Secret& session;
};

// The result of one attempt.
struct Attempt {
  httplib::Error error = httplib::Error::Success;
  int http_status = 0;
  std::string body;
  bool answered = false;  // a reply's header has arrived
  bool timed_out = false;
  bool stopped = false;
};

// Returns the reason if the host name of `at` does not exist. Returns an empty text if the name
// resolves, or if the resolver has a temporary failure.
std::string unknown_host(const HostPort& at) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(at.host.c_str(), nullptr, &hints, &found);
  if (error == 0) ::freeaddrinfo(found);
  return error == EAI_NONAME || error == EAI_FAIL ? ::gai_strerror(error) : "";
}

bool never_connected(httplib::Error error) {
  return error == httplib::Error::Connection || error == httplib::Error::ConnectionTimeout ||
         error == httplib::Error::SSLConnection || error == httplib::Error::SSLLoadingCerts ||
         error == httplib::Error::SSLServerVerification;
}

}  // namespace

Status ClientOptions::validate() const {
  const Result<std::vector<Endpoint>> parsed = parse_endpoints(url);
  if (!parsed) return parsed.error();
  if (connect_timeout <= Nanos::zero() || timeout <= Nanos::zero())
    return {Code::kInvalidArgument, "the timeouts of a nanoctrl client must be positive"};
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (token.size() > limits::kTokenBytes || std::any_of(token.begin(), token.end(), is_control))
    return {
        Code::kInvalidArgument,
        str("the token of a nanoctrl client has more than ", limits::kTokenBytes,
            " bytes or a control character (an end of line, perhaps, from the file that it was read from)")};
  if (!ca_file.empty() && ::access(ca_file.c_str(), R_OK) != 0)
    return {Code::kInvalidArgument, str("cannot read the CA file '", ca_file, "'")};
  return {};
}

class HttpClient::Impl {
 public:
  explicit Impl(ClientOptions options)
      : options_(std::move(options)), endpoints_(*parse_endpoints(options_.url)) {}

  Result<std::string> call(const Call& call, bool once) {
    const std::size_t first = preferred();
    std::string texts;
    bool maybe_executed = false;
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      const std::size_t endpoint = (first + i) % endpoints_.size();
      Result<std::string> out = call_at(endpoint, call, once);
      // Tries the next server after kUnavailable, and after a timeout if the client knows more than
      // one server.
      const bool away = !out && (out.error().code() == Code::kUnavailable ||
                                 (out.error().code() == Code::kDeadlineExceeded && endpoints_.size() > 1));
      if (!away) {
        if (i > 0) prefer(endpoint);
        return out;
      }
      texts += str(texts.empty() ? "" : "; ", out.error().text());
      maybe_executed |= out.error().maybe_executed();
      if (once && maybe_executed) break;
    }
    return Status(Code::kUnavailable, texts).with_maybe_executed(maybe_executed);
  }

  void stop() {
    const MutexLock lock(mutex_);
    stopped_ = true;
    kept_.reset();
    // Stops the active calls repeatedly: a call that is active already may not have opened its
    // socket yet.
    while (!active_.empty()) {
      for (httplib::ClientImpl* http : active_) http->stop();
      idle_.wait_for(mutex_, std::chrono::milliseconds(5));
    }
  }

  const ClientOptions& options() const { return options_; }

 private:
  Result<std::string> call_at(std::size_t endpoint, const Call& call, bool once) {
    std::unique_ptr<Connection> connection = once ? connect(endpoint) : take(endpoint);
    const bool reused = connection->used;
    Attempt attempt = send(*connection, call);
    // Sends again on a new connection: the server may have closed the kept connection after a
    // restart, or to make room.
    if (reused && attempt.error != httplib::Error::Success && !attempt.answered && !attempt.timed_out &&
        !attempt.stopped && !never_connected(attempt.error)) {
      connection = connect(endpoint);
      attempt = send(*connection, call);
    }
    if (attempt.stopped) return stopped_error();
    if (attempt.error != httplib::Error::Success) return transport_error(endpoints_[endpoint], attempt);
    connection->used = true;
    keep(std::move(connection));
    if (attempt.http_status == 200) return std::move(attempt.body);
    return server_error(endpoints_[endpoint].url, attempt.http_status, attempt.body);
  }

  Attempt send(Connection& connection, const Call& call) {
    httplib::ClientImpl& http = *connection.http;
    const Nanos timeout = options_.timeout + std::max(call.extra, Nanos::zero());
    http.set_read_timeout(std::chrono::duration_cast<microseconds>(timeout));
    http.set_write_timeout(std::chrono::duration_cast<microseconds>(timeout));
    Attempt out;
    httplib::Request request;
    request.method = call.method;
    request.path = call.target;
    request.set_header("Accept-Encoding", "identity");
    if (!options_.token.empty()) request.set_header("Authorization", str("Bearer ", options_.token));
    if (!call.session.empty()) request.set_header("Slime-Session", to_hex(call.session.bytes()));
    if (!call.body.empty()) request.set_header("Content-Type", "application/json");
    request.body = call.body;
    request.response_handler = [&out](const httplib::Response&) { return out.answered = true; };
    request.content_receiver = [&out](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
      if (out.body.size() + size > limits::kReplyBytes) return false;
      out.body.append(data, size);
      return true;
    };
    const TimePoint start = steady_clock().now();
    if (!enter(http)) {
      out.stopped = true;
      return out;
    }
    const NoBrokenPipe guard;
    const httplib::Result result = http.send(request);
    out.stopped = leave(http) && !result;
    out.error = result ? httplib::Error::Success : result.error();
    out.http_status = result ? result->status : 0;
    out.timed_out = !result && steady_clock().now() - start >= timeout;
    return out;
  }

  std::unique_ptr<Connection> connect(std::size_t endpoint) const {
    const Endpoint& to = endpoints_[endpoint];
    auto out = std::make_unique<Connection>();
    out->endpoint = endpoint;
    if (to.tls) {
      out->http = std::make_unique<httplib::SSLClient>(to.at.host, to.at.port);
      out->http->enable_server_certificate_verification(true);
      if (!options_.ca_file.empty()) out->http->set_ca_cert_path(options_.ca_file);
    } else {
      out->http = std::make_unique<httplib::ClientImpl>(to.at.host, to.at.port);
    }
    out->http->set_connection_timeout(std::chrono::duration_cast<microseconds>(options_.connect_timeout));
    out->http->set_keep_alive(true);
    out->http->set_url_encode(false);
    out->http->set_tcp_nodelay(true);
    return out;
  }

  // Takes the kept connection if it leads to `endpoint`; otherwise closes it and returns a new
  // connection.
  std::unique_ptr<Connection> take(std::size_t endpoint) {
    std::unique_ptr<Connection> kept;
    {
      const MutexLock lock(mutex_);
      kept = std::move(kept_);
    }
    return kept && kept->endpoint == endpoint ? std::move(kept) : connect(endpoint);
  }
  void keep(std::unique_ptr<Connection> connection) {
    const MutexLock lock(mutex_);
    if (!stopped_ && !kept_) kept_ = std::move(connection);
  }

  std::size_t preferred() {
    const MutexLock lock(mutex_);
    return preferred_;
  }
  void prefer(std::size_t endpoint) {
    {
      const MutexLock lock(mutex_);
      preferred_ = endpoint;
    }
    SLIME_LOG(LogLevel::kInfo, "nanoctrl", "now asking ", endpoints_[endpoint].url);
  }

  bool enter(httplib::ClientImpl& http) {
    const MutexLock lock(mutex_);
    if (stopped_) return false;
    active_.insert(&http);
    return true;
  }
  // Reports that a call no longer uses `http`. Returns whether stop() was called.
  bool leave(httplib::ClientImpl& http) {
    const MutexLock lock(mutex_);
    active_.erase(&http);
    idle_.notify_all();
    return stopped_;
  }

  Status stopped_error() const {
    return {Code::kCancelled, str("the client of ", options_.url, " was stopped")};
  }

  Status transport_error(const Endpoint& to, const Attempt& attempt) const {
    const std::string hint = str("is nanoctrl running? Start it with: nanoctrl start --port ", to.at.port);
    switch (attempt.error) {
      case httplib::Error::Connection:
      case httplib::Error::ConnectionTimeout:
        if (const std::string why = unknown_host(to.at); !why.empty())
          return {Code::kUnavailable, str("the host of nanoctrl's URL ", to.url, " is not known: ", why)};
        return {Code::kUnavailable, str("cannot connect to nanoctrl at ", to.url, "; ", hint)};
      case httplib::Error::SSLConnection:
        return {Code::kUnavailable,
                str("no TLS with nanoctrl at ", to.url, ": it may speak http there, not https")};
      case httplib::Error::SSLLoadingCerts:
        return {Code::kInvalidArgument,
                str("the CA file '", options_.ca_file, "' has no certificates in PEM")};
      case httplib::Error::SSLServerVerification:
        return {Code::kUnauthenticated,
                str("the certificate of ", to.url, " is not one for ", to.at.host, " from ",
                    options_.ca_file.empty() ? "an authority that this system knows; name its CA file in "
                                               "ctrl_ca_file or $SLIME_CTRL_CA_FILE"
                                             : str("an authority of the CA file '", options_.ca_file, "'"))};
      default:
        break;
    }
    if (attempt.body.size() >= limits::kReplyBytes - CPPHTTPLIB_RECV_BUFSIZ)
      return {Code::kCorrupt, str("the answer of ", to.url, " exceeds ", limits::kReplyBytes, " bytes")};
    if (attempt.timed_out)
      return Status(Code::kDeadlineExceeded, str("nanoctrl at ", to.url, " did not answer in time"))
          .with_maybe_executed(true);
    const std::string doubt =
        attempt.answered ? ""
                         : str(" before an answer came: does nanoctrl listen there, or something else, "
                               "such as an agent? nanoctrl's default is http://127.0.0.1:",
                               limits::kDefaultPort);
    return Status(Code::kUnavailable, str("the connection to nanoctrl at ", to.url, " broke (",
                                          httplib::to_string(attempt.error), ")", doubt))
        .with_maybe_executed(true);
  }

  const ClientOptions options_;
  const std::vector<Endpoint> endpoints_;
  Mutex mutex_;
  CondVar idle_;
  bool stopped_ SLIME_GUARDED_BY(mutex_) = false;
  std::size_t preferred_ SLIME_GUARDED_BY(mutex_) = 0;  // index of the endpoint that answered last
  std::unique_ptr<Connection> kept_ SLIME_GUARDED_BY(mutex_);
  std::set<httplib::ClientImpl*> active_ SLIME_GUARDED_BY(mutex_);
};

HttpClient::HttpClient(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
HttpClient::~HttpClient() = default;
void HttpClient::stop() { impl_->stop(); }
const ClientOptions& HttpClient::options() const { return impl_->options(); }
Result<std::string> HttpClient::call(const char* method, const std::string& target, const std::string& body,
                                     Nanos extra, const Secret& session) {
  return impl_->call({method, target, body, extra, session}, false);
}
Result<std::string> HttpClient::call_once(const char* method, const std::string& target,
                                          const std::string& body) {
  return impl_->call({method, target, body, {}, {}}, true);
}

}  // namespace slime::ctrl

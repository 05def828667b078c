#include "ctrl/server.h"

#include <arpa/inet.h>
#include <httplib.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/str.h"

namespace slime::ctrl {
namespace {

constexpr time_t kIdleSeconds = 1;  // a connection between requests holds a thread
constexpr time_t kReadSeconds = 5;
constexpr Nanos kBodyTime = std::chrono::seconds(30);  // of one whole body
constexpr Nanos kTickMax = std::chrono::seconds(1);
constexpr Nanos kTickMin = std::chrono::milliseconds(5);
constexpr Nanos kStartPoll = std::chrono::milliseconds(1);

// Threads for connections. When all are busy and the queue is full, accepting waits: the rest stays in the
// kernel's backlog.
class BoundedPool final : public httplib::TaskQueue {
 public:
  explicit BoundedPool(std::size_t threads) {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  void enqueue(std::function<void()> job) override {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return jobs_.size() < limits::kQueuedConnections; });
    jobs_.push_back(std::move(job));
    work_.notify_one();
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void run() {
    while (true) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex_);
        work_.wait(lock, [this] { return stopped_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
        room_.notify_one();
      }
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable room_;
  std::deque<std::function<void()>> jobs_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

void answer(httplib::Response& response, ApiReply reply) {
  response.status = reply.status;
  if (!reply.allow.empty()) response.set_header("Allow", reply.allow);
  if (reply.retry_after > Nanos::zero()) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(reply.retry_after).count();
    response.set_header("Retry-After", std::to_string(seconds));
  }
  response.set_content(reply.body, "application/json");
}

// For what the HTTP library refuses by itself, so that it has our shape too.
void answer_refusal(httplib::Response& response) {
  if (!response.body.empty()) return;
  const bool too_large = response.status == 413 || response.status == 414;
  answer(
      response,
      Api::error(response.status, Code::kInvalidArgument,
                 too_large ? "the request is too large" : "this is not a request that nanoctrl reads", ""));
}

// The whole body, or false after the answer was set.
bool read_body(const httplib::Request& request, httplib::Response& response,
               const httplib::ContentReader& reader, std::string& body) {
  // Without either header there is no body; the library would wait for one.
  if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) return true;
  const TimePoint deadline = deadline_after(steady_clock().now(), kBodyTime);
  bool too_large = false;
  bool too_slow = false;
  const auto receive = [&](const char* data, std::size_t size) {
    too_large = body.size() + size > limits::kBodyBytes;
    too_slow = steady_clock().now() >= deadline;
    if (too_large || too_slow) return false;
    body.append(data, size);
    return true;
  };
  const bool complete = request.is_multipart_form_data()
                            ? reader([](const httplib::MultipartFormData&) { return false; }, receive)
                            : reader(receive);
  if (complete) return true;
  if (too_large || response.status == 413) {
    answer(response, Api::error(413, Code::kInvalidArgument,
                                str("the body has more than ", limits::kBodyBytes, " bytes"), ""));
  } else {
    answer(response, Api::error(too_slow ? 408 : 400, Code::kInvalidArgument,
                                too_slow ? "the body came too slowly" : "the body did not come whole", ""));
  }
  return false;
}

void log_event(const ScopedEvent& e) {
  SLIME_LOG(LogLevel::kInfo, "nanoctrl", e.scope, ": ", e.event.name, " ", event_kind_name(e.event.kind),
            ", instance ", e.event.instance.to_string(), " at ", e.event.address, ", incarnation ",
            e.event.incarnation);
}

std::string bracketed(const std::string& host) {
  return host.find(':') == std::string::npos ? host : str("[", host, "]");
}

}  // namespace

bool is_loopback(const std::string& host) {
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

std::uint64_t wall_clock_epoch() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(1, micros));
}

Status ServerOptions::validate() const {
  if (host.empty()) return {Code::kInvalidArgument, "host is empty"};
  if (!is_loopback(host) && !insecure)
    return {
        Code::kPermissionDenied,
        str("host ", host,
            " is not a loopback address: whoever reaches it could register and remove peers, "
            "because nanoctrl has no authentication yet. Listen on 127.0.0.1, or say --insecure on a network "
            "that you trust")};
  if (threads <= api.watchers_max)
    return {Code::kInvalidArgument,
            str(threads, " threads for ", api.watchers_max, " watches leave none for heartbeats")};
  return registry.validate();
}

class Server::Impl {
 public:
  Impl(ServerOptions options, const Clock& clock) : options_(std::move(options)), clock_(clock) {
    configure();
    add_routes();
  }
  ~Impl() { stop(); }

  Status bind() {
    errno = 0;
    if (options_.port == 0) {
      const int port = http_.bind_to_any_port(options_.host);
      if (port <= 0) return bind_error();
      options_.port = static_cast<std::uint16_t>(port);
    } else if (!http_.bind_to_port(options_.host, options_.port)) {
      return bind_error();
    }
    // The library's backlog of 5 would turn a restart of many agents into connection timeouts.
    if (::listen(listen_fd_, limits::kListenBacklog) != 0) return from_errno("listen", errno);
    return {};
  }

  Status start() {
    Result<std::unique_ptr<Engine>> engine = open_engine(options_.store, options_.registry, clock_);
    if (!engine) return engine.error();
    options_.store = (*engine)->describe();  // from now on without a password
    api_ = std::make_unique<Api>(with_log(options_.api), std::move(*engine), clock_,
                                 [](const auto& address, const auto& id) {
                                   return probe_instance(address, id, limits::kProbeTimeout);
                                 });
    ticker_ = std::thread([this] { tick_until_stopped(); });
    acceptor_ = std::thread([this] { http_.listen_after_bind(); });
    // Until then the library would not notice a stop().
    while (!http_.is_running()) std::this_thread::sleep_for(kStartPoll);
    return {};
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(stopped_, true)) return;
    }
    stop_ticker_.notify_all();
    if (api_) api_->stop();
    if (acceptor_.joinable()) {
      http_.stop();
      acceptor_.join();
    } else if (listen_fd_ >= 0) {
      ::close(listen_fd_);
    }
    if (ticker_.joinable()) ticker_.join();
  }

  const ServerOptions& options() const { return options_; }
  Api& api() { return *api_; }

 private:
  static ApiOptions with_log(ApiOptions options) {
    options.on_event = log_event;
    return options;
  }

  Status bind_error() const {
    const int error = errno == 0 ? EADDRINUSE : errno;
    return {Code::kUnavailable,
            str("cannot listen on ", bracketed(options_.host), ":", options_.port, ": ", std::strerror(error),
                error == EADDRINUSE ? "; another program has the port: choose another with --port" : "")};
  }

  void configure() {
    http_.set_socket_options([this](int fd) {
      // Not SO_REUSEPORT, the library's default: two servers would share the port and each know half.
      const int on = 1;
      ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      listen_fd_ = fd;
    });
    http_.set_tcp_nodelay(true);
    http_.new_task_queue = [threads = options_.threads] { return new BoundedPool(threads); };
    http_.set_keep_alive_timeout(kIdleSeconds);
    http_.set_read_timeout(kReadSeconds);
    http_.set_write_timeout(kReadSeconds);
    http_.set_payload_max_length(limits::kBodyBytes);
    http_.set_error_handler(
        [](const httplib::Request&, httplib::Response& response) { answer_refusal(response); });
    // Before the library matches the path with a regular expression, whose recursion grows with its length.
    http_.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
      if (request.path.size() <= limits::kPathBytes) return httplib::Server::HandlerResponse::Unhandled;
      response.status = 414;
      answer_refusal(response);
      return httplib::Server::HandlerResponse::Handled;
    });
  }

  void add_routes() {
    const auto plain = [this](const httplib::Request& request, httplib::Response& response) {
      respond(request, {}, response);
    };
    const auto with_body = [this](const httplib::Request& request, httplib::Response& response,
                                  const httplib::ContentReader& reader) {
      std::string body;
      if (read_body(request, response, reader, body)) respond(request, body, response);
    };
    const char* const any = ".*";
    http_.Get(any, plain).Options(any, plain);
    http_.Post(any, with_body).Put(any, with_body).Patch(any, with_body).Delete(any, with_body);
  }

  void respond(const httplib::Request& request, std::string_view body, httplib::Response& response) {
    const std::string content_type = request.get_header_value("Content-Type");
    answer(response, api_->handle({request.method, request.target, content_type, body}));
    SLIME_LOG(LogLevel::kDebug, "nanoctrl", request.method, " ", request.target, " ", response.status);
  }

  void tick_until_stopped() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      const Nanos next = std::clamp(api_->tick(), kTickMin, kTickMax);
      stop_ticker_.wait_for(lock, next, [this] { return stopped_; });
    }
  }

  ServerOptions options_;
  const Clock& clock_;
  std::unique_ptr<Api> api_;
  int listen_fd_ = -1;
  std::mutex mutex_;
  std::condition_variable stop_ticker_;
  bool stopped_ = false;
  httplib::Server http_;
  std::thread ticker_;
  std::thread acceptor_;
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
Api& Server::api() { return impl_->api(); }
std::string Server::url() const {
  return str("http://", bracketed(impl_->options().host), ":", impl_->options().port);
}

}  // namespace slime::ctrl

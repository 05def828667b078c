#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/check.h"
#include "base/random.h"
#include "base/str.h"
#include "transport/connect.h"
#include "transport/handshake_io.h"
#include "transport/strangers.h"

namespace slime::transport {
namespace {

class TcpListener final : public Listener, private FdHandler {
 public:
  TcpListener(Loop& loop, Outlets outlets, UniqueFd socket, const SocketAddress& address,
              HandshakeOptions options, Acceptor& acceptor)
      : loop_(loop),
        outlets_(std::move(outlets)),
        socket_(std::move(socket)),
        address_(address.to_string()),
        options_(std::move(options)),
        acceptor_(acceptor) {}

  ~TcpListener() override {
    SLIME_CHECK(loop_.in_loop());
    loop_.cancel_timer(pause_);
    if (watched_) loop_.unwatch(socket_.get());
  }

  Status start() {
    SLIME_TRY(loop_.watch(socket_.get(), EPOLLIN, *this));
    watched_ = true;
    return {};
  }

  [[nodiscard]] std::string address() const override { return address_; }
  [[nodiscard]] std::uint64_t strangers_evicted() const override { return evicted_; }

 private:
  struct Inbound {
    Stranger stranger;
    std::string address;
    std::optional<KeySetVersion> key_set;
    std::vector<Outlet> outlets;
    std::vector<Holding> holdings;  // one for each outlet
    std::optional<Choice> choice;
    std::unique_ptr<PendingEndpoint> pending;
    std::unique_ptr<HandshakeIo> io;
  };

  void on_fd_events(std::uint32_t) noexcept override {
    for (int i = 0; i < limits::kAcceptsPerTurn; ++i) {
      if (inbound_.size() >= limits::kPendingHandshakes) {
        if (i > 0 && !somebody_waits()) return;
        if (!make_room()) return;
      }
      UniqueFd fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd.valid()) {
        begin(std::move(fd));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        // The process is out of descriptors or memory. Pauses, because the connection stays in the
        // backlog and the socket readable: the loop would call this handler again and again.
        return pause(deadline_after(loop_.now(), limits::kAcceptBackoff));
      }
    }
  }

  [[nodiscard]] bool somebody_waits() const {
    pollfd entry{socket_.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  }

  // Drops a connection whose peer has not proved itself. If none may be dropped yet, returns false
  // and pauses accepting until one may be dropped or a handshake ends.
  bool make_room() {
    const Strangers::Choice choice = strangers_.choose(loop_.now());
    if (choice.stranger == nullptr) {
      pause(choice.again);
      return false;
    }
    ++evicted_;
    take(find(*choice.stranger));
    return true;
  }

  void begin(UniqueFd fd) {
    auto peer = SocketAddress::of_peer(fd.get());
    if (!peer || !set_no_delay(fd.get()).ok()) return;  // it is gone already
    const TimePoint now = loop_.now();
    Handshake::Config config{options_.self, options_.token, {}, {}, {}};
    auto entry = std::make_unique<Inbound>();
    Inbound* const in = entry.get();
    if (options_.keys) {
      HandshakeKeys current = options_.keys();
      config.keys = std::move(current.keys);
      if (!config.keys.empty()) in->key_set = current.version;
    }
    random_bytes(config.nonce);
    in->address = peer->to_string();
    in->io = std::make_unique<HandshakeIo>(
        loop_, std::move(fd), Handshake::acceptor(std::move(config)),
        [this, in](Handshake& handshake) { decide(*in, handshake); },
        [this, in](const Status& status) { finish(in, status); });
    in->stranger = {source_of(*peer), now, in->io.get()};
    if (!in->io->start(deadline_after(now, options_.timeout), deadline_after(now, limits::kFirstProofTimeout))
             .ok())
      return;
    strangers_.add(in->stranger);
    inbound_.push_back(std::move(entry));
  }

  void decide(Inbound& in, Handshake& handshake) {
    strangers_.remove(in.stranger);
    if (Status taken = acceptor_.on_hello(handshake.outcome().peer); !taken.ok())
      return handshake.refuse(std::move(taken));
    in.outlets = outlets_();
    in.holdings.reserve(in.outlets.size());
    for (const Outlet& outlet : in.outlets)
      in.holdings.push_back({outlet.provider, outlet.device == nullptr ? ByteVector() : outlet.device->hint(),
                             outlet.available, outlet.traits});
    prepare_next(in);
  }

  // Prepares an endpoint with the best provider that is left. Answers the handshake when its
  // parameters are ready, or refuses it if no provider is left.
  void prepare_next(Inbound& in) {
    const Handshake::Outcome& hello = in.io->deciding().outcome();
    for (;;) {
      auto choice = choose(hello.peer.name, hello.offers, options_.self.name, in.holdings);
      if (!choice) {
        in.io->deciding().refuse(std::move(choice).error());
        return in.io->answered();
      }
      in.choice = std::move(*choice);
      auto pending = in.outlets[in.choice->holding].port->prepare();
      if (pending) {
        in.pending = std::move(*pending);
        return in.pending->when_ready([this, &in](Status made) { on_ready(in, std::move(made)); });
      }
      if (!pass_over(in, std::move(pending).error())) return in.io->answered();
    }
  }

  void on_ready(Inbound& in, Status made) {
    if (made.ok()) {
      in.io->deciding().accept(in.choice->offer, in.choice->reason, in.pending->parameters());
    } else if (pass_over(in, std::move(made))) {
      return prepare_next(in);
    }
    in.io->answered();  // may end, and destroy `in`
  }

  // Notes that the chosen provider could not prepare an endpoint. Returns true if the caller may
  // try another provider. If the peer offered only this one, refuses the handshake and returns
  // false.
  static bool pass_over(Inbound& in, Status why) {
    if (in.io->handshake().outcome().offers.size() == 1) {
      in.io->deciding().refuse(std::move(why));
      return false;
    }
    in.holdings[in.choice->holding].available = std::move(why);
    return true;
  }

  // Ends an Inbound. After a whole handshake hands the connection to the acceptor, which may
  // destroy `this`. If the peer proved no key, only tells the acceptor so. After any other end (a
  // refusal, a broken handshake, a probe) does not call the acceptor.
  void finish(Inbound* in, const Status& status) {
    const std::unique_ptr<Inbound> entry = take(find(in->stranger));
    resume();
    if (status.code() == Code::kUnauthenticated) return acceptor_.on_unproved();
    if (!status.ok() || entry->pending == nullptr) return;  // refused, broken off, or a probe
    const Handshake::Outcome& outcome = entry->io->handshake().outcome();
    auto endpoint = entry->pending->finish(outcome.parameters, entry->io->take_socket(),
                                           {options_.self.name, outcome.peer.name, false});
    // The peer's parameters do not parse. The handshake is over, so the peer only sees the
    // connection end.
    if (!endpoint) return;
    acceptor_.on_connected({std::move(*endpoint), outcome.peer, entry->address, false,
                            entry->outlets[entry->choice->holding].provider, outcome.reason,
                            entry->io->handshake().id(), entry->io->handshake().proofs(), entry->key_set});
  }

  using Inbounds = std::vector<std::unique_ptr<Inbound>>;
  Inbounds::iterator find(const Stranger& stranger) {
    const auto at = std::find_if(inbound_.begin(), inbound_.end(),
                                 [&](const auto& in) { return &in->stranger == &stranger; });
    SLIME_CHECK(at != inbound_.end());
    return at;
  }
  std::unique_ptr<Inbound> take(Inbounds::iterator at) {
    std::unique_ptr<Inbound> in = std::move(*at);
    strangers_.remove(in->stranger);
    *at = std::move(inbound_.back());
    inbound_.pop_back();
    return in;
  }

  // Stops accepting until `until` (kNever: no timer) or until a handshake ends.
  void pause(TimePoint until) {
    set_watched(0);
    loop_.cancel_timer(pause_);
    if (until == kNever) return;
    pause_ = loop_.add_timer(until, [this] {
      pause_ = TimerId{};
      resume();
    });
  }
  void resume() {
    loop_.cancel_timer(pause_);
    set_watched(EPOLLIN);
  }
  void set_watched(std::uint32_t events) {
    if (events == events_) return;
    if (loop_.change_watch(socket_.get(), events).ok()) events_ = events;
  }

  Loop& loop_;
  const Outlets outlets_;
  UniqueFd socket_;
  const std::string address_;
  const HandshakeOptions options_;
  Acceptor& acceptor_;
  std::uint32_t events_ = EPOLLIN;
  bool watched_ = false;
  TimerId pause_;
  std::uint64_t evicted_ = 0;
  Strangers strangers_;
  Inbounds inbound_;
};

Result<UniqueFd> bind_and_listen(const SocketAddress& address, const std::string& text) {
  auto fd = make_tcp_socket(address.family());
  if (!fd) return std::move(fd).error();
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // a restart need not wait for TIME_WAIT
  if (address.family() == AF_INET6)
    ::setsockopt(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);  // [::] means everybody
  if (::bind(fd->get(), address.data(), address.length()) != 0)
    return from_errno(str("bind to ", text), errno);
  if (::listen(fd->get(), SOMAXCONN) != 0) return from_errno(str("listen on ", text), errno);
  return fd;
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::listen(Loop& loop, Port& port, const std::string& address,
                                                   bool insecure, HandshakeOptions options,
                                                   Acceptor& acceptor) {
  Outlets outlets = [outlet = Outlet{.provider = options.provider, .port = &port}] {
    return std::vector<Outlet>{outlet};
  };
  return listen(loop, std::move(outlets), address, insecure, std::move(options), acceptor);
}

Result<std::unique_ptr<Listener>> Listener::listen(Loop& loop, Outlets outlets, const std::string& address,
                                                   bool insecure, HandshakeOptions options,
                                                   Acceptor& acceptor) {
  SLIME_CHECK(loop.in_loop());
  SLIME_TRY(Handshake::validate({options.self, options.token, {}, {}, {}}));
  auto parsed = Address::parse(address);
  if (!parsed) return std::move(parsed).error();
  auto wanted = SocketAddress::numeric(*parsed);
  if (!wanted) return std::move(wanted).error().with_context("listen needs an address of this machine");
  if (!wanted->is_loopback() && options.token.empty() && !options.keys && !insecure)
    return Status(Code::kPermissionDenied,
                  str(address,
                      " can be reached from other machines: set a token, which both sides need, or "
                      "say that it may be insecure"));
  auto socket = bind_and_listen(*wanted, address);
  if (!socket) return std::move(socket).error();
  auto real = SocketAddress::of_socket(socket->get());
  if (!real) return std::move(real).error();
  auto listener = std::make_unique<TcpListener>(loop, std::move(outlets), std::move(*socket), *real,
                                                std::move(options), acceptor);
  SLIME_TRY(listener->start());
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace slime::transport

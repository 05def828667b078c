#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/check.h"
#include "base/random.h"
#include "base/str.h"
#include "transport/connect.h"
#include "transport/handshake_io.h"
#include "transport/resolve.h"

namespace slime::transport {
namespace {

// Looks the name up, connects to one address after the other, and runs the handshake. Both sides
// make their endpoints during the handshake, at the same time. One deadline covers all of this.
class ConnectAttempt final : public Connecting, private FdHandler {
 public:
  ConnectAttempt(Loop& loop, std::vector<Outlet> outlets, std::string address, PeerIdentity expected,
                 HandshakeOptions options, ConnectHandler handler)
      : loop_(loop),
        outlets_(std::move(outlets)),
        text_(std::move(address)),
        expected_(std::move(expected)),
        options_(std::move(options)),
        handler_(std::move(handler)),
        deadline_(deadline_after(loop.now(), options_.timeout)) {}

  ~ConnectAttempt() override {
    SLIME_CHECK(loop_.in_loop());
    clear();
  }

  [[nodiscard]] const Unreached* unreached() const override { return unreached_ ? &*unreached_ : nullptr; }

  void start() {
    Status begun = begin();
    if (begun.ok()) return;
    // Reports the error from a timer, not from inside connect(). Destroying this object cancels the
    // timer.
    timer_ = loop_.add_timer(loop_.now(), [this, status = std::move(begun)] {
      timer_ = TimerId{};
      end(status);
    });
  }

 private:
  Status begin() {
    if (expected_.name.size() > limits::kNameBytes)
      return Status(Code::kInvalidArgument, "the name of the peer is too long");
    make_offers();
    if (offers_.empty()) return no_offer();
    SLIME_TRY(Handshake::validate({options_.self, options_.token, offers_, {}, {}}));
    auto parsed = Address::parse(text_);
    if (!parsed) return std::move(parsed).error();
    if (parsed->port == 0)
      return Status(Code::kInvalidArgument, str(text_, ": port 0 is nobody's: it asks for a free port"));
    if (auto numeric = SocketAddress::numeric(*parsed); numeric && parsed->host != "localhost") {
      addresses_.push_back(*numeric);
      timer_ = loop_.add_timer(loop_.now(), [this] { try_next(); });
      return {};
    }
    lookup_ = system_resolver().ask(loop_, *parsed,
                                    [this](Result<Addresses> found) { on_found(std::move(found)); });
    timer_ = loop_.add_timer(deadline_, [this] { end(too_late("looking up its name")); });
    return {};
  }

  void make_offers() {
    for (const Outlet& outlet : outlets_) {
      if (!outlet.available.ok()) continue;
      offers_.push_back({outlet.provider, outlet.device == nullptr ? ByteVector() : outlet.device->hint()});
      ports_.push_back(outlet.port);
      traits_.push_back(outlet.traits);
    }
  }

  Status no_offer() const {
    Status out(Code::kUnavailable, "no provider to connect over");
    for (const Outlet& outlet : outlets_) out = Status(outlet.available).with_context(outlet.provider);
    return out;
  }

  void on_found(Result<Addresses> found) {
    lookup_.reset();
    if (!found) return end(std::move(found).error());
    addresses_ = std::move(*found);
    last_ = Status(Code::kUnavailable, "its name has no address");
    try_next();
  }

  // Tries the next address, or ends with the error of the last one.
  void try_next() {
    for (;;) {
      clear_socket();
      if (next_ == addresses_.size()) return end(std::move(last_));
      last_ = try_address(addresses_[next_++]);
      if (last_.ok()) return;
    }
  }

  Status try_address(const SocketAddress& address) {
    auto socket = make_tcp_socket(address.family());
    if (!socket) return std::move(socket).error();
    const int rc = ::connect(socket->get(), address.data(), address.length());
    if (rc != 0 && errno != EINPROGRESS && errno != EINTR) return unreachable(errno);
    socket_ = std::move(*socket);
    SLIME_TRY(loop_.watch(socket_.get(), EPOLLOUT, *this));
    watched_ = true;
    loop_.expect_soon();
    // Divides the time left among the addresses left, so that an address that never answers does
    // not use up all of it.
    const Nanos left = deadline_ - loop_.now();
    const auto share = static_cast<Nanos::rep>(addresses_.size() - next_ + 1);
    timer_ = loop_.add_timer(deadline_after(loop_.now(), left / share), [this] {
      last_ = too_late("connecting");
      try_next();
    });
    return {};
  }

  // Writable means: connected, or failed.
  void on_fd_events(std::uint32_t) noexcept override {
    int error = 0;
    socklen_t length = sizeof error;
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    std::optional<Address> ours;
    std::optional<Address> theirs;
    if (const auto name = SocketAddress::of_socket(socket_.get())) ours = name->to_address();
    if (const auto name = SocketAddress::of_peer(socket_.get())) theirs = name->to_address();
    // Without a listener, a connection to a port of this machine can connect to itself: the kernel
    // may pick that same port as the source port.
    if (error == 0 && ours && ours == theirs) error = ECONNREFUSED;
    if (error != 0) {
      last_ = unreachable(error);
      return try_next();
    }
    peer_address_ = theirs ? theirs->to_string() : text_;
    // A connection within one machine has the same address at both ends.
    begin_handshake(ours && theirs && ours->host == theirs->host);
  }

  void begin_handshake(bool own_machine) {
    loop_.cancel_timer(timer_);
    loop_.unwatch(socket_.get());
    watched_ = false;
    likely_ = likely_choice(traits_, own_machine);
    Handshake::Config config{options_.self, options_.token, offers_, {}, {}};
    if (options_.keys) {
      HandshakeKeys current = options_.keys();
      config.keys = std::move(current.keys);
      if (!config.keys.empty()) key_set_ = current.version;
    }
    random_bytes(config.nonce);
    io_ = std::make_unique<HandshakeIo>(
        loop_, std::move(socket_), Handshake::initiator(std::move(config), expected_),
        [this](Handshake& handshake) { prepare(handshake); },
        [this](Status status) { on_handshake(std::move(status)); });
    if (Status started = io_->start(deadline_); !started.ok()) end(std::move(started));
  }

  // Prepares an endpoint for the chosen offer, or for the likely offer if the peer has not chosen
  // yet. Called again if the peer then chooses another offer.
  void prepare(Handshake& handshake) {
    const auto choice = handshake.outcome().choice;
    const auto offer = choice ? choice : likely_;
    if (!offer) return handshake.await_choice();
    pending_.reset();
    auto prepared = ports_[*offer]->prepare();
    if (!prepared) {
      unreached_ = Unreached{offers_[*offer].provider, handshake.outcome().peer};
      return handshake.refuse(std::move(prepared).error());
    }
    pending_ = std::move(*prepared);
    pending_->when_ready([this, offer = *offer](Status made) { on_ready(offer, std::move(made)); });
  }

  void on_ready(std::size_t offer, Status made) {
    Handshake& handshake = io_->deciding();
    if (made.ok()) {
      handshake.set_up(offer, pending_->parameters());
    } else {
      unreached_ = Unreached{offers_[offer].provider, handshake.outcome().peer};
      handshake.refuse(std::move(made));
    }
    io_->answered();  // may end, and destroy us
  }

  // Connects again after a pause if the peer ended the connection without a reason: a busy listener
  // may have dropped the connection to make room. Returns false if no retry is made.
  bool try_again() {
    if (!io_->hung_up() || retries_ == limits::kHandshakeRetries) return false;
    const Nanos pause = limits::kHandshakePause * (std::int64_t{1} << retries_++);
    clear();
    --next_;
    timer_ = loop_.add_timer(deadline_after(loop_.now(), pause), [this] { try_next(); });
    return true;
  }

  void on_handshake(Status status) {
    if (!status.ok() && try_again()) return;
    // The sides have no provider in common: adds why this side did not offer its other providers.
    if (status.code() == Code::kUnimplemented)
      status = Status(status.code(), str(status.text(), not_offered_before("")));
    if (!status.ok()) return end(std::move(status));
    const Handshake::Outcome outcome = io_->handshake().outcome();
    auto endpoint = pending_->finish(outcome.parameters, io_->take_socket(),
                                     {options_.self.name, outcome.peer.name, true});
    if (!endpoint) {
      if (pending_->unreached()) unreached_ = Unreached{offers_[*outcome.choice].provider, outcome.peer};
      return end(std::move(endpoint).error());
    }
    call(
        {Connected{std::move(*endpoint), outcome.peer, peer_address_, true, offers_[*outcome.choice].provider,
                   reason(outcome), io_->handshake().id(), io_->handshake().proofs(), key_set_}});
  }

  // Returns the peer's reason for the choice, and why this side did not offer better providers,
  // which the peer does not know.
  std::string reason(const Handshake::Outcome& outcome) const {
    return str(outcome.reason, not_offered_before(offers_[*outcome.choice].provider));
  }

  // `provider` empty: all of them.
  std::string not_offered_before(std::string_view provider) const {
    std::string out;
    for (const Outlet& outlet : outlets_) {
      if (outlet.provider == provider) break;
      if (!outlet.available.ok())
        out.append("; no ").append(outlet.provider).append(" here: ").append(outlet.available.text());
    }
    return out;
  }

  Status unreachable(int error) const {
    const Status cause = from_errno("connect", error);
    const bool ours = cause.code() == Code::kResourceExhausted || cause.code() == Code::kPermissionDenied;
    return Status(ours ? cause.code() : Code::kUnavailable, cause.text());
  }
  Status too_late(std::string_view doing) const {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout).count();
    return Status(Code::kDeadlineExceeded, str("no connection within ", ms, " ms, while ", doing));
  }

  void end(Status status) {
    const std::string who = expected_.name.empty() ? text_ : str(expected_.name, " at ", text_);
    call(std::move(status).with_context(who));
  }

  // Calls the handler, which may destroy this object: nothing may use the object afterwards.
  void call(Result<Connected> result) {
    clear();
    ConnectHandler handler = std::move(handler_);
    handler(std::move(result));
  }

  void clear_socket() {
    loop_.cancel_timer(timer_);
    if (watched_) loop_.unwatch(socket_.get());
    watched_ = false;
    socket_.reset();
  }
  void clear() {
    clear_socket();
    lookup_.reset();
    io_.reset();
    pending_.reset();
  }

  Loop& loop_;
  const std::vector<Outlet> outlets_;
  const std::string text_;
  const PeerIdentity expected_;
  const HandshakeOptions options_;
  ConnectHandler handler_;
  const TimePoint deadline_;

  std::vector<Offer> offers_;                  // those that are available
  std::vector<const ProviderTraits*> traits_;  // of each offer
  std::vector<Port*> ports_;                   // of the offers
  std::optional<std::size_t> likely_;
  std::unique_ptr<PendingEndpoint> pending_;
  std::unique_ptr<Lookup> lookup_;
  Addresses addresses_;
  std::size_t next_ = 0;
  int retries_ = 0;  // retries after the peer ended the handshake
  Status last_;
  UniqueFd socket_;
  bool watched_ = false;
  TimerId timer_;
  std::string peer_address_;
  std::optional<KeySetVersion> key_set_;
  std::unique_ptr<HandshakeIo> io_;
  std::optional<Unreached> unreached_;
};

}  // namespace

std::unique_ptr<Connecting> connect(Loop& loop, std::vector<Outlet> outlets, const std::string& address,
                                    PeerIdentity expected, HandshakeOptions options, ConnectHandler handler) {
  SLIME_CHECK(loop.in_loop());
  auto attempt = std::make_unique<ConnectAttempt>(loop, std::move(outlets), address, std::move(expected),
                                                  std::move(options), std::move(handler));
  attempt->start();
  return attempt;
}

std::unique_ptr<Connecting> connect(Loop& loop, Port& port, const std::string& address, PeerIdentity expected,
                                    HandshakeOptions options, ConnectHandler handler) {
  std::vector<Outlet> outlets{{.provider = options.provider, .port = &port}};
  return connect(loop, std::move(outlets), address, std::move(expected), std::move(options),
                 std::move(handler));
}

}  // namespace slime::transport

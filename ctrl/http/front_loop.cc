#include "ctrl/http/front_loop.h"

#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <span>

#include "base/check.h"
#include "base/str.h"
#include "ctrl/http/replies.h"

namespace slime::ctrl {
namespace {

constexpr std::uint64_t kListenerId = 0;
constexpr std::uint64_t kMailId = 1;
constexpr std::uint64_t kFirstConnectionId = 2;
constexpr std::size_t kEventsPerRound = 256;
constexpr std::size_t kScratchBytes = std::size_t{64} << 10;
// Bytes of a reply that a client must take within each period of FrontLimits::reply_time.
constexpr std::size_t kTimedBytes = std::size_t{64} << 10;
// Most bytes that one connection transfers in its first turn (kFirstTurnBytes) and in a queued turn
// (kTurnBytes), and the number of queued turns between two calls of epoll_wait() (kTurnsPerRound).
constexpr std::size_t kFirstTurnBytes = std::size_t{16} << 10;
constexpr std::size_t kTurnBytes = std::size_t{64} << 10;
constexpr std::size_t kTurnsPerRound = 4;
// Most steps of TLS handshakes between two calls of epoll_wait(). A step takes up to a millisecond.
constexpr std::size_t kHandshakesPerRound = 2;
// A connection is closed after this many requests refused with 429. After each earlier refusal,
// nothing is read from it for kHoldTime.
constexpr unsigned kTooOftenMost = 8;
constexpr Nanos kHoldTime = std::chrono::milliseconds(100);
// Most bytes of input that are discarded after the last reply of a connection. Twice the largest
// body, so that a rejected body fits; kDrainBytesTooOften for a client that exceeded its rate.
constexpr std::size_t kDrainBytes = 2 * limits::kBodyBytes;
constexpr std::size_t kDrainBytesTooOften = std::size_t{64} << 10;
constexpr Nanos kDrainTime = std::chrono::seconds(1);
constexpr Nanos kRetryAfter = std::chrono::seconds(1);
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// Empties the string and frees its memory. Assigning {} would keep the memory.
void give_back(std::string& bytes) { std::string().swap(bytes); }

ApiReply refusal_of(int status, std::string_view message) {
  switch (status) {
    case 429: {
      ApiReply out = reply_error(429, Code::kResourceExhausted, std::string(message), "ask again later");
      out.retry_after = kRetryAfter;
      return out;
    }
    case 503: {
      ApiReply out = reply_error(503, Code::kUnavailable, std::string(message), "ask again later");
      out.retry_after = kRetryAfter;
      return out;
    }
    case 500:
      return reply_error(500, Code::kInternal, std::string(message), "report this as a bug");
    default:
      return reply_error(status, Code::kInvalidArgument, std::string(message), "");
  }
}

}  // namespace

FrontLoop::FrontLoop(const FrontLimits& limits, UniqueFd epoll, UniqueFd listener, const TlsServer* tls,
                     IsScan is_scan, FrontMailbox& mailbox, FrontWorkers& workers, FrontGauges& gauges)
    : limits_(limits),
      tls_(tls),
      is_scan_(is_scan),
      mailbox_(mailbox),
      workers_(workers),
      gauges_(gauges),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      now_(steady_clock().now()),
      next_id_(kFirstConnectionId),
      parking_(limits.parked, limits.parked_per_client),
      rates_(limits.requests_per_second, limits::kClientAddresses),
      scratch_(kScratchBytes) {
  for (const auto& [fd, id] : {std::pair{listener_.get(), kListenerId}, std::pair{mailbox_.fd(), kMailId}}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    SLIME_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
  }
}

// ---------------------------------------------------------------------------------------- the loop

void FrontLoop::run() {
  // OpenSSL writes without MSG_NOSIGNAL, so block SIGPIPE.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  std::array<epoll_event, kEventsPerRound> events;
  while (!finished()) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms());
    SLIME_CHECK(count >= 0 || errno == EINTR);
    now_ = steady_clock().now();
    handshakes_ = 0;
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      handle_event(event.data.u64, event.events);
    }
    expire();
    drive_queued();
  }
}

bool FrontLoop::finished() const {
  return stopping_ && jobs_ == 0 && (connections_.empty() || now_ >= stop_by_);
}

int FrontLoop::wait_ms() const {
  if (!queue_.empty()) return 0;
  TimePoint next = std::min(accept_again_, stopping_ && jobs_ == 0 ? stop_by_ : kNever);
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  if (next == kNever) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now_).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
}

void FrontLoop::handle_event(std::uint64_t id, std::uint32_t events) {
  if (id == kListenerId) return stopping_ ? void() : accept_some();
  if (id == kMailId) return handle_mail();
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // closed earlier in this round
  Connection& c = found->second;
  constexpr std::uint32_t kEnds = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  c.readable |= (events & (EPOLLIN | kEnds)) != 0;
  c.writable |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
  c.gone |= (events & kEnds) != 0;
  drive(c);
}

void FrontLoop::handle_mail() {
  FrontMailbox::Mail mail = mailbox_.take();
  for (std::unique_ptr<FrontJob>& job : mail.done) take_done(std::move(job));
  if (mail.all_woken) {
    for (const std::string& key : parking_.keys()) wake(key);
  }
  for (const std::string& key : mail.woken) wake(key);
  if (mail.stop && !stopping_) begin_stop();
}

void FrontLoop::expire() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    Connection& c = connections_.at(deadlines_.begin()->second);
    if (c.state == State::kParked) {
      unpark(c, true);
    } else if (c.state == State::kReading) {
      refuse(c, 408, "the request did not come whole in time");
      drive(c);
    } else if (c.state == State::kHeld) {
      enter(c, c.input.empty() ? State::kIdle : State::kReading);
      line_up(c);
    } else {
      close(c);
    }
  }
  if (accept_again_ <= now_ && !stopping_) pause_accepting(false);
}

void FrontLoop::begin_stop() {
  stopping_ = true;
  accept_again_ = kNever;
  stop_by_ = deadline_after(now_, limits::kFlushTime);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);  // a parent process may hold
                                                                       // it open
  listener_.reset();
  std::vector<std::uint64_t> ids;
  for (const auto& [id, c] : connections_) ids.push_back(id);
  for (const std::uint64_t id : ids) {
    Connection& c = connections_.at(id);
    if (c.state == State::kParked) {
      refuse(c, 503, "nanoctrl is shutting down");
      drive(c);
    } else if (c.state == State::kHandshaking || c.state == State::kIdle || c.state == State::kReading ||
               c.state == State::kHeld) {
      close(c);
    }
  }
}

// ---------------------------------------------------------------------------------- one connection

void FrontLoop::drive(Connection& c, bool queued) {
  turn_ = {.queued = queued};
  while (advance(c)) {
    if (turn_.over) return line_up(c);
  }
}

void FrontLoop::line_up(Connection& c) {
  if (c.queued_at == queue_.end()) c.queued_at = queue_.insert(queue_.end(), c.id);
}

void FrontLoop::drive_queued() {
  const std::size_t turns = std::min(queue_.size(), kTurnsPerRound);
  for (std::size_t i = 0; i < turns; ++i) {
    Connection& c = connections_.at(queue_.front());
    queue_.pop_front();
    c.queued_at = queue_.end();
    drive(c, true);
  }
}

bool FrontLoop::over(bool enough) {
  turn_.over |= enough;
  return turn_.over;
}

bool FrontLoop::advance(Connection& c) {
  switch (c.state) {
    case State::kHandshaking:
      return handshake(c);
    case State::kIdle:
    case State::kReading:
      return read_request(c);
    case State::kWorking:
    case State::kHeld:
      return false;
    case State::kParked:
      if (c.gone) close(c);
      return false;
    case State::kWriting:
      return write_reply(c);
    case State::kDraining:
      return drain(c);
  }
  return false;
}

bool FrontLoop::handshake(Connection& c) {
  if (!c.readable && !c.socket.wants_room()) return false;
  // Handshakes run only in queued turns, so that new connections wait behind handshakes that have
  // begun.
  if (over(!turn_.queued || handshakes_ >= kHandshakesPerRound)) return true;
  ++handshakes_;
  switch (c.socket.handshake()) {
    case Io::kDone:
      enter(c, State::kIdle);
      // the end of the handshake may have arrived together with the first request
      c.readable = true;
      return true;
    case Io::kNotTls:
      refuse(c, 400, "this port speaks TLS: ask with https://");
      return true;
    case Io::kAgain:
      c.readable = false;
      return false;
    case Io::kClosed:
      break;
  }
  close(c);
  return false;
}

bool FrontLoop::read_request(Connection& c) {
  switch (c.framing.look(c.input)) {
    case Framing::State::kComplete:
      return dispatch(c);
    case Framing::State::kRefused:
      refuse(c, c.framing.status(), c.framing.message());
      return true;
    case Framing::State::kIncomplete:
      break;
  }
  // Writes without a retry: the socket has room, because the previous reply was sent completely. A
  // client that does not get "100 Continue" sends the body after a while anyway.
  std::size_t sent = 0;
  if (c.framing.takes_continue() && c.socket.write(kContinue, sent) == Io::kClosed) {
    close(c);
    return false;
  }
  if (c.readable) return read_more(c);
  if (!c.input.empty() && c.state == State::kIdle) enter(c, State::kReading);
  return false;
}

bool FrontLoop::read_more(Connection& c) {
  if (over(turn_.bytes >= (turn_.queued ? kTurnBytes : kFirstTurnBytes))) return true;
  const std::span<char> room = std::span(scratch_).first(turn_.queued ? kTurnBytes : kFirstTurnBytes);
  std::size_t size = 0;
  switch (c.socket.read(room, size)) {
    case Io::kAgain:
      c.readable = false;
      return true;
    case Io::kNotTls:
    case Io::kClosed:
      close(c);
      return false;
    case Io::kDone:
      break;
  }
  // A short read without TLS means that the socket is empty; epoll will report further input. With
  // TLS, a short read only ends a record. After the client has closed, epoll reports nothing more.
  if (tls_ == nullptr && size < room.size() && !c.gone) c.readable = false;
  turn_.bytes += size;
  c.input.append(scratch_.data(), size);
  count_bytes(c);
  if (buffered_ <= limits_.buffered_bytes || c.counted == 0) return true;
  refuse(c, 503, "nanoctrl holds as many unfinished requests as it may");
  return true;
}

bool FrontLoop::write_reply(Connection& c) {
  // A reply of more than kTurnBytes is sent in queued turns only, from its first byte on.
  const bool first = !turn_.queued && c.output.size() > kTurnBytes;
  while (c.writable && c.written < c.output.size()) {
    if (over(first || turn_.bytes >= kTurnBytes)) break;
    std::size_t size = 0;
    const Io io = c.socket.write(std::string_view(c.output).substr(c.written, kTurnBytes), size);
    if (io == Io::kDone) c.written += size;
    turn_.bytes += size;
    if (io == Io::kAgain) c.writable = false;
    if (io == Io::kClosed) {
      close(c);
      return false;
    }
  }
  if (c.written < c.output.size()) {
    if (c.deadline == kNever || c.written - c.timed >= kTimedBytes) {
      c.timed = c.written;
      set_deadline(c, deadline_after(now_, limits_.reply_time));
    }
    return turn_.over;
  }
  give_back(c.output);
  count_bytes(c);
  if (!c.closes && !stopping_ && c.holds) {
    enter(c, State::kHeld);
    return false;
  }
  if (!c.closes && !stopping_) {
    enter(c, c.input.empty() ? State::kIdle : State::kReading);
    // Ends the turn if the next request has arrived already, so that a client that pipelines
    // requests gets each reply in a turn of its own.
    over(!c.input.empty());
    return true;
  }
  c.socket.shut_down();
  // Reads and discards the remaining input first: closing a socket with unread input sends a reset,
  // which may overtake the reply.
  if (c.drains || c.readable || !c.input.empty()) {
    enter(c, State::kDraining);
    return true;
  }
  close(c);
  return false;
}

bool FrontLoop::drain(Connection& c) {
  std::size_t size = 0;
  if (over(turn_.bytes >= kTurnBytes)) return true;
  const Io io = c.socket.discard(scratch_, size);
  if (io == Io::kAgain) return false;
  turn_.bytes += size;
  c.drained += size;
  if (io == Io::kDone && c.drained < (c.too_often > 0 ? kDrainBytesTooOften : kDrainBytes)) return true;
  close(c);
  return false;
}

void FrontLoop::close(Connection& c) {
  stop_waiting(c);
  set_deadline(c, kNever);
  if (c.idle_at != idle_.end()) idle_.erase(c.idle_at);
  if (c.queued_at != queue_.end()) queue_.erase(c.queued_at);
  if (c.extra) --extras_;
  buffered_ -= c.counted;
  connections_.erase(c.id);
  gauges_.connections = connections_.size();
}

void FrontLoop::enter(Connection& c, State state) {
  c.state = state;
  // Connections in these states may be closed to make room (evict_idle()).
  const bool idle = state == State::kIdle || state == State::kHandshaking || state == State::kHeld;
  if (c.idle_at != idle_.end()) c.idle_at = (idle_.erase(c.idle_at), idle_.end());
  if (idle) c.idle_at = idle_.insert(idle_.end(), c.id);
  Nanos time{};
  if (state == State::kIdle) time = limits_.idle_time;
  if (state == State::kReading || state == State::kHandshaking) time = limits_.request_time;
  if (state == State::kDraining) time = kDrainTime;
  if (state == State::kHeld) time = kHoldTime;
  set_deadline(c, time > Nanos::zero() ? deadline_after(now_, time) : kNever);
}

void FrontLoop::set_deadline(Connection& c, TimePoint deadline) {
  if (c.deadline == deadline) return;
  if (c.deadline != kNever) deadlines_.erase({c.deadline, c.id});
  if (deadline != kNever) deadlines_.emplace(deadline, c.id);
  c.deadline = deadline;
}

void FrontLoop::count_bytes(Connection& c) {
  const std::size_t held = c.input.capacity() + c.output.capacity() + c.job_bytes;
  const std::size_t counted = held > limits::kBufferedFree ? held - limits::kBufferedFree : 0;
  buffered_ += counted;
  buffered_ -= c.counted;
  c.counted = counted;
}

// ---------------------------------------------------------------------------- requests and replies

bool FrontLoop::dispatch(Connection& c) {
  if (!rates_.take(c.client, now_)) {
    const RawRequest request = c.framing.take(c.input);
    return refuse_too_often(c, str(c.client, " asks too often"), request.head, !request.keeps_open);
  }
  auto job = std::make_unique<FrontJob>();
  job->connection = c.id;
  job->client = c.client;
  job->tenant = c.tenant;
  job->request = c.framing.take(c.input);
  job->last_refusal = c.too_often + 1 >= kTooOftenMost;
  job->scan = is_scan_ != nullptr &&
              is_scan_(job->request.part(job->request.method), job->request.part(job->request.target));
  c.job_bytes = job->request.bytes.capacity();
  count_bytes(c);
  submit(c, std::move(job));
  return false;
}

void FrontLoop::submit(Connection& c, std::unique_ptr<FrontJob> job) {
  if (c.state != State::kWorking) enter(c, State::kWorking);
  job->wakes = mailbox_.wakes();
  ++jobs_;
  workers_.submit(std::move(job));
}

void FrontLoop::take_done(std::unique_ptr<FrontJob> job) {
  --jobs_;
  if (stopping_) stop_by_ = deadline_after(now_, limits::kFlushTime);
  Connection& c = connections_.at(job->connection);  // connections in kWorking are never closed
  if (!job->handled.token_id.empty()) c.tenant = str("token ", job->handled.token_id);
  if (!job->handled.parked) {
    note_answer(c, job->handled.status);
    begin_reply(c, std::move(job->handled.reply), job->handled.close);
    drive(c);
  } else if (park(c, job)) {
    drive(c);
  }
}

// Parks the request of `job`, answers it with an error, or submits it again. Returns whether
// drive() should continue with the connection.
bool FrontLoop::park(Connection& c, std::unique_ptr<FrontJob>& job) {
  const bool head = job->request.head;
  const bool closes = !job->request.keeps_open;
  const auto answer = [&](int status, std::string_view message) {
    begin_reply(c, render(refusal(status, message), head, closes ? After::kClose : After::kOpen), closes);
    return true;
  };
  if (stopping_) return answer(503, "nanoctrl is shutting down");
  if (job->answer_now) return answer(500, "a request waits although it must not");
  if (!c.waits) {
    if (const auto problem = parking_.enter(c.client)) return refuse_too_often(c, *problem, head, closes);
    c.waits = true;
    gauges_.parked = parking_.waiting();
    job->parked_until = deadline_after(now_, job->handled.parked->wait);
  }
  const std::string key = std::exchange(job->handled.parked, std::nullopt)->key;
  // Submits the request again if its key was woken while the handler ran: the handler may have
  // missed the change.
  if (mailbox_.woken_since(key, job->wakes)) {
    submit(c, std::move(job));
    return false;
  }
  c.parked = std::move(job);
  c.parked_key = key;
  parking_.add(key, c.id);
  enter(c, State::kParked);
  set_deadline(c, *c.parked->parked_until);
  return true;
}

// Leaves kParked: the request is handled again.
void FrontLoop::unpark(Connection& c, bool answer_now) {
  parking_.remove(c.parked_key, c.id);
  std::unique_ptr<FrontJob> job = std::move(c.parked);
  job->answer_now = answer_now;
  submit(c, std::move(job));
}

void FrontLoop::wake(const std::string& key) {
  for (const std::uint64_t id : parking_.connections(key)) unpark(connections_.at(id), false);
}

// Stops counting the connection's request as parked, because it was answered or the connection
// closed.
void FrontLoop::stop_waiting(Connection& c) {
  if (c.parked) {
    parking_.remove(c.parked_key, c.id);
    c.parked.reset();
  }
  if (!std::exchange(c.waits, false)) return;
  parking_.leave(c.client);
  gauges_.parked = parking_.waiting();
}

// Notes the status of a reply. After a 429, nothing is read from the connection for a while, to
// slow down a client that exceeds its rate.
void FrontLoop::note_answer(Connection& c, int status) {
  c.holds = status == 429;
  if (c.holds) ++c.too_often;
}

bool FrontLoop::refuse_too_often(Connection& c, std::string_view message, bool head, bool closes) {
  refusals_("refused", {{"status", "429"}, {"client", c.client}, {"reason", std::string(message)}});
  note_answer(c, 429);
  closes |= c.too_often >= kTooOftenMost;
  begin_reply(c, render(refusal(429, message), head, closes ? After::kClose : After::kOpen), closes);
  return true;
}

void FrontLoop::begin_reply(Connection& c, std::string reply, bool closes) {
  stop_waiting(c);
  // Replaces the reply with a short 503 if the replies that clients have not read yet would use too
  // much memory.
  if (reply.size() > limits::kBufferedFree && buffered_ + reply.size() > limits_.buffered_bytes) {
    closes = true;
    reply = render(refusal(503, "nanoctrl holds as many replies as it may"), false, After::kClose);
  }
  c.output = std::move(reply);
  c.written = 0;
  c.timed = 0;
  c.closes = closes;
  c.job_bytes = 0;
  count_bytes(c);
  enter(c, State::kWriting);
}

ApiReply FrontLoop::refusal(int status, std::string_view message) {
  ++gauges_.refused;
  return refusal_of(status, message);
}

// Answers a request that did not reach a handler with an error. The connection closes after this
// reply.
void FrontLoop::refuse(Connection& c, int status, std::string_view message) {
  const bool head = c.parked ? c.parked->request.head : c.framing.head();
  const std::string reply = render(refusal(status, message), head, After::kClose);
  give_back(c.input);
  c.drains = true;
  begin_reply(c, reply, true);
}

}  // namespace slime::ctrl

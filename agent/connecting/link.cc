#include "agent/connecting/link.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/str.h"

namespace slime::agent {

Link::Link(LinkOwner& owner, transport::Loop& loop, std::string log_name, std::string key, Target target,
           std::uint64_t seed)
    : owner_(owner),
      loop_(loop),
      log_name_(std::move(log_name)),
      key_(std::move(key)),
      target_(std::move(target)),
      machine_(target_.by_name, seed),
      address_(target_.address),
      waiting_(loop, key_) {}

Link::~Link() {
  loop_.cancel_timer(retry_timer_);
  leave_session();
}

bool Link::forgettable() const {
  return !session_ && !attempt_ && waiting_.empty() && machine_.state() != ConnectionState::kResolving;
}

// Logs each change of state once.
void Link::note_state() {
  const ConnectionState now = machine_.state();
  if (now == noted_) return;
  const bool failed = now == ConnectionState::kBroken || now == ConnectionState::kBackoff;
  SLIME_LOG(LogLevel::kInfo, "agent", log_name_, ": ", key_, ": ", state_name(noted_), " -> ",
            state_name(now), failed ? ": " : "", failed ? machine_.reason().to_string() : std::string());
  noted_ = now;
}

// -------------------------------------------------------------------------------------- operations

void Link::submit(OperationPtr<PeerOperation> operation) {
  if (takes_at_once()) {
    start(std::move(operation));
    return;
  }
  const TimePoint now = loop_.now();
  if (operation->deadline <= now) {
    operation->fail(Status(Code::kDeadlineExceeded, str(key_, ": the deadline had passed before it began")));
    return;
  }
  if (waiting_.size() >= limits::kWaitingOperations) {
    operation->fail(Status(Code::kResourceExhausted,
                           str(key_, ": ", waiting_.size(), " operations wait for the connection already")));
    return;
  }
  if (!operation->connects() || machine_.state() == ConnectionState::kReady) {
    wait(std::move(operation));
    return;
  }
  Step step = machine_.use(now);
  // The peer may have connected to this agent since the failed attempt.
  if (step == Step::kRefuse && owner_.find_session(*this)) {
    machine_.forget_failures();
    step = machine_.use(now);
  }
  if (step == Step::kRefuse && !operation->wait_for_ready) {
    operation->fail(machine_.refusal(key_, now));
    return;
  }
  wait(std::move(operation));
  perform(step);
}

// Returns whether operations can start on the session now. False also if the connection has just
// broken, which it reports in a later turn: a caller that saw its operation fail may begin the next
// one before that turn, and that operation must wait for the next connection.
bool Link::usable() const { return machine_.state() == ConnectionState::kReady && !session_->lost(); }

void Link::start(OperationPtr<PeerOperation> operation) {
  session_->touch();
  operation->start(*session_);
}

void Link::wait(OperationPtr<PeerOperation> operation) {
  const TimePoint until =
      std::min(operation->deadline, deadline_after(operation->began, operation->patience()));
  waiting_.add(std::move(operation), until, [this](const OperationPtr<PeerOperation>& late) {
    const std::string_view missing = late->connects() ? "no connection" : "no message";
    const Status& reason = machine_.reason();
    late->fail(Status(Code::kDeadlineExceeded,
                      str(key_, ": ", missing, " before the deadline; ", state_text(machine_.state()),
                          reason.ok() ? "" : "; last failure: ", reason.text())));
  });
}

void Link::flush() {
  if (flushing_) return;
  flushing_ = true;  // operations that callbacks submit meanwhile queue behind the waiting ones
  while (!waiting_.empty() && usable()) start(waiting_.take_first());
  flushing_ = false;
}

void Link::fail_all(const Status& reason) {
  end_attempt();
  key_retries_ = 0;
  loop_.cancel_timer(retry_timer_);
  while (!waiting_.empty()) waiting_.take_first()->fail(reason);
}

// Fails the operations that wait for the failed attempt. Receives go on waiting, and so do
// operations with wait_for_ready if the peer may become reachable later.
void Link::fail_waiting() {
  key_retries_ = 0;
  const Status reason = machine_.reason();
  const auto failed = waiting_.take_if([&](const PeerOperation& operation) {
    return operation.connects() && !(operation.wait_for_ready && worth_waiting(reason));
  });
  arm_retry();
  // Fails them last: their callbacks may call this link.
  for (const auto& operation : failed) operation->fail(reason);
}

// Arms the timer of the next attempt if an operation waits for the connection.
void Link::arm_retry() {
  loop_.cancel_timer(retry_timer_);
  if (!waiting_.any_connects()) return;
  const TimePoint when =
      machine_.state() == ConnectionState::kBackoff ? machine_.next_attempt() : loop_.now();
  retry_timer_ = loop_.add_timer(when, [this] {
    retry_timer_ = {};
    perform(machine_.use(loop_.now()));
  });
}

void Link::retry_soon() {
  machine_.forget_failures();
  if (machine_.state() == ConnectionState::kBroken) arm_retry();
}

// -------------------------------------------------------------------------------------- connecting

void Link::perform(Step step) {
  note_state();
  switch (step) {
    case Step::kUse:
      flush();
      return;
    case Step::kWait:
      return;
    case Step::kResolve:
      resolve(false);
      return;
    case Step::kResolveFresh:
      resolve(true);
      return;
    case Step::kConnect:
      connect();
      return;
    case Step::kFail:
      fail_waiting();
      return;
    case Step::kRefuse:
      arm_retry();
      return;
  }
}

void Link::resolve(bool fresh) {
  if (auto session = owner_.find_session(*this)) {
    attach(std::move(session));
    return;
  }
  if (!fresh) {
    if (auto entry = owner_.cached_entry(key_)) {
      address_ = entry->address;
      expected_ = {key_, entry->instance};
      perform(machine_.resolved(true));
      return;
    }
  }
  owner_.resolve(*this);
}

void Link::on_resolved(Result<DirectoryEntry> entry) {
  // Another event came first: a session arrived, or the attempt was given up.
  if (machine_.state() != ConnectionState::kResolving) return;
  const TimePoint now = loop_.now();
  if (!entry) {
    perform(machine_.resolve_failed(std::move(entry).error(), now));
    return;
  }
  const bool tried =
      !machine_.reason().ok() && entry->address == address_ && entry->instance == expected_.instance;
  address_ = entry->address;
  expected_ = {key_, entry->instance};
  // The registry returned the address that has just failed: fails with the reason of that failure.
  if (tried && machine_.retrying()) {
    perform(machine_.resolve_failed(machine_.reason(), now));
  } else {
    perform(machine_.resolved(false));
  }
}

void Link::connect() {
  if (auto session = owner_.find_session(*this)) {
    attach(std::move(session));
    return;
  }
  attempt_ = owner_.connect(*this, ++attempt_number_, address_, expected_);
}

// Destroys the attempt in a later turn, because a function of it may be on the stack. Its result is
// ignored.
void Link::end_attempt() {
  if (attempt_) loop_.post([held = std::shared_ptr<transport::Connecting>(std::move(attempt_))] {});
}

void Link::answered(transport::PeerIdentity peer) {
  if (peer.instance != identity_.instance) owner_.on_new_instance(*this, peer.instance);
  identity_ = std::move(peer);
}

void Link::on_handshake_failed(Status reason, bool others) {
  end_attempt();
  // The peer may have connected to this agent meanwhile.
  if (auto session = owner_.find_session(*this)) {
    attach(std::move(session));
    return;
  }
  if (others) return connect_again(std::move(reason));
  perform(machine_.connect_failed(std::move(reason), loop_.now()));
}

bool Link::wait_for_keys() {
  if (key_retries_ == limits::kKeyRetries) return false;
  ++key_retries_;
  end_attempt();
  return true;
}

void Link::on_keys(std::uint64_t attempt) {
  const auto still = [this, attempt] {
    return machine_.state() == ConnectionState::kHandshaking && !attempt_ && !session_ &&
           attempt_number_ == attempt;
  };
  if (!still()) return;  // a session came first, or the attempt was given up
  if (key_retries_ == 1) return connect();
  loop_.cancel_timer(retry_timer_);
  const TimePoint when =
      deadline_after(loop_.now(), limits::kKeyPause * (std::int64_t{1} << (key_retries_ - 2)));
  retry_timer_ = loop_.add_timer(when, [this, still] {
    retry_timer_ = {};
    if (still()) connect();
  });
}

// Ends the attempt without counting a failure, so there is no backoff. Connects again at once if an
// operation waits for the connection.
void Link::connect_again(Status reason) {
  machine_.closed(std::move(reason));
  note_state();
  arm_retry();
}

void Link::attach(std::shared_ptr<Session> session) {
  end_attempt();
  leave_session();
  session_ = std::move(session);
  session_->links.push_back(this);
  answered(session_->peer());
  if (session_->ready()) {
    on_session_ready();
  } else {
    machine_.handshaking();
    note_state();
  }
}

void Link::on_session_ready() {
  end_attempt();
  loop_.cancel_timer(retry_timer_);
  if (session_->initiator()) address_ = session_->address();
  machine_.ready();
  key_retries_ = 0;
  ++connects_;
  note_state();
  flush();
}

void Link::leave_session() {
  if (!session_) return;
  std::erase(session_->links, this);
  session_.reset();
}

void Link::detach(Status reason) {
  leave_session();
  machine_.closed(std::move(reason));
  note_state();
  if (machine_.state() != ConnectionState::kReady) arm_retry();
}

void Link::on_session_draining() {
  machine_.drain();
  note_state();
}

void Link::on_session_closed(const Status& reason, std::shared_ptr<Session> replacement, bool others) {
  const bool came_to_us = !session_->initiator();
  leave_session();
  const bool was_opening = machine_.state() == ConnectionState::kHandshaking;
  if (replacement) {
    if (!was_opening) machine_.closed(reason);
    attach(std::move(replacement));
    return;
  }
  // Counts a failed attempt. Not if another provider is left to try, nor if the peer opened this
  // connection, since a connection opened by this side may still work.
  if (was_opening && !others && !came_to_us) {
    perform(machine_.connect_failed(
        reason.ok() ? Status(Code::kUnavailable, str(key_, " closed the connection while it was opened"))
                    : reason,
        loop_.now()));
    return;
  }
  connect_again(reason);
}

void Link::disconnect() {
  if (session_ && machine_.state() == ConnectionState::kReady) {
    owner_.drain(*session_);
    return;
  }
  if (machine_.state() == ConnectionState::kDraining) return;
  const Status reason(Code::kCancelled, str(key_, " was disconnected"));
  if (const auto opening = session_) {
    leave_session();
    if (opening->links.empty()) owner_.drain(*opening);
  }
  machine_.closed(Status());
  fail_all(reason);
  note_state();
}

}  // namespace slime::agent

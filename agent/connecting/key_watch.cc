#include "agent/connecting/key_watch.h"

#include <algorithm>
#include <utility>

namespace slime::agent {

KeyWatch::~KeyWatch() {
  loop_.cancel_timer(question_);
  loop_.cancel_timer(timer_);
}

void KeyWatch::stop_asking() {
  refresh_ = nullptr;
  loop_.cancel_timer(question_);
}

void KeyWatch::on_stranger() {
  if (!refresh_ || loop_.now() < next_stranger_) return;
  next_stranger_ = deadline_after(loop_.now(), limits::kStrangerPause);
  refresh_();
}

void KeyWatch::on_unknown_key() {
  if (refresh_ && !question_) ask();
}

// Asks the registry for newer keys, and again while a peer has proved a key that is not known here:
// the peer's nanoctrl may have heard of the key before ours. The pauses grow until the keys change,
// so a peer that proves an invented key costs little.
void KeyWatch::ask() {
  refresh_();
  question_ = loop_.add_timer(deadline_after(loop_.now(), pause_), [this] {
    question_ = {};
    pause_ = std::min(2 * pause_, limits::kMemberPauseMax);
    const bool waits = std::any_of(sessions_.begin(), sessions_.end(),
                                   [](const auto& each) { return each.second->awaits_key(); });
    if (waits) on_unknown_key();
  });
}

void KeyWatch::on_ready(Session& session) {
  if (keyring_ != nullptr) follow(session, keyring_->set());
}

void KeyWatch::on_new_keys() {
  if (keyring_ == nullptr) return;
  pause_ = limits::kMemberPauseMin;
  const KeySet set = keyring_->set();
  const auto sessions = sessions_;
  for (const auto& [id, session] : sessions) follow(*session, set);
}

// Proves this agent's newest key to the peer. If all keys that the peer has proved were revoked,
// starts the peer's time to prove a valid key.
void KeyWatch::follow(Session& session, const KeySet& set) {
  session.on_keys(set);
  const TimePoint until = session.prove_by(set);
  if (until == kNever) return;
  arm(until);
  // A peer of an earlier version proves its key only in a handshake, so it needs a new session.
  if (session.ready() && !session.channel().takes_proofs())
    owner_.replace_unproved(session, std::max(until - loop_.now(), Nanos::zero()));
}

void KeyWatch::arm(TimePoint when) {
  if (timer_ && timer_.when <= when) return;
  loop_.cancel_timer(timer_);
  timer_ = loop_.add_timer(when, [this, when] {
    timer_ = {};
    // A timer that fires late shows that the loop was blocked: messages that arrived meanwhile are
    // unread and may be proofs, so the peers get more time, once.
    const Nanos late = loop_.now() - when;
    if (late >= limits::kLateLoop && !std::exchange(timer_late_, true))
      return arm(deadline_after(loop_.now(), std::min(late, keyring_->set().grace)));
    timer_late_ = false;
    end_revoked();
  });
}

void KeyWatch::end_revoked() {
  const KeySet set = keyring_->set();
  const TimePoint now = loop_.now();
  const auto sessions = sessions_;
  for (const auto& [id, session] : sessions) {
    const TimePoint until = session->prove_by(set);
    if (until == kNever) continue;
    if (until > now) {
      arm(until);
      continue;
    }
    owner_.expel(*session, Status(Code::kUnauthenticated,
                                  "the key that this connection was made under was revoked, and no newer one "
                                  "was proved"));
  }
}

}  // namespace slime::agent

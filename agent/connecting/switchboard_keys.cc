#include <algorithm>
#include <utility>

#include "agent/connecting/switchboard.h"
#include "agent/limits.h"
#include "base/log.h"
#include "base/str.h"

// Proves newer keys on connections, and ends connections whose keys were revoked.
namespace slime::agent {

// It may have a key that we have yet to hear of, and tries again in a moment.
void Switchboard::on_unproved() noexcept {
  if (closing_ || !registry_.refresh_keys || loop_.now() < next_refresh_) return;
  next_refresh_ = deadline_after(loop_.now(), limits::kStrangerPause);
  registry_.refresh_keys({}, 0);
}

void Switchboard::on_keys(const std::string& name, std::uint64_t attempt) {
  Link* const link = find_link(name);
  if (link != nullptr && !closing_) link->on_keys(attempt);
}

void Switchboard::on_session_unknown_key() {
  if (!closing_ && registry_.refresh_keys && !key_question_) ask_for_keys();
}

// And again while a peer's proof waits for its key: our nanoctrl may hear of it later than the peer's did.
// The pauses grow until the keys change, so a peer that proves what nobody has costs little.
void Switchboard::ask_for_keys() {
  registry_.refresh_keys({}, 0);
  key_question_ = loop_.add_timer(deadline_after(loop_.now(), key_pause_), [this] {
    key_question_ = {};
    key_pause_ = std::min(2 * key_pause_, limits::kMemberPauseMax);
    const bool waits = std::any_of(sessions_.begin(), sessions_.end(),
                                   [](const auto& each) { return each.second->awaits_key(); });
    if (waits && !closing_) ask_for_keys();
  });
}

void Switchboard::on_new_keys() {
  if (options_.keyring == nullptr) return;
  key_pause_ = limits::kMemberPauseMin;
  const KeySet set = options_.keyring->set();
  const auto sessions = sessions_;
  for (const auto& [id, session] : sessions) follow_keys(*session, set);
}

// Proves our newest key to the peer, and gives a peer whose keys were revoked its time to do the same.
void Switchboard::follow_keys(Session& session, const KeySet& set) {
  session.on_keys(set);
  const TimePoint until = session.prove_by(set);
  if (until == kNever) return;
  arm_key_timer(until);
  // A peer of an earlier version can prove nothing here, but in its next handshake.
  if (session.ready() && !session.channel().takes_proofs())
    drain(session, std::max(until - loop_.now(), Nanos::zero()), true);
}

void Switchboard::arm_key_timer(TimePoint when) {
  if (key_timer_ && key_timer_.when <= when) return;
  loop_.cancel_timer(key_timer_);
  key_timer_ = loop_.add_timer(when, [this, when] {
    key_timer_ = {};
    // A loop that is late has yet to read what has come meanwhile, proofs among it.
    const Nanos late = loop_.now() - when;
    if (late >= limits::kLateLoop && !std::exchange(key_timer_late_, true))
      return arm_key_timer(deadline_after(loop_.now(), std::min(late, options_.keyring->set().grace)));
    key_timer_late_ = false;
    end_revoked();
  });
}

void Switchboard::end_revoked() {
  const KeySet set = options_.keyring->set();
  const TimePoint now = loop_.now();
  const auto sessions = sessions_;
  for (const auto& [id, session] : sessions) {
    const TimePoint until = session->prove_by(set);
    if (until == kNever) continue;
    if (until > now) {
      arm_key_timer(until);
      continue;
    }
    Status reason(Code::kUnauthenticated,
                  "the key that this connection was made under was revoked, and no newer one was proved");
    SLIME_LOG(LogLevel::kWarning, "agent", options_.handshake.self.name, ": ends the connection with ",
              session->peer().name, ": ", reason.text());
    const bool held = session->state() == Session::State::kHeld;
    const Pairing::Changes changes = retire(*session);
    session->expel(std::move(reason));
    if (held) release(*session);
    apply(changes);
  }
}

}  // namespace slime::agent

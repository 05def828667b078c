#include "agent/connecting/session.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "agent/limits.h"
#include "agent/memory/devices.h"
#include "agent/memory/first_use.h"
#include "agent/memory/region.h"
#include "base/log.h"
#include "base/str.h"

namespace slime::agent {

Session::Session(SessionContext& context, transport::Connected connected)
    : context_(context),
      id_(connected.endpoint->id()),
      peer_(std::move(connected.peer)),
      address_(std::move(connected.address)),
      initiator_(connected.initiator),
      handshake_(connected.handshake),
      provider_(std::move(connected.provider)),
      reason_(std::move(connected.reason)),
      device_(*context.devices.find(provider_)),  // the handshake chose a device of ours
      last_use_(++context.uses),
      endpoint_(std::move(connected.endpoint)),
      carrier_(*endpoint_) {
  if (context_.keyring != nullptr && connected.key_set)
    keys_.emplace(std::move(connected.proofs), *connected.key_set);
}

Session::~Session() { context_.loop.cancel_timer(ready_timer_); }

void Session::open() {
  SLIME_CHECK(state_ == State::kHeld);
  state_ = State::kOpening;
  ready_timer_ = context_.loop.add_timer(deadline_after(context_.loop.now(), limits::kReadyTimeout), [this] {
    ready_timer_ = {};
    reset(Status(Code::kUnavailable,
                 str(peer_.name, " finished the handshake but opened no channel within ",
                     std::chrono::duration_cast<std::chrono::seconds>(limits::kReadyTimeout).count(), " s")));
  });
  rpc::ChannelOptions options;
  options.peer_name = peer_.name;
  options.streams = context_.streams;
  options.memory_bytes = context_.memory_bytes;
  options.max_payload_bytes = context_.max_payload_bytes;
  options.held = true;
  channel_ = rpc::Channel::create(context_.loop, *context_.devices.device(device_), std::move(endpoint_),
                                  &context_.server, *this, std::move(options));
  posts_.emplace(context_.loop, channel_->endpoint(), peer_.name);
  context_.first_use.use(device_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_registered();
  });
}

// From here on the regions can be described, and operations may name them.
void Session::on_registered() {
  registered_ = true;
  channel_->resume();
  become_ready();
}

void Session::become_ready() {
  if (state_ != State::kOpening || !greeted_ || !registered_) return;
  state_ = State::kReady;
  context_.loop.expect_soon();  // the first operation, which waits for the connection
  context_.owner.on_session_ready(*this);
}

void Session::probe(Nanos timeout) {
  channel_->ping(
      deadline_after(context_.loop.now(), timeout), [self = shared_from_this()](const Status& status) {
        if (status.ok()) {
          self->context_.owner.on_session_alive(*self);
          return;
        }
        if (self->state_ != State::kReady) return;  // the session ends anyway
        self->reset(Status(Code::kUnavailable,
                           str(self->peer_.name, " no longer answers on this connection: ", status.text())));
      });
}

void Session::drain(Nanos bound, bool abandoned) {
  if (state_ == State::kClosed) return;
  context_.loop.cancel_timer(ready_timer_);
  abandoned_ = abandoned_ || abandoned;
  state_ = State::kDraining;
  if (channel_) {
    channel_->close(bound);
    return;
  }
  endpoint_.reset();  // a held connection, which was never used
  state_ = State::kClosed;
}

void Session::reset(Status reason) {
  if (state_ == State::kClosed) return;
  if (channel_) {
    channel_->reset(std::move(reason));
    return;
  }
  endpoint_.reset();
  state_ = State::kClosed;
}

void Session::cut(Status reason) {
  const auto self = shared_from_this();
  reset(reason);
  on_channel_closed(reason);
}

void Session::expel(Status reason) {
  if (state_ == State::kClosed) return;
  if (!channel_) return reset(std::move(reason));
  context_.loop.cancel_timer(ready_timer_);
  state_ = State::kDraining;
  abandoned_ = true;
  channel_->expel(std::move(reason));
}

void Session::revoke(std::string_view region) {
  if (channel_ && (state_ == State::kReady || state_ == State::kDraining)) channel_->revoke_region(region);
}

// -------------------------------------------------------------------------------------------- keys

void Session::on_keys(const KeySet& set) {
  if (!keys_ || state_ == State::kClosed) return;
  if (Status refused = keys_->on_keys(set); !refused.ok()) {
    abandon(refused);
    return channel_->expel(std::move(refused));
  }
  if (!channel_ || !channel_->takes_proofs()) return;
  if (const auto proof = keys_->next_proof(set)) channel_->prove(*proof);
}

TimePoint Session::prove_by(const KeySet& set) {
  return keys_ && state_ != State::kClosed ? keys_->prove_by(set, context_.loop.now()) : kNever;
}

Status Session::on_channel_proof(Bytes proof) noexcept {
  Status refused(Code::kCorrupt, "a proof of a key on a connection without keys");
  if (keys_) {
    const auto verdict = keys_->on_proof(proof, context_.keyring->set(), context_.loop.now());
    if (verdict && *verdict == SessionKeys::Verdict::kUnknown) context_.owner.on_session_unknown_key();
    if (verdict) return {};
    refused = verdict.error();
  }
  abandon(refused);
  return refused;
}

// Takes the session out of use, and logs why. The channel is open: the refused proof came over it.
void Session::abandon(const Status& refused) {
  SLIME_LOG(LogLevel::kWarning, "agent", "ends the connection with ", peer_.name, ": ", refused.to_string());
  abandoned_ = true;
  on_channel_closing();
}

// ---------------------------------------------------------------------------- one-sided operations

Status Session::check_remote(const RemoteRegion& remote) const {
  if (knows(remote)) return {};
  if (remote.endpoint_id() == 0) return Status(Code::kInvalidArgument, "an empty remote region");
  return Status(Code::kAborted, str("a region of another connection, or of an earlier one to ", peer_.name,
                                    ": ask for it again with region()"));
}

bool Session::done_now(OneSided kind, std::span<const transport::CopyBlock> copies) {
  if (!posts_->empty()) return false;
  transport::Endpoint& endpoint = channel_->endpoint();
  return kind == OneSided::kRead ? endpoint.read_now(copies) : endpoint.write_now(copies);
}

void Session::on_channel_writable() noexcept {
  if (state_ == State::kReady || state_ == State::kDraining) posts_->on_writable();
}

// ----------------------------------------------------------------------------- the channel's owner

void Session::on_channel_ready() noexcept {
  if (state_ != State::kOpening) return;
  context_.loop.cancel_timer(ready_timer_);
  greeted_ = true;
  become_ready();
}

void Session::on_channel_imm(std::uint32_t imm) noexcept { context_.owner.on_session_imm(*this, imm); }

Result<transport::RegionDescriptor> Session::on_region_lookup(std::string_view name) noexcept {
  return context_.regions.describe(name, device_);
}

void Session::on_region_revoked(std::string_view name) noexcept {
  if (const auto it = regions_.find(name); it != regions_.end()) regions_.erase(it);
}

// Logs the 1st, 2nd, 4th, 8th, ... failure: a handler that always fails must not fill the disk.
void Session::on_one_way_failed(const Status& status) noexcept {
  const std::uint64_t failed = channel_->counters().one_way_failed;
  if (!std::has_single_bit(failed)) return;
  SLIME_LOG(LogLevel::kWarning, "agent", peer_.name, ": a one-way call failed (", failed,
            " so far): ", status.to_string());
}

void Session::on_channel_closing() noexcept {
  if (state_ != State::kOpening && state_ != State::kReady) return;
  context_.loop.cancel_timer(ready_timer_);
  state_ = State::kDraining;
  context_.owner.on_session_closing(*this);
}

void Session::on_channel_closed(const Status& reason) noexcept {
  if (state_ == State::kClosed) return;  // it was cut off before
  context_.loop.cancel_timer(ready_timer_);
  // If this side ended the connection, abandon() has logged the reason.
  if (reason.code() == Code::kUnauthenticated && !abandoned_)
    SLIME_LOG(LogLevel::kWarning, "agent", "the connection with ", peer_.name, " ended: ", reason.text());
  state_ = State::kClosed;
  regions_.clear();
  if (posts_)
    posts_->fail_all(reason.ok()
                         ? Status(Code::kCancelled, str("the connection to ", peer_.name, " was closed"))
                         : reason);
  context_.owner.on_session_closed(*this, reason);
}

// ------------------------------------------------------------------------------------------- looks

bool Session::other_end_of(const Session& session) const {
  return handshake_ == session.handshake_ && initiator_ != session.initiator_;
}

Session& Session::receiver() {
  const auto other_end = other_end_.lock();
  return other_end && other_end->state_ != State::kClosed ? *other_end : *this;
}

const RemoteRegion* Session::cached_region(std::string_view name) const {
  const auto it = regions_.find(name);
  return it == regions_.end() ? nullptr : &it->second;
}

void Session::cache_region(const std::string& name, const RemoteRegion& region) {
  if (ready()) regions_.insert_or_assign(name, region);
}

void Session::forget_region(const RemoteRegion& region) {
  std::erase_if(regions_, [&](const auto& known) { return known.second.id() == region.id(); });
}

// Returns null if the session was closed before it had a channel.
const transport::Endpoint* Session::endpoint() const {
  return channel_ ? &channel_->endpoint() : endpoint_.get();
}

std::string Session::describe() const { return endpoint() ? endpoint()->describe() : std::string(); }
std::size_t Session::in_flight() const { return endpoint() ? endpoint()->in_flight() : 0; }
std::uint64_t Session::credits() const { return endpoint() ? endpoint()->credits() : 0; }

bool Session::lost() const { return channel_ && carrier_.failed(); }

bool Session::idle() const {
  return channel_ && channel_->idle() && channel_->endpoint().in_flight() == 0 && posts_->empty();
}

std::uint64_t Session::last_use() {
  const std::uint64_t requests = channel_counters().requests + endpoint_counters().notifications_received;
  if (std::exchange(requests_seen_, requests) != requests) touch();
  return last_use_;
}

rpc::ChannelCounters Session::channel_counters() const {
  return channel_ ? channel_->counters() : rpc::ChannelCounters{};
}

transport::EndpointCounters Session::endpoint_counters() const {
  return endpoint() ? endpoint()->counters() : transport::EndpointCounters{};
}

}  // namespace slime::agent

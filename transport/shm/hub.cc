#include "transport/shm/hub.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/str.h"
#include "transport/shm/shm_wire.h"

namespace slime::transport::shm {

Hub::Visitor::~Visitor() {
  hub.loop_.cancel_timer(timer);
  if (watched) hub.loop_.unwatch(socket.get());
}

// ------------------------------------------------------------------------------------ opening, end

Result<std::shared_ptr<Hub>> Hub::create(Loop& loop, Options options) {
  std::shared_ptr<Hub> hub(new Hub(loop, options));
  SLIME_TRY(hub->open());
  return hub;
}

Status Hub::open() {
  Result<InstanceId> boot = boot_id();
  if (!boot) return std::move(boot).error();
  boot_ = *boot;
  socket_name_ = InstanceId::random();
  SLIME_TRY(bell_.open());
  Result<UniqueFd> listening = listen_local(local_socket_name(socket_name_));
  if (!listening) return std::move(listening).error();
  listening_ = std::move(*listening);
  SLIME_TRY(loop_.watch(bell_.event_fd(), EPOLLIN, on_bell_));
  if (Status watched = loop_.watch(listening_.get(), EPOLLIN, on_listening_); !watched.ok()) {
    loop_.unwatch(bell_.event_fd());
    return watched;
  }
  loop_.add_poller(*this);
  open_ = true;
  return {};
}

Hub::~Hub() {
  SLIME_CHECK(loop_.in_loop());
  visitors_.clear();
  loop_.cancel_timer(aging_);
  loop_.cancel_timer(accept_again_);
  if (!open_) return;
  loop_.remove_poller(*this);
  loop_.unwatch(bell_.event_fd());
  loop_.unwatch(listening_.get());
}

// --------------------------------------------------------------------------------------- attaching

Parameters Hub::expect() {
  Parameters out;
  out.uid = ::geteuid();
  out.pid = static_cast<std::uint32_t>(::getpid());
  out.boot = boot_;
  out.socket_name = socket_name_;
  out.cookie = InstanceId::random();
  expected_[out.cookie];
  return out;
}

void Hub::forget(const InstanceId& cookie) { expected_.erase(cookie); }

void Hub::claim(const InstanceId& cookie, ShmWire& wire) {
  Expected& expected = expected_[cookie];
  expected.wire = &wire;
  if (!expected.socket.valid()) return;
  Expected there = std::move(expected);
  expected_.erase(cookie);
  wire.on_attach(std::move(there.socket), std::move(there.packet));
}

void Hub::on_visitors() {
  for (int i = 0; i < limits::kAcceptsPerTurn; ++i) {
    UniqueFd socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) pause_accepting();
      return;
    }
    if (!check_neighbour(socket.get()).ok()) continue;
    // Drops the oldest connection that has sent no packet, to make room for the new one.
    if (visitors_.size() >= limits::kPendingHandshakes) drop(*visitors_.front());
    auto visitor = std::make_unique<Visitor>(*this, std::move(socket));
    if (!loop_.watch(visitor->socket.get(), EPOLLIN, *visitor).ok()) continue;
    visitor->watched = true;
    visitor->timer = loop_.add_timer(deadline_after(loop_.now(), limits::kHandshakeTimeout),
                                     [this, &who = *visitor] { drop(who); });
    visitors_.push_back(std::move(visitor));
    on_packet(*visitors_.back());  // the packet is mostly there already
  }
}

// Stops accepting for a while, because the process is out of descriptors or memory. The connection
// stays in the backlog and the socket readable: the loop would call on_visitors() again and again.
void Hub::pause_accepting() {
  if (accept_again_ || !loop_.change_watch(listening_.get(), 0).ok()) return;
  accept_again_ = loop_.add_timer(deadline_after(loop_.now(), limits::kAcceptBackoff), [this] {
    accept_again_ = TimerId{};
    if (!loop_.change_watch(listening_.get(), EPOLLIN).ok()) pause_accepting();
  });
}

void Hub::drop(Visitor& visitor) {
  std::erase_if(visitors_, [&](const auto& other) { return other.get() == &visitor; });
}

void Hub::on_packet(Visitor& visitor) {
  Result<Packet> packet = receive_packet(visitor.socket.get());
  if (!packet && packet.error().code() == Code::kResourceExhausted) return;
  const Result<AttachPacket> attach = packet ? decode_attach(*packet) : Result<AttachPacket>(packet.error());
  // This process could not receive the descriptors. Tells the initiator so at once, because it
  // would otherwise wait until its timeout.
  if (packet && attach.status().code() == Code::kResourceExhausted)
    send_refusal(visitor.socket.get(), attach.error());
  if (!attach) return drop(visitor);
  const auto expected = expected_.find(InstanceId{attach->cookie});
  if (expected == expected_.end() || expected->second.socket.valid()) return drop(visitor);
  loop_.unwatch(visitor.socket.get());
  visitor.watched = false;
  UniqueFd socket = std::move(visitor.socket);
  drop(visitor);
  ShmWire* const wire = expected->second.wire;
  if (wire == nullptr) {
    expected->second.socket = std::move(socket);
    expected->second.packet = std::move(*packet);
    return;
  }
  expected_.erase(expected);
  wire->on_attach(std::move(socket), std::move(*packet));
}

// ------------------------------------------------------------------------------------------- wires

Result<std::uint32_t> Hub::add(ShmWire& wire) {
  std::uint32_t number = 0;
  if (!free_.empty()) {
    number = free_.back();
    free_.pop_back();
  } else if (wires_.size() < limits::kShmPeers) {
    number = static_cast<std::uint32_t>(wires_.size());
    wires_.push_back(nullptr);
  } else {
    return Status(Code::kResourceExhausted,
                  str("this port has ", limits::kShmPeers, " connections over shared memory, its most"));
  }
  wires_[number] = &wire;
  return number;
}

void Hub::remove(std::uint32_t number) {
  for (auto* list : {&watched_, &untold_})
    std::replace(list->begin(), list->end(), wires_[number], static_cast<ShmWire*>(nullptr));
  wires_[number] = nullptr;
  free_.push_back(number);
}

void Hub::watch(ShmWire& wire) {
  if (std::find(watched_.begin(), watched_.end(), &wire) == watched_.end()) watched_.push_back(&wire);
}

void Hub::age_later() {
  if (aging_) return;
  aging_ = loop_.add_timer(deadline_after(loop_.now(), limits::kRingIdle), [this] {
    aging_ = TimerId{};
    bool again = false;
    for (ShmWire* wire : wires_) again = (wire != nullptr && wire->age()) || again;
    if (again) age_later();
  });
}

bool Hub::poll_once() noexcept {
  if (std::exchange(asleep_, false)) bell_.wake();
  bool worked = false;
  ++looks_;
  looking_ = true;
  // Iterates by index: a look may destroy wires and add new ones.
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    if (watched_[i] != nullptr) worked = watched_[i]->look() || worked;
  }
  bell_.take([&](std::uint32_t number) {
    if (number >= wires_.size() || wires_[number] == nullptr) return;
    wires_[number]->on_rung();
    worked = true;
  });
  looking_ = false;
  tell_untold();
  if (watched_.size() > limits::kShmWatched) cool_down();
  return worked;
}

void Hub::tell_untold() {
  for (ShmWire* wire : untold_) {
    if (wire != nullptr) wire->tell_now();
  }
  untold_.clear();
}

// Stops looking at the quietest wires until at most kShmWatched are left. The peers of the removed
// wires ring the bell from now on.
void Hub::cool_down() {
  std::erase(watched_, nullptr);
  while (watched_.size() > limits::kShmWatched) {
    const auto quietest = std::max_element(
        watched_.begin(), watched_.end(),
        [](const ShmWire* a, const ShmWire* b) { return a->quiet_looks() < b->quiet_looks(); });
    if ((*quietest)->quiet_looks() == 0 || !(*quietest)->park()) return;
    // Asks the peer to ring when there is room, because the hub no longer looks at this wire. arm()
    // also does this, but is not called while the port is busy.
    if (!(*quietest)->await_room()) return;
    watched_.erase(quietest);
  }
}

bool Hub::arm() noexcept {
  tell_untold();
  bool quiet = true;
  for (ShmWire*& wire : watched_) {
    if (wire == nullptr || wire->park())
      wire = nullptr;
    else
      quiet = false;
  }
  std::erase(watched_, nullptr);
  for (ShmWire* wire : wires_) {
    if (wire == nullptr || wire->await_room()) continue;
    watch(*wire);
    quiet = false;
  }
  if (!quiet || !bell_.sleep()) return false;
  asleep_ = true;
  return true;
}

}  // namespace slime::transport::shm

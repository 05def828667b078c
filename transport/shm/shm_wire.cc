#include "transport/shm/shm_wire.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <bit>
#include <cerrno>
#include <new>

#include "base/str.h"

namespace slime::transport::shm {
namespace {

// Layout of the shared memory: the control lines of both directions, then the export page of each
// side, then the two rings.
constexpr std::size_t kExportsAt = 4096;
constexpr std::size_t kRingsAt = kExportsAt + 2 * kExportPageBytes;
static_assert(2 * sizeof(RingControl) <= kExportsAt);

std::size_t segment_bytes(std::uint32_t ring_bytes) { return kRingsAt + 2 * std::size_t{ring_bytes}; }

RingMemory ring_of(const SharedMemory& memory, std::uint32_t ring_bytes, int direction) {
  const auto number = static_cast<std::size_t>(direction);
  return {reinterpret_cast<RingControl*>(memory.data()) + number,
          memory.data() + kRingsAt + number * ring_bytes, ring_bytes};
}

// Returns the export page of one side; `owner` is 0 for the initiator, 1 for the acceptor.
ExportPage& exports_of(const SharedMemory& memory, int owner) {
  const auto number = static_cast<std::size_t>(owner);
  return *reinterpret_cast<ExportPage*>(memory.data() + kExportsAt + number * kExportPageBytes);
}

}  // namespace

Result<std::unique_ptr<Wire>> ShmWire::create(std::shared_ptr<Hub> hub, const Parameters& ours,
                                              const Parameters& theirs, UniqueFd socket, bool initiator) {
  std::unique_ptr<ShmWire> wire(new ShmWire(std::move(hub), ours, theirs, std::move(socket)));
  Result<std::uint32_t> number = wire->hub_->add(*wire);
  if (!number) return std::move(number).error();
  wire->number_ = *number;
  if (initiator) SLIME_TRY(wire->bring(theirs));
  return std::unique_ptr<Wire>(std::move(wire));
}

ShmWire::ShmWire(std::shared_ptr<Hub> hub, const Parameters& ours, const Parameters& theirs, UniqueFd socket)
    : hub_(std::move(hub)),
      loop_(hub_->loop()),
      cookie_(ours.cookie),
      peer_cookie_(theirs.cookie),
      peer_pid_(theirs.pid),
      text_(str("shm pid ", ours.pid, " -> pid ", theirs.pid)),
      socket_(std::move(socket)),
      process_(cookie_, peer_cookie_, hub_->options().fetches),
      windows_(hub_->unmapper(), process_) {}

ShmWire::~ShmWire() {
  loop_.cancel_timer(timer_);
  loop_.cancel_timer(failing_);
  end();
  hub_->forget(cookie_);
  if (number_) hub_->remove(*number_);
}

// Ends the wire: the handler gets no further event, and fetches of the peer fail.
void ShmWire::end() {
  ended_ = true;
  process_.withdraw();
  loop_.cancel_timer(retry_);
  socket_watch_.stop();
  local_watch_.stop();
}

PeerMemory* ShmWire::peer_memory(Lender& lender) {
  lender_ = &lender;
  return &windows_;
}

void ShmWire::start(WireHandler& handler) {
  SLIME_CHECK(handler_ == nullptr);
  handler_ = &handler;
  if (Status watched = socket_watch_.start(socket_.get(), EPOLLIN | EPOLLRDHUP); !watched.ok())
    return break_later(std::move(watched));
  timer_ = loop_.add_timer(deadline_after(loop_.now(), limits::kHandshakeTimeout), [this] {
    timer_ = TimerId{};
    if (!attached_) break_later(Status(Code::kUnavailable, "the peer did not attach to the shared memory"));
  });
  loop_.expect_soon();
  if (!rings_fd_.valid()) return hub_->claim(cookie_, *this);
  if (local_.valid()) wait_for_peer();
}

// Reports the end to the handler in the next turn, because the wire must not call the handler from
// inside a call to the wire.
void ShmWire::break_later(Status reason) {
  if (failing_ || ended_) return;
  end();
  failing_ = loop_.add_timer(loop_.now(), [this, why = std::move(reason)] {
    failing_ = TimerId{};
    handler_->on_broken(why);
  });
}

// --------------------------------------------------------------------------------------- attaching

Status ShmWire::bring(const Parameters& theirs) {
  peer_socket_ = local_socket_name(theirs.socket_name);
  Result<SharedMemory> memory = SharedMemory::create(segment_bytes(limits::kRingBytes), rings_fd_);
  if (!memory) return std::move(memory).error();
  for (int direction = 0; direction < 2; ++direction) {
    new (ring_of(*memory, limits::kRingBytes, direction).control) RingControl();
    new (&exports_of(*memory, direction)) ExportPage();
  }
  use_rings(std::move(*memory), limits::kRingBytes, true);
  return try_bring();
}

void ShmWire::use_rings(SharedMemory memory, std::uint32_t ring_bytes, bool initiator) {
  initiator_ = initiator;
  attachment_ = std::make_shared<Attachment>();
  attachment_->memory = std::move(memory);
  writer_.emplace(ring_of(attachment_->memory, ring_bytes, initiator ? 0 : 1));
  reader_.emplace(ring_of(attachment_->memory, ring_bytes, initiator ? 1 : 0));
}

Status ShmWire::try_bring() {
  Result<UniqueFd> local = connect_local(peer_socket_);
  if (local && !local->valid()) {
    retry_ = loop_.add_timer(deadline_after(loop_.now(), limits::kLocalSocketRetry), [this] {
      retry_ = TimerId{};
      Status brought = try_bring();
      if (!brought.ok()) return break_later(std::move(brought));
      if (local_.valid()) wait_for_peer();
    });
    return {};
  }
  if (!local) return std::move(local).error();
  SLIME_TRY(check_neighbour(local->get()));
  AttachPacket packet;
  packet.cookie = peer_cookie_.bytes;
  packet.ring_bytes = limits::kRingBytes;
  packet.bell_number = *number_;
  packet.word = process_.word();
  const std::array<int, AttachPacket::kDescriptors> descriptors{rings_fd_.get(), hub_->bell().page_fd(),
                                                                hub_->bell().event_fd()};
  SLIME_TRY(send_packet(local->get(), std::as_bytes(std::span(&packet, 1)), descriptors));
  local_ = std::move(*local);
  return {};
}

void ShmWire::wait_for_peer() {
  if (Status watched = local_watch_.start(local_.get(), EPOLLIN); !watched.ok())
    return break_later(std::move(watched));
}

// Receives a packet from the local socket: at the initiator, the acceptor's answer comes first. All
// later packets, at both sides, are for on_attached_packet().
void ShmWire::on_local() {
  Result<Packet> packet = receive_packet(local().get());
  if (!packet && packet.error().code() == Code::kResourceExhausted) return;
  if (attached_) return on_attached_packet(std::move(packet));
  Result<AttachedPacket> answer = packet ? decode_attached(*packet) : Result<AttachedPacket>(packet.error());
  if (!answer) return break_later(std::move(answer).error());
  if (answer->code != 0)
    return break_later(Status(error_code_from_wire(static_cast<std::uint8_t>(std::min(answer->code, 255U))),
                              "the peer could not map the shared memory"));
  Result<PeerBell> bell = PeerBell::map(std::move(packet->descriptors[0]), std::move(packet->descriptors[1]),
                                        answer->bell_number);
  if (!bell) return break_later(std::move(bell).error());
  bell_ = std::move(*bell);
  process_.told(answer->fetches != 0);
  process_.meet(local_.get(), answer->word);
  MetPacket met;
  met.fetches = process_.met() ? 1 : 0;
  if (Status sent = send_packet(local_.get(), std::as_bytes(std::span(&met, 1)), {}); !sent.ok())
    return break_later(std::move(sent));
  on_attached();
}

void ShmWire::on_attach(UniqueFd local, Packet packet) {
  if (ended_) return;
  local_ = std::move(local);
  Result<AttachPacket> attach_packet = decode_attach(packet);
  SLIME_CHECK(attach_packet.has_value());  // the hub has looked
  Status attached = attach(*attach_packet, std::move(packet.descriptors));
  AttachedPacket answer;
  answer.bell_number = *number_;
  answer.code = static_cast<std::uint32_t>(attached.code());
  if (attached.ok()) {
    process_.meet(local_.get(), attach_packet->word);
    answer.word = process_.word();
    answer.fetches = process_.met() ? 1 : 0;
  }
  const std::array<int, AttachedPacket::kDescriptors> descriptors{hub_->bell().page_fd(),
                                                                  hub_->bell().event_fd()};
  Status sent = send_packet(local_.get(), std::as_bytes(std::span(&answer, 1)),
                            std::span(descriptors).first(attached.ok() ? descriptors.size() : 0));
  if (attached.ok()) attached = std::move(sent);
  if (!attached.ok()) return break_later(std::move(attached));
  on_attached();
}

Status ShmWire::attach(const AttachPacket& packet, std::vector<UniqueFd> descriptors) {
  if (!std::has_single_bit(packet.ring_bytes) || packet.ring_bytes < 2 * limits::kRingRecordBytes ||
      packet.ring_bytes > limits::kMaxRingBytes)
    return Status(Code::kCorrupt, str("rings of ", packet.ring_bytes, " bytes"));
  Result<SharedMemory> memory = SharedMemory::map(descriptors[0].get(), segment_bytes(packet.ring_bytes));
  if (!memory) return std::move(memory).error();
  Result<PeerBell> bell =
      PeerBell::map(std::move(descriptors[1]), std::move(descriptors[2]), packet.bell_number);
  if (!bell) return std::move(bell).error();
  bell_ = std::move(*bell);
  use_rings(std::move(*memory), packet.ring_bytes, false);
  return {};
}

// Both hubs look at a new wire from the beginning, so neither side has to ring for the first
// message.
void ShmWire::on_attached() {
  loop_.cancel_timer(timer_);
  rings_fd_.reset();
  attached_ = true;
  loop_.expect_soon();
  use_windows();
  hub_->watch(*this);
}

// ------------------------------------------------------------------------------- the peer's memory

void ShmWire::use_windows() {
  attachment_->socket = std::move(local_);
  // If the peer has another process id here than it has itself (another pid namespace), this side
  // does not know the peer's threads by their ids.
  const bool knows_threads = process_.id() == static_cast<pid_t>(peer_pid_);
  attachment_->peer = knows_threads && hub_->options().gates ? process_.id() : 0;
  exports_ = std::make_unique<Exports>(attachment_, exports_of(attachment_->memory, initiator_ ? 0 : 1));
  const auto ask = [this](const WindowRequest& request) {
    if (spare_.note_window()) hub_->age_later();
    return send_packet(local().get(), std::as_bytes(std::span(&request, 1)), {});
  };
  const bool awaited = windows_.attach(attachment_, exports_of(attachment_->memory, initiator_ ? 1 : 0), ask);
  if (!local_watch_.active()) {
    if (Status watched = local_watch_.start(local().get(), EPOLLIN); !watched.ok())
      return break_later(std::move(watched));
  }
  if (awaited) handler_->on_peer_memory();
}

// If the peer closes only its local socket, the connection goes on: the data of further regions
// goes through the rings.
void ShmWire::on_attached_packet(Result<Packet> packet) {
  if (!packet) {
    local_watch_.stop();
    windows_.lose();
    return handler_->on_peer_memory();
  }
  if (is_met(*packet)) {
    if (Status met = on_met(*packet); !met.ok()) return break_later(std::move(met));
    return handler_->on_peer_memory();
  }
  if (is_window_request(*packet)) {
    const Result<WindowRequest> request = decode_window_request(*packet);
    if (!request) return break_later(request.error());
    if (Status answered = answer(*request); !answered.ok()) break_later(std::move(answered));
    return;
  }
  const Result<WindowReply> reply = decode_window_reply(*packet);
  if (!reply) return break_later(reply.error());
  if (Status used = windows_.on_reply(*reply, std::move(packet->descriptors)); !used.ok())
    return break_later(std::move(used));
  handler_->on_peer_memory();
}

Status ShmWire::on_met(const Packet& packet) {
  const Result<MetPacket> met = decode_met(packet);
  if (!met) return met.error();
  if (process_.peer_fetches() != PeerMemory::Known::kOpen)
    return {Code::kCorrupt, "a last word that is not the initiator's, or not the last"};
  process_.told(met->fetches != 0);
  return {};
}

// Always answers, because the peer waits for an answer: if the kernel does not take the descriptor,
// the answer is a refusal.
Status ShmWire::answer(const WindowRequest& request) {
  if (lender_ == nullptr) return {Code::kInternal, "nobody lends memory here"};
  UniqueFd descriptor;
  WindowReply reply = exports_->answer(request, *lender_, descriptor);
  const int sent[] = {descriptor.get()};
  if (descriptor.valid()) {
    if (send_packet(local().get(), std::as_bytes(std::span(&reply, 1)), sent).ok()) return {};
    reply = exports_->refuse(request, Code::kResourceExhausted);
  }
  return send_packet(local().get(), std::as_bytes(std::span(&reply, 1)), {});
}

// The connection of the handshake reports only its end from here on: either the peer closed it, or
// the peer's process has ended. Bytes that the peer wrote to the ring before are still read.
void ShmWire::on_socket(std::uint32_t) {
  std::byte nothing{};
  const ssize_t n = ::recv(socket_.get(), &nothing, 1, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  socket_watch_.stop();
  if (!attached_) return break_later(Status(Code::kUnavailable, "the peer closed the connection"));
  gone_ = true;
  hub_->watch(*this);
}

// ------------------------------------------------------------------------------------------- bytes

Result<std::size_t> ShmWire::write(std::span<const iovec> parts) {
  if (!attached_ || gone_ || ended_) return std::size_t{0};
  Result<std::size_t> taken = writer_->write(parts);
  if (!taken) {
    end();
  } else if (*taken > 0) {
    if (spare_.note_write()) hub_->age_later();
    tell_reader();
  }
  return taken;
}

void ShmWire::tell_reader() {
  const ParkCheck::Next next = park_check_.after_write(hub_->looking(), hub_->looks());
  if (next == ParkCheck::Next::kNow) ring_if_parked();
  if (next == ParkCheck::Next::kLater) hub_->tell_later(*this);
}

void ShmWire::tell_now() {
  park_check_.begin();
  ring_if_parked();
}

void ShmWire::ring_if_parked() {
  if (!attached_ || gone_ || ended_) return;
  if (writer_->reader_parked()) bell_.ring();
}

Result<std::size_t> ShmWire::read(std::span<const iovec> parts) {
  if (!attached_ || ended_) return std::size_t{0};
  Result<std::size_t> got = reader_->read(parts);
  if (!got) {
    end();
  } else if (*got == 0 && gone_ && !reader_->readable()) {
    end();
    return Status(Code::kUnavailable, "the peer closed the connection");
  }
  return got;
}

bool ShmWire::age() {
  if (ended_ || !attached_) return false;
  const auto sweep = [this] {
    windows_.sweep();
    return !windows_.empty();
  };
  return spare_.age([this] { return writer_->trim(); }, sweep);
}

void ShmWire::want_write(bool wanted) {
  want_write_ = wanted;
  // the look at the wire also finds room that there may be already
  if (wanted && attached_ && !ended_) hub_->watch(*this);
}

// ----------------------------------------------------------------------------------------- looking

bool ShmWire::look() {
  if (!attached_ || ended_) return false;
  bool worked = false;
  if (gone_ || reader_->readable()) {
    handler_->on_readable();
    worked = true;
  }
  if (want_write_ && !ended_) {
    const Result<bool> room = writer_->has_room();
    if (!room) {
      break_later(room.error());
    } else if (*room) {
      handler_->on_writable();
      worked = true;
    }
  }
  if (!ended_ && reader_->writer_waits()) bell_.ring();
  quiet_looks_ = worked ? 0 : quiet_looks_ + 1;
  return worked;
}

void ShmWire::on_rung() {
  if (!attached_ || ended_) return;
  reader_->unpark();
  quiet_looks_ = 0;
  hub_->watch(*this);
  look();
}

bool ShmWire::park() {
  if (!attached_ || ended_) return true;
  if (gone_ || !reader_->park()) return false;
  if (reader_->writer_waits()) bell_.ring();
  return true;
}

bool ShmWire::await_room() {
  if (!attached_ || ended_ || !want_write_ || gone_) return true;
  const Result<bool> waits = writer_->await_room();
  return waits && *waits;  // the next look finds an error
}

}  // namespace slime::transport::shm

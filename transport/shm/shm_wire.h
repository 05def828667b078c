#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/shm/exports.h"
#include "transport/shm/fd_watch.h"
#include "transport/shm/hub.h"
#include "transport/shm/park_check.h"
#include "transport/shm/peer_process.h"
#include "transport/shm/ring.h"
#include "transport/shm/spare_memory.h"
#include "transport/shm/windows.h"
#include "transport/wire.h"

namespace slime::transport::shm {

// A wire over two rings in memory that both processes map. The connection of the handshake stays
// open, because its end shows that the peer has died. Until the peer has attached, the wire accepts
// no bytes and has none to read. Over the local socket, each side asks the other for regions to
// copy from and to without the rings. Thread: the loop.
class ShmWire final : public Wire {
 public:
  // Makes one end of a wire. The initiator makes the rings and sends them to the peer's local
  // socket; the acceptor waits for them.
  static Result<std::unique_ptr<Wire>> create(std::shared_ptr<Hub> hub, const Parameters& ours,
                                              const Parameters& theirs, UniqueFd socket, bool initiator);
  ~ShmWire() override;

  void start(WireHandler& handler) override;
  Result<std::size_t> write(std::span<const iovec> parts) override;
  Result<std::size_t> read(std::span<const iovec> parts) override;
  void want_write(bool wanted) override;
  [[nodiscard]] bool cheap_writes() const override { return true; }
  [[nodiscard]] bool shows() const override { return true; }
  Bytes peek() override { return attached_ && !ended_ ? reader_->peek() : Bytes(); }
  void skip(std::size_t bytes) override { reader_->skip(bytes); }
  PeerMemory* peer_memory(Lender& lender) override;
  std::shared_ptr<const Loan> take_back() override { return exports_ ? exports_->take_back() : nullptr; }
  // not needed: the kernel reports the death of a process on the same host
  void set_waiting(bool) override {}
  [[nodiscard]] std::string describe() const override { return text_; }

  // ---- for the hub
  bool look();  // returns whether there was work to do
  void on_rung();
  // Rings the peer's bell if the peer, which reads what this wire writes, has parked.
  void tell_now();
  // Parks this wire's reader: the hub stops looking at its ring, and the peer rings the bell
  // instead. Returns false if there is something to read.
  bool park();
  // If the engine waits for room to write, asks the peer to ring when there is room. Returns false
  // if there is room already.
  bool await_room();
  void on_attach(UniqueFd local, Packet packet);
  // Called at intervals. Gives back the pages of the ring if nothing was written since the last
  // call, and unmaps windows of closed regions. Returns false if no such memory is left.
  bool age();
  [[nodiscard]] std::uint32_t quiet_looks() const { return quiet_looks_; }

 private:
  ShmWire(std::shared_ptr<Hub> hub, const Parameters& ours, const Parameters& theirs, UniqueFd socket);
  Status bring(const Parameters& theirs);
  Status try_bring();
  void use_rings(SharedMemory memory, std::uint32_t ring_bytes, bool initiator);
  void use_windows();
  void on_attached_packet(Result<Packet> packet);
  Status on_met(const Packet& packet);
  Status answer(const WindowRequest& request);
  [[nodiscard]] const UniqueFd& local() const { return attached_ ? attachment_->socket : local_; }
  Status attach(const AttachPacket& packet, std::vector<UniqueFd> descriptors);
  void on_attached();
  void on_local();
  void on_socket(std::uint32_t events);
  void wait_for_peer();
  void tell_reader();
  void ring_if_parked();
  void break_later(Status reason);
  void end();

  const std::shared_ptr<Hub> hub_;
  Loop& loop_;
  const InstanceId cookie_;  // of this side
  const InstanceId peer_cookie_;
  std::string peer_socket_;
  const std::uint32_t peer_pid_;  // as the peer says
  const std::string text_;
  std::optional<std::uint32_t> number_;
  WireHandler* handler_ = nullptr;

  UniqueFd socket_;
  FdWatch socket_watch_{loop_, [this](std::uint32_t events) { on_socket(events); }};
  UniqueFd local_;  // local socket, until both sides have attached; then attachment_ owns it
  FdWatch local_watch_{loop_, [this](std::uint32_t) { on_local(); }};
  UniqueFd rings_fd_;  // until it is sent

  bool initiator_ = false;
  std::shared_ptr<Attachment> attachment_;
  Lender* lender_ = nullptr;
  std::unique_ptr<Exports> exports_;
  PeerProcess process_;
  Windows windows_;
  std::optional<RingWriter> writer_;
  std::optional<RingReader> reader_;
  PeerBell bell_;
  bool attached_ = false;
  bool want_write_ = false;
  bool gone_ = false;   // the peer has gone; bytes that it wrote before are still read
  bool ended_ = false;  // end() was called: the handler gets no further event
  std::uint32_t quiet_looks_ = 0;
  SpareMemory spare_;
  ParkCheck park_check_;
  TimerId timer_;
  TimerId retry_;
  TimerId failing_;
};

}  // namespace slime::transport::shm

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

// A wire of two rings in memory that both processes map, and of the connection of the handshake,
// whose end tells of the death of the peer. Until the peer has attached, the wire is full for
// writes and empty for reads. Beside the rings, over the local socket, each side asks the other
// for memory to map. Thread: the loop.
class ShmWire final : public Wire {
 public:
  // The initiator makes the rings and sends them to the local socket of the peer; the acceptor
  // waits for them.
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
  void set_waiting(bool) override {}  // a process of the same host does not fall silent
  [[nodiscard]] std::string describe() const override { return text_; }

  // ---- for the hub
  bool look();  // returns whether there was work to do
  void on_rung();
  // Rings the bell of the reader if it has parked.
  void tell_now();
  // Parks the reader: the hub stops looking at the ring, and the peer rings. Returns false if
  // there is something to read.
  bool park();
  // Asks the peer to ring when there is room, if the engine waits for room. Returns false if there
  // is room.
  bool await_room();
  void on_attach(UniqueFd local, Packet packet);
  // Called now and then: gives back the pages of the ring if nothing was written since the last
  // call, and windows onto closed regions. Returns false if neither is left.
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
  UniqueFd local_;  // until both sides have attached; then the attachment owns it
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
  bool gone_ = false;   // the peer has gone; the bytes that it wrote are still read
  bool ended_ = false;  // the engine has been told of the end
  std::uint32_t quiet_looks_ = 0;
  SpareMemory spare_;
  ParkCheck park_check_;
  TimerId timer_;
  TimerId retry_;
  TimerId failing_;
};

}  // namespace slime::transport::shm

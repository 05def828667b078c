#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "transport/loop.h"
#include "transport/outage.h"
#include "transport/wire.h"

namespace slime::transport::tcp {

// A connected TCP socket as the wire of the software engine. Bytes that arrived before the end of
// the stream, or before a reset, are read first. The end is reported to the engine at once, even if
// the engine has nothing to read. Thread: the loop.
class TcpWire final : public Wire, private FdHandler {
 public:
  // `socket` is connected and non-blocking. `outage`: how long the peer may be unreachable while
  // work waits for it.
  static Result<std::unique_ptr<TcpWire>> create(Loop& loop, UniqueFd socket, Nanos outage);
  ~TcpWire() override;

  void start(WireHandler& handler) override;
  Result<std::size_t> write(std::span<const iovec> parts) override;
  Result<std::size_t> read(std::span<const iovec> parts) override;
  void want_write(bool wanted) override;
  [[nodiscard]] bool takes_long_messages() const override { return true; }
  [[nodiscard]] std::uint64_t backlog_bytes() const override;
  void set_waiting(bool waiting) override;
  [[nodiscard]] std::string describe() const override { return text_; }

 private:
  TcpWire(Loop& loop, UniqueFd socket, Nanos outage, std::string text);
  void on_fd_events(std::uint32_t events) noexcept override;
  void fail_later(Status reason);
  void break_with(Status reason);
  Status broken(std::string_view call, int error);
  [[nodiscard]] Status end_of_stream() const;
  void update_watch();
  void arm_keepalive(bool on);
  void bound_sends(bool on);
  void on_linger();

  Loop& loop_;
  UniqueFd socket_;
  const Keepalive keepalive_;
  const std::string text_;
  // the kernel's own longest pause between retransmissions; 0: it cannot be changed
  int longest_pause_ms_ = 0;
  WireHandler* handler_ = nullptr;
  std::uint32_t watched_events_ = 0;
  bool watched_ = false;
  bool want_write_ = false;
  int write_error_ = 0;          // errno of a write that found the connection ended; 0: none
  bool read_something_ = false;  // since the last event
  bool ended_ = false;           // the engine knows of the end; no event follows
  bool waiting_ = false;
  bool armed_ = false;
  bool sends_bounded_ = false;
  TimePoint wrote_at_{};
  TimePoint idle_since_{};
  TimerId linger_;
  TimerId failing_;
};

}  // namespace slime::transport::tcp

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "transport/connect.h"

namespace slime::bench {

inline constexpr std::size_t kReadBytes = 64;
// Bounds every wait; an emulated device on a busy machine is slow.
inline constexpr Nanos kPatience = std::chrono::seconds(60);

// One process's side: a device and one verbs port on a loop. Its calls into libibverbs are watched.
struct Node {
  std::shared_ptr<transport::Loop> loop;
  std::unique_ptr<transport::Provider> provider;
  std::unique_ptr<transport::Device> device;
  std::unique_ptr<transport::Port> port;
  static Result<std::unique_ptr<Node>> open();
};

// One endpoint of the connecting side, proven by a message there and back and a read. Thread: the
// loop's.
class Client final : public transport::Receiver {
 public:
  explicit Client(Node& node) : node_(node) {}
  // Create and connect, driving the loop until the peer's answer is there.
  Status connect(const std::string& address);
  // Sends a message, waits for the answer, which exports a region, and reads `kReadBytes` of it.
  Status use();
  // Closes it and waits until it has ended.
  Status close();
  [[nodiscard]] std::int64_t connect_ns() const { return connect_ns_; }
  [[nodiscard]] std::int64_t answer_ns() const { return answer_ns_; }  // of the message
  [[nodiscard]] const transport::Endpoint& endpoint() const { return *endpoint_; }

 private:
  void on_message(transport::Message message) noexcept override;
  void on_imm(std::uint32_t) noexcept override {}
  void on_ready() noexcept override {}
  void on_closed(const Status& reason) noexcept override;
  Status read();
  Status wait_for(const char* what, UniqueFunction<bool()> done);

  Node& node_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  ByteVector answer_;
  Status broken_;
  bool closed_ = false;
  std::int64_t connect_ns_ = 0;
  std::int64_t answer_ns_ = 0;
};

// The other process: answers each message with the descriptor of one region. Speaks lines with its
// parent until the end of its stdin. Its exit code.
int run_server();

}  // namespace slime::bench

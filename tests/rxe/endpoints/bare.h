#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/verbs/context.h"

namespace slime::bench {

// What a program has before it connects: a device, a completion queue, a shared receive queue.
// Everything below is written as in C: one call after the other, blocking sockets, no layer
// between.
class BareDevice {
 public:
  static Result<std::unique_ptr<BareDevice>> open(const transport::verbs::Functions& functions);
  BareDevice(const BareDevice&) = delete;
  BareDevice& operator=(const BareDevice&) = delete;
  ~BareDevice();

  [[nodiscard]] const transport::verbs::Context& context() const { return *context_; }
  [[nodiscard]] const transport::verbs::Functions& functions() const { return context_->functions; }
  Result<ibv_qp*> create(const ibv_qp_cap& shape) const;

 private:
  explicit BareDevice(std::shared_ptr<transport::verbs::Context> context) : context_(std::move(context)) {}
  const std::shared_ptr<transport::verbs::Context> context_;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
};

// Both ends know the shapes: one queue pair for each.
using Shapes = std::vector<ibv_qp_cap>;
std::string encode(const Shapes& shapes);  // one word
Result<Shapes> decode_shapes(const std::string& text);

// Listens on loopback and answers each connection, one after the other, in a thread of its own for
// as long as the process lives. The port.
Result<std::uint16_t> serve_bare(std::shared_ptr<BareDevice> device);

// One connection over TCP, its queue pairs made and brought to RTS on both ends. The time from the
// first call to the last, in ns; what was made is gone on both ends when this returns.
Result<std::int64_t> connect_bare(const BareDevice& device, const Shapes& shapes, std::uint16_t port);

}  // namespace slime::bench

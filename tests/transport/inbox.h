#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "transport/endpoint.h"
#include "transport/operation.h"

namespace slime::transport::testing {

// Records the messages of one endpoint and the reason of its close.
struct Inbox final : Receiver {
  void on_message(Message message) noexcept override { texts.emplace_back(as_text(message.bytes())); }
  void on_imm(std::uint32_t) noexcept override {}
  void on_ready() noexcept override {}
  void on_closed(const Status& status) noexcept override { closed = std::make_unique<Status>(status); }
  std::vector<std::string> texts;
  std::unique_ptr<Status> closed;
};

// Records the status of a send.
struct Sending final : Operation {
  void complete(Status s) noexcept override { status = std::make_unique<Status>(std::move(s)); }
  std::unique_ptr<Status> status;
};

}  // namespace slime::transport::testing

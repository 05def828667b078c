#pragma once

#include <memory>
#include <string>
#include <utility>

#include "agent/operations.h"
#include "rpc/attachment.h"

namespace slime::agent {

// A call with attachments beside its arguments, or with memory for those of its reply.
class AttachedCall final : public ResultOperation<Payload> {
 public:
  AttachedCall(std::shared_ptr<Driver> driver, std::string service, std::string method,
               rpc::AttachedBody request)
      : ResultOperation(std::move(driver)),
        service_(std::move(service)),
        method_(std::move(method)),
        request_(std::move(request)) {}
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override;

 private:
  void cancel_started(Session& session) override;
  const std::string service_;
  const std::string method_;
  rpc::AttachedBody request_;
  rpc::Ticket ticket_;
};

}  // namespace slime::agent

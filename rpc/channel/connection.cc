#include "rpc/channel/connection.h"

#include <limits>
#include <utility>

#include "base/str.h"

namespace slime::rpc {

Connection::Connection(transport::Loop& loop, transport::Device& device,
                       std::unique_ptr<transport::Endpoint> endpoint, ChannelOptions options)
    : loop_(loop),
      device_(device),
      endpoint_(std::move(endpoint)),
      blocks_(std::make_shared<ConnectionBlocks>(loop, device, endpoint_->id())),
      message_bytes_(endpoint_->max_message_bytes()),
      short_bytes_(endpoint_->long_message_bytes() != 0 ? endpoint_->slot_bytes()
                                                        : std::numeric_limits<std::size_t>::max()),
      options_(std::move(options)) {}

Connection::~Connection() { blocks_->close(); }

void Connection::greet(const wire::Hello& hello) {
  peer_ = hello;
  ready_ = true;
}

void Connection::expel(Status reason) {
  closing_ = true;
  expelled_ = std::move(reason);
}

void Connection::close_endpoint(Nanos bound) {
  if (endpoint_closing_) return;
  endpoint_closing_ = true;
  endpoint_->close(bound);
}

void Connection::reset_endpoint(Status reason) {
  endpoint_closing_ = true;
  endpoint_->reset(std::move(reason));
}

void Connection::break_by(Status reason) {
  closing_ = true;
  reset_endpoint(std::move(reason));
}

void Connection::end(const Status& cause) {
  closing_ = true;
  endpoint_closing_ = true;
  closed_ = true;
  const Status& reason = expelled_.ok() ? cause : expelled_;
  if (!reason.ok()) {
    closed_reason_ = broken_by(reason);
  } else if (closed_by_peer_) {
    closed_reason_ = Status(Code::kUnavailable, str(peer_name(), " closed the connection"));
  }
}

Status Connection::closing_status() const {
  if (closed_ && !closed_reason_.ok()) return closed_reason_;
  if (!expelled_.ok()) return broken_by(expelled_);
  if (closed_by_peer_) return Status(Code::kUnavailable, str(peer_name(), " is closing the connection"));
  return Status(Code::kCancelled, str("the connection to ", peer_name(), " was closed"));
}

// Returns the error that requests get when the connection broke for `reason`.
Status Connection::broken_by(const Status& reason) const {
  const bool same = reason.code() == Code::kUnavailable;  // do not print the code twice
  return {Code::kUnavailable, str(peer_name(), ": ", same ? reason.text() : reason.to_string())};
}

}  // namespace slime::rpc

#include "rpc/payload.h"

namespace slime::rpc {

Payload::Payload(std::unique_ptr<Attached> attached) : message_({}, attached.get()), bytes_(attached->body) {
  static_cast<void>(attached.release());
}

}  // namespace slime::rpc

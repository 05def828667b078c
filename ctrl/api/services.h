#pragma once

#include "ctrl/api/context.h"
#include "ctrl/api/route.h"

namespace slime::ctrl {

// Routes for services: /v1/services, /v1/peers/{name}/services. Thread: any.
class ServiceRoutes {
 public:
  // `context` outlives this.
  explicit ServiceRoutes(Context& context) : context_(context) {}
  ApiReply list(const Call& call);
  ApiReply update(const Call& call);

 private:
  Context& context_;
};

}  // namespace slime::ctrl

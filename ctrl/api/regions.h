#pragma once

#include "ctrl/api/context.h"
#include "ctrl/api/route.h"

namespace slime::ctrl {

// Routes for regions: /v1/regions, /v1/peers/{name}/regions. Thread: any.
class RegionRoutes {
 public:
  // `context` outlives this.
  explicit RegionRoutes(Context& context) : context_(context) {}
  ApiReply list(const Call& call);
  ApiReply update(const Call& call);

 private:
  Context& context_;
};

}  // namespace slime::ctrl

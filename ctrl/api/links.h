#pragma once

#include "ctrl/api/context.h"
#include "ctrl/api/route.h"

namespace slime::ctrl {

// Routes for links: the wanted links of a peer, and the links that agents report. Paths:
// /v1/peers/{name}/links, /v1/links. Thread: any.
class LinkRoutes {
 public:
  // `context` outlives this.
  explicit LinkRoutes(Context& context) : context_(context) {}
  ApiReply list(const Call& call);
  ApiReply get(const Call& call);
  ApiReply set(const Call& call);

 private:
  Context& context_;
};

}  // namespace slime::ctrl

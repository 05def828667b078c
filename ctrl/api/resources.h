#pragma once

#include "ctrl/api/admin.h"
#include "ctrl/api/context.h"
#include "ctrl/api/key_maker.h"
#include "ctrl/api/links.h"
#include "ctrl/api/peers.h"
#include "ctrl/api/prober.h"
#include "ctrl/api/regions.h"
#include "ctrl/api/services.h"
#include "ctrl/api/tokens.h"
#include "ctrl/compat/compat_routes.h"

namespace slime::ctrl {

// One object per resource, such as peers or tokens. Each class has one member function per route.
struct Resources {
  // `context` outlives this.
  Resources(Context& context, Prober prober)
      : keys(context),
        peers(context, keys, std::move(prober)),
        services(context),
        regions(context),
        links(context),
        tokens(context),
        admin(context),
        compat(context) {}

  KeyMaker keys;
  PeerRoutes peers;
  ServiceRoutes services;
  RegionRoutes regions;
  LinkRoutes links;
  TokenRoutes tokens;
  AdminRoutes admin;
  CompatRoutes compat;
};

}  // namespace slime::ctrl

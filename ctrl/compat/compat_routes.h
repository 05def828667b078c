#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/result.h"
#include "ctrl/api/context.h"
#include "ctrl/api/route.h"
#include "ctrl/compat/entities.h"

namespace slime::ctrl {

// The routes of DLSlime's NanoCtrl, over the same registry as nanoctrl's other routes. An entity
// that a client registers here is a peer with the entity's name. Thread: any.
class CompatRoutes {
 public:
  // `context` outlives this.
  explicit CompatRoutes(Context& context) : context_(context) {}
  ApiReply root(const Call& call);
  ApiReply start_agent(const Call& call);
  ApiReply list_agents(const Call& call);
  ApiReply cleanup(const Call& call);
  ApiReply register_region(const Call& call);
  ApiReply get_region(const Call& call);
  ApiReply register_entity(const Call& call);
  ApiReply unregister(const Call& call);
  ApiReply heartbeat(const Call& call);
  ApiReply get_entity(const Call& call);
  ApiReply list_entities(const Call& call);
  ApiReply redis_address(const Call& call);
  ApiReply set_desired_topology(const Call& call);

 private:
  // Returns the mutex for one record. Lock it while reading a record and writing it back, so that
  // no concurrent change is lost.
  Mutex& mutex_of(const std::string& scope, const std::string& id);
  std::optional<PeerInfo> find(const Call& call, const std::string& scope, const std::string& id);
  ApiReply start(const Call& call, const compat::Entity& agent);
  ApiReply remove(const Call& call, Result<compat::EntityRef> ref);
  // Registers the entity; answers done().
  template <class Done>
  ApiReply put(const Call& call, const compat::Entity& entity, const InstanceId& instance, const Done& done);
  // Applies `change` to an agent that was registered through these routes, and stores the new
  // record.
  template <class Change>
  ApiReply update(const Call& call, const compat::EntityRef& of, const Change& change);
  // Answers a list with all matching entities in one reply, or with 413 if they exceed
  // kCompatListBytes. `type`: the only type to list; empty: the request names the type.
  template <class EncodeOne, class EncodeAll>
  ApiReply list(const Call& call, const EncodeOne& encode_one, const EncodeAll& encode_all,
                std::string_view type);

  Context& context_;
  std::array<Mutex, 16> mutexes_;
};

}  // namespace slime::ctrl

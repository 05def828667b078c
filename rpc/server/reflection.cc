#include "rpc/reflection.h"

#include "base/check.h"

namespace slime::rpc {

Service reflection_service(const Directory& directory) {
  Service out{std::string(kReflectionService)};
  Status added =
      out.add("services", [&directory] { return directory.services(); },
              {.run = Run::kInline, .doc = "What this peer serves: services, methods, parameters."});
  SLIME_CHECK(added.ok());
  added = out.add(
      "service", [&directory](std::string_view name) { return directory.service(name); },
      {.run = Run::kInline, .parameters = {"name"}, .doc = "One of the services; not_found for others."});
  SLIME_CHECK(added.ok());
  return out;
}

Service health_service(const Directory& directory) {
  Service out{std::string(kHealthService)};
  const Status added = out.add("check",
                               [&directory](std::string_view service) -> std::string {
                                 if (!service.empty() && !directory.serves(service)) return "unknown";
                                 return directory.draining() ? "draining" : "serving";
                               },
                               {.run = Run::kInline,
                                .parameters = {"service"},
                                .doc = "serving, draining or unknown; of an empty name: the whole peer."});
  SLIME_CHECK(added.ok());
  return out;
}

}  // namespace slime::rpc

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rpc/codec.h"
#include "rpc/service.h"

// Two services that each server has. They are called like other services:
//
//   slime.Reflection.services()     -> list of ServiceInfo, by name
//   slime.Reflection.service(name)  -> ServiceInfo; kNotFound if the service is not served
//   slime.Health.check(service)     -> "serving", "draining" or "unknown" (not served); "": the
//                                      whole server. Answers while the server drains, too.
namespace slime::rpc {

inline constexpr std::string_view kReflectionService = "slime.Reflection";
inline constexpr std::string_view kHealthService = "slime.Health";

struct ServiceInfo {
  std::string name{};
  std::vector<MethodInfo> methods{};  // by name
  MSGPACK_DEFINE_MAP(name, methods)
};

// The data of a server that its reflection and health services use. Thread: any.
class Directory {
 public:
  [[nodiscard]] virtual std::vector<ServiceInfo> services() const = 0;
  [[nodiscard]] virtual Result<ServiceInfo> service(std::string_view name) const = 0;
  [[nodiscard]] virtual bool serves(std::string_view service) const = 0;
  [[nodiscard]] virtual bool draining() const = 0;

 protected:
  ~Directory() = default;
};

// `directory` outlives all calls of the services.
Service reflection_service(const Directory& directory);
Service health_service(const Directory& directory);

}  // namespace slime::rpc

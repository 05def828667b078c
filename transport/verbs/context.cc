#include "transport/verbs/context.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/mutex.h"
#include "transport/verbs/errors.h"

namespace slime::transport::verbs {
namespace {

Result<ibv_context*> open_named(const Functions& functions, const std::string& name) {
  int count = 0;
  errno = 0;
  ibv_device** const list = functions.get_device_list(&count);
  if (list == nullptr) return call_error("cannot list RDMA devices", errno);
  ibv_context* context = nullptr;
  int error = ENODEV;
  for (int i = 0; i < count; ++i) {
    if (name != functions.get_device_name(list[i])) continue;
    errno = 0;
    context = functions.open_device(list[i]);
    error = errno;
    break;
  }
  functions.free_device_list(list);
  if (context == nullptr) return call_error("cannot open " + name, error);
  return context;
}

// Checks that the chosen port has the MTU and the partition key that the options ask for.
Status check_options(const Options& options, const PortInfo& port) {
  const int mtu = mtu_bytes(port.attributes.active_mtu);
  if (options.mtu > mtu) {
    return Status(
        Code::kInvalidArgument,
        str("VerbsOptions::mtu (SLIME_VERBS_MTU) is ", options.mtu, ", but the active MTU of ", port.device,
            " port ", port.port, " is ", mtu,
            port.ethernet() ? ": raise the MTU of its network interface first (ip link set ... mtu)" : ""));
  }
  if (options.pkey_index >= port.attributes.pkey_tbl_len) {
    return Status(Code::kInvalidArgument, str("VerbsOptions::pkey_index (SLIME_VERBS_PKEY_INDEX) is ",
                                              options.pkey_index, ", but ", port.device, " port ", port.port,
                                              " has ", port.attributes.pkey_tbl_len, " partition keys"));
  }
  return {};
}

bool same_gid(const GidInfo& a, const GidInfo& b) {
  return a.index == b.index && a.type == b.type && std::memcmp(a.gid.raw, b.gid.raw, sizeof a.gid.raw) == 0;
}

}  // namespace

struct Context::Parts {
  const Functions& functions;
  Options options;
  ibv_context* handle;
  ibv_pd* pd;
  Selection selection;
  ibv_device_attr device;
  ibv_port_attr port;
};

struct Context::Changing {
  mutable Mutex mutex;
  ibv_port_attr port SLIME_GUARDED_BY(mutex);
  GidInfo gid SLIME_GUARDED_BY(mutex);
  std::atomic<bool> lost{false};
};

Context::Context(Parts parts)
    : functions(parts.functions),
      options(std::move(parts.options)),
      handle(parts.handle),
      pd(parts.pd),
      selection(std::move(parts.selection)),
      device(parts.device),
      // libibverbs drops optional flags that the kernel does not know. A library without
      // ibv_reg_mr_iova2 does not know optional flags, so it gets none.
      optional_access(options.relaxed_ordering && functions.reg_mr_iova2 != nullptr
                          ? static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING)
                          : 0U),
      changing_(std::make_unique<Changing>()) {
  changing_->port = parts.port;
  changing_->gid = selection.gid;
}

Context::~Context() {
  // An error means that an object still uses the protection domain. The kernel frees the domain
  // when the process ends.
  if (const int error = ended(functions.dealloc_pd(pd))) {
    log(LogLevel::kError, "verbs", call_error("ibv_dealloc_pd", error).text());
  }
  if (const int error = functions.close_device(handle); error != 0 && error != EIO) {
    SLIME_LOG(LogLevel::kError, "verbs", "ibv_close_device failed with ", error);
  }
}

Result<std::shared_ptr<Context>> Context::open(const Functions& functions, Options options) {
  SLIME_TRY(options.validate());
  const auto ports = list_ports(functions);
  if (!ports) return ports.error();
  auto selection = select_port(*ports, options, bound_numa_node());
  if (!selection) return std::move(selection).error();
  const auto port = std::find_if(ports->begin(), ports->end(), [&](const PortInfo& info) {
    return info.device == selection->device && info.port == selection->port;
  });
  SLIME_TRY(check_options(options, *port));

  auto handle = open_named(functions, selection->device);
  if (!handle) return std::move(handle).error();
  Parts parts{functions, std::move(options), *handle, nullptr, std::move(*selection), {}, port->attributes};
  Status status;
  if (const int error = functions.query_device(parts.handle, &parts.device)) {
    status = call_error("cannot query " + parts.selection.device, error);
  } else {
    errno = 0;
    parts.pd = functions.alloc_pd(parts.handle);
    if (parts.pd == nullptr) status = call_error("ibv_alloc_pd on " + parts.selection.device, errno);
  }
  if (!status.ok()) {
    functions.close_device(parts.handle);
    return status;
  }
  std::shared_ptr<Context> context(new Context(std::move(parts)));
  SLIME_LOG(LogLevel::kInfo, "verbs", "using ", context->describe(), ": ", context->selection.reason);
  return context;
}

void Context::set_lost() { changing_->lost.store(true); }
bool Context::lost() const { return changing_->lost.load(); }

// Returns whether the device has gone. The kernel takes all objects away from a device that has
// gone, and then answers EIO to calls that destroy them. Some drivers answer EIO for other reasons,
// so this function queries the port: a device that still answers has not gone.
bool Context::gone() const {
  ibv_port_attr ignored{};
  return lost() || functions.query_port(handle, static_cast<std::uint8_t>(selection.port), &ignored) == EIO;
}

ibv_port_attr Context::port_attributes() const {
  const MutexLock lock(changing_->mutex);
  return changing_->port;
}

GidInfo Context::gid() const {
  const MutexLock lock(changing_->mutex);
  return changing_->gid;
}

Status Context::probe_again() {
  PortInfo now;
  now.device = selection.device;
  now.port = selection.port;
  const auto number = static_cast<std::uint8_t>(selection.port);
  if (const int error = functions.query_port(handle, number, &now.attributes)) {
    return call_error(str("cannot query ", now.device, " port ", now.port), error);
  }
  ibv_port_state before;
  {
    const MutexLock lock(changing_->mutex);
    before = changing_->port.state;
    changing_->port = now.attributes;
  }
  if (before != now.attributes.state) {
    SLIME_LOG(LogLevel::kWarning, "verbs", now.device, " port ", now.port, " was ", port_state_name(before),
              ", is ", port_state_name(now.attributes.state));
  }
  if (!now.active()) {
    return Status(Code::kUnavailable,
                  str(now.device, " port ", now.port, " is ", port_state_name(now.attributes.state)));
  }
  auto gids = read_gids(functions, handle, now.port, now.attributes.gid_tbl_len);
  if (!gids) return std::move(gids).error();
  now.gids = std::move(*gids);
  std::string reason;
  const auto chosen = select_gid(now, options, reason);
  if (!chosen) return chosen.error();
  const GidInfo old = gid();
  if (!same_gid(old, *chosen)) {
    SLIME_LOG(LogLevel::kWarning, "verbs", now.device, " port ", now.port, ": new connections use ",
              gid_text(chosen->gid), " instead of ", gid_text(old.gid), " (", reason, ")");
  }
  const MutexLock lock(changing_->mutex);
  changing_->gid = *chosen;
  return {};
}

std::string Context::describe() const {
  const GidInfo now = gid();
  std::string out = str(selection.device, " port ", selection.port, ", GID ", now.index, " ",
                        gid_text(now.gid), " (", gid_type_text(now));
  if (const ibv_port_attr port = port_attributes(); port.link_layer != IBV_LINK_LAYER_ETHERNET) {
    out += str(", LID ", port.lid);
  }
  return out + ")";
}

}  // namespace slime::transport::verbs

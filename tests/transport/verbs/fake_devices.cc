#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "tests/transport/verbs/fake_objects.h"

// Devices, their ports and their asynchronous events.
namespace slime::transport::testing::fake {

UniqueFd make_signal_fd() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  SLIME_CHECK(fd.valid());
  return fd;
}

void signal(const UniqueFd& fd) {
  const std::uint64_t one = 1;
  SLIME_CHECK(::write(fd.get(), &one, sizeof(one)) == sizeof(one));
}

bool wait_signal(int fd) {
  std::uint64_t taken = 0;
  return ::read(fd, &taken, sizeof(taken)) == sizeof(taken);
}

void Fabric::raise(Context& context, const ibv_async_event& event) {
  context.events.push_back(event);
  signal(context.events_fd);
}

void Fabric::raise_port(Device& device, ibv_event_type type, int port) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = port;
  for (const auto& context : contexts) {
    if (context->alive && &context->parent() == &device) raise(*context, event);
  }
}

namespace {

bool names_object(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return true;
    default:
      return false;
  }
}

// Returns the event counter of the object that an event names; null for events of the port or
// device.
std::uint64_t* delivered(const ibv_async_event& event) {
  if (!names_object(event.event_type)) return nullptr;
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return &static_cast<CompletionQueue*>(event.element.cq)->async_delivered;
    case IBV_EVENT_SRQ_ERR:
      return &static_cast<ReceiveQueue*>(event.element.srq)->async_delivered;
    default:
      return &static_cast<QueuePair*>(event.element.qp)->async_delivered;
  }
}

int fork_init() { return 0; }

const char* wc_status_str(ibv_wc_status status) {
  static constexpr std::array kTexts{"success",
                                     "local length error",
                                     "local QP operation error",
                                     "local EE context operation error",
                                     "local protection error",
                                     "Work Request Flushed Error",
                                     "memory management operation error",
                                     "bad response error",
                                     "local access error",
                                     "remote invalid request error",
                                     "remote access error",
                                     "remote operation error",
                                     "transport retry counter exceeded",
                                     "RNR retry counter exceeded",
                                     "local RDD violation error",
                                     "remote invalid RD request",
                                     "aborted error",
                                     "invalid EE context number",
                                     "invalid EE context state",
                                     "fatal error",
                                     "response timeout error",
                                     "general error"};
  const auto index = static_cast<std::size_t>(status);
  return index < kTexts.size() ? kTexts[index] : "unknown";
}

ibv_device** get_device_list(int* count) {
  const Entered fabric;
  if (!fabric) return failed(ENOSYS);
  auto** list = new ibv_device*[fabric->devices.size() + 1];
  std::size_t size = 0;
  for (const auto& device : fabric->devices) list[size++] = device.get();
  list[size] = nullptr;
  if (count != nullptr) *count = static_cast<int>(size);
  return list;
}

void free_device_list(ibv_device** list) { delete[] list; }

const char* get_device_name(ibv_device* device) { return static_cast<char*>(device->name); }

ibv_context* open_device(ibv_device* handle) {
  Entered fabric;
  fabric.pass(Call::kOpenDevice);
  if (!fabric) return failed(ENODEV);
  if (const int error = fabric->injected(Call::kOpenDevice)) return failed(error);
  if (static_cast<Device*>(handle)->dead) return failed(EIO);
  Context& context = *fabric->keep(fabric->contexts);
  context.device = handle;
  context.num_comp_vectors = 1;
  context.cmd_fd = -1;
  context.events_fd = make_signal_fd();
  context.async_fd = context.events_fd.get();
  return &context;
}

int close_device(ibv_context* handle) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* context = fabric->use<Context>(handle, "close_device");
  if (context == nullptr) return EINVAL;
  if (context->users != 0) return EBUSY;
  context->alive = false;
  context->events_fd.reset();
  return fabric->ended(context);
}

int query_device(ibv_context* handle, ibv_device_attr* out) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* context = fabric->use<Context>(handle, "query_device");
  if (context == nullptr) return EINVAL;
  if (const int error = fabric->injected(Call::kQueryDevice)) return error;
  if (context->dead) return EIO;
  *out = context->parent().options.attributes;
  return 0;
}

int query_port(ibv_context* handle, std::uint8_t number, ibv_port_attr* out) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* context = fabric->use<Context>(handle, "query_port");
  if (context == nullptr) return EINVAL;
  if (const int error = fabric->injected(Call::kQueryPort)) return error;
  if (context->dead) return EIO;
  const FakePortOptions* port = context->parent().port(number);
  if (port == nullptr) return EINVAL;
  *out = {};
  out->state = port->state;
  out->max_mtu = port->max_mtu;
  out->active_mtu = port->active_mtu;
  out->gid_tbl_len = static_cast<int>(port->gids.size());
  out->max_msg_sz = port->max_message_bytes;
  out->pkey_tbl_len = static_cast<std::uint16_t>(port->pkeys.size());
  out->lid = port->lid;
  out->link_layer = port->link_layer;
  out->active_width = 2;
  out->active_speed = 32;
  out->phys_state = port->state == IBV_PORT_ACTIVE ? 5 : 3;  // link up, disabled
  return 0;
}

int query_gid(ibv_context* handle, std::uint32_t number, std::uint32_t index, ibv_gid_entry* out) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* context = fabric->use<Context>(handle, "query_gid");
  if (context == nullptr) return EINVAL;
  if (const int error = fabric->injected(Call::kQueryGid)) return error;
  if (context->dead) return EIO;
  const FakePortOptions* port = context->parent().port(static_cast<int>(number));
  if (port == nullptr || index >= port->gids.size()) return EINVAL;
  const FakeGid& gid = port->gids[index];
  const ibv_gid zero{};
  if (std::memcmp(&gid.gid, &zero, sizeof(zero)) == 0) return ENODATA;
  *out = {};
  out->gid = gid.gid;
  out->gid_index = index;
  out->port_num = number;
  out->gid_type = static_cast<std::uint32_t>(gid.type);
  out->ndev_ifindex = gid.interface_index;
  return 0;
}

int get_async_event(ibv_context* handle, ibv_async_event* out) {
  for (;;) {
    if (!wait_signal(handle->async_fd)) return -1;  // outside the lock: it may block
    const Entered fabric;
    if (!fabric) return -1;
    auto* context = fabric->use<Context>(handle, "get_async_event");
    if (context == nullptr) return -1;
    if (context->events.empty()) continue;  // the event's object was destroyed meanwhile
    *out = context->events.front();
    context->events.pop_front();
    if (std::uint64_t* count = delivered(*out)) ++*count;
    return 0;
  }
}

void ack_async_event(ibv_async_event* event) {
  const Entered fabric;
  if (!fabric) return;
  std::uint64_t* count = delivered(*event);
  if (count == nullptr) return;
  if (*count == 0) {
    fabric->misuse("ack_async_event: nothing to acknowledge");
  } else {
    --*count;
    fabric->acknowledged.notify_all();
  }
}

}  // namespace

void Fabric::forget_events(Context& context, const void* element) {
  std::erase_if(context.events, [&](const ibv_async_event& event) {
    return names_object(event.event_type) && static_cast<const void*>(event.element.cq) == element;
  });
}

void fill_devices(verbs::Functions& table) {
  table.fork_init = fork_init;
  table.wc_status_str = wc_status_str;
  table.get_device_list = get_device_list;
  table.free_device_list = free_device_list;
  table.get_device_name = get_device_name;
  table.open_device = open_device;
  table.close_device = close_device;
  table.query_device = query_device;
  table.query_port = query_port;
  table.query_gid = query_gid;
  table.get_async_event = get_async_event;
  table.ack_async_event = ack_async_event;
}

}  // namespace slime::transport::testing::fake

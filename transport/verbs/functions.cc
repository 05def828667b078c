#include "transport/verbs/functions.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"

namespace slime::transport::verbs {
namespace {

// verbs.h defines some functions inline, or as macros, whose bodies need symbols of libibverbs.
// This file has its own versions of them, so that no object of Slime needs a symbol of the library.

using CompatQueryPort = int (*)(ibv_context*, std::uint8_t, _compat_ibv_port_attr*);
using QueryGidEx = int (*)(ibv_context*, std::uint32_t, std::uint32_t, ibv_gid_entry*, std::uint32_t,
                           std::size_t);

// Returns the mutex that is held while the library is loaded, and while it holds a lock of its own:
// a child of fork() that inherited a locked lock would wait for ever. The library locks its list of
// devices, and the list of pages that it hides from fork().
ForkMutex& library_mutex() {
  static ForkMutex& mutex = *new ForkMutex;
  return mutex;
}
// Makes the mutex before main(): a fork() would not hold a mutex that a thread makes at that
// moment.
[[maybe_unused]] const ForkMutex& library_mutex_made_early = library_mutex();

// The library's functions that Guarded calls. Written before load_functions() returns the table.
Functions unguarded;
CompatQueryPort compat_query_port = nullptr;
QueryGidEx query_gid_ex = nullptr;
ibv_fork_status (*is_fork_initialized)() = nullptr;  // null before rdma-core 35

// Returns the verbs_context that surrounds the ibv_context; null for drivers of the first ABI,
// which have none. Its member `sz` is the size that the driver knows.
verbs_context* extended(ibv_context* context) {
  if (context->abi_compat != __VERBS_ABI_IS_EXTENDED) return nullptr;
  return reinterpret_cast<verbs_context*>(reinterpret_cast<char*>(context) -
                                          offsetof(verbs_context, context));
}

// Calls a function of the library under library_mutex().
template <auto Member>
struct Guarded;
template <class R, class... Arguments, R (*Functions::*Member)(Arguments...)>
struct Guarded<Member> {
  static R call(Arguments... arguments) {
    const MutexLock lock(library_mutex());
    return (unguarded.*Member)(arguments...);
  }
};
template <auto Member>
void guard(Functions& out) {
  if (out.*Member == nullptr) return;
  unguarded.*Member = out.*Member;
  out.*Member = &Guarded<Member>::call;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) {
  *out = {};
  verbs_context* const more = extended(context);
  // Members are found from the end of the struct, because new members are added at its front. So
  // the struct has query_port if it is large enough.
  if (more != nullptr && more->sz >= sizeof(verbs_context) - offsetof(verbs_context, query_port) &&
      more->query_port != nullptr) {
    return more->query_port(context, port, out, sizeof *out);
  }
  // The older call fills an older, shorter struct, whose members are the first ones of
  // ibv_port_attr.
  return compat_query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(out));
}

int query_gid(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out) {
  return query_gid_ex(context, port, index, out, 0, sizeof *out);
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  return cq->context->ops.req_notify_cq(cq, solicited_only);
}

int poll_cq(ibv_cq* cq, int count, ibv_wc* out) { return cq->context->ops.poll_cq(cq, count, out); }

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) {
  return srq->context->ops.post_srq_recv(srq, first, bad);
}

int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  return qp->context->ops.post_send(qp, first, bad);
}

constexpr const char* kLibrary = "libibverbs.so.1";
constexpr const char* kInstall =
    "install it: apt-get install libibverbs1 ibverbs-providers (Debian, Ubuntu), "
    "or dnf install libibverbs (Fedora, RHEL)";

class Loader {
 public:
  explicit Loader(void* library) : library_(library) {}

  // Sets `out` to the function, or to null. dlsym() returns a symbol's default version, the newest.
  template <class Function>
  void optional(const char* name, Function& out) {
    out = reinterpret_cast<Function>(dlsym(library_, name));
  }
  template <class Function>
  void required(const char* name, Function& out) {
    optional(name, out);
    if (out == nullptr) missing_.append(missing_.empty() ? "" : ", ").append(name);
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

void find_functions(Loader& loader, Functions& out) {
  loader.required("ibv_fork_init", out.fork_init);
  loader.required("ibv_wc_status_str", out.wc_status_str);
  loader.required("ibv_get_device_list", out.get_device_list);
  loader.required("ibv_free_device_list", out.free_device_list);
  loader.required("ibv_get_device_name", out.get_device_name);
  loader.required("ibv_open_device", out.open_device);
  loader.required("ibv_close_device", out.close_device);
  loader.required("ibv_query_device", out.query_device);
  loader.required("ibv_query_port", compat_query_port);
  loader.required("_ibv_query_gid_ex", query_gid_ex);
  loader.optional("ibv_is_fork_initialized", is_fork_initialized);
  loader.required("ibv_get_async_event", out.get_async_event);
  loader.required("ibv_ack_async_event", out.ack_async_event);
  loader.required("ibv_alloc_pd", out.alloc_pd);
  loader.required("ibv_dealloc_pd", out.dealloc_pd);
  loader.required("ibv_reg_mr", out.reg_mr);
  loader.optional("ibv_reg_mr_iova2", out.reg_mr_iova2);
  loader.optional("ibv_reg_dmabuf_mr", out.reg_dmabuf_mr);
  loader.required("ibv_dereg_mr", out.dereg_mr);
  loader.required("ibv_create_comp_channel", out.create_comp_channel);
  loader.required("ibv_destroy_comp_channel", out.destroy_comp_channel);
  loader.required("ibv_create_cq", out.create_cq);
  loader.required("ibv_destroy_cq", out.destroy_cq);
  loader.required("ibv_get_cq_event", out.get_cq_event);
  loader.required("ibv_ack_cq_events", out.ack_cq_events);
  loader.required("ibv_create_srq", out.create_srq);
  loader.required("ibv_destroy_srq", out.destroy_srq);
  loader.required("ibv_create_qp", out.create_qp);
  loader.required("ibv_modify_qp", out.modify_qp);
  loader.required("ibv_query_qp", out.query_qp);
  loader.required("ibv_destroy_qp", out.destroy_qp);
  out.query_port = &query_port;
  out.query_gid = &query_gid;
  out.req_notify_cq = &req_notify_cq;
  out.poll_cq = &poll_cq;
  out.post_srq_recv = &post_srq_recv;
  out.post_send = &post_send;
}

// Warns if ibv_fork_init() returned `error`: a child of fork() that touches a page of registered
// memory could then leave the parent with another page than the one the adapter writes to.
void warn_of_forks(int error) {
  if (error == 0) return;
  if (error == EINVAL) {
    log(LogLevel::kWarning, "verbs",
        "ibv_fork_init: too late, something else in this process has registered RDMA memory already. A child "
        "of fork() may disturb transfers on kernels before 5.12: load Slime first, or use spawn");
    return;
  }
  SLIME_LOG(LogLevel::kWarning, "verbs", from_errno("ibv_fork_init", error).text(),
            ". A child of fork() may disturb transfers on kernels before 5.12");
}

struct Loaded {
  Result<Functions> functions;
  int fork_error = 0;  // of ibv_fork_init()
};

Result<Functions> find(const char* library_name) {
  // The library is never unloaded, because its drivers start threads and exit handlers.
  void* const library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return Status(Code::kUnimplemented, str("RDMA verbs need ", library_name, ", which cannot be loaded (",
                                            why != nullptr ? why : "no reason given", "): ", kInstall));
  }
  Loader loader(library);
  Functions functions;
  find_functions(loader, functions);
  if (!loader.missing().empty()) {
    return Status(Code::kUnimplemented,
                  str(library_name, " is too old or incomplete, it has no ", loader.missing(),
                      ": rdma-core 32 or newer is needed; ", kInstall));
  }
  return functions;
}

// Returns whether the library hides registered pages from fork(): on kernels before 5.12, where
// fork() does not copy these pages, and if the user asks for it. The library keeps the hidden pages
// in a list under a lock.
bool hides_pages_from_fork() {
  for (const char* const name : {"RDMAV_FORK_SAFE", "IBV_FORK_SAFE"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return is_fork_initialized == nullptr || is_fork_initialized() != IBV_FORK_UNNEEDED;
}

const Loaded* load() {
  auto* const out = new Loaded{find(kLibrary)};
  if (!out->functions) return out;
  Functions& functions = *out->functions;
  guard<&Functions::get_device_list>(functions);
  if (!hides_pages_from_fork()) return out;
  out->fork_error = functions.fork_init();
  // These calls register memory, or make drivers register buffers for queues. Both lock the list of
  // hidden pages.
  guard<&Functions::reg_mr>(functions);
  guard<&Functions::reg_mr_iova2>(functions);
  guard<&Functions::dereg_mr>(functions);
  guard<&Functions::create_cq>(functions);
  guard<&Functions::destroy_cq>(functions);
  guard<&Functions::create_srq>(functions);
  guard<&Functions::destroy_srq>(functions);
  guard<&Functions::create_qp>(functions);
  guard<&Functions::destroy_qp>(functions);
  return out;
}

}  // namespace

Result<const Functions*> load_functions() {
  static constinit std::atomic<const Loaded*> loaded{nullptr};
  const Loaded* now = loaded.load(std::memory_order_acquire);
  if (now == nullptr) {
    MutexLock lock(library_mutex());
    now = loaded.load(std::memory_order_relaxed);
    if (now == nullptr) {
      now = load();
      loaded.store(now, std::memory_order_release);
      lock.unlock();
      warn_of_forks(now->fork_error);
    }
  }
  if (!now->functions) return now->functions.error();
  return &*now->functions;
}

}  // namespace slime::transport::verbs

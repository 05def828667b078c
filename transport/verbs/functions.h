#pragma once

#include <infiniband/verbs.h>

#include "base/result.h"

namespace slime::transport::verbs {

// All functions of libibverbs that this provider calls, under the library's names. Slime never
// links against libibverbs: load_functions() fills the table with dlopen, so one build runs on
// machines with and without RDMA, and tests pass a table of their own. Return values and errno are
// those of libibverbs: functions that return int return 0 or an errno value; functions that return
// a pointer return null and set errno.
struct Functions {
  // ---- library
  int (*fork_init)() = nullptr;
  const char* (*wc_status_str)(ibv_wc_status) = nullptr;
  // ---- devices
  ibv_device** (*get_device_list)(int* count) = nullptr;
  void (*free_device_list)(ibv_device** list) = nullptr;
  const char* (*get_device_name)(ibv_device* device) = nullptr;
  ibv_context* (*open_device)(ibv_device* device) = nullptr;
  int (*close_device)(ibv_context* context) = nullptr;
  int (*query_device)(ibv_context* context, ibv_device_attr* out) = nullptr;
  int (*query_port)(ibv_context* context, std::uint8_t port, ibv_port_attr* out) = nullptr;
  // ibv_query_gid_ex without flags. Returns ENODATA for an empty entry of the GID table.
  int (*query_gid)(ibv_context* context, std::uint32_t port, std::uint32_t index,
                   ibv_gid_entry* out) = nullptr;
  int (*get_async_event)(ibv_context* context, ibv_async_event* out) = nullptr;
  void (*ack_async_event)(ibv_async_event* event) = nullptr;
  // ---- memory
  ibv_pd* (*alloc_pd)(ibv_context* context) = nullptr;
  int (*dealloc_pd)(ibv_pd* pd) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, std::size_t bytes, int access) = nullptr;
  // ibv_reg_mr_iova2, which accepts optional access flags (relaxed ordering). Null if the library
  // does not have this function.
  ibv_mr* (*reg_mr_iova2)(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                          unsigned access) = nullptr;
  // Null where the library has none.
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t iova, int fd,
                           int access) = nullptr;
  int (*dereg_mr)(ibv_mr* mr) = nullptr;
  // ---- completions
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context) = nullptr;
  int (*destroy_comp_channel)(ibv_comp_channel* channel) = nullptr;
  ibv_cq* (*create_cq)(ibv_context* context, int entries, void* user, ibv_comp_channel* channel,
                       int vector) = nullptr;
  int (*destroy_cq)(ibv_cq* cq) = nullptr;
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** cq, void** user) = nullptr;
  void (*ack_cq_events)(ibv_cq* cq, unsigned count) = nullptr;
  int (*req_notify_cq)(ibv_cq* cq, int solicited_only) = nullptr;
  int (*poll_cq)(ibv_cq* cq, int count, ibv_wc* out) = nullptr;
  // ---- queues
  ibv_srq* (*create_srq)(ibv_pd* pd, ibv_srq_init_attr* attributes) = nullptr;
  int (*destroy_srq)(ibv_srq* srq) = nullptr;
  int (*post_srq_recv)(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) = nullptr;
  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attributes) = nullptr;
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask) = nullptr;
  int (*query_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init) = nullptr;
  int (*destroy_qp)(ibv_qp* qp) = nullptr;
  int (*post_send)(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) = nullptr;
};

// Returns the table of this machine's libibverbs.so.1, loaded once and kept. kUnimplemented, with
// what to install, if the library is missing or too old. Children of fork() are safe:
// ibv_fork_init() is called where the kernel needs it, and no child inherits a lock of the library.
// Thread: any.
Result<const Functions*> load_functions();

}  // namespace slime::transport::verbs

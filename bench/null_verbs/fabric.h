#pragma once

#include <cstdint>
#include <vector>

#include "bench/null_verbs/objects.h"

namespace slime::bench::null_verbs {

// What all queue pairs of the process share: numbers and keys, and the copies between their memory.
// The caller holds the lock.
class Fabric {
 public:
  // Returns the key of the memory, or the number of the queue pair. Keys and numbers are used once.
  std::uint32_t add(Memory& memory);
  void remove(Memory& memory);
  std::uint32_t add(QueuePair& qp);
  void remove(QueuePair& qp);
  // Moves the queue pair to the state ERR, and reports that it takes no further receives.
  void fail(QueuePair& qp);
  // Carries out one work request, with its completions.
  void carry_out(QueuePair& qp, const ibv_send_wr& request, std::uint64_t due_ns);

 private:
  // Returns the address of a range; null without such memory, or without the rights.
  [[nodiscard]] std::byte* find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes,
                                unsigned rights) const;
  [[nodiscard]] bool sources(const ibv_send_wr& request, unsigned rights, std::uint64_t& bytes) const;
  ibv_wc_status execute(QueuePair& peer, const ibv_send_wr& request, std::uint64_t due_ns);
  ibv_wc_status reach(QueuePair& peer, const ibv_send_wr& request, std::uint64_t due_ns);
  ibv_wc_status receive(QueuePair& peer, const ibv_send_wr& request, std::uint64_t bytes,
                        std::uint64_t due_ns);

  std::vector<Memory*> memories_{nullptr};
  std::vector<QueuePair*> queue_pairs_{nullptr};
};

Fabric& fabric();
// Makes the descriptor readable once more.
void signal(int fd);

// The calls that drivers have in their contexts.
int poll_cq(ibv_cq* cq, int count, ibv_wc* out);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad);
int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad);

}  // namespace slime::bench::null_verbs

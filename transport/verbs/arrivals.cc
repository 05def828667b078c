#include "transport/verbs/arrivals.h"

#include <optional>

#include "transport/verbs/errors.h"

namespace slime::transport::verbs {

bool Arrivals::take(std::uint32_t queue_pair, const ibv_wc& completion, ReceiveSlot& slot) {
  if (completion.status != IBV_WC_SUCCESS || link_.life.ended()) {
    link_.port->pool().put_back(slot);
    on_failed(completion);
    return false;
  }
  link_.prompt = link_.port->found_one_arrival();
  if (queue_pair == 0)
    on_message(completion, slot);
  else
    on_notification(completion, slot);
  return true;
}

void Arrivals::on_failed(const ibv_wc& completion) {
  if (completion.status == IBV_WC_SUCCESS || completion.status == IBV_WC_WR_FLUSH_ERR || !link_.working())
    return;
  count_error(link_.counters, completion.status);
  link_.break_fabric(link_.path.unavailable(link_.path.explain("receive", completion)));
}

void Arrivals::on_notification(const ibv_wc& completion, ReceiveSlot& slot) {
  link_.port->pool().put_back(slot);
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) return link_.corrupt("a message on a data queue pair");
  if (!link_.credits.given.receive()) return link_.corrupt("a notification without a credit");
  ++link_.counters.notifications_received;
  inbox_.deliver(be32toh(completion.imm_data));
}

void Arrivals::on_message(const ibv_wc& completion, ReceiveSlot& slot) {
  CreditBook& credits = link_.credits;
  PostedPool& pool = link_.port->pool();
  const std::optional<MessageNote> note = (completion.wc_flags & IBV_WC_WITH_IMM) != 0
                                              ? MessageNote::decode(be32toh(completion.imm_data))
                                              : std::nullopt;
  const bool right = link_.opening.connected && note && completion.opcode == IBV_WC_RECV &&
                     completion.byte_len <= pool.options().slot_bytes &&
                     (!note->control || completion.byte_len == 0);
  if (!right || (!note->control && credits.given.outstanding() == 0)) {
    pool.put_back(slot);
    return link_.corrupt(right ? "a message without a credit" : "a message of an unknown kind");
  }
  const std::int32_t ahead = note->ahead_of(credits.ours.limit());
  if (note->control) {
    pool.put_back(slot);
    link_.opening.got_hello = true;
    link_.life.opened();
  }
  // Takes the message's grant only if it is newer than every grant that was taken before.
  if (ahead > 0) credits_.take_grant(credits.ours.limit() + static_cast<std::uint64_t>(ahead));
  if (note->control || note->woken) {
    credits.woken();
    // This wake-up may bring only credits that this side has used already. If none is free, tells
    // the peer again that this side is starved.
    if (credits.ours.free() == 0 && link_.port->post_receives()) credits_.starve();
  }
  if (note->control) return;
  credits.given.receive();
  ++link_.counters.messages_received;
  link_.counters.bytes_received += completion.byte_len;
  if (note->starved) credits_.peer_starves(credits.given.received());
  pool.hand_out(slot, credits.given.account());
  inbox_.deliver(Message(Bytes(slot.memory(), completion.byte_len), &slot));
}

}  // namespace slime::transport::verbs

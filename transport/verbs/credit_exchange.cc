#include "transport/verbs/credit_exchange.h"

#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport::verbs {

Status CreditExchange::need(std::uint64_t reserve, bool message_waits) {
  SendCredits& ours = link_.credits.ours;
  if (ours.free() <= reserve) look();
  if (ours.free() > reserve) return {};
  ++link_.counters.credit_stalls;
  if (!message_waits) starve();  // a notification cannot tell the peer
  return link_.gate.refuse_for_credit(reserve);
}

bool CreditExchange::wanted_are_free(bool message_waits) {
  SendCredits& ours = link_.credits.ours;
  if (ours.free() < ours.wanted()) look();
  const bool free = ours.wanted_are_free();
  // The last wake-up may have brought fewer credits than a notification needs: tells the peer again
  // that this side is starved.
  if (ours.wanted() > 0 && !free && !message_waits) starve();
  return free;
}

void CreditExchange::take_grant(std::uint64_t limit) {
  SendCredits& ours = link_.credits.ours;
  const SendCredits::Raise raise = ours.raise(limit);
  if (raise == SendCredits::Raise::kOld) return;
  if (raise == SendCredits::Raise::kTooMany)
    return link_.corrupt(str("it granted ", limit, " messages after ", ours.limit()));
  if (ours.has_spare()) link_.timer.arm(ours.idle_at());
}

void CreditExchange::look() {
  if (!link_.credits.starved() && link_.working()) take_grant(link_.port->words().read(link_.place.index));
}

void CreditExchange::starve() {
  if (!link_.opening.got_hello || !link_.working() || !link_.credits.starve()) return;
  link_.say(SideFrameType::kStarved, link_.credits.ours.limit());
}

void CreditExchange::return_idle(TimePoint now, TimePoint& next) {
  const std::uint64_t back = link_.credits.ours.return_idle(now, next);
  if (back > 0) link_.say(SideFrameType::kReturn, back);
}

void CreditExchange::peer_starves(std::uint64_t limit) {
  if (!link_.credits.peer_starves(limit)) link_.corrupt(str("it says that it may send ", limit, " messages"));
}

void CreditExchange::peer_returns(std::uint64_t count) {
  if (!link_.credits.given.take_returned(count)) link_.corrupt(str("it gave back ", count, " credits"));
}

bool CreditExchange::send_control() {
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htobe32(link_.credits.control_note().encode());
  if (!link_.post_message(request, true)) return false;
  link_.credits.given.announce();
  return true;
}

void CreditExchange::send_grant() {
  CreditBook& credits = link_.credits;
  if (!link_.working()) return;
  if (credits.peer_starved()) {
    if (credits.wakes_peer() && send_control()) credits.peer_woken();
    return;
  }
  if (!credits.grant_due()) return;
  const QueuePair& pair = link_.queues.pair(0);
  ibv_sge source = link_.port->words().source(link_.place.index, credits.given.granted());
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.sg_list = &source;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = link_.peer.credit_word;
  request.wr.rdma.rkey = link_.peer.credit_key;
  if (pair.max_inline() >= source.length) request.send_flags = IBV_SEND_INLINE;
  const bool signaled = pair.unsignaled() + 1 >= limits::kMessageSignalInterval;
  if (link_.post_message(request, signaled)) credits.announce_alone(link_.loop->now());
}

}  // namespace slime::transport::verbs

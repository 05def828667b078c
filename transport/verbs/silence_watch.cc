#include "transport/verbs/silence_watch.h"

#include "transport/outage.h"

namespace slime::transport::verbs {

void SilenceWatch::update(bool in_flight) {
  const bool waiting = in_flight || link_.credits.ours.wanted() > 0 || awaiting_ ||
                       !link_.opening.got_hello || link_.queues.in_flight() > 0;
  if (waiting != waiting_) link_.side->set_waiting(waiting_ = waiting);
  if (waiting_ && !timer_) arm();
}

void SilenceWatch::arm() {
  heard_before_ = heard();
  const Nanos interval = keepalive_for(link_.port->pool().options().outage_tolerated).interval();
  timer_ = link_.loop->add_timer(deadline_after(link_.loop->now(), interval), [this] { probe(); });
}

// A call that the peer has got leaves nothing for the device to repeat. So while work waits and
// nothing came for an interval, the device gets an empty write: the peer's device acknowledges it
// without its program, and a path that is gone ends it, and the connection, by the device's
// retransmissions. A request that has a completion to come is as good as that.
void SilenceWatch::probe() {
  timer_ = TimerId{};
  if (!link_.working() || !waiting_) return;  // update() arms it again
  const QueuePair& pair = link_.queues.pair(0);
  if (link_.opening.got_hello && heard() == heard_before_ && pair.in_flight() == pair.unsignaled())
    link_.post_nothing();
  if (link_.working()) arm();
}

}  // namespace slime::transport::verbs

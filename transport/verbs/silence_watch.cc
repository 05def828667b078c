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

// Posts an empty write if work waits and nothing came for an interval. This side's device repeats
// no request that the peer's device has acknowledged, so it does not notice when the path breaks
// after that. The peer's device acknowledges the empty write without the peer's program. If the
// path is broken, the retries fail, which ends the connection. Posts nothing while a request still
// has its completion to come, because that request has this effect, too.
void SilenceWatch::probe() {
  timer_ = TimerId{};
  if (!link_.working() || !waiting_) return;  // update() arms it again
  const QueuePair& pair = link_.queues.pair(0);
  if (link_.opening.got_hello && heard() == heard_before_ && pair.in_flight() == pair.unsignaled())
    link_.post_nothing();
  if (link_.working()) arm();
}

}  // namespace slime::transport::verbs

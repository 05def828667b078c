#include "tests/rxe/endpoints/watched.h"

#include "base/clock.h"

namespace slime::bench {
namespace {

using transport::verbs::Functions;

Functions g_real;
Functions g_table;

class Stopwatch {
 public:
  Stopwatch() : begin_(steady_clock().now()) {}
  ~Stopwatch() { watched().calls_ns += (steady_clock().now() - begin_).count(); }

 private:
  const TimePoint begin_;
};

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  const ibv_qp_cap asked = attributes->cap;
  const Stopwatch stopwatch;
  ibv_qp* const made = g_real.create_qp(pd, attributes);
  if (made != nullptr) watched().shapes.push_back(asked);
  return made;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  const Stopwatch stopwatch;
  return g_real.modify_qp(qp, attributes, mask);
}

bool names_an_error(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_WQ_FATAL:
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_PORT_ERR:
      return true;
    default:
      return false;
  }
}

int get_async_event(ibv_context* context, ibv_async_event* out) {
  const int result = g_real.get_async_event(context, out);
  if (result == 0 && names_an_error(out->event_type)) watched().async_events.fetch_add(1);
  return result;
}

}  // namespace

Watched& watched() {
  static Watched only;
  return only;
}

const Functions& watch(const Functions& real) {
  g_real = real;
  g_table = real;
  g_table.create_qp = &create_qp;
  g_table.modify_qp = &modify_qp;
  g_table.get_async_event = &get_async_event;
  return g_table;
}

}  // namespace slime::bench

#include <algorithm>
#include <cerrno>

#include "tests/transport/verbs/fake_objects.h"

// Completion channels and completion queues.
namespace slime::transport::testing::fake {

void Fabric::push(CompletionQueue& cq, Entry entry) {
  Device& device = static_cast<Context*>(cq.context)->parent();
  if (cq.overflowed) return;
  if (cq.entries.size() + cq.held.size() >= static_cast<std::size_t>(cq.cqe)) {
    misuse(
        str("completion queue of ", device.options.name, " overflowed: more than ", cq.cqe, " completions"));
    cq.overflowed = true;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = &cq;
    raise(*static_cast<Context*>(cq.context), event);
    return;
  }
  if (device.holding) {
    cq.held.push_back(entry);
  } else {
    write_entry(cq, entry);
  }
}

void Fabric::write_entry(CompletionQueue& cq, Entry entry) {
  FakeCounters& counters = static_cast<Context*>(cq.context)->parent().counters;
  const bool counts = entry.solicited || entry.wc.status != IBV_WC_SUCCESS;
  cq.entries.push_back(entry);
  ++counters.completions;
  counters.cq_high_water = std::max(counters.cq_high_water, cq.entries.size());
  if (cq.armed == Armed::kNo || (cq.armed == Armed::kSolicited && !counts)) return;
  cq.armed = Armed::kNo;
  auto& channel = *static_cast<Channel*>(cq.channel);
  channel.events.push_back(&cq);
  ++counters.notifications;
  signal(channel.events_fd);
}

void Fabric::release_held(Device& device) {
  for (const auto& cq : completion_queues) {
    if (!cq->alive || &static_cast<Context*>(cq->context)->parent() != &device) continue;
    for (const Entry& entry : std::exchange(cq->held, {})) write_entry(*cq, entry);
  }
}

void Fabric::settle_entry(const Entry& entry) {
  if (entry.qp->alive) entry.qp->freed = std::max(entry.qp->freed, entry.frees);
  if (entry.srq != nullptr && entry.srq->alive) --entry.srq->occupied;
}

void Fabric::forget_entries(CompletionQueue& cq, const QueuePair& qp) {
  const auto of_qp = [&](const Entry& entry) {
    if (entry.qp != &qp) return false;
    settle_entry(entry);
    return true;
  };
  std::erase_if(cq.entries, of_qp);
  std::erase_if(cq.held, of_qp);
}

namespace {

ibv_comp_channel* create_comp_channel(ibv_context* handle) {
  const Entered fabric;
  if (!fabric) return failed(EINVAL);
  auto* context = fabric->use<Context>(handle, "create_comp_channel");
  if (context == nullptr) return failed(EINVAL);
  if (const int error = fabric->injected(Call::kCreateChannel)) return failed(error);
  if (context->dead) return failed(EIO);
  Channel& channel = *fabric->keep(fabric->channels);
  channel.context = context;
  channel.events_fd = make_signal_fd();
  channel.fd = channel.events_fd.get();
  ++context->users;
  return &channel;
}

int destroy_comp_channel(ibv_comp_channel* handle) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* channel = fabric->use<Channel>(handle, "destroy_comp_channel");
  if (channel == nullptr) return EINVAL;
  if (channel->users != 0) return EBUSY;
  channel->alive = false;
  channel->events_fd.reset();
  --static_cast<Context*>(channel->context)->users;
  return fabric->ended(channel->context);
}

ibv_cq* create_cq(ibv_context* handle, int entries, void* user, ibv_comp_channel* channel_handle,
                  int vector) {
  const Entered fabric;
  if (!fabric) return failed(EINVAL);
  auto* context = fabric->use<Context>(handle, "create_cq");
  if (context == nullptr) return failed(EINVAL);
  auto* channel = channel_handle == nullptr ? nullptr : fabric->use<Channel>(channel_handle, "create_cq");
  if (channel_handle != nullptr && (channel == nullptr || channel->context != handle)) return failed(EINVAL);
  if (const int error = fabric->injected(Call::kCreateCq)) return failed(error);
  if (context->dead) return failed(EIO);
  if (entries < 1 || entries > context->parent().options.attributes.max_cqe) return failed(EINVAL);
  if (vector < 0 || vector >= context->num_comp_vectors) return failed(EINVAL);
  CompletionQueue& cq = *fabric->keep(fabric->completion_queues);
  cq.context = context;
  cq.channel = channel;
  cq.cq_context = user;
  cq.cqe = entries;
  ++context->users;
  if (channel != nullptr) ++channel->users;
  return &cq;
}

int destroy_cq(ibv_cq* handle) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* cq = fabric->use<CompletionQueue>(handle, "destroy_cq");
  if (cq == nullptr) return EINVAL;
  if (cq->users != 0) return EBUSY;
  if (cq->delivered != 0 || cq->async_delivered != 0) {
    fabric->misuse("destroy_cq would wait for ever: events of it were not acknowledged");
  }
  fabric->forget_events(*static_cast<Context*>(cq->context), cq);
  if (auto* channel = static_cast<Channel*>(cq->channel)) {
    std::erase(channel->events, cq);
    --channel->users;
  }
  for (const Entry& entry : cq->entries) fabric->settle_entry(entry);
  for (const Entry& entry : cq->held) fabric->settle_entry(entry);
  cq->entries.clear();
  cq->held.clear();
  cq->alive = false;
  --static_cast<Context*>(cq->context)->users;
  return fabric->ended(cq->context);
}

int get_cq_event(ibv_comp_channel* handle, ibv_cq** cq, void** user) {
  for (;;) {
    if (!wait_signal(handle->fd)) return -1;  // outside the lock: it may block
    const Entered fabric;
    if (!fabric) return -1;
    auto* channel = fabric->use<Channel>(handle, "get_cq_event");
    if (channel == nullptr) return -1;
    if (channel->events.empty()) continue;  // the completion queue was destroyed meanwhile
    CompletionQueue* first = channel->events.front();
    channel->events.pop_front();
    ++first->delivered;
    *cq = first;
    *user = first->cq_context;
    return 0;
  }
}

void ack_cq_events(ibv_cq* handle, unsigned count) {
  const Entered fabric;
  if (!fabric) return;
  auto* cq = fabric->use<CompletionQueue>(handle, "ack_cq_events");
  if (cq == nullptr) return;
  if (count > cq->delivered) {
    fabric->misuse(str("ack_cq_events of ", count, " events, but there are ", cq->delivered));
    count = static_cast<unsigned>(cq->delivered);
  }
  cq->delivered -= count;
}

int req_notify_cq(ibv_cq* handle, int solicited_only) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* cq = fabric->use<CompletionQueue>(handle, "req_notify_cq");
  if (cq == nullptr) return EINVAL;
  if (const int error = fabric->injected(Call::kRequestNotify)) return error;
  if (cq->channel == nullptr) {
    fabric->misuse("req_notify_cq: the completion queue has no channel");
    return EINVAL;
  }
  // As in the specification: only later completions make an event, and a request for any completion
  // is not weakened by a later request for solicited completions.
  if (solicited_only == 0) {
    cq->armed = Armed::kAny;
  } else if (cq->armed == Armed::kNo) {
    cq->armed = Armed::kSolicited;
  }
  return 0;
}

int poll_cq(ibv_cq* handle, int count, ibv_wc* out) {
  const Entered fabric;
  if (!fabric) return -1;
  auto* cq = fabric->use<CompletionQueue>(handle, "poll_cq");
  if (cq == nullptr) return -1;
  if (fabric->options.step_on_calls && fabric->busy()) fabric->step();
  int got = 0;
  while (got < count && !cq->entries.empty()) {
    const Entry entry = cq->entries.front();
    cq->entries.pop_front();
    fabric->settle_entry(entry);
    out[got++] = entry.wc;
  }
  return got == 0 && cq->overflowed ? -1 : got;
}

}  // namespace

void fill_completions(verbs::Functions& table) {
  table.create_comp_channel = create_comp_channel;
  table.destroy_comp_channel = destroy_comp_channel;
  table.create_cq = create_cq;
  table.destroy_cq = destroy_cq;
  table.get_cq_event = get_cq_event;
  table.ack_cq_events = ack_cq_events;
  table.req_notify_cq = req_notify_cq;
  table.poll_cq = poll_cq;
}

}  // namespace slime::transport::testing::fake

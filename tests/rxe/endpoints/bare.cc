#include "tests/rxe/endpoints/bare.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/str.h"
#include "bench/raw.h"

namespace slime::bench {
namespace {

using transport::verbs::Context;
using transport::verbs::Functions;

constexpr std::size_t kMaxQueuePairs = 9;
constexpr std::uint32_t kPsn = 1;
constexpr int kReceives = 64;
constexpr int kCompletions = 1024;

// What the two ends tell each other. Both are this program on this machine.
struct Hello {
  std::uint32_t count = 0;
  std::uint16_t lid = 0;
  std::uint16_t unused = 0;
  std::array<std::uint32_t, kMaxQueuePairs> numbers{};
  std::array<ibv_qp_cap, kMaxQueuePairs> shapes{};
  ibv_gid gid{};
};

// Queue pairs with their end.
struct QueuePairs {
  explicit QueuePairs(const BareDevice& of) : device(of) {}
  QueuePairs(const QueuePairs&) = delete;
  QueuePairs& operator=(const QueuePairs&) = delete;
  ~QueuePairs() {
    for (std::size_t i = 0; i < count; ++i) device.functions().destroy_qp(pairs[i]);
  }
  const BareDevice& device;
  std::array<ibv_qp*, kMaxQueuePairs> pairs{};
  std::size_t count = 0;
};

// Moves one of these structs, or the byte that ends a connection.
template <class T>
Status send(int fd, const T& value) {
  T copy = value;
  return transfer(fd, reinterpret_cast<std::byte*>(&copy), sizeof copy, true, false);
}
template <class T>
Status receive(int fd, T& value) {
  return transfer(fd, reinterpret_cast<std::byte*>(&value), sizeof value, false, false);
}

Status create_all(QueuePairs& pairs, const Hello& shapes) {
  for (std::size_t i = 0; i < shapes.count; ++i) {
    auto made = pairs.device.create(shapes.shapes[i]);
    if (!made) return std::move(made).error();
    pairs.pairs[pairs.count++] = *made;
  }
  return {};
}

Hello describe(const QueuePairs& pairs, Hello out) {
  const Context& context = pairs.device.context();
  out.lid = context.port_attributes().lid;
  out.gid = context.gid().gid;
  for (std::size_t i = 0; i < pairs.count; ++i) out.numbers[i] = pairs.pairs[i]->qp_num;
  return out;
}

Status to_init(const BareDevice& device, ibv_qp* qp) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<std::uint8_t>(device.context().selection.port);
  attributes.pkey_index = static_cast<std::uint16_t>(device.context().options.pkey_index);
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  const int rc = device.functions().modify_qp(
      qp, &attributes, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
  return rc == 0 ? Status() : from_errno("ibv_modify_qp to INIT", rc);
}

Status to_rtr_and_rts(const BareDevice& device, ibv_qp* qp, std::uint32_t number, const Hello& peer) {
  const Context& context = device.context();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = context.port_attributes().active_mtu;
  attributes.dest_qp_num = number;
  attributes.rq_psn = kPsn;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.port_num = static_cast<std::uint8_t>(context.selection.port);
  attributes.ah_attr.dlid = peer.lid;
  if (context.port_attributes().link_layer == IBV_LINK_LAYER_ETHERNET) {
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.dgid = peer.gid;
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(context.gid().index);
    attributes.ah_attr.grh.hop_limit = 64;
  }
  int rc = device.functions().modify_qp(qp, &attributes,
                                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (rc != 0) return from_errno("ibv_modify_qp to RTR", rc);
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 6;
  attributes.sq_psn = kPsn;
  attributes.max_rd_atomic = 1;
  rc = device.functions().modify_qp(qp, &attributes,
                                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return rc == 0 ? Status() : from_errno("ibv_modify_qp to RTS", rc);
}

Status answer_one(const BareDevice& device, int fd) {
  Hello theirs;
  SLIME_TRY(receive(fd, theirs));
  if (theirs.count > kMaxQueuePairs) return {Code::kInternal, "too many queue pairs"};
  {
    QueuePairs pairs(device);
    SLIME_TRY(create_all(pairs, theirs));
    for (std::size_t i = 0; i < pairs.count; ++i) {
      SLIME_TRY(to_init(device, pairs.pairs[i]));
      SLIME_TRY(to_rtr_and_rts(device, pairs.pairs[i], theirs.numbers[i], theirs));
    }
    const Hello ours = describe(pairs, theirs);
    SLIME_TRY(send(fd, ours));
    char done = 0;
    SLIME_TRY(receive(fd, done));
  }
  return send(fd, 'd');
}

}  // namespace

Result<std::unique_ptr<BareDevice>> BareDevice::open(const Functions& functions) {
  auto options = transport::verbs::Options::from_environment();
  if (!options) return std::move(options).error();
  auto context = Context::open(functions, std::move(*options));
  if (!context) return std::move(context).error();
  std::unique_ptr<BareDevice> out(new BareDevice(std::move(*context)));
  out->cq_ = functions.create_cq(out->context_->handle, kCompletions, nullptr, nullptr, 0);
  if (out->cq_ == nullptr) return from_errno("ibv_create_cq", errno);
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = kReceives;
  attributes.attr.max_sge = 1;
  out->srq_ = functions.create_srq(out->context_->pd, &attributes);
  if (out->srq_ == nullptr) return from_errno("ibv_create_srq", errno);
  return out;
}

BareDevice::~BareDevice() {
  if (srq_ != nullptr) functions().destroy_srq(srq_);
  if (cq_ != nullptr) functions().destroy_cq(cq_);
}

Result<ibv_qp*> BareDevice::create(const ibv_qp_cap& shape) const {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = cq_;
  attributes.recv_cq = cq_;
  attributes.srq = srq_;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = shape;
  ibv_qp* const made = functions().create_qp(context_->pd, &attributes);
  if (made == nullptr) return from_errno("ibv_create_qp", errno);
  return made;
}

std::string encode(const Shapes& shapes) {
  std::string out;
  for (const ibv_qp_cap& shape : shapes)
    out +=
        str(out.empty() ? "" : ",", shape.max_send_wr, ":", shape.max_send_sge, ":", shape.max_inline_data);
  return out;
}

Result<Shapes> decode_shapes(const std::string& text) {
  Shapes out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    ibv_qp_cap shape{};
    if (std::sscanf(word.c_str(), "%u:%u:%u", &shape.max_send_wr, &shape.max_send_sge,
                    &shape.max_inline_data) != 3)
      return Status(Code::kInvalidArgument, str("not the shape of a queue pair: ", word));
    out.push_back(shape);
  }
  if (out.empty() || out.size() > kMaxQueuePairs)
    return Status(Code::kInvalidArgument, str("shapes of 1 to ", kMaxQueuePairs, " queue pairs"));
  return out;
}

Result<std::uint16_t> serve_bare(std::shared_ptr<BareDevice> device) {
  auto listener = listen_tcp();
  if (!listener) return std::move(listener).error();
  const std::uint16_t port = listener->port;
  // Detached: it ends with the process, which lives for one measurement.
  std::thread([listener = std::move(listener->fd), device = std::move(device)] {
    for (;;) {
      const UniqueFd fd = accept_tcp(listener.get());
      if (!fd.valid()) return;
      // Its end learns from the connection's.
      if (const Status status = answer_one(*device, fd.get()); !status.ok())
        std::fprintf(stderr, "bare connection: %s\n", status.to_string().c_str());
    }
  }).detach();
  return port;
}

Result<std::int64_t> connect_bare(const BareDevice& device, const Shapes& shapes, std::uint16_t port) {
  Hello ours;
  ours.count = static_cast<std::uint32_t>(shapes.size());
  for (std::size_t i = 0; i < shapes.size(); ++i) ours.shapes[i] = shapes[i];
  UniqueFd fd;
  std::int64_t took = 0;
  {
    QueuePairs pairs(device);
    const TimePoint begin = steady_clock().now();
    SLIME_TRY(create_all(pairs, ours));
    for (std::size_t i = 0; i < pairs.count; ++i) SLIME_TRY(to_init(device, pairs.pairs[i]));
    auto connected = connect_tcp(port);
    if (!connected) return std::move(connected).error();
    fd = std::move(*connected);
    ours = describe(pairs, ours);
    SLIME_TRY(send(fd.get(), ours));
    Hello theirs;
    SLIME_TRY(receive(fd.get(), theirs));
    for (std::size_t i = 0; i < pairs.count; ++i)
      SLIME_TRY(to_rtr_and_rts(device, pairs.pairs[i], theirs.numbers[i], theirs));
    took = (steady_clock().now() - begin).count();
  }
  // The other end's queue pairs, too, are gone before the next measurement begins.
  char done = 'd';
  SLIME_TRY(send(fd.get(), done));
  SLIME_TRY(receive(fd.get(), done));
  return took;
}

}  // namespace slime::bench

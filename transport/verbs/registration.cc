#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/str.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/regions.h"

namespace slime::transport::verbs {
namespace {

// One part of the memory to register, given by its address or by its offset within a dma-buf.
struct Part {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  int fd = -1;
  std::uint64_t offset = 0;
};

unsigned access_for(const Context& context, Rights rights, MemoryKind kind) {
  unsigned out = IBV_ACCESS_LOCAL_WRITE;
  if (allows(rights, Rights::kRemoteRead)) out |= IBV_ACCESS_REMOTE_READ;
  if (allows(rights, Rights::kRemoteWrite)) out |= IBV_ACCESS_REMOTE_WRITE;
  if (allows(rights, Rights::kReadWrite) && kind == MemoryKind::kHost &&
      context.device.atomic_cap != IBV_ATOMIC_NONE)
    out |= IBV_ACCESS_REMOTE_ATOMIC;
  return out;
}

ibv_mr* register_once(const Context& context, const Part& part, unsigned access, int& error) {
  const Functions& f = context.functions;
  const auto address = reinterpret_cast<std::uintptr_t>(part.data);
  errno = 0;
  ibv_mr* mr = nullptr;
  if (part.fd >= 0)
    mr = f.reg_dmabuf_mr(context.pd, part.offset, part.bytes, address, part.fd, static_cast<int>(access));
  else if ((access & IBV_ACCESS_OPTIONAL_RANGE) != 0)
    mr = f.reg_mr_iova2(context.pd, part.data, part.bytes, address, access);
  else
    mr = f.reg_mr(context.pd, part.data, part.bytes, static_cast<int>(access));
  if (mr == nullptr) error = errno != 0 ? errno : EIO;
  return mr;
}

ibv_mr* register_part(DeviceState& device, const Context& context, const Part& part, unsigned access,
                      int& error) {
  const unsigned relaxed =
      device.relaxed_ordering() ? context.optional_access & IBV_ACCESS_RELAXED_ORDERING : 0;
  ibv_mr* mr = register_once(context, part, access | relaxed, error);
  if (mr == nullptr && relaxed != 0 && (error == EINVAL || error == EOPNOTSUPP)) {
    mr = register_once(context, part, access, error);
    if (mr != nullptr) device.no_relaxed_ordering();
  }
  // Tries again without local write access, for memory that is mapped read-only: peers can read it,
  // and it can be the source of writes.
  constexpr unsigned kWriting = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if (mr == nullptr && error == EFAULT && (access & kWriting) == 0) {
    int ignored = 0;
    const unsigned plain = access & ~static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE);
    mr = register_once(context, part, plain, ignored);
  }
  return mr;
}

// Returns the smallest number of parts of at most `most` bytes each; 0 if 8 parts are not enough.
std::uint8_t parts_for(std::uint64_t bytes, std::uint64_t most) {
  for (std::uint8_t parts = 1; parts <= kMaxParts; ++parts) {
    if (part_bytes(bytes, parts) <= most) return parts;
  }
  return 0;
}

Status too_large(const Context& context, std::uint64_t bytes) {
  const std::uint64_t most = context.device.max_mr_size;
  const std::uint64_t whole = most / limits::kRegistrationPart * limits::kRegistrationPart;
  return Status(Code::kInvalidArgument,
                str("a region of ", bytes, " bytes: ", context.selection.device, " registers at most ", most,
                    " bytes at once (max_mr_size), and a region has at most ", kMaxParts,
                    " such parts, so at most ", std::max(most, kMaxParts * whole), " bytes"));
}

}  // namespace

std::uint64_t part_bytes(std::uint64_t length_bytes, std::size_t parts) {
  if (parts <= 1) return std::max<std::uint64_t>(length_bytes, 1);
  const std::uint64_t least = length_bytes / parts + (length_bytes % parts != 0 ? 1 : 0);
  // `parts` is at least 2 here, so `least` is at most 2^63 and the sum does not overflow.
  const std::uint64_t units = (least + limits::kRegistrationPart - 1) / limits::kRegistrationPart;
  return std::max<std::uint64_t>(units, 1) * limits::kRegistrationPart;
}

PackedKey pack_keys(std::span<const std::uint32_t> rkeys, std::uint64_t base) {
  ByteVector bytes;
  ByteWriter out(bytes);
  for (const std::uint32_t rkey : rkeys) out.write(rkey);
  out.write(base);
  return PackedKey(bytes);
}

std::optional<RemoteAccess> unpack_keys(const PackedKey& packed, std::uint64_t length_bytes) {
  const std::size_t size = packed.bytes().size();
  if (size < sizeof(std::uint64_t) || size % sizeof(std::uint32_t) != 0) return std::nullopt;
  const std::size_t parts = (size - sizeof(std::uint64_t)) / sizeof(std::uint32_t);
  if (parts == 0 || parts > kMaxParts) return std::nullopt;
  ByteReader in(packed.bytes());
  RemoteAccess out;
  out.key = in.read<std::uint32_t>();
  if (parts > 1) {
    std::vector<std::uint64_t> keys{out.key};
    while (keys.size() < parts) keys.push_back(in.read<std::uint32_t>());
    out.keys = std::make_shared<const std::vector<std::uint64_t>>(std::move(keys));
  }
  out.base = in.read<std::uint64_t>();
  if (out.base == 0 || length_bytes > UINT64_MAX - out.base) return std::nullopt;
  return out;
}

Result<std::shared_ptr<Registration>> Registration::create(DeviceState& device,
                                                           const std::shared_ptr<Context>& context,
                                                           std::byte* data, std::uint64_t bytes,
                                                           Rights rights, MemoryKind kind) {
  const std::uint8_t parts = parts_for(bytes, context->device.max_mr_size);
  if (parts == 0) return too_large(*context, bytes);
  Dmabuf dmabuf;
  if (kind == MemoryKind::kCuda) {
    if (context->functions.reg_dmabuf_mr == nullptr)
      return Status(Code::kUnimplemented,
                    "this libibverbs cannot register CUDA memory: it takes rdma-core 34 or newer");
    Result<Dmabuf> exported = device.exporter.export_range(data, bytes);
    if (!exported) return std::move(exported).error();
    dmabuf = std::move(*exported);
  }
  const unsigned access = access_for(*context, rights, kind);
  std::shared_ptr<Registration> out(new Registration(context, data, bytes, parts));
  for (std::uint8_t i = 0; i < parts; ++i) {
    const std::uint64_t begin = i * out->part_bytes_;
    const Part part{data + begin, std::min(out->part_bytes_, bytes - begin), dmabuf.fd.get(),
                    dmabuf.offset + begin};
    int error = 0;
    ibv_mr* const mr = register_part(device, *context, part, access, error);
    if (mr == nullptr)
      return call_error(
          str("registering ", part.bytes, " bytes of ", kind == MemoryKind::kCuda ? "CUDA memory" : "memory",
              " with ", context->selection.device),
          error, true);
    out->local_keys_[i] = mr->lkey;
    out->remote_keys_[i] = mr->rkey;
    const MutexLock lock(out->mutex_);
    out->mrs_.push_back(mr);
  }
  return out;
}

// Tries to end the parts that are still registered. If that fails, either peers do not know the
// keys, or an earlier deregister() has failed, too.
Registration::~Registration() { deregister(); }

int Registration::deregister() {
  const MutexLock lock(mutex_);
  while (!mrs_.empty()) {
    if (const int error = context_->ended(context_->functions.dereg_mr(mrs_.back()))) return error;
    mrs_.pop_back();
  }
  return 0;
}

void Registration::abandon() {
  const MutexLock lock(mutex_);
  mrs_.clear();
}

Registration::LocalKey Registration::key_of_part(std::uint64_t offset) const {
  const std::uint64_t part = offset / part_bytes_;
  const std::uint64_t end = std::min((part + 1) * part_bytes_, bytes_);
  return {local_keys_[part], end - offset};
}

}  // namespace slime::transport::verbs

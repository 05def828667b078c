#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tests/transport/verbs/fake_objects.h"

// Protection domains and memory registrations.
namespace slime::transport::testing::fake {

std::uint32_t Fabric::new_key() {
  for (;;) {
    const auto key = static_cast<std::uint32_t>(rng.next());
    if (key != 0 && keys.emplace(key, nullptr).second) return key;
  }
}

namespace {

std::byte* translate(const Memory* memory, const ibv_pd* pd, std::uint64_t address, std::uint64_t length,
                     unsigned rights) {
  if (memory == nullptr || !memory->alive || memory->pd != pd) return nullptr;
  if ((memory->access & rights) != rights) return nullptr;
  if (address < memory->iova || length > memory->length) return nullptr;
  const std::uint64_t offset = address - memory->iova;
  if (offset > memory->length - length) return nullptr;
  return memory->host + offset;
}

}  // namespace

std::byte* Fabric::local(const ibv_pd* pd, std::uint32_t lkey, std::uint64_t address, std::uint64_t length,
                         unsigned rights) {
  const auto found = keys.find(lkey);
  if (found == keys.end() || found->second == nullptr || found->second->lkey != lkey) return nullptr;
  return translate(found->second, pd, address, length, rights);
}

std::byte* Fabric::remote(const ibv_pd* pd, std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                          unsigned rights) {
  const auto found = keys.find(rkey);
  if (found == keys.end() || found->second == nullptr || found->second->rkey != rkey) return nullptr;
  return translate(found->second, pd, address, length, rights);
}

bool Fabric::gather(const ibv_pd* pd, const std::vector<ibv_sge>& sges, std::uint64_t offset,
                    std::uint64_t length, unsigned rights, Segments& out) {
  for (const ibv_sge& sge : sges) {
    if (length == 0) return true;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const std::uint64_t part = std::min<std::uint64_t>(sge.length - offset, length);
    std::byte* host = local(pd, sge.lkey, sge.addr + offset, part, rights);
    if (host == nullptr) return false;
    out.emplace_back(host, part);
    length -= part;
    offset = 0;
  }
  return true;
}

namespace {

constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

// Returns whether the whole range is mapped, which pinning checks.
bool mapped(std::uintptr_t address, std::size_t bytes) {
  const std::uintptr_t page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = address & ~(page - 1);
  return ::msync(reinterpret_cast<void*>(first), address + bytes - first, MS_ASYNC) == 0;
}

ibv_pd* alloc_pd(ibv_context* handle) {
  const Entered fabric;
  if (!fabric) return failed(EINVAL);
  auto* context = fabric->use<Context>(handle, "alloc_pd");
  if (context == nullptr) return failed(EINVAL);
  if (const int error = fabric->injected(Call::kAllocPd)) return failed(error);
  if (context->dead) return failed(EIO);
  Domain& domain = *fabric->keep(fabric->domains);
  domain.context = context;
  ++context->users;
  return &domain;
}

int dealloc_pd(ibv_pd* handle) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* domain = fabric->use<Domain>(handle, "dealloc_pd");
  if (domain == nullptr) return EINVAL;
  if (domain->users != 0) return EBUSY;
  domain->alive = false;
  --static_cast<Context*>(domain->context)->users;
  return fabric->ended(domain->context);
}

struct Range {
  void* address = nullptr;  // for ibv_mr::addr
  std::byte* host = nullptr;
  std::size_t bytes = 0;
  std::uint64_t iova = 0;
};

ibv_mr* register_range(Fabric& fabric, Domain& domain, const Range& range, unsigned access) {
  Context& context = *static_cast<Context*>(domain.context);
  if (const int error = fabric.injected(Call::kRegister)) return failed(error);
  if (context.dead) return failed(EIO);
  const unsigned remote_changes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if ((access & ~kKnownAccess) != 0) return failed(EINVAL);
  if ((access & remote_changes) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return failed(EINVAL);
  if (range.bytes == 0 || range.bytes > context.parent().options.attributes.max_mr_size)
    return failed(EINVAL);
  if (range.bytes > fabric.options.memlock_bytes - fabric.pinned) return failed(ENOMEM);
  if (!mapped(reinterpret_cast<std::uintptr_t>(range.host), range.bytes)) return failed(EFAULT);
  Memory& memory = *fabric.keep(fabric.memories);
  memory.context = &context;
  memory.pd = &domain;
  memory.addr = range.address;
  memory.length = range.bytes;
  memory.host = range.host;
  memory.iova = range.iova;
  memory.access = access;
  memory.lkey = fabric.new_key();
  memory.rkey = fabric.new_key();
  fabric.keys[memory.lkey] = fabric.keys[memory.rkey] = &memory;
  fabric.pinned += range.bytes;
  ++domain.users;
  return &memory;
}

ibv_mr* reg_mr(ibv_pd* handle, void* address, std::size_t bytes, int access) {
  Entered fabric;
  if (!fabric) return failed(EINVAL);
  if (address == fabric->held_memory) fabric.pass(Call::kRegister);
  if (address == fabric->refused_memory) return failed(ENOMEM);
  auto* domain = fabric->use<Domain>(handle, "reg_mr");
  if (domain == nullptr) return failed(EINVAL);
  return register_range(
      *fabric, *domain,
      {address, static_cast<std::byte*>(address), bytes, reinterpret_cast<std::uintptr_t>(address)},
      static_cast<unsigned>(access));
}

ibv_mr* reg_mr_iova2(ibv_pd* handle, void* address, std::size_t bytes, std::uint64_t iova, unsigned access) {
  Entered fabric;
  if (!fabric) return failed(EINVAL);
  if (address == fabric->held_memory) fabric.pass(Call::kRegister);
  if (address == fabric->refused_memory) return failed(ENOMEM);
  auto* domain = fabric->use<Domain>(handle, "reg_mr_iova2");
  if (domain == nullptr) return failed(EINVAL);
  // Only this call accepts optional flags, and ignores those that the device does not know.
  return register_range(*fabric, *domain, {address, static_cast<std::byte*>(address), bytes, iova},
                        access & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE));
}

ibv_mr* reg_dmabuf_mr(ibv_pd* handle, std::uint64_t offset, std::size_t bytes, std::uint64_t iova, int fd,
                      int access) {
  const Entered fabric;
  if (!fabric) return failed(EINVAL);
  auto* domain = fabric->use<Domain>(handle, "reg_dmabuf_mr");
  if (domain == nullptr) return failed(EINVAL);
  struct stat status {};
  if (::fstat(fd, &status) != 0) return failed(EBADF);
  for (const DmabufMemory& memory : fabric->dmabufs) {
    if (memory.inode != status.st_ino) continue;
    if (bytes > memory.bytes.size() || offset > memory.bytes.size() - bytes) return failed(EINVAL);
    return register_range(*fabric, *domain, {nullptr, memory.bytes.data() + offset, bytes, iova},
                          static_cast<unsigned>(access) & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE));
  }
  return failed(EINVAL);
}

int dereg_mr(ibv_mr* handle) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* memory = fabric->use<Memory>(handle, "dereg_mr");
  if (memory == nullptr) return EINVAL;
  memory->alive = false;
  fabric->pinned -= memory->length;
  --static_cast<Domain*>(memory->pd)->users;
  return fabric->ended(memory->context);
}

}  // namespace

void fill_memory(verbs::Functions& table) {
  table.alloc_pd = alloc_pd;
  table.dealloc_pd = dealloc_pd;
  table.reg_mr = reg_mr;
  table.reg_mr_iova2 = reg_mr_iova2;
  table.reg_dmabuf_mr = reg_dmabuf_mr;
  table.dereg_mr = dereg_mr;
}

}  // namespace slime::transport::testing::fake

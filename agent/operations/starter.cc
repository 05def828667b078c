#include "agent/operations/starter.h"

#include "base/str.h"
#include "transport/limits.h"

namespace slime::agent {

Future<None> OperationStarter::one_sided(const std::shared_ptr<NamedPeer>& peer, OneSided kind,
                                         std::span<const Copy> copies, std::uint32_t imm, Nanos timeout,
                                         bool wait_for_ready) {
  if (Status status = parts_.memory.check_blocks(copies); !status.ok())
    return Future<None>::ready(std::move(status));
  return submit(peer, make<OneSidedOperation>(kind, copies, imm), timeout, wait_for_ready);
}

Future<None> OperationStarter::blocks(const std::shared_ptr<NamedPeer>& peer, OneSided kind,
                                      const BlockIds& blocks, Nanos timeout, bool wait_for_ready) {
  Status status = parts_.memory.check_local(blocks.local);
  if (status.ok()) status = BoundCopies::check(blocks, peer->name);
  if (!status.ok()) return Future<None>::ready(std::move(status));
  return submit(peer, make<OneSidedOperation>(kind, blocks), timeout, wait_for_ready);
}

Future<std::uint64_t> OperationStarter::atomic(const std::shared_ptr<NamedPeer>& peer,
                                               AtomicOperation::Request request, Nanos timeout,
                                               bool wait_for_ready) {
  auto place = parts_.memory.place_for_old_value();
  if (!place) return Future<std::uint64_t>::ready(std::move(place).error());
  return submit(peer, make<AtomicOperation>(std::move(request), std::move(*place)), timeout, wait_for_ready);
}

Result<std::shared_ptr<BoundCopies>> OperationStarter::bind(const std::string& peer, Transfer transfer,
                                                            std::span<const Copy> copies) const {
  if (copies.empty()) return Status(Code::kInvalidArgument, "a batch of no blocks");
  SLIME_TRY(parts_.memory.check_blocks(copies));
  SLIME_TRY(BoundCopies::check_locals(copies));
  auto bound = std::make_shared<BoundCopies>(copies, true);
  bound->count_regions();
  SLIME_TRY(bound->check_remotes(rights_for(transfer), peer));
  return bound;
}

Future<None> OperationStarter::post(const std::shared_ptr<NamedPeer>& peer, OneSided kind,
                                    std::shared_ptr<BoundCopies> copies,
                                    std::span<const std::uint32_t> blocks, std::uint32_t imm,
                                    PostOptions options, bool wait_for_ready) {
  auto operation =
      make<OneSidedOperation>(kind, std::move(copies), std::vector(blocks.begin(), blocks.end()), imm);
  operation->stall = options.stall;
  return submit(peer, std::move(operation), options.timeout, wait_for_ready);
}

bool OperationStarter::done_now(NamedPeer& peer, Transfer transfer, BoundCopies& copies) {
  if (copies.size() > transport::limits::kPromptCopyBlocks) return false;
  if (!parts_.admission.open()) return false;
  const transport::Loop::Borrowed drive(*parts_.loop);
  if (!drive || !parts_.admission.open()) return false;
  Session* const session = parts_.switchboard.session_now(peer);
  if (session == nullptr || !copies.check_usable(*session).ok()) return false;
  return session->done_now(transfer == Transfer::kRead ? OneSided::kRead : OneSided::kWrite,
                           copies.on(session->device(), true));
}

}  // namespace slime::agent

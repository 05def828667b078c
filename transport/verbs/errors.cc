#include "transport/verbs/errors.h"

#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/str.h"

namespace slime::transport::verbs {
namespace {

// One verbs status, with its cause and what to check. Numbers and names are those of enum
// ibv_wc_status.
struct Recipe {
  ibv_wc_status status;
  std::string_view name;
  Blame blame;
  std::string_view cause;
  std::string_view check;
};

constexpr std::string_view kReportBug = "this should not happen: report it with this line";
constexpr std::string_view kUnused = "a kind of queue pair that Slime does not use";

constexpr std::array kRecipes{
    Recipe{IBV_WC_LOC_LEN_ERR, "IBV_WC_LOC_LEN_ERR", Blame::kLocal,
           "a message is longer than the receive buffer posted for it, or longer than the port can send",
           "whether both sides run the same version and slot size"},
    Recipe{
        IBV_WC_LOC_QP_OP_ERR, "IBV_WC_LOC_QP_OP_ERR", Blame::kLocal,
        "the adapter found a work request malformed: number of pieces, inline size or operation code against "
        "what the queue pair was made for",
        "SLIME_VERBS_INLINE=0 tells whether inline data is the reason; else report it with this line"},
    Recipe{IBV_WC_LOC_EEC_OP_ERR, "IBV_WC_LOC_EEC_OP_ERR", Blame::kLocal, kUnused, kReportBug},
    Recipe{
        IBV_WC_LOC_PROT_ERR, "IBV_WC_LOC_PROT_ERR", Blame::kLocal,
        "the local buffer is not registered, or not any more: its region was closed, or its memory freed or "
        "unmapped, while the operation was under way",
        "that the region and its memory live until the operation has completed"},
    Recipe{IBV_WC_WR_FLUSH_ERR, "IBV_WC_WR_FLUSH_ERR", Blame::kVictim,
           "the queue pair had failed already, or was being closed, and gave back what it still had",
           "the first error of this connection: it names the cause"},
    Recipe{IBV_WC_MW_BIND_ERR, "IBV_WC_MW_BIND_ERR", Blame::kLocal, "a memory window could not be bound",
           kReportBug},
    Recipe{
        IBV_WC_BAD_RESP_ERR, "IBV_WC_BAD_RESP_ERR", Blame::kPath,
        "the peer's adapter gave an answer that does not fit the request",
        "that both ends are of this connection (a peer that restarted may have the same address), firmware, "
        "and the peer's log"},
    Recipe{IBV_WC_LOC_ACCESS_ERR, "IBV_WC_LOC_ACCESS_ERR", Blame::kLocal,
           "our own memory refused what came in: a receive buffer or the target of a read is not writable or "
           "not "
           "registered any more",
           "that the region and its memory live until the operation has completed"},
    Recipe{IBV_WC_REM_INV_REQ_ERR, "IBV_WC_REM_INV_REQ_ERR", Blame::kPeer,
           "the peer's adapter refused the request as invalid: a message larger than its receive buffer, too "
           "many reads at a time, or an operation, such as an atomic one, that it does not allow. SoftRoCE "
           "also says so at times when a request is sent again because its answer was late",
           "whether both sides run the same version and slot size, SLIME_VERBS_RD_ATOMIC, and whether the "
           "peer's adapter has atomics; on SoftRoCE, a larger SLIME_VERBS_TIMEOUT"},
    Recipe{
        IBV_WC_REM_ACCESS_ERR, "IBV_WC_REM_ACCESS_ERR", Blame::kRemote,
        "the peer's memory refused the access: the region was closed, the key is of an earlier life of the "
        "peer, or rights or bounds do not allow it",
        "whether the peer still has the region and gave these rights; look the region up again"},
    Recipe{IBV_WC_REM_OP_ERR, "IBV_WC_REM_OP_ERR", Blame::kPeer,
           "the peer's adapter could not complete the request for a reason of its own",
           "the peer's log, and dmesg on its host"},
    Recipe{
        IBV_WC_RETRY_EXC_ERR, "IBV_WC_RETRY_EXC_ERR", Blame::kPath,
        "nobody acknowledged, through all retries: the peer is dead or its queue pair gone, or its packets "
        "do "
        "not arrive: wrong GID, an MTU that a switch or netdev does not carry, another partition (pkey), a "
        "firewall on UDP port 4791, lost packets, a cable",
        "that the peer runs, ping between the two GIDs' addresses with packets of the MTU's size, "
        "`slime doctor` on both hosts, and rping between them"},
    Recipe{
        IBV_WC_RNR_RETRY_EXC_ERR, "IBV_WC_RNR_RETRY_EXC_ERR", Blame::kPeer,
        "the peer's adapter answered, but had no receive buffer through all retries: the peer is stalled, "
        "or credits were miscounted",
        "whether the peer's process is stopped or swapping; if it runs freely, report a bug with this line"},
    Recipe{IBV_WC_LOC_RDD_VIOL_ERR, "IBV_WC_LOC_RDD_VIOL_ERR", Blame::kLocal, kUnused, kReportBug},
    Recipe{IBV_WC_REM_INV_RD_REQ_ERR, "IBV_WC_REM_INV_RD_REQ_ERR", Blame::kRemote, kUnused, kReportBug},
    Recipe{IBV_WC_REM_ABORT_ERR, "IBV_WC_REM_ABORT_ERR", Blame::kPeer,
           "the peer's adapter aborted the operation", "the peer's log, and dmesg on its host"},
    Recipe{IBV_WC_INV_EECN_ERR, "IBV_WC_INV_EECN_ERR", Blame::kLocal, kUnused, kReportBug},
    Recipe{IBV_WC_INV_EEC_STATE_ERR, "IBV_WC_INV_EEC_STATE_ERR", Blame::kLocal, kUnused, kReportBug},
    Recipe{IBV_WC_FATAL_ERR, "IBV_WC_FATAL_ERR", Blame::kDevice, "the adapter or its driver failed for good",
           "dmesg; restart the process, and reset the adapter if it stays so"},
    Recipe{IBV_WC_RESP_TIMEOUT_ERR, "IBV_WC_RESP_TIMEOUT_ERR", Blame::kDevice,
           "the adapter got no answer in time to a request of its own", "dmesg, and the adapter's firmware"},
    Recipe{IBV_WC_GENERAL_ERR, "IBV_WC_GENERAL_ERR", Blame::kDevice,
           "the adapter reports an error that no other status covers",
           "dmesg, and the meaning of the vendor error for this adapter"},
    Recipe{IBV_WC_TM_ERR, "IBV_WC_TM_ERR", Blame::kLocal, "tag matching, which Slime does not use",
           kReportBug},
    Recipe{IBV_WC_TM_RNDV_INCOMPLETE, "IBV_WC_TM_RNDV_INCOMPLETE", Blame::kLocal,
           "tag matching, which Slime does not use", kReportBug},
};

constexpr Recipe kUnknown{IBV_WC_GENERAL_ERR, "an unknown status", Blame::kDevice,
                          "the driver reports a status that this build does not know",
                          "whether libibverbs and its drivers are of one version"};

const Recipe& recipe_for(ibv_wc_status status) {
  for (const Recipe& recipe : kRecipes) {
    if (recipe.status == status) return recipe;
  }
  return kUnknown;
}

Code code_for(Blame blame) {
  switch (blame) {
    case Blame::kRemote:
      return Code::kPermissionDenied;
    case Blame::kVictim:
    case Blame::kPath:
    case Blame::kPeer:
      return Code::kUnavailable;
    case Blame::kLocal:
    case Blame::kDevice:
      break;
  }
  return Code::kInternal;
}

Status pinning_error(std::string_view what) {
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_MEMLOCK, &limit) == 0;
  if (known && limit.rlim_cur == RLIM_INFINITY) {
    return Status(Code::kResourceExhausted,
                  str(what,
                      ": cannot lock the memory. The limit on locked memory (ulimit -l) is unlimited, so "
                      "either the machine has too little free memory, or the adapter has no room for more "
                      "registrations: use fewer or smaller regions, or huge pages; see dmesg"));
  }
  return Status(
      Code::kResourceExhausted,
      str(what, ": cannot lock the memory. This process may lock ",
          known ? str(limit.rlim_cur / 1024, " KiB (ulimit -l)") : "too little (ulimit -l)",
          ". Raise it: `ulimit -l unlimited` in the shell; for good, `* - memlock unlimited` in "
          "/etc/security/limits.conf; LimitMEMLOCK=infinity in a systemd unit; --ulimit memlock=-1 for a "
          "container"));
}

}  // namespace

Blame blame_for(ibv_wc_status status) { return recipe_for(status).blame; }

std::string_view blame_name(Blame blame) {
  switch (blame) {
    case Blame::kVictim:
      return "victim";
    case Blame::kLocal:
      return "local";
    case Blame::kRemote:
      return "remote";
    case Blame::kPath:
      return "path";
    case Blame::kPeer:
      return "peer";
    case Blame::kDevice:
      break;
  }
  return "device";
}

void count_error(EndpointCounters& counters, ibv_wc_status status) {
  ++counters.error_completions;
  if (status == IBV_WC_RNR_RETRY_EXC_ERR) ++counters.receiver_not_ready;
  switch (blame_for(status)) {
    case Blame::kLocal:
      ++counters.errors_local;
      break;
    case Blame::kRemote:
      ++counters.errors_remote;
      break;
    case Blame::kPath:
      ++counters.errors_path;
      break;
    case Blame::kPeer:
      ++counters.errors_peer;
      break;
    case Blame::kDevice:
      ++counters.errors_device;
      break;
    case Blame::kVictim:
      ++counters.errors_victim;
      break;
  }
}

Status completion_error(const Functions& functions, const ibv_wc& completion, const FailedWork& work) {
  const Recipe& recipe = recipe_for(completion.status);
  const char* const words =
      functions.wc_status_str != nullptr ? functions.wc_status_str(completion.status) : nullptr;
  std::string text = str(work.operation, " with ", work.peer, " failed: ", recipe.name, " (",
                         static_cast<int>(completion.status));
  if (words != nullptr) text.append(", ").append(words);
  char vendor[16];
  std::snprintf(vendor, sizeof vendor, "0x%x", completion.vendor_err);
  text.append("), vendor error ").append(vendor);
  if (!work.path.empty()) text.append(", on ").append(work.path);
  text.append(". Cause: ").append(recipe.cause).append(". Check: ").append(recipe.check);
  return Status(code_for(recipe.blame), std::move(text));
}

Status call_error(std::string_view what, int error, bool pins_memory) {
  if (error == ENOMEM && pins_memory) return pinning_error(what);
  Status status = from_errno(what, error);
  switch (error) {
    case ENOMEM:
      return Status(Code::kResourceExhausted,
                    status.text() +
                        ". The adapter or the kernel has no room for one more: `slime doctor` shows "
                        "the device's limits");
    case EFAULT:
      if (!pins_memory) return status;
      return Status(Code::kInvalidArgument,
                    status.text() + ". Part of the range is not mapped, or not writable as asked");
    case EOPNOTSUPP:
    case ENOSYS:
      return Status(Code::kUnimplemented, status.text() + ". The adapter's driver cannot do this");
    case EINVAL:
      return Status(Code::kInvalidArgument,
                    status.text() +
                        ". The driver refused a parameter; compare with the device's limits in "
                        "`slime doctor`");
    case EIO:
    case ENODEV:
    case ENXIO:
      return Status(Code::kUnavailable, status.text() + ". The adapter failed or was removed: see dmesg");
    default:
      return status;
  }
}

std::string_view event_name(ibv_event_type type) {
  constexpr std::array<std::string_view, 20> kNames{
      "completion queue error",
      "queue pair fatal",
      "queue pair request error",
      "queue pair access error",
      "communication established",
      "send queue drained",
      "path migrated",
      "path migration error",
      "device fatal",
      "port active",
      "port error",
      "LID change",
      "partition table change",
      "subnet manager change",
      "shared receive queue error",
      "shared receive queue limit reached",
      "last receive of a queue pair used",
      "client reregistration",
      "GID change",
      "work queue fatal",
  };
  static_assert(IBV_EVENT_CQ_ERR == 0 && IBV_EVENT_DEVICE_FATAL == 8 && IBV_EVENT_WQ_FATAL == 19);
  const auto index = static_cast<std::size_t>(type);
  return index < kNames.size() ? kNames[index] : "unknown event";
}

}  // namespace slime::transport::verbs

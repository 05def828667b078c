#include <doctest/doctest.h>
#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <set>
#include <string>

#include "transport/verbs/errors.h"

using namespace slime;
using namespace slime::transport::verbs;

namespace {

bool contains(const std::string& text, std::string_view what) { return text.find(what) != std::string::npos; }

const char* words(ibv_wc_status) { return "the library's words"; }

Status fail(ibv_wc_status status) {
  Functions functions;
  functions.wc_status_str = &words;
  ibv_wc completion{};
  completion.status = status;
  completion.vendor_err = 0x8a;
  return completion_error(
      functions, completion,
      {.operation = "read", .peer = "worker:7", .path = "mlx5_0 port 1, ::ffff:10.0.0.1 to ::ffff:10.0.0.2"});
}

struct Expected {
  ibv_wc_status status;
  const char* name;
  Blame blame;
  Code code;
  const char* hint;  // words that the text must contain
};

const std::array kExpected{
    Expected{IBV_WC_LOC_LEN_ERR, "IBV_WC_LOC_LEN_ERR", Blame::kLocal, Code::kInternal,
             "longer than the receive"},
    Expected{IBV_WC_LOC_QP_OP_ERR, "IBV_WC_LOC_QP_OP_ERR", Blame::kLocal, Code::kInternal, "malformed"},
    Expected{IBV_WC_LOC_EEC_OP_ERR, "IBV_WC_LOC_EEC_OP_ERR", Blame::kLocal, Code::kInternal, "does not use"},
    Expected{IBV_WC_LOC_PROT_ERR, "IBV_WC_LOC_PROT_ERR", Blame::kLocal, Code::kInternal, "not registered"},
    Expected{IBV_WC_WR_FLUSH_ERR, "IBV_WC_WR_FLUSH_ERR", Blame::kVictim, Code::kUnavailable,
             "the first error"},
    Expected{IBV_WC_MW_BIND_ERR, "IBV_WC_MW_BIND_ERR", Blame::kLocal, Code::kInternal, "memory window"},
    Expected{IBV_WC_BAD_RESP_ERR, "IBV_WC_BAD_RESP_ERR", Blame::kPath, Code::kUnavailable, "does not fit"},
    Expected{IBV_WC_LOC_ACCESS_ERR, "IBV_WC_LOC_ACCESS_ERR", Blame::kLocal, Code::kInternal,
             "our own memory"},
    Expected{IBV_WC_REM_INV_REQ_ERR, "IBV_WC_REM_INV_REQ_ERR", Blame::kPeer, Code::kUnavailable,
             "SLIME_VERBS_RD_ATOMIC"},
    Expected{IBV_WC_REM_ACCESS_ERR, "IBV_WC_REM_ACCESS_ERR", Blame::kRemote, Code::kPermissionDenied,
             "look the region up again"},
    Expected{IBV_WC_REM_OP_ERR, "IBV_WC_REM_OP_ERR", Blame::kPeer, Code::kUnavailable, "the peer's log"},
    Expected{IBV_WC_RETRY_EXC_ERR, "IBV_WC_RETRY_EXC_ERR", Blame::kPath, Code::kUnavailable,
             "the peer is dead"},
    Expected{IBV_WC_RNR_RETRY_EXC_ERR, "IBV_WC_RNR_RETRY_EXC_ERR", Blame::kPeer, Code::kUnavailable,
             "no receive buffer"},
    Expected{IBV_WC_LOC_RDD_VIOL_ERR, "IBV_WC_LOC_RDD_VIOL_ERR", Blame::kLocal, Code::kInternal, "report it"},
    Expected{IBV_WC_REM_INV_RD_REQ_ERR, "IBV_WC_REM_INV_RD_REQ_ERR", Blame::kRemote, Code::kPermissionDenied,
             "report it"},
    Expected{IBV_WC_REM_ABORT_ERR, "IBV_WC_REM_ABORT_ERR", Blame::kPeer, Code::kUnavailable, "aborted"},
    Expected{IBV_WC_INV_EECN_ERR, "IBV_WC_INV_EECN_ERR", Blame::kLocal, Code::kInternal, "report it"},
    Expected{IBV_WC_INV_EEC_STATE_ERR, "IBV_WC_INV_EEC_STATE_ERR", Blame::kLocal, Code::kInternal,
             "report it"},
    Expected{IBV_WC_FATAL_ERR, "IBV_WC_FATAL_ERR", Blame::kDevice, Code::kInternal, "dmesg"},
    Expected{IBV_WC_RESP_TIMEOUT_ERR, "IBV_WC_RESP_TIMEOUT_ERR", Blame::kDevice, Code::kInternal, "dmesg"},
    Expected{IBV_WC_GENERAL_ERR, "IBV_WC_GENERAL_ERR", Blame::kDevice, Code::kInternal, "vendor error"},
    Expected{IBV_WC_TM_ERR, "IBV_WC_TM_ERR", Blame::kLocal, Code::kInternal, "tag matching"},
    Expected{IBV_WC_TM_RNDV_INCOMPLETE, "IBV_WC_TM_RNDV_INCOMPLETE", Blame::kLocal, Code::kInternal,
             "tag matching"},
};

}  // namespace

TEST_CASE("every status of a completion has a blame, a code and a text that says what to check") {
  std::set<int> seen;
  for (const Expected& expected : kExpected) {
    CAPTURE(expected.name);
    seen.insert(expected.status);
    CHECK(blame_for(expected.status) == expected.blame);
    const Status status = fail(expected.status);
    CHECK(status.code() == expected.code);
    CHECK(contains(status.text(), expected.name));
    CHECK(contains(status.text(), "(" + std::to_string(expected.status) + ", the library's words)"));
    CHECK(contains(status.text(), "vendor error 0x8a"));
    CHECK(contains(status.text(), "read with worker:7"));
    CHECK(contains(status.text(), "mlx5_0 port 1, ::ffff:10.0.0.1 to ::ffff:10.0.0.2"));
    CHECK(contains(status.text(), expected.hint));
    CHECK(contains(status.text(), ". Check: "));
  }
  // All statuses except success.
  for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
    CHECK(seen.count(status) == 1);
  }
}

TEST_CASE("a status that this build does not know is the device's, and keeps its number") {
  const Status status = fail(static_cast<ibv_wc_status>(31));
  CHECK(blame_for(static_cast<ibv_wc_status>(31)) == Blame::kDevice);
  CHECK(status.code() == Code::kInternal);
  CHECK(contains(status.text(), "(31, "));
}

TEST_CASE("the text does without a path and without the library's words") {
  ibv_wc completion{};
  completion.status = IBV_WC_RETRY_EXC_ERR;
  const Status status =
      completion_error(Functions(), completion, {.operation = "write", .peer = "w", .path = ""});
  CHECK(contains(status.text(), "write with w failed: IBV_WC_RETRY_EXC_ERR (12), vendor error 0x0. Cause: "));
}

TEST_CASE("blames have names of their own") {
  std::set<std::string_view> names;
  for (const Blame blame :
       {Blame::kVictim, Blame::kLocal, Blame::kRemote, Blame::kPath, Blame::kPeer, Blame::kDevice}) {
    CHECK(names.insert(blame_name(blame)).second);
  }
}

TEST_CASE("memory that cannot be locked: the limit, and how to raise it") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_MEMLOCK, &before) == 0);
  const rlimit small{64 * 1024, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_MEMLOCK, &small) == 0);
  const Status status = call_error("registering 1073741824 bytes", ENOMEM, true);
  REQUIRE(setrlimit(RLIMIT_MEMLOCK, &before) == 0);
  CHECK(status.code() == Code::kResourceExhausted);
  for (const char* what :
       {"registering 1073741824 bytes", "64 KiB", "ulimit -l", "limits.conf", "LimitMEMLOCK", "--ulimit"}) {
    CAPTURE(what);
    CHECK(contains(status.text(), what));
  }
}

TEST_CASE("a call that pins nothing and has no memory is short of something else") {
  const Status status = call_error("ibv_create_qp", ENOMEM);
  CHECK(status.code() == Code::kResourceExhausted);
  CHECK_FALSE(contains(status.text(), "ulimit"));
  CHECK(contains(status.text(), "slime doctor"));
}

TEST_CASE("errors of calls keep their meaning") {
  struct Call {
    int error;
    Code code;
  };
  for (const Call& call : {Call{EACCES, Code::kPermissionDenied}, Call{EPERM, Code::kPermissionDenied},
                           Call{EINVAL, Code::kInvalidArgument}, Call{EFAULT, Code::kInvalidArgument},
                           Call{EOPNOTSUPP, Code::kUnimplemented}, Call{ENOSYS, Code::kUnimplemented},
                           Call{EIO, Code::kUnavailable}, Call{ENODEV, Code::kUnavailable}}) {
    CAPTURE(call.error);
    const Status status = call_error("ibv_some_call of 5 things", call.error, true);
    CHECK(status.code() == call.code);
    CHECK(contains(status.text(), "ibv_some_call of 5 things"));
  }
}

TEST_CASE("every event has a name of its own") {
  std::set<std::string_view> names;
  for (int type = IBV_EVENT_CQ_ERR; type <= IBV_EVENT_WQ_FATAL; ++type) {
    CHECK(names.insert(event_name(static_cast<ibv_event_type>(type))).second);
  }
  CHECK(event_name(IBV_EVENT_DEVICE_FATAL) == "device fatal");
  CHECK(event_name(IBV_EVENT_PORT_ERR) == "port error");
  CHECK(event_name(IBV_EVENT_GID_CHANGE) == "GID change");
  CHECK(event_name(static_cast<ibv_event_type>(31)) == "unknown event");
}

// Which provider two sides take, from what they tell each other.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/ids.h"
#include "transport/choice.h"
#include "transport/limits.h"
#include "transport/provider.h"
#include "transport/shm/parameters.h"
#include "transport/verbs/parameters.h"

namespace slime::transport::testing {
namespace {

// Where a process runs, as far as shared memory is concerned.
struct Place {
  unsigned char boot = 1;
  std::uint64_t network = 10;
  std::uint32_t uid = 1000;
  std::uint64_t users = 20;
};

ByteVector shm_hint(const Place& place) {
  shm::Hint out;
  out.boot.bytes.fill(std::byte{place.boot});
  out.network_namespace = place.network;
  out.user_namespace = place.users;
  out.uid = place.uid;
  return out.encode();
}

// A port with the GID whose bytes are given in hexadecimal.
ByteVector verbs_hint(std::string_view gid, bool active = true, int type = IBV_GID_TYPE_ROCE_V2,
                      int link_layer = IBV_LINK_LAYER_ETHERNET) {
  verbs::Hint out;
  out.active = active ? 1 : 0;
  out.link_layer = static_cast<std::uint8_t>(link_layer);
  out.gid_type = static_cast<std::uint8_t>(type);
  REQUIRE(from_hex(gid, std::as_writable_bytes(std::span(out.gid.raw))));
  return out.encode();
}

constexpr const char* kIpv4 = "00000000000000000000ffff0a090001";
constexpr const char* kOtherIpv4 = "00000000000000000000ffff0a0a0002";
constexpr const char* kIpv6 = "20010db8000000000000000000000001";
constexpr const char* kLinkLocal = "fe800000000000000000000000000001";
constexpr const char* kSubnet1 = "fec00000000000010000000000000001";
constexpr const char* kSubnet1Too = "fec00000000000010000000000000002";
constexpr const char* kSubnet2 = "fec00000000000020000000000000002";

// What the choice of 'a', which connects, and 'b' is: "shm: reason", or "code: text".
std::string outcome(const std::vector<Offer>& offers, const std::vector<Holding>& holdings) {
  const auto choice = choose("a", offers, "b", holdings);
  if (!choice) return choice.status().to_string();
  REQUIRE(offers[choice->offer].provider == holdings[choice->holding].provider);
  return offers[choice->offer].provider + ": " + choice->reason;
}

std::vector<Offer> all_offers(const Place& place, const ByteVector& port) {
  return {{"shm", shm_hint(place)}, {"verbs", port}, {"tcp", {}}};
}
// Traits last as long as the process, so they outlive the provider.
const ProviderTraits* traits_of(std::string_view provider) {
  auto made = make_provider(provider);
  REQUIRE(made.has_value());
  return &(*made)->traits();
}
Holding holding(std::string_view provider, ByteVector hint = {}) {
  return {std::string(provider), std::move(hint), {}, traits_of(provider)};
}

std::vector<Holding> all_holdings(const Place& place, const ByteVector& port) {
  return {holding("shm", shm_hint(place)), holding("verbs", port), holding("tcp")};
}

TEST_CASE("processes of one user on one host share memory; who is apart is told why not") {
  struct Row {
    Place a;
    Place b;
    const char* expected;
  };
  const Row rows[] = {
      {{}, {}, "shm: same host and user"},
      {{}, {.boot = 2}, "tcp: other host"},
      {{.uid = 0}, {}, "tcp: other user: 'a' has uid 0, 'b' has 1000"},
      {{}, {.network = 11}, "tcp: other network namespace: local sockets do not reach it"},
      {{}, {.users = 21}, "tcp: other user namespace"},
      {{.network = 0},
       {.network = 0},
       "tcp: /proc/self/ns/net cannot be read, which tells whether local sockets reach the other"},
      // The host is compared first: numbers of another host have no meaning here.
      {{}, {.boot = 2, .network = 11, .uid = 0}, "tcp: other host"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.expected);
    CHECK(outcome({{"shm", shm_hint(row.a)}, {"tcp", {}}},
                  {holding("shm", shm_hint(row.b)), holding("tcp")}) == row.expected);
  }
}

TEST_CASE("two hosts take verbs where both ports are active and reach each other, else tcp") {
  struct Row {
    ByteVector a;
    ByteVector b;
    const char* expected;
  };
  const std::string apart = "tcp: other host; the RDMA ports of 'a' and 'b' do not reach each other: ";
  const auto ib = [](const char* gid) {
    return verbs_hint(gid, true, IBV_GID_TYPE_IB, IBV_LINK_LAYER_INFINIBAND);
  };
  const auto v1 = [](const char* gid) { return verbs_hint(gid, true, IBV_GID_TYPE_ROCE_V1); };
  const std::string families = apart + "one has an IPv4 address, the other an IPv6 address";
  const std::string local = apart + "one has an IPv6 address, the other a link-local address";
  const std::string subnets = apart + "they are in different subnets";
  const std::string types = apart + "their GIDs are of different types";
  const std::string layers = apart + "one is Ethernet and one InfiniBand";
  const Row rows[] = {
      {verbs_hint(kIpv4), verbs_hint(kOtherIpv4), "verbs: other host; both have an active RDMA port"},
      {verbs_hint(kIpv6), verbs_hint(kIpv6), "verbs: other host; both have an active RDMA port"},
      {verbs_hint(kLinkLocal), verbs_hint(kLinkLocal), "verbs: other host; both have an active RDMA port"},
      {ib(kSubnet1), ib(kSubnet1Too), "verbs: other host; both have an active RDMA port"},
      {v1(kSubnet1), v1(kSubnet1Too), "verbs: other host; both have an active RDMA port"},
      {verbs_hint(kIpv4, false), verbs_hint(kIpv4),
       "tcp: other host; no active RDMA port: that of 'a' is down"},
      {verbs_hint(kIpv4), verbs_hint(kIpv4, false),
       "tcp: other host; no active RDMA port: that of 'b' is down"},
      {verbs_hint(kIpv4), verbs_hint(kIpv6), families.c_str()},
      {verbs_hint(kIpv6), verbs_hint(kLinkLocal), local.c_str()},
      {ib(kSubnet1), ib(kSubnet2), subnets.c_str()},
      {verbs_hint(kIpv4), v1(kIpv4), types.c_str()},
      {verbs_hint(kIpv4), ib(kSubnet1), layers.c_str()},
  };
  for (const Row& row : rows) {
    CAPTURE(row.expected);
    CHECK(outcome(all_offers({}, row.a), all_holdings({.boot = 2}, row.b)) == row.expected);
  }
}

TEST_CASE("shared memory comes before verbs, and the initiator's order is what counts") {
  const ByteVector port = verbs_hint(kIpv4);
  CHECK(outcome(all_offers({}, port), all_holdings({}, port)) == "shm: same host and user");
  std::vector<Offer> offers = all_offers({}, port);
  std::swap(offers[0], offers[2]);
  CHECK(outcome(offers, all_holdings({}, port)) == "tcp: the first that 'a' offers");
}

TEST_CASE("what one side does not have is passed over, with its reason") {
  const ByteVector port = verbs_hint(kIpv4);
  std::vector<Holding> holdings = all_holdings({.boot = 2}, port);
  holdings[1].available = Status(Code::kUnavailable, "no RDMA device");
  CHECK(outcome(all_offers({}, port), holdings) == "tcp: other host; 'b' has no verbs: no RDMA device");
  CHECK(outcome(all_offers({}, port), {holding("tcp")}) == "tcp: 'b' has no shm; 'b' has no verbs");
}

TEST_CASE("who offers one provider gets that one, or an error that names what both have, and why") {
  const ByteVector port = verbs_hint(kIpv4);
  const std::vector<Holding> everything = all_holdings({}, port);
  CHECK(outcome({{"tcp", {}}}, everything) == "tcp: the only one that 'a' offers");
  CHECK(outcome({{"shm", shm_hint({})}}, everything) == "shm: the only one that 'a' offers");
  CHECK(outcome({{"shm", shm_hint({})}}, {holding("tcp")}) ==
        "unimplemented: no provider that both can use: 'a', which connects, offers shm, 'b' has tcp: 'b' has "
        "no shm");
  CHECK(
      outcome({{"shm", shm_hint({.boot = 2})}}, everything) ==
      "unavailable: no provider that both can use: 'a', which connects, offers shm, 'b' has shm, verbs, tcp: "
      "other host");
  CHECK(outcome({{"shm", shm_hint({.uid = 0})}}, everything).find("permission_denied: ") == 0);
  CHECK(outcome({{"verbs", verbs_hint(kIpv4, false)}}, everything).find("that of 'a' is down") !=
        std::string::npos);
}

TEST_CASE("a side that gives no hint is taken at its word") {
  CHECK(outcome({{"shm", {}}}, {holding("shm", shm_hint({}))}).find("shm: ") == 0);
  CHECK(outcome({{"verbs", verbs_hint(kIpv4, false)}}, {holding("verbs")}).find("verbs: ") == 0);
}

TEST_CASE("hints are the documented ones, byte by byte") {
  CHECK(to_hex(shm_hint({.boot = 0x11, .network = 0x22, .uid = 1000, .users = 0x33})) ==
        "11111111111111111111111111111111"
        "2200000000000000"
        "3300000000000000"
        "e8030000");
  CHECK(to_hex(verbs_hint(kIpv4)) ==
        "01020200"
        "00000000000000000000ffff0a090001");
  CHECK(to_hex(verbs_hint(kSubnet1, false, IBV_GID_TYPE_IB, IBV_LINK_LAYER_INFINIBAND)) ==
        "00010000"
        "fec00000000000010000000000000001");
}

TEST_CASE("this process tells where it is, and shares memory with itself") {
  const auto hint = shm::Hint::of_this_process();
  REQUIRE_MESSAGE(hint.has_value(), hint.status().to_string());
  const ByteVector bytes = hint->encode();
  CHECK(bytes.size() == 36);
  CHECK(bytes.size() <= limits::kHintBytes);
  CHECK(shm::check_hints(bytes, "b", bytes, "a").ok());
}

TEST_CASE("hints that are none of this version are passed over") {
  for (const std::size_t bytes : {1, 19, 21, 35, 37, 64}) {
    CAPTURE(bytes);
    const std::vector<Offer> offers{{"shm", ByteVector(bytes)}, {"verbs", ByteVector(bytes)}, {"tcp", {}}};
    CHECK(outcome(offers, all_holdings({}, verbs_hint(kIpv4))).find("tcp: ") == 0);
  }
}

TEST_CASE("reasons are bounded, whatever the other side says") {
  std::vector<Holding> holdings = all_holdings({.boot = 2}, verbs_hint(kIpv4));
  holdings[0].available = holdings[1].available = Status(Code::kUnavailable, std::string(5000, 'x'));
  const auto choice =
      choose(std::string(255, 'a'), all_offers({}, verbs_hint(kIpv4)), std::string(255, 'b'), holdings);
  REQUIRE(choice.has_value());
  CHECK(choice->reason.size() <= limits::kChoiceReasonBytes);
}

TEST_CASE("what is set up before the choice is known is cheap and likely") {
  const auto likely = [](const std::vector<std::string>& names, bool same_machine) {
    std::vector<const ProviderTraits*> offered;
    offered.reserve(names.size());
    for (const std::string& name : names) offered.push_back(traits_of(name));
    const auto at = likely_choice(offered, same_machine);
    return at ? names[*at] : "none";
  };
  CHECK(likely({"shm", "verbs", "tcp"}, true) == "shm");
  CHECK(likely({"shm", "verbs", "tcp"}, false) == "none");
  CHECK(likely({"shm", "tcp"}, true) == "shm");
  CHECK(likely({"shm", "tcp"}, false) == "tcp");
  CHECK(likely({"verbs", "tcp"}, true) == "none");
  CHECK(likely({"tcp", "shm"}, true) == "tcp");
  for (const char* only : {"shm", "verbs", "tcp"}) {
    CHECK(likely({only}, true) == only);
    CHECK(likely({only}, false) == only);
  }
}

}  // namespace
}  // namespace slime::transport::testing

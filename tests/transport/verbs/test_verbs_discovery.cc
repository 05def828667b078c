#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/support/folder.h"
#include "transport/verbs/context.h"

using namespace slime;
using namespace slime::transport::verbs;
namespace fs = std::filesystem;

namespace discovery_test {
namespace {

bool contains(const std::string& text, std::string_view what) { return text.find(what) != std::string::npos; }

ibv_gid gid_of(const char* address) {
  ibv_gid out{};
  REQUIRE(inet_pton(AF_INET6, address, out.raw) == 1);
  return out;
}

// ---- devices behind the table of functions

struct FakePort {
  ibv_port_attr attributes{};
  std::map<int, ibv_gid_entry> gids;
};

struct FakeDevice {
  ibv_device device{};
  ibv_context context{};
  ibv_pd pd{};
  std::deque<FakePort> ports;
  int open_error = 0;
  int query_error = 0;
  int pd_error = 0;
  int opened = 0;
  int domains = 0;
};

struct Fabric {
  std::deque<FakeDevice> devices;
  int list_error = 0;
  int lists = 0;  // device lists not freed
};
Fabric* fabric = nullptr;

FakeDevice& of(const ibv_context* context) {
  for (FakeDevice& device : fabric->devices) {
    if (&device.context == context) return device;
  }
  FAIL("a context that was not opened");
  std::abort();
}

ibv_device** get_device_list(int* count) {
  if (fabric->list_error != 0) {
    errno = fabric->list_error;
    return nullptr;
  }
  auto** list = new ibv_device*[fabric->devices.size() + 1]();
  *count = 0;
  for (FakeDevice& device : fabric->devices) list[(*count)++] = &device.device;
  ++fabric->lists;
  return list;
}
void free_device_list(ibv_device** list) {
  --fabric->lists;
  delete[] list;
}
const char* get_device_name(ibv_device* device) { return static_cast<const char*>(device->name); }
ibv_context* open_device(ibv_device* handle) {
  for (FakeDevice& device : fabric->devices) {
    if (&device.device != handle) continue;
    if (device.open_error != 0) {
      errno = device.open_error;
      return nullptr;
    }
    ++device.opened;
    return &device.context;
  }
  FAIL("a device that was not listed");
  return nullptr;
}
int close_device(ibv_context* context) {
  --of(context).opened;
  return 0;
}
int query_device(ibv_context* context, ibv_device_attr* out) {
  *out = {};
  out->phys_port_cnt = static_cast<std::uint8_t>(of(context).ports.size());
  return of(context).query_error;
}
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) {
  *out = of(context).ports.at(port - 1U).attributes;
  return 0;
}
int query_gid(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out) {
  const auto& gids = of(context).ports.at(port - 1U).gids;
  const auto found = gids.find(static_cast<int>(index));
  if (found == gids.end()) return ENODATA;
  *out = found->second;
  return 0;
}
ibv_pd* alloc_pd(ibv_context* context) {
  FakeDevice& device = of(context);
  if (device.pd_error != 0) {
    errno = device.pd_error;
    return nullptr;
  }
  ++device.domains;
  device.pd.context = context;
  return &device.pd;
}
int dealloc_pd(ibv_pd* pd) {
  --of(pd->context).domains;
  return 0;
}
ibv_mr* reg_mr_iova2(ibv_pd*, void*, std::size_t, std::uint64_t, unsigned) { return nullptr; }

// The table and its devices. The destructor checks that everything was freed.
struct World {
  Fabric own;
  Functions functions;

  World() {
    fabric = &own;
    functions.get_device_list = &get_device_list;
    functions.free_device_list = &free_device_list;
    functions.get_device_name = &get_device_name;
    functions.open_device = &open_device;
    functions.close_device = &close_device;
    functions.query_device = &query_device;
    functions.query_port = &query_port;
    functions.query_gid = &query_gid;
    functions.alloc_pd = &alloc_pd;
    functions.dealloc_pd = &dealloc_pd;
    functions.reg_mr_iova2 = &reg_mr_iova2;
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    CHECK(own.lists == 0);
    for (const FakeDevice& device : own.devices) {
      CHECK(device.opened == 0);
      CHECK(device.domains == 0);
    }
    fabric = nullptr;
  }

  FakeDevice& add_device(const char* name, int ports = 1) {
    FakeDevice& device = own.devices.emplace_back();
    std::strncpy(static_cast<char*>(device.device.name), name, sizeof device.device.name - 1);
    device.device.transport_type = IBV_TRANSPORT_IB;
    for (int i = 0; i < ports; ++i) {
      ibv_port_attr& port = device.ports.emplace_back().attributes;
      port.state = IBV_PORT_ACTIVE;
      port.link_layer = IBV_LINK_LAYER_ETHERNET;
      port.active_mtu = IBV_MTU_1024;
      port.max_mtu = IBV_MTU_4096;
      port.gid_tbl_len = 16;
      port.pkey_tbl_len = 1;
    }
    return device;
  }
};

// Sets a GID of the loopback interface, which exists and is up on every machine.
void set_gid(FakePort& port, int index, const char* address, ibv_gid_type type = IBV_GID_TYPE_ROCE_V2) {
  ibv_gid_entry& entry = port.gids[index];
  entry.gid = gid_of(address);
  entry.gid_type = type;
  entry.ndev_ifindex = if_nametoindex("lo");
}

// ---- ports and GIDs in discovery's form

struct Gid {
  int index;
  const char* address;
  ibv_gid_type type = IBV_GID_TYPE_ROCE_V2;
  const char* interface = "eth0";
  bool up = true;
};

PortInfo port_of(const char* device, std::initializer_list<Gid> gids) {
  PortInfo out;
  out.device = device;
  out.port = 1;
  out.attributes.state = IBV_PORT_ACTIVE;
  out.attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  out.pci_path = "/sys/devices/pci0000:00/0000:01:00.0";
  for (const Gid& gid : gids) {
    GidInfo& info = out.gids.emplace_back();
    info.index = gid.index;
    info.gid = gid_of(gid.address);
    info.type = gid.type;
    info.interface_index = 7;
    info.interface_name = gid.interface;
    info.interface_up = gid.up;
    in6_addr address{};
    std::memcpy(&address, info.gid.raw, sizeof address);
    info.ipv4_mapped = IN6_IS_ADDR_V4MAPPED(&address);
    info.link_local = IN6_IS_ADDR_LINKLOCAL(&address) ||
                      (info.ipv4_mapped && info.gid.raw[12] == 169 && info.gid.raw[13] == 254);
  }
  return out;
}

int chosen_gid(const PortInfo& port, const Options& options = {}) {
  std::string reason;
  const auto gid = select_gid(port, options, reason);
  if (gid) CHECK_FALSE(reason.empty());
  return gid ? gid->index : -1;
}

constexpr const char* kLinkLocal = "fe80::e2d1:afff:fe6c:7f36";
constexpr const char* kRoutable = "2001:db8::1";
constexpr const char* kMapped = "::ffff:10.9.0.1";

struct Folder : test::Folder {
  void make(const std::string& below) const { fs::create_directories(path() / below); }
};

}  // namespace

TEST_CASE("GIDs: RoCE v2 with an IPv4 address first, whatever the order of the table") {
  CHECK(chosen_gid(port_of("a", {{0, kLinkLocal, IBV_GID_TYPE_ROCE_V1},
                                 {1, kLinkLocal},
                                 {2, kMapped, IBV_GID_TYPE_ROCE_V1},
                                 {3, kMapped},
                                 {4, kRoutable}})) == 3);
  CHECK(chosen_gid(port_of("a", {{0, kMapped}, {1, kLinkLocal}, {2, kRoutable}})) == 0);
  CHECK(chosen_gid(port_of("a", {{0, kLinkLocal}, {2, kRoutable}})) == 2);
  CHECK(chosen_gid(port_of("a", {{0, kLinkLocal}, {1, "::ffff:169.254.3.4"}})) == 1);
  CHECK(chosen_gid(port_of("a", {{0, "::ffff:169.254.3.4"}, {1, kRoutable}})) == 1);
  CHECK(chosen_gid(port_of("a", {{5, kLinkLocal}})) == 5);
  // Of equal GIDs, the first.
  CHECK(chosen_gid(port_of("a", {{2, "::ffff:10.0.0.1"}, {3, "::ffff:10.0.0.2"}})) == 2);
}

TEST_CASE("GIDs: one of an interface that is down is not chosen, one that cannot be seen comes last") {
  CHECK(chosen_gid(port_of("a", {{0, kMapped, IBV_GID_TYPE_ROCE_V2, "eth0", false}, {1, kLinkLocal}})) == 1);
  CHECK(chosen_gid(port_of("a", {{0, kMapped, IBV_GID_TYPE_ROCE_V2, "", false}, {1, kLinkLocal}})) == 1);
  CHECK(chosen_gid(port_of("a", {{0, kMapped, IBV_GID_TYPE_ROCE_V2, "", false}})) == 0);
  std::string reason;
  const auto down =
      select_gid(port_of("a", {{0, kMapped, IBV_GID_TYPE_ROCE_V2, "eth7", false}}), Options(), reason);
  CHECK(down.status().code() == Code::kUnavailable);
  CHECK(contains(down.status().text(), "ip link set eth7 up"));
}

TEST_CASE("GIDs: none, or RoCE v1 alone, says what to do") {
  std::string reason;
  const auto none = select_gid(port_of("a", {}), Options(), reason);
  CHECK(none.status().code() == Code::kUnavailable);
  CHECK(contains(none.status().text(), "ip addr add"));
  const auto old = select_gid(port_of("a", {{0, kMapped, IBV_GID_TYPE_ROCE_V1}}), Options(), reason);
  CHECK(old.status().code() == Code::kUnavailable);
  CHECK(contains(old.status().text(), "SLIME_VERBS_GID_INDEX"));
}

TEST_CASE("GIDs: a named one is taken as it is, and must exist") {
  Options options;
  options.gid_index = 0;
  const PortInfo port = port_of("a", {{0, kLinkLocal, IBV_GID_TYPE_ROCE_V1}, {3, kMapped}});
  CHECK(chosen_gid(port, options) == 0);
  options.gid_index = 1;
  std::string reason;
  const auto missing = select_gid(port, options, reason);
  CHECK(missing.status().code() == Code::kInvalidArgument);
  CHECK(contains(missing.status().text(), "no GID 1"));
}

TEST_CASE("GIDs: an InfiniBand port has GID 0") {
  PortInfo port = port_of("ib", {{0, "fe80::1", IBV_GID_TYPE_IB, ""}, {1, kRoutable, IBV_GID_TYPE_IB, ""}});
  port.attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;
  CHECK(chosen_gid(port) == 0);
}

TEST_CASE("ports: the only active one is chosen, with a reason") {
  std::vector<PortInfo> ports{port_of("down", {{0, kMapped}}), port_of("up", {{1, kMapped}})};
  ports[0].attributes.state = IBV_PORT_DOWN;
  const auto choice = select_port(ports, Options());
  REQUIRE_MESSAGE(choice.has_value(), choice.status().to_string());
  CHECK(choice->device == "up");
  CHECK(choice->port == 1);
  CHECK(choice->gid.index == 1);
  CHECK(contains(choice->reason, "the only active port"));
  CHECK(contains(choice->reason, "::ffff:10.9.0.1 of eth0"));
}

TEST_CASE("ports: one without a GID that can be used is passed over") {
  const std::vector<PortInfo> ports{port_of("bare", {}), port_of("dressed", {{0, kMapped}})};
  const auto choice = select_port(ports, Options());
  REQUIRE(choice.has_value());
  CHECK(choice->device == "dressed");
}

TEST_CASE("ports: near before far, then fast before slow, adapters before software") {
  std::vector<PortInfo> ports{port_of("soft", {{0, kMapped}}), port_of("far", {{0, kMapped}}),
                              port_of("slow", {{0, kMapped}}), port_of("near", {{0, kMapped}})};
  ports[0].pci_path.clear();
  for (PortInfo& port : ports) {
    port.attributes.active_width = 2;   // 4x
    port.attributes.active_speed = 64;  // 50 Gb/s a lane
  }
  ports[2].attributes.active_speed = 32;
  ports[0].numa_node = 1000;
  ports[1].numa_node = 999;  // not on this machine: the distance of a remote node
  ports[2].numa_node = 1000;
  ports[3].numa_node = 1000;
  const auto near = select_port(ports, Options(), 1000);
  REQUIRE(near.has_value());
  CHECK(near->device == "near");
  CHECK(contains(near->reason, "NUMA node 1000"));
  // No preference: the first of the fastest.
  const auto any = select_port(ports, Options());
  REQUIRE(any.has_value());
  CHECK(any->device == "far");
  const std::vector<PortInfo> software{ports[0]};
  CHECK(select_port(software, Options())->device == "soft");
}

TEST_CASE("ports: what is named is taken or refused, never replaced") {
  std::vector<PortInfo> ports{port_of("a", {{0, kMapped}}), port_of("b", {{0, kMapped}}),
                              port_of("b", {{0, kMapped}})};
  ports[2].port = 2;
  Options options;
  options.device = "b";
  CHECK(select_port(ports, options)->port == 1);
  options.port = 2;
  CHECK(select_port(ports, options)->port == 2);
  ports[2].attributes.state = IBV_PORT_DOWN;
  const auto down = select_port(ports, options);
  CHECK(down.status().code() == Code::kUnavailable);
  CHECK(contains(down.status().text(), "b port 2 is down"));
  options.port = 3;
  const auto none = select_port(ports, options);
  CHECK(none.status().code() == Code::kInvalidArgument);
  CHECK(contains(none.status().text(), "b port 3"));
  CHECK(contains(none.status().text(), "a port 1, b port 1, b port 2"));
}

TEST_CASE("ports: when none is active each says why") {
  std::vector<PortInfo> ports{port_of("eth", {{0, kMapped}}), port_of("ib", {}), port_of("bare", {})};
  ports[0].attributes.state = IBV_PORT_DOWN;
  ports[1].attributes.state = IBV_PORT_INIT;
  ports[1].attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;
  const auto none = select_port(ports, Options());
  CHECK(none.status().code() == Code::kUnavailable);
  for (const char* what : {"eth port 1 is down", "ip link set", "ib port 1 is initializing", "subnet manager",
                           "bare port 1 has no GID"}) {
    CAPTURE(what);
    CHECK(contains(none.status().text(), what));
  }
}

TEST_CASE("discovery reads devices, ports and GIDs, and gives everything back") {
  World world;
  FakeDevice& device = world.add_device("fake0", 2);
  set_gid(device.ports[0], 1, kLinkLocal);
  set_gid(device.ports[0], 4, kMapped);
  set_gid(device.ports[0], 5, "::");                  // an empty entry of an old kernel
  device.ports[0].gids[6] = device.ports[0].gids[4];  // of an interface that does not exist
  device.ports[0].gids[6].ndev_ifindex = 0x7ffffff0;
  device.ports[1].attributes.state = IBV_PORT_DOWN;
  const auto ports = list_ports(world.functions);
  REQUIRE_MESSAGE(ports.has_value(), ports.status().to_string());
  REQUIRE(ports->size() == 2);
  CHECK((*ports)[0].device == "fake0");
  CHECK((*ports)[1].port == 2);
  CHECK((*ports)[0].active());
  CHECK_FALSE((*ports)[1].active());
  CHECK((*ports)[1].gids.empty());
  const auto& gids = (*ports)[0].gids;
  REQUIRE(gids.size() == 3);
  CHECK(gids[0].index == 1);
  CHECK(gids[0].link_local);
  CHECK(gids[1].index == 4);
  CHECK(gids[1].ipv4_mapped);
  CHECK_FALSE(gids[1].link_local);
  CHECK(gids[1].interface_name == "lo");
  CHECK(gids[1].interface_up);
  CHECK(gid_text(gids[1].gid) == kMapped);
  CHECK(gid_type_text(gids[1]) == "RoCE v2 on lo");
  CHECK(gids[2].interface_name.empty());
  CHECK_FALSE(gids[2].interface_up);
}

TEST_CASE("discovery reads NUMA node and PCI place from sysfs") {
  const Folder sysfs;
  sysfs.make("pci0000:3a/0000:3b:00.0");
  sysfs.make("class/infiniband/fake0");
  std::ofstream(sysfs.path() / "pci0000:3a/0000:3b:00.0/numa_node") << "1\n";
  fs::create_directory_symlink("../../../pci0000:3a/0000:3b:00.0",
                               sysfs.path() / "class/infiniband/fake0/device");
  World world;
  for (const char* name : {"fake0", "fake1"}) {
    ibv_device& device = world.add_device(name).device;
    const std::string path = (sysfs.path() / "class/infiniband" / name).string();
    path.copy(static_cast<char*>(device.ibdev_path), sizeof device.ibdev_path - 1);
  }
  const auto ports = list_ports(world.functions);
  REQUIRE(ports.has_value());
  CHECK((*ports)[0].numa_node == 1);
  CHECK((*ports)[0].pci_path == fs::canonical(sysfs.path() / "pci0000:3a/0000:3b:00.0"));
  CHECK((*ports)[1].numa_node == -1);
  CHECK((*ports)[1].pci_path.empty());
}

TEST_CASE("discovery lists a device that cannot be used, with the reason") {
  World world;
  world.add_device("good0");
  world.add_device("iwarp0").device.transport_type = IBV_TRANSPORT_IWARP;
  world.add_device("locked0").open_error = EACCES;
  world.add_device("gone0").open_error = ENOENT;
  world.add_device("sick0").query_error = EIO;
  const auto devices = list_devices(world.functions);
  REQUIRE(devices.has_value());
  REQUIRE(devices->size() == 5);
  CHECK((*devices)[0].usable.ok());
  CHECK((*devices)[1].usable.code() == Code::kUnimplemented);
  CHECK((*devices)[2].usable.code() == Code::kPermissionDenied);
  CHECK(contains((*devices)[2].usable.text(), "/dev/infiniband/uverbs"));
  CHECK(contains((*devices)[3].usable.text(), "modprobe ib_uverbs"));
  CHECK((*devices)[4].usable.code() == Code::kUnavailable);
  const auto ports = list_ports(world.functions);
  REQUIRE(ports.has_value());
  CHECK(ports->size() == 1);
}

TEST_CASE("discovery: only rights are missing") {
  World world;
  world.add_device("a").open_error = EACCES;
  world.add_device("b").open_error = EPERM;
  const Status status = list_ports(world.functions).status();
  CHECK(status.code() == Code::kPermissionDenied);
  CHECK(contains(status.text(), "cannot open a"));
  CHECK(contains(status.text(), "cannot open b"));
  CHECK(Context::open(world.functions, Options()).status().code() == Code::kPermissionDenied);
}

TEST_CASE("discovery: a kernel without RDMA, and a machine without a device") {
  World world;
  CHECK(list_ports(world.functions).status().code() == Code::kUnavailable);
  world.own.list_error = ENOSYS;
  CHECK(list_ports(world.functions).status().code() == Code::kUnavailable);
}

TEST_CASE("why there is no device: what the kernel's files tell") {
  const Folder root;
  Status status = no_device(root.path());
  CHECK(status.code() == Code::kUnavailable);
  CHECK(contains(status.text(), "rdma link add rxe0 type rxe netdev eth0"));
  root.make("sys/class/infiniband/mlx5_1");
  root.make("sys/class/infiniband/mlx5_0");
  status = no_device(root.path());
  CHECK(contains(status.text(), "mlx5_0, mlx5_1"));
  CHECK(contains(status.text(), "modprobe ib_uverbs"));
  root.make("sys/class/infiniband_verbs/uverbs0");
  CHECK(contains(no_device(root.path()).text(), "--device=/dev/infiniband"));
  root.make("dev/infiniband/uverbs0");
  CHECK(contains(no_device(root.path()).text(), "ibverbs-providers"));
}

TEST_CASE("a context is opened on what was chosen, and closed with the last reference") {
  World world;
  world.add_device("down0").ports[0].attributes.state = IBV_PORT_DOWN;
  FakeDevice& device = world.add_device("fake0");
  set_gid(device.ports[0], 1, kMapped);
  auto context = Context::open(world.functions, Options());
  REQUIRE_MESSAGE(context.has_value(), context.status().to_string());
  CHECK((*context)->handle == &device.context);
  CHECK((*context)->pd == &device.pd);
  CHECK((*context)->optional_access == IBV_ACCESS_RELAXED_ORDERING);
  CHECK((*context)->describe() == "fake0 port 1, GID 1 ::ffff:10.9.0.1 (RoCE v2 on lo)");
  const std::shared_ptr<Context> second = *context;
  context = Status(Code::kCancelled, "dropped");
  CHECK(device.opened == 1);
  CHECK(device.domains == 1);
}

TEST_CASE("relaxed ordering needs a library that knows it, and may be refused") {
  World world;
  set_gid(world.add_device("fake0").ports[0], 1, kMapped);
  Options options;
  options.relaxed_ordering = false;
  CHECK((*Context::open(world.functions, options))->optional_access == 0);
  world.functions.reg_mr_iova2 = nullptr;
  CHECK((*Context::open(world.functions, Options()))->optional_access == 0);
}

TEST_CASE("a context is refused with the reason, and leaves nothing behind") {
  World world;
  FakeDevice& device = world.add_device("fake0");
  set_gid(device.ports[0], 1, kMapped);
  Options options;
  options.mtu = 4096;
  const Status mtu = Context::open(world.functions, options).status();
  CHECK(mtu.code() == Code::kInvalidArgument);
  CHECK(contains(mtu.text(), "4096"));
  CHECK(contains(mtu.text(), "1024"));
  options = {};
  options.pkey_index = 1;
  CHECK(Context::open(world.functions, options).status().code() == Code::kInvalidArgument);
  options = {};
  options.timeout = 99;
  CHECK(Context::open(world.functions, options).status().code() == Code::kInvalidArgument);
  options = {};
  options.device = "mlx5_9";
  const Status name = Context::open(world.functions, options).status();
  CHECK(name.code() == Code::kInvalidArgument);
  CHECK(contains(name.text(), "fake0 port 1"));
  device.pd_error = ENOMEM;
  CHECK(Context::open(world.functions, Options()).status().code() == Code::kResourceExhausted);
}

TEST_CASE("a context follows its port and its GID") {
  World world;
  FakePort& port = world.add_device("fake0").ports[0];
  set_gid(port, 1, kMapped);
  const auto opened = Context::open(world.functions, Options());
  REQUIRE(opened.has_value());
  Context& context = **opened;
  CHECK(context.probe_again().ok());

  port.attributes.state = IBV_PORT_DOWN;
  port.gids.clear();
  CHECK(context.probe_again().code() == Code::kUnavailable);
  CHECK(context.port_attributes().state == IBV_PORT_DOWN);
  CHECK(gid_text(context.gid().gid) == kMapped);

  // The port is up again, but its address is missing.
  port.attributes.state = IBV_PORT_ACTIVE;
  CHECK(context.probe_again().code() == Code::kUnavailable);
  CHECK(gid_text(context.gid().gid) == kMapped);

  set_gid(port, 3, "::ffff:10.9.0.2");
  CHECK(context.probe_again().ok());
  CHECK(context.port_attributes().state == IBV_PORT_ACTIVE);
  CHECK(context.gid().index == 3);
  CHECK(gid_text(context.gid().gid) == "::ffff:10.9.0.2");
  // The record keeps the first choice.
  CHECK(gid_text(context.selection.gid.gid) == kMapped);
}

TEST_CASE("an InfiniBand port is described with its LID") {
  World world;
  FakePort& port = world.add_device("ib0").ports[0];
  port.attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;
  port.attributes.lid = 12;
  set_gid(port, 0, "fe80::1", IBV_GID_TYPE_IB);
  port.gids[0].ndev_ifindex = 0;
  const auto context = Context::open(world.functions, Options());
  REQUIRE_MESSAGE(context.has_value(), context.status().to_string());
  CHECK((*context)->describe() == "ib0 port 1, GID 0 fe80::1 (InfiniBand, LID 12)");
}

TEST_CASE("the machine's own libibverbs is loaded once, or says what to install") {
  const auto functions = load_functions();
  if (!functions) {
    CHECK(functions.error().code() == Code::kUnimplemented);
    CHECK(contains(functions.error().text(), "libibverbs1"));
    return;
  }
  CHECK(*load_functions() == *functions);
  CHECK(std::string((*functions)->wc_status_str(IBV_WC_SUCCESS)) == "success");
  // Works on a machine with or without devices.
  const auto devices = list_devices(**functions);
  if (!devices) CHECK_FALSE(devices.error().text().empty());
}

}  // namespace discovery_test

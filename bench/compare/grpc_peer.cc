// Unary echo calls over gRPC: server ADDRESS | client ADDRESS SIZE INFLIGHT SECONDS
// Callbacks on the server and a completion queue on the client are gRPC's fastest ways.
#include <echo.grpc.pb.h>  // generated
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string_view>

#include "bench/compare/load.h"

namespace {

using slime_peer::Echo;
using slime_peer::Message;

class Service final : public Echo::CallbackService {
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const Message* request,
                                 Message* reply) override {
    reply->set_data(request->data());
    auto* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

int serve(const char* address) {
  Service service;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);  // any
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::puts("READY");
  std::fflush(stdout);
  server->Wait();
  return 0;
}

struct Call {
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Message>> reader;
  Message reply;
  grpc::Status status;
  peer::Clock::time_point started;
};

int load(const char* address, const peer::Load& load) {
  grpc::ChannelArguments any_size;
  any_size.SetMaxReceiveMessageSize(-1);
  const auto stub =
      Echo::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), any_size));
  grpc::CompletionQueue queue;
  Message request;
  request.set_data(std::string(load.size, 'x'));
  std::vector<Call> calls(load.inflight);
  const auto start = [&](Call& call) {
    call.started = peer::Clock::now();
    call.context = std::make_unique<grpc::ClientContext>();
    call.reader = stub->AsyncCall(call.context.get(), request, &queue);
    call.reader->Finish(&call.reply, &call.status, &call);
  };
  peer::Meter meter(load);
  for (Call& call : calls) start(call);
  std::size_t live = calls.size();
  void* tag = nullptr;
  bool good = false;
  while (live > 0 && queue.Next(&tag, &good)) {
    Call& call = *static_cast<Call*>(tag);
    if (!good || !call.status.ok()) peer::fail("the call failed: " + call.status.error_message());
    if (call.reply.data() != request.data()) peer::fail("wrong data");
    if (meter.add(call.started)) {
      start(call);
    } else {
      --live;
    }
  }
  meter.print();
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && std::string_view(arguments[1]) == "server") return serve(arguments[2]);
  if (count == 6 && std::string_view(arguments[1]) == "client")
    return load(arguments[2], peer::load_of(arguments + 3));
  peer::fail("server ADDRESS | client ADDRESS SIZE INFLIGHT SECONDS");
}

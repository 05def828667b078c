#include "transport/verbs/path.h"

#include "base/str.h"
#include "transport/verbs/errors.h"

namespace slime::transport::verbs {

std::string Path::text() const {
  const Options& options = context_->options;
  const Selection& at = context_->selection;
  return str(at.device, " port ", at.port, ", GID ", gid_text(ends_.ours.gid), " -> ",
             gid_text(ends_.peer.gid), ", QP ", ends_.ours.queue_pairs[0].number, " -> ",
             ends_.peer.queue_pairs[0].number, ", MTU ", 128 << ends_.mtu, ", SL ", options.service_level,
             ", traffic class ", options.traffic_class, ", timeout ", ends_.retries.timeout, ", retries ",
             ends_.retries.retry_count);
}

Status Path::lost(const Status& cause) const {
  return Status(cause.code() == Code::kOk ? Code::kUnavailable : cause.code(),
                str("lost the connection to ", peer_name_, " (", text(), "; ", side_, "): ", cause.text()));
}

Status Path::unavailable(const Status& cause) const { return lost(Status(Code::kUnavailable, cause.text())); }

Status Path::explain(std::string_view work, const ibv_wc& completion) const {
  Status error = completion_error(context_->functions, completion, {work, peer_name_, text()});
  const Blame blame = blame_for(completion.status);
  if (blame == Blame::kRemote || blame == Blame::kPeer) return error;
  const Status port = context_->probe_again();
  if (port.ok()) return error;
  return Status(Code::kUnavailable, str(port.text(), "; ", error.text()));
}

}  // namespace slime::transport::verbs

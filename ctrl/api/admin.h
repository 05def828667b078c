#pragma once

#include "ctrl/api/backup_pages.h"
#include "ctrl/api/context.h"
#include "ctrl/api/route.h"

namespace slime::ctrl {

// The routes of operators: whether the server works, its figures, its scopes, a backup, the page, and how to
// ask. Thread: any.
class AdminRoutes {
 public:
  // `context` outlives this.
  explicit AdminRoutes(Context& context) : context_(context) {}
  ApiReply health(const Call& call);
  ApiReply readiness(const Call& call);
  ApiReply status(const Call& call);
  ApiReply metrics(const Call& call);
  ApiReply scopes(const Call& call);
  ApiReply backup(const Call& call);
  ApiReply openapi(const Call& call);
  ApiReply page(const Call& call);

  // Frees a backup that no one reads any more.
  void expire_backup() { backups_.expire(context_.clock().now()); }

 private:
  Context& context_;
  BackupPages backups_;
};

}  // namespace slime::ctrl

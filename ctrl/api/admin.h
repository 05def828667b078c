#pragma once

#include "ctrl/api/backup_pages.h"
#include "ctrl/api/context.h"
#include "ctrl/api/route.h"

namespace slime::ctrl {

// The routes for operators: health, readiness, status, metrics, scopes, backup, the OpenAPI
// description and the web page. Thread: any.
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

  // Frees a backup whose reader has gone.
  void expire_backup() { backups_.expire(context_.clock().now()); }

 private:
  Context& context_;
  BackupPages backups_;
};

}  // namespace slime::ctrl

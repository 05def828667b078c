#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctrl/http/http.h"

// The page that operators look at: the files of page/, which the build put into the program. They are public
// and have no data; what the page shows it asks of the other routes, with its user's token.
namespace slime::ctrl {

struct PageFile {
  std::string_view name;
  std::string_view content_type;
  std::string_view body;
  std::string etag;  // with its quotes; another one for other bytes
};
std::span<const PageFile> page_files();

// To /ui and /ui/NAME.
ApiReply page_reply(const ApiRequest& request, const std::vector<std::string>& path);

// Whether a request with this header would rather have HTML than plain text: a browser does, programs that
// take anything do not.
bool prefers_html(std::string_view accept);
// Sends whoever asked to the page.
ApiReply redirect_to_page();

}  // namespace slime::ctrl

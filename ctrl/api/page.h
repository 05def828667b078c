#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctrl/http/http.h"

// The web page for operators: the files of page/, embedded at build time. The files are public and
// contain no data of the registry. The page gets its data from the other routes, with the token
// that its user enters.
namespace slime::ctrl {

struct PageFile {
  std::string_view name;
  std::string_view content_type;
  std::string_view body;
  std::string etag;  // with quotes; changes with the bytes
};
std::span<const PageFile> page_files();

// Answers /ui and /ui/NAME.
ApiReply page_reply(const ApiRequest& request, const std::vector<std::string>& path);

// Returns whether an Accept header prefers HTML to plain text. True for browsers; false for
// programs that accept any type.
bool prefers_html(std::string_view accept);
// Redirects to the page.
ApiReply redirect_to_page();

}  // namespace slime::ctrl

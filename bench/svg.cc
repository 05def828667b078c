#include "bench/svg.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/str.h"

namespace slime::bench {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

// Enough for a pixel's tenth.
double tenth(double value) { return std::round(value * 10) / 10; }

}  // namespace

void Svg::rect(double x, double y, double width, double height, std::string_view colour) {
  shapes_ += slime::str("<rect x=\"", tenth(x), "\" y=\"", tenth(y), "\" width=\"", tenth(width),
                        "\" height=\"", tenth(height), "\" fill=\"", colour, "\"/>\n");
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view colour, double width,
               bool dashed) {
  shapes_ += slime::str("<line x1=\"", tenth(x1), "\" y1=\"", tenth(y1), "\" x2=\"", tenth(x2), "\" y2=\"",
                        tenth(y2), "\" stroke=\"", colour, "\" stroke-width=\"", width, "\"",
                        dashed ? " stroke-dasharray=\"5 4\"" : "", "/>\n");
}

void Svg::circle(double x, double y, double radius, std::string_view colour) {
  shapes_ += slime::str("<circle cx=\"", tenth(x), "\" cy=\"", tenth(y), "\" r=\"", radius, "\" fill=\"",
                        colour, "\"/>\n");
}

void Svg::text(double x, double y, std::string_view text, Anchor anchor, double size,
               std::string_view colour) {
  const std::string_view where = anchor == Anchor::kStart ? "start"
                                 : anchor == Anchor::kEnd ? "end"
                                                          : "middle";
  shapes_ += slime::str("<text x=\"", tenth(x), "\" y=\"", tenth(y), "\" text-anchor=\"", where,
                        "\" font-size=\"", size, "\" fill=\"", colour, "\">", escaped(text), "</text>\n");
}

std::string Svg::str() const {
  return slime::str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width_, " ", height_,
                    "\" width=\"", width_, "\" height=\"", height_,
                    "\" font-family=\"sans-serif\">\n<rect width=\"100%\" ",
                    "height=\"100%\" fill=\"#ffffff\"/>\n", shapes_, "</svg>\n");
}

Status Svg::write(const std::string& path) const {
  std::ofstream file(path, std::ios::trunc);
  file << str();
  file.close();
  if (!file) return {Code::kUnavailable, slime::str("cannot write ", path)};
  return {};
}

LogAxis::LogAxis(double least, double most, double from_pixel, double to_pixel, Ends ends)
    : first_(std::log10(least)), last_(std::log10(most)), from_(from_pixel), to_(to_pixel) {
  if (ends == Ends::kDecades) {
    first_ = std::floor(first_);
    last_ = std::max(first_ + 1, std::ceil(last_));
    for (double decade = first_; decade <= last_; ++decade) ticks_.push_back(std::pow(10, decade));
  } else if (last_ <= first_) {
    last_ = first_ + 1;  // one value lies at the start
  }
}

double LogAxis::at(double value) const {
  const double part = (std::log10(value) - first_) / (last_ - first_);
  return from_ + std::clamp(part, 0.0, 1.0) * (to_ - from_);
}

}  // namespace slime::bench

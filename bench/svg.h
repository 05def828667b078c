#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace slime::bench {

// One picture: shapes in pixels, from the upper left corner. Thread: one.
class Svg {
 public:
  Svg(double width, double height) : width_(width), height_(height) {}
  enum class Anchor : std::uint8_t { kStart, kMiddle, kEnd };

  void rect(double x, double y, double width, double height, std::string_view colour);
  void line(double x1, double y1, double x2, double y2, std::string_view colour, double width = 1,
            bool dashed = false);
  void circle(double x, double y, double radius, std::string_view colour);
  void text(double x, double y, std::string_view text, Anchor anchor = Anchor::kStart, double size = 12,
            std::string_view colour = "#222222");

  [[nodiscard]] std::string str() const;
  [[nodiscard]] Status write(const std::string& path) const;

 private:
  double width_;
  double height_;
  std::string shapes_;
};

// A part of the picture that stands for a range of values, by their logarithms.
class LogAxis {
 public:
  enum class Ends : std::uint8_t { kDecades, kValues };
  // From least to most, which are above 0, or from the decade below to the one above.
  LogAxis(double least, double most, double from_pixel, double to_pixel, Ends ends = Ends::kDecades);
  [[nodiscard]] double at(double value) const;
  [[nodiscard]] const std::vector<double>& ticks() const { return ticks_; }

 private:
  double first_;
  double last_;
  double from_;
  double to_;
  std::vector<double> ticks_;  // decades, with kDecades
};

}  // namespace slime::bench

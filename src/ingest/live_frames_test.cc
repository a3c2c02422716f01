#include "ingest/live_frames.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "wire/router_event.h"

namespace kvr::ingest {
namespace {

std::string Number(std::uint64_t value) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i)
    bytes[7 - i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

// An event plane's message, of which the envelope says these ids.
std::vector<std::string> Plane(std::uint64_t publisher, std::uint64_t sequence,
                               std::string_view topic = "kv-events") {
  std::string envelope;
  wire::EncodeRouterEnvelope({publisher, sequence, 1, topic, "payload"}, envelope);
  std::string frame;
  wire::FrameRouterEvents(envelope, frame);
  return {"kv-events", Number(77), Number(5), frame};
}

TEST(LiveFrames, T27ToT30FramesOfAnEventPlane) {
  auto version = Plane(77, 5);
  version[3][0] = 2;
  auto header = Plane(77, 5);
  header[3].resize(3);
  auto cut = Plane(77, 5);
  cut[3].resize(cut[3].size() - 1);
  auto untitled = Plane(77, 5);
  const std::size_t named = untitled[3].find("\xA9kv-events");
  ASSERT_NE(named, std::string::npos);
  untitled[3].replace(named, 10, "\xC0");
  untitled[3][4] = static_cast<char>(untitled[3][4] - 9);
  const struct {
    std::string_view id;
    std::vector<std::string> frames;
    FrameFault fault;
  } rows[] = {
      {"sound", Plane(77, 5), FrameFault::kNone},
      {"T27", version, FrameFault::kPlaneFrame},
      {"T28", header, FrameFault::kPlaneFrame},
      {"T29", cut, FrameFault::kPlaneFrame},
      {"T30 publisher", Plane(78, 5), FrameFault::kIdentity},
      {"T30 sequence", Plane(77, 6), FrameFault::kIdentity},
      {"T30 topic", Plane(77, 5, "kv-events-of-others"), FrameFault::kIdentity},
      {"T30 no topic", untitled, FrameFault::kNone},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    std::vector<std::span<const std::byte>> parts;
    for (const std::string& frame : row.frames)
      parts.push_back(std::as_bytes(std::span(frame)));
    std::optional<std::uint64_t> sequence;
    std::span<const std::byte> payload;
    EXPECT_EQ(ReadLive(parts, sequence, payload), row.fault);
    if (row.fault == FrameFault::kNone) {
      EXPECT_EQ(sequence, 5u);
    } else {
      EXPECT_EQ(sequence, std::nullopt);
    }
  }
}

}  // namespace
}  // namespace kvr::ingest

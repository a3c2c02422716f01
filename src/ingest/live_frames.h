// The frames of a live message, whoever sends it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "net/event_socket.h"

namespace kvr::ingest {

// Why a live message is refused. The names are stable: they label counters and rejected messages.
enum class FrameFault : std::uint8_t {
  kNone,
  kCount,       // neither [topic, sequence, payload] nor an event plane's four; old ATOM builds
                // send one or two
  kSequence,    // the number does not have 8 bytes, or is the one that ends a replay
  kPlaneFrame,  // the frame of an event plane is of another version, or shorter than it says
  kIdentity,    // its envelope names another publisher, number or topic than the frames
};
inline constexpr std::array<std::string_view, 5> kFrameFaultNames = {
    "none", "frame_count", "sequence", "plane_frame", "identity"};
constexpr std::string_view FrameFaultName(FrameFault fault) {
  return kFrameFaultNames[static_cast<std::size_t>(fault)];
}

// An engine sends [topic, sequence, payload]; an event plane between workers and routers
// [topic, publisher, sequence, frame], numbers having 8 bytes. `sequence` and `payload` are set
// when the result is kNone; `payload` borrows from `frames`. `publisher`, unless it is null, is set
// to that of an event plane, none for an engine.
FrameFault ReadLive(std::span<const std::span<const std::byte>> frames,
                    std::optional<std::uint64_t>& sequence, std::span<const std::byte>& payload,
                    std::optional<std::uint64_t>* publisher = nullptr);
FrameFault ReadLive(const net::Frames& frames, std::optional<std::uint64_t>& sequence,
                    std::span<const std::byte>& payload,
                    std::optional<std::uint64_t>* publisher = nullptr);

}  // namespace kvr::ingest

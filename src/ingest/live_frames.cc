#include "ingest/live_frames.h"

#include <algorithm>

#include "ingest/message.h"
#include "wire/router_event.h"

namespace kvr::ingest {
namespace {

using Parts = std::span<const std::span<const std::byte>>;

FrameFault ReadPlane(Parts frames, std::uint64_t publisher, std::uint64_t number,
                     std::span<const std::byte>& payload) {
  const auto envelope = wire::UnframeRouterEvents(frames[3]);
  if (!envelope) return FrameFault::kPlaneFrame;
  const auto ids = wire::ReadEnvelopeIds(*envelope);
  if (!ids) return FrameFault::kPlaneFrame;
  if (ids->publisher_id != publisher || ids->sequence != number) return FrameFault::kIdentity;
  // A subscription is for all topics that begin so.
  const std::string_view topic(reinterpret_cast<const char*>(frames[0].data()), frames[0].size());
  if (ids->topic && *ids->topic != topic) return FrameFault::kIdentity;
  payload = *envelope;
  return FrameFault::kNone;
}

}  // namespace

FrameFault ReadLive(const net::Frames& frames, std::optional<std::uint64_t>& sequence,
                    std::span<const std::byte>& payload, std::optional<std::uint64_t>* publisher) {
  std::array<std::span<const std::byte>, 5> parts;  // one more than any message has
  const std::size_t count = std::min(frames.size(), parts.size());
  for (std::size_t i = 0; i < count; ++i)
    parts[i] = frames[i];
  return ReadLive(std::span(parts).first(count), sequence, payload, publisher);
}

FrameFault ReadLive(Parts frames, std::optional<std::uint64_t>& sequence,
                    std::span<const std::byte>& payload, std::optional<std::uint64_t>* publisher) {
  std::uint64_t number = 0;
  std::uint64_t publishing = 0;
  if (frames.size() == 4 && ReadSequence(frames[1], publishing) &&
      ReadSequence(frames[2], number)) {
    const FrameFault fault = ReadPlane(frames, publishing, number, payload);
    if (fault == FrameFault::kNone) sequence = number;
    if (fault == FrameFault::kNone && publisher != nullptr) *publisher = publishing;
    return fault;
  }
  if (publisher != nullptr) publisher->reset();
  if (frames.size() != 3) return FrameFault::kCount;
  if (!ReadSequence(frames[1], number) || number == kEndSequence) return FrameFault::kSequence;
  sequence = number;
  payload = frames[2];
  return FrameFault::kNone;
}

}  // namespace kvr::ingest

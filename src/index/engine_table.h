// Engine hash → block, for all ranks together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "index/hash_mix.h"
#include "index/heap_bytes.h"
#include "index/prefetch.h"
#include "model/ids.h"

namespace kvr::index {

// One word an entry: it leaves the name out, and asks the caller what a block is called: `NameAt`
// is a callable Place → EngineHash, with hints PrefetchRun(Place) and then PrefetchName(Place) for
// places that may not be in use. At most one block a name. Segments grow alone,
// so that no insert waits for all of them. Robin hood probing keeps probes short when nearly full.
// Not thread-safe.
class EngineTable {
 public:
  struct Place {
    std::uint32_t run = 0;
    std::uint32_t offset = 0;  // from the run's first block

    friend bool operator==(const Place&, const Place&) = default;
  };
  static constexpr unsigned kRunBits = 30;
  static constexpr unsigned kOffsetBits = 14;

  explicit EngineTable(std::uint64_t seed) : seed_(seed) {}

  template <typename NameAt>
  [[nodiscard]] std::optional<Place> Find(EngineHash name, const NameAt& name_at) const {
    const std::uint64_t hash = Hash(name);
    const Segment& segment = segments_[hash >> (64 - kSegmentBits)];
    if (segment.size == 0) return std::nullopt;
    std::uint32_t i = Home(segment, hash);
    for (std::uint64_t distance = 1;; ++distance, i = Next(segment, i)) {
      const std::uint64_t entry = segment.entries[i];
      if (DistanceOf(entry) < distance) return std::nullopt;
      if ((entry & kTagAndDistance) != (TagOf(hash) | distance)) continue;
      if (name_at(PlaceOf(entry)) == name) return PlaceOf(entry);
    }
  }
  // The name must not be in the table.
  template <typename NameAt>
  void Insert(EngineHash name, Place place, const NameAt& name_at) {
    const std::uint64_t hash = Hash(name);
    Segment& segment = segments_[hash >> (64 - kSegmentBits)];
    if (segment.count * 8 >= segment.size * 7) Resize(segment, Grown(segment.size), name_at);
    std::uint64_t entry = Entry(place) | TagOf(hash);
    entry = Put(segment, Home(segment, hash), entry);
    while (entry != 0) {  // the probe ran too long; the rest of the segment is in order
      Resize(segment, Grown(segment.size), name_at);
      entry = Put(segment, Home(segment, Hash(name_at(PlaceOf(entry)))), entry);
    }
    ++segment.count;
    ++size_;
  }
  // False when the name does not lead to `place`.
  template <typename NameAt>
  bool Erase(EngineHash name, Place place, const NameAt& name_at) {
    const std::uint64_t hash = Hash(name);
    Segment& segment = segments_[hash >> (64 - kSegmentBits)];
    const std::uint32_t i = IndexOf(segment, hash, place);
    if (i == segment.size) return false;
    CloseGap(segment, i);
    --size_;
    if (--segment.count * 4 < segment.size) Resize(segment, segment.count * 2, name_at);
    return true;
  }
  // False when the name does not lead to `from`.
  bool Move(EngineHash name, Place from, Place to);

  void Prefetch(EngineHash name) const {
    const std::uint64_t hash = Hash(name);
    const Segment& segment = segments_[hash >> (64 - kSegmentBits)];
    if (segment.size > 0) index::Prefetch(&segment.entries[Home(segment, hash)]);
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return heap_; }

 private:
  static constexpr unsigned kSegmentBits = 8;
  static constexpr unsigned kDistanceBits = 8;
  static constexpr unsigned kTagBits = 64 - kRunBits - kOffsetBits - kDistanceBits;
  static constexpr std::uint64_t kDistanceMax = (1u << kDistanceBits) - 1;
  static constexpr std::uint64_t kTagAndDistance =
      (std::uint64_t{1} << (kTagBits + kDistanceBits)) - 1;

  // Entry: run, offset, tag, distance from its home plus one. 0 is empty.
  struct Segment {
    std::unique_ptr<std::uint64_t[]> entries;
    std::uint32_t size = 0;
    std::uint32_t count = 0;
  };

  [[nodiscard]] std::uint64_t Hash(EngineHash name) const { return Mix(seed_, Raw(name), 2); }
  static std::uint32_t Home(const Segment& segment, std::uint64_t hash) {
    return static_cast<std::uint32_t>(((hash >> 16 & 0xFFFF'FFFFu) * std::uint64_t{segment.size}) >>
                                      32);
  }
  static std::uint32_t Next(const Segment& segment, std::uint32_t i) {
    return i + 1 == segment.size ? 0 : i + 1;
  }
  static std::uint64_t TagOf(std::uint64_t hash) {
    return (hash & ((1u << kTagBits) - 1)) << kDistanceBits;
  }
  static std::uint64_t DistanceOf(std::uint64_t entry) { return entry & kDistanceMax; }
  static std::uint64_t Entry(Place place) {
    return (std::uint64_t{place.run} << (64 - kRunBits)) |
           (std::uint64_t{place.offset} << (kTagBits + kDistanceBits));
  }
  static Place PlaceOf(std::uint64_t entry) {
    return {static_cast<std::uint32_t>(entry >> (64 - kRunBits)),
            static_cast<std::uint32_t>(entry >> (kTagBits + kDistanceBits)) &
                ((1u << kOffsetBits) - 1)};
  }
  static std::uint32_t Grown(std::uint32_t size) { return size + size / 2 + 8; }

  // Enters an entry without a distance. 0, or what found no room within the longest distance.
  static std::uint64_t Put(Segment& segment, std::uint32_t home, std::uint64_t entry);
  static void CloseGap(Segment& segment, std::uint32_t i);
  // segment.size when there is none.
  [[nodiscard]] static std::uint32_t IndexOf(const Segment& segment, std::uint64_t hash,
                                             Place place);

  template <typename NameAt>
  void Resize(Segment& segment, std::uint32_t size, const NameAt& name_at) {
    constexpr std::uint32_t kAhead = 8;
    Segment grown;
    for (bool fits = false; !fits; size = Grown(size)) {
      fits = true;
      grown.size = size;
      grown.entries = size > 0 ? std::make_unique<std::uint64_t[]>(size) : nullptr;
      grown.count = segment.count;
      for (std::uint32_t i = 0; fits && i < segment.size; ++i) {
        // A name is two loads away.
        if (i + 2 * kAhead < segment.size)
          name_at.PrefetchRun(PlaceOf(segment.entries[i + 2 * kAhead]));
        if (i + kAhead < segment.size) name_at.PrefetchName(PlaceOf(segment.entries[i + kAhead]));
        const std::uint64_t entry = segment.entries[i];
        if (entry == 0) continue;
        const std::uint64_t hash = Hash(name_at(PlaceOf(entry)));
        fits = Put(grown, Home(grown, hash), Entry(PlaceOf(entry)) | TagOf(hash)) == 0;
      }
    }
    heap_ += HeapBytes(grown.size * sizeof(std::uint64_t));
    heap_ -= HeapBytes(segment.size * sizeof(std::uint64_t));
    segment = std::move(grown);
  }

  std::uint64_t seed_;
  std::array<Segment, std::size_t{1} << kSegmentBits> segments_;
  std::size_t size_ = 0;
  std::size_t heap_ = 0;
};

}  // namespace kvr::index

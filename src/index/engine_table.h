// Engine hash → block, for all ranks together.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "index/hash_mix.h"
#include "index/heap_bytes.h"
#include "index/prefetch.h"
#include "index/word_group.h"
#include "model/ids.h"

namespace kvr::index {

// One word an entry: it leaves the name out, and asks the caller what a block is called: `NameAt`
// is a callable Place → EngineHash, with hints PrefetchRun(Place) and then PrefetchName(Place) for
// places that may not be in use. At most one block a name. Segments grow alone, so that no insert
// waits for all of them. Not thread-safe.
//
// Entries live in buckets of one cache line. An entry is in the first bucket, from the home of its
// name on, that had room; so a bucket with room ends every search. All entries of a bucket are
// looked at together, without a branch that depends on them.
class EngineTable {
 public:
  struct Place {
    std::uint32_t run = 0;
    std::uint32_t offset = 0;  // from the run's first block

    friend bool operator==(const Place&, const Place&) = default;
  };
  // What a name hashes to: kept by callers that first prefetch and then use it.
  enum class Key : std::uint64_t {};
  static constexpr unsigned kRunBits = 30;
  static constexpr unsigned kOffsetBits = 14;

  explicit EngineTable(std::uint64_t seed) : seed_(seed) {}

  [[nodiscard]] Key KeyOf(EngineHash name) const { return Key{Mix(seed_, Raw(name), 2)}; }
  void Prefetch(Key key) const {
    const Segment& segment = segments_[SegmentOf(key)];
    if (segment.size > 0) index::Prefetch(segment.buckets.get() + Home(segment, key));
  }

  template <typename NameAt>
  [[nodiscard]] std::optional<Place> Find(EngineHash name, const NameAt& name_at) const {
    const Key key = KeyOf(name);
    const Segment& segment = segments_[SegmentOf(key)];
    if (segment.size == 0) return std::nullopt;
    const std::uint64_t* const found = Search(segment, key, name, name_at).found;
    return found ? std::optional(PlaceOf(*found)) : std::nullopt;
  }
  // False when the name leads somewhere already. `key` is the name's.
  template <typename NameAt>
  bool Insert(Key key, EngineHash name, Place place, const NameAt& name_at) {
    Segment& segment = segments_[SegmentOf(key)];
    if (segment.size > 0) {
      const Hit hit = Search(segment, key, name, name_at);
      if (hit.found) return false;
      if (hit.room && !IsFull(segment, segment.count + 1)) {
        *hit.room = Entry(place) | hit.mark;
        ++segment.count;
        ++size_;
        return true;
      }
    }
    Resize(segment, Grown(segment.size), name_at);
    while (!Put(segment, key, place))
      Resize(segment, Grown(segment.size), name_at);
    ++segment.count;
    ++size_;
    return true;
  }
  // False when the name does not lead to `place`. `key` is the name's.
  template <typename NameAt>
  bool Erase(Key key, Place place, const NameAt& name_at) {
    Segment& segment = segments_[SegmentOf(key)];
    std::uint64_t* const entry = EntryOf(segment, key, place);
    if (entry == nullptr) return false;
    FillGap(segment, entry);
    --size_;
    if (--segment.count * 4 < segment.size * kWords)
      Resize(segment, BucketsFor(segment.count * 2), name_at);
    return true;
  }
  // False when the name does not lead to `from`. `key` is the name's.
  bool Move(Key key, Place from, Place to);

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return heap_; }

 private:
  static constexpr unsigned kSegmentBits = 8;
  static constexpr unsigned kDistanceBits = 4;
  static constexpr unsigned kTagBits = 64 - kRunBits - kOffsetBits - kDistanceBits;
  static constexpr unsigned kMarkBits = kTagBits + kDistanceBits;
  static constexpr std::uint64_t kDistanceMax = (1u << kDistanceBits) - 1;
  static constexpr std::uint32_t kWords = WordGroup::kWords;

  // Entry: run, offset, and a mark: a tag, and the distance from its home in buckets plus one. 0 is
  // empty.
  struct alignas(64) Bucket {
    std::array<std::uint64_t, kWords> entries{};

    // A set of entries by their marks.
    [[nodiscard]] WordGroup::Set Marked(std::uint64_t mark) const {
      return WordGroup::WithLowBits(entries.data(), kMarkBits, mark);
    }
    [[nodiscard]] WordGroup::Set Empty() const { return Marked(0); }
  };
  static_assert(sizeof(Bucket) == 64);
  struct Segment {
    std::unique_ptr<Bucket[]> buckets;
    std::uint32_t size = 0;  // buckets
    std::uint32_t count = 0;
  };
  // Where a search ended: at the entry, or at a place for it, if there is one near enough.
  struct Hit {
    const std::uint64_t* found = nullptr;
    std::uint64_t* room = nullptr;
    std::uint64_t mark = 0;  // of an entry there
  };

  static std::size_t SegmentOf(Key key) { return Raw(key) >> (64 - kSegmentBits); }
  static std::uint32_t Home(const Segment& segment, Key key) {
    return static_cast<std::uint32_t>(
        ((Raw(key) >> 16 & 0xFFFF'FFFFu) * std::uint64_t{segment.size}) >> 32);
  }
  static std::uint32_t Next(const Segment& segment, std::uint32_t bucket) {
    return bucket + 1 == segment.size ? 0 : bucket + 1;
  }
  // Of an entry in its home; one more for each bucket that it is away.
  static std::uint64_t MarkOf(Key key) {
    return ((Raw(key) & ((1u << kTagBits) - 1)) << kDistanceBits) + 1;
  }
  static std::uint64_t DistanceOf(std::uint64_t entry) { return entry & kDistanceMax; }
  static std::uint64_t Entry(Place place) {
    return (std::uint64_t{place.run} << (64 - kRunBits)) |
           (std::uint64_t{place.offset} << kMarkBits);
  }
  static Place PlaceOf(std::uint64_t entry) {
    return {static_cast<std::uint32_t>(entry >> (64 - kRunBits)),
            static_cast<std::uint32_t>(entry >> kMarkBits) & ((1u << kOffsetBits) - 1)};
  }
  // Beyond it buckets run over too often.
  static bool IsFull(const Segment& segment, std::uint32_t count) {
    return count * 16 > segment.size * kWords * 13;
  }
  static std::uint32_t BucketsFor(std::uint32_t count) { return (count + kWords - 1) / kWords; }
  static std::uint32_t Grown(std::uint32_t size) { return size + size * 3 / 4 + 1; }

  template <typename NameAt>
  static Hit Search(const Segment& segment, Key key, EngineHash name, const NameAt& name_at) {
    std::uint32_t at = Home(segment, key);
    std::uint64_t mark = MarkOf(key);
    for (std::uint64_t distance = 1; distance <= kDistanceMax; ++distance, ++mark) {
      Bucket& bucket = segment.buckets.get()[at];
      for (WordGroup::Set same = bucket.Marked(mark); !same.empty(); same.DropFirst()) {
        const std::uint64_t& entry = bucket.entries[same.first()];
        if (name_at(PlaceOf(entry)) == name) return {.found = &entry};
      }
      if (const WordGroup::Set empty = bucket.Empty(); !empty.empty())
        return {.room = &bucket.entries[empty.first()], .mark = mark};
      at = Next(segment, at);
    }
    return {};
  }
  // False when there is no room near enough. The name must not be there.
  static bool Put(Segment& segment, Key key, Place place);
  // Null when there is none.
  [[nodiscard]] static std::uint64_t* EntryOf(const Segment& segment, Key key, Place place);
  // Takes an entry out, and moves up what passed its bucket because it was full.
  static void FillGap(Segment& segment, std::uint64_t* gap);

  template <typename NameAt>
  void Resize(Segment& segment, std::uint32_t size, const NameAt& name_at) {
    constexpr std::uint32_t kAhead = 8;
    const std::uint32_t end = segment.size * kWords;
    const std::uint64_t* const entries =
        segment.size > 0 ? segment.buckets[0].entries.data() : nullptr;
    Segment grown;
    for (bool fits = false; !fits; size = Grown(size)) {
      fits = true;
      grown.size = size;
      grown.buckets = size > 0 ? std::make_unique<Bucket[]>(size) : nullptr;
      grown.count = segment.count;
      for (std::uint32_t i = 0; fits && i < end; ++i) {
        // A name is two loads away.
        if (i + 2 * kAhead < end) name_at.PrefetchRun(PlaceOf(entries[i + 2 * kAhead]));
        if (i + kAhead < end) name_at.PrefetchName(PlaceOf(entries[i + kAhead]));
        const Place place = PlaceOf(entries[i]);
        if (entries[i] != 0) fits = Put(grown, KeyOf(name_at(place)), place);
      }
    }
    heap_ += HeapBytes(grown.size * sizeof(Bucket));
    heap_ -= HeapBytes(segment.size * sizeof(Bucket));
    segment = std::move(grown);
  }

  std::uint64_t seed_;
  std::array<Segment, std::size_t{1} << kSegmentBits> segments_;
  std::size_t size_ = 0;
  std::size_t heap_ = 0;
};

}  // namespace kvr::index

#include "placement/event_translator.h"

#include <algorithm>
#include <limits>
#include <list>
#include <utility>

#include "placement/digest_sense.h"
#include "placement/event_placer.h"
#include "placement/rank_memory.h"
#include "placement/router_placement.h"
#include "wire/trtllm_json.h"

namespace kvr::placement {

using wire::EngineEvent;

namespace {

// Whose copies the event may have taken.
Concerned WhoMayLose(const wire::BadEvent& bad) {
  using wire::EventType;
  if (bad.error.code == wire::DecodeErrc::kUnknownEvent) return Concerned::kNone;
  if (!bad.type) return Concerned::kEveryRank;
  const bool takes = *bad.type == EventType::kRemoved || *bad.type == EventType::kCleared;
  return takes ? Concerned::kBatchsRank : Concerned::kNone;
}

}  // namespace

class EventTranslator::Impl {
 public:
  explicit Impl(const TranslatorOptions& options)
      : options_(options),
        json_(options.memory.partial_blocks_max),
        digests_(options.digests, options.memory.digests_max) {
    options_.limits.digests = digests_.reading().end;
  }

  Result<void, wire::DecodeError> Translate(std::span<const std::byte> payload,
                                            PlacementBatch& out) {
    out.Clear();
    ++stats_.batches;
    const bool json = wire::LooksLikeJson(payload);
    out.ranks_vary = json;
    if (router_.Takes(payload, json, options_.limits)) return TranslateRouterEvents(out);
    auto decoded = json ? json_.Decode(payload, options_.limits, options_.block_size, batch_)
                        : wire::DecodeEventBatch(payload, options_.limits, batch_);
    if (batch_.new_main_from) ++main_changes_;
    const std::uint32_t dp_rank = batch_.dp_rank.value_or(options_.rank.dp_rank);
    if (decoded && !Follows(dp_rank)) {
      PassBy(dp_rank, json, out);
      return {};
    }
    RankMemory* memory = decoded ? MemoryOf(dp_rank) : nullptr;
    if (memory == nullptr) {
      ++stats_.bad_batches;
      if (decoded)
        decoded = tl::make_unexpected(wire::DecodeError{wire::DecodeErrc::kTooManyRanks, 0});
      batch_.Clear();
      return decoded;
    }
    if (!json && digests_.Concerns(batch_)) ReadDigests(payload, *memory, out);
    stats_.forgotten_partials += json_.forgotten_partial_blocks() -
                                 std::exchange(json_forgotten_, json_.forgotten_partial_blocks());
    stats_.forgotten_digests = digests_.forgotten();
    stats_.legacy_layouts += batch_.legacy_layouts;
    stats_.skipped_session_ids += batch_.skipped.session_id;
    stats_.skipped_windows += batch_.skipped.window;
    stats_.skipped_token_offsets += batch_.skipped.token_offset;
    stats_.skipped_copies_left += batch_.skipped.copies_left;
    stats_.trailing_bytes += batch_.trailing_bytes;
    out.ts = batch_.ts;
    out.dp_rank = batch_.dp_rank;
    placer_.Begin();
    // An event of another rank told so: before this one's removals, which are no longer the main
    // window's.
    if (memory->main_changes + (batch_.new_main_from ? 1u : 0u) < main_changes_) {
      placer_.ChangeMain(0, *memory, out);
    }
    memory->main_changes = main_changes_;
    std::span<const wire::BadEvent> bad = batch_.bad;
    for (std::size_t i = 0; i < batch_.events.size(); ++i) {
      const EngineEvent& event = batch_.events[i];
      DropBad(bad, event.index, *memory, out);
      if (batch_.new_main_from == i) placer_.ChangeMain(event.index, *memory, out);
      if (const auto reason = placer_.Place(event, batch_, *memory, out)) {
        Drop(DroppedEvent{event.index, *reason, {}, event.block_size}, out);
      }
      out.made_until.push_back(static_cast<std::uint32_t>(out.events.size()));
    }
    DropBad(bad, std::numeric_limits<std::uint32_t>::max(), *memory, out);
    if (batch_.new_main_from == batch_.events.size()) {
      placer_.ChangeMain(batch_.bad.back().index, *memory, out);  // a bad event told so
    }
    if (memory->chunks.expires()) placer_.ExpireChunks(batch_, *memory, out);
    placer_.NoteRank(*memory, out);
    placer_.End(out);
    return {};
  }

  void Reset() {
    ranks_.clear();
    json_.Reset();
    digests_.Reset();
    options_.limits.digests = digests_.reading().end;
  }

  void ForgetCounts() {
    for (RankMemory& memory : ranks_)
      memory.ForgetCounts();
  }

  const wire::EventBatch& decoded() const { return batch_; }
  const TranslatorOptions& options() const { return options_; }
  const TranslatorStats& stats() const { return stats_; }
  DigestReading digests() const { return digests_.reading(); }
  std::size_t remembered() const {
    std::size_t entries = json_.partial_blocks() + digests_.remembered();
    for (const RankMemory& memory : ranks_) {
      entries += memory.blocks.size() + memory.groups.entries() + memory.chunks.entries() +
                 memory.partials.size();
    }
    return entries;
  }
  std::size_t table_bytes() const {
    std::size_t bytes = digests_.table_bytes();
    for (const RankMemory& memory : ranks_)
      bytes += memory.blocks.bytes() + memory.groups.table_bytes() + memory.chunks.bytes();
    return bytes;
  }

 private:
  // What the batch says of the digests' end; decodes it again when that is another one.
  void ReadDigests(std::span<const std::byte> payload, RankMemory& memory, PlacementBatch& out) {
    const DigestSense::Verdict verdict = digests_.Learn(batch_, memory.blocks);
    if (verdict == DigestSense::Verdict::kSame) return;
    if (verdict == DigestSense::Verdict::kForgetAndDecode) {
      ++stats_.digest_changes;
      out.forget = true;
      for (RankMemory& rank : ranks_)
        rank.ForgetCopies();
    }
    options_.limits.digests = digests_.reading().end;
    // What could be decoded by one end can be by the other.
    static_cast<void>(wire::DecodeEventBatch(payload, options_.limits, batch_));
  }

  Result<void, wire::DecodeError> TranslateRouterEvents(PlacementBatch& out) {
    const auto placed =
        router_.Place(options_.limits, options_.rank, options_.any_worker, out, batch_);
    out.ranks_vary = true;
    if (!placed) ++stats_.bad_batches;
    stats_.skipped_session_ids += router_.skipped().session_id;
    stats_.skipped_positions += router_.skipped().start_position;
    stats_.skipped_mm_infos += router_.skipped().mm_extra_info;
    stats_.skipped_flags += router_.skipped().sce;
    for (const DroppedEvent& dropped : out.dropped)
      ++stats_.dropped[static_cast<std::size_t>(dropped.reason)];
    stats_.stored_blocks += out.blocks.size();
    stats_.removed_blocks += out.removed.size();
    return placed;
  }

  [[nodiscard]] bool Follows(std::uint32_t dp_rank) const {
    return dp_rank == options_.rank.dp_rank || !options_.follows || options_.follows(dp_rank);
  }

  // A batch of a rank that nobody wants. When the rank is wanted again, what is known of it would
  // lack what was passed by.
  void PassBy(std::uint32_t dp_rank, bool json, PlacementBatch& out) {
    std::erase_if(ranks_, [&](const RankMemory& rank) { return rank.dp_rank == dp_rank; });
    out.ts = batch_.ts;
    out.dp_rank = batch_.dp_rank;
    out.made_until.assign(batch_.events.size(), 0);
    // In a list each item says its rank: one that nobody could read may be of another.
    if (!json) return;
    std::span<const wire::BadEvent> bad = batch_.bad;
    if (TakeBad(bad, std::numeric_limits<std::uint32_t>::max(), out) != Concerned::kEveryRank)
      return;
    ForgetCounts();
    out.lost_removals = Concerned::kEveryRank;
  }

  // Null when the stream named too many ranks.
  RankMemory* MemoryOf(std::uint32_t dp_rank) {
    for (RankMemory& memory : ranks_) {
      if (memory.dp_rank == dp_rank) return &memory;
    }
    if (ranks_.size() >= options_.ranks_max) return nullptr;
    RankMemory& added = ranks_.emplace_back(dp_rank, options_.memory);
    if (options_.lenient_media) added.chunks.Begin();  // as LMCache's are
    return &added;
  }

  // Passes those of `bad` that come before the event `end`; who may lose by them.
  Concerned TakeBad(std::span<const wire::BadEvent>& bad, std::uint32_t end, PlacementBatch& out) {
    Concerned concerned = Concerned::kNone;
    for (; !bad.empty() && bad.front().index < end; bad = bad.subspan(1)) {
      Drop(Undecodable(bad.front()), out);
      concerned = std::max(concerned, WhoMayLose(bad.front()));
    }
    return concerned;
  }
  // Whatever may have taken copies makes the counts useless.
  void DropBad(std::span<const wire::BadEvent>& bad, std::uint32_t end, RankMemory& memory,
               PlacementBatch& out) {
    const Concerned concerned = TakeBad(bad, end, out);
    if (concerned == Concerned::kBatchsRank) memory.ForgetCounts();
    if (concerned == Concerned::kEveryRank) ForgetCounts();
    out.lost_removals = std::max(out.lost_removals, concerned);
  }

  void Drop(const DroppedEvent& dropped, PlacementBatch& out) {
    ++stats_.dropped[static_cast<std::size_t>(dropped.reason)];
    out.dropped.push_back(dropped);
  }

  TranslatorOptions options_;
  TranslatorStats stats_;
  std::list<RankMemory> ranks_;
  wire::TrtllmJsonDecoder json_;
  std::uint64_t json_forgotten_ = 0;  // partial blocks, as counted
  RouterPlacement router_;
  DigestSense digests_;
  EventPlacer placer_{options_, stats_};
  std::uint64_t main_changes_ = 0;  // told by EventBatch::new_main_from
  wire::EventBatch batch_;          // kept for its capacity
};

EventTranslator::EventTranslator(const TranslatorOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
EventTranslator::~EventTranslator() = default;
EventTranslator::EventTranslator(EventTranslator&&) noexcept = default;
EventTranslator& EventTranslator::operator=(EventTranslator&&) noexcept = default;

Result<void, wire::DecodeError> EventTranslator::Translate(std::span<const std::byte> payload,
                                                           PlacementBatch& out) {
  return impl_->Translate(payload, out);
}
const wire::EventBatch& EventTranslator::decoded() const {
  return impl_->decoded();
}
void EventTranslator::Reset() {
  impl_->Reset();
}
void EventTranslator::ForgetCounts() {
  impl_->ForgetCounts();
}
DigestReading EventTranslator::digests() const {
  return impl_->digests();
}
const TranslatorOptions& EventTranslator::options() const {
  return impl_->options();
}
const TranslatorStats& EventTranslator::stats() const {
  return impl_->stats();
}
std::size_t EventTranslator::remembered() const {
  return impl_->remembered();
}
std::size_t EventTranslator::table_bytes() const {
  return impl_->table_bytes();
}

}  // namespace kvr::placement

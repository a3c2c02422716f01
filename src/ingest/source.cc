#include "ingest/source.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/big_endian.h"
#include "base/check.h"
#include "ingest/apply_batch.h"
#include "ingest/batch_listener.h"
#include "ingest/live_frames.h"
#include "ingest/message.h"
#include "net/event_endpoint.h"
#include "placement/drop_text.h"
#include "wire/router_event.h"
#include "wire/snapshot_seal.h"

namespace kvr::ingest {

using fleet::EventFate;

namespace {

placement::TranslatorOptions TranslatorFor(const SourceSpec& spec, std::uint32_t block_size,
                                           const Ingest::Options& ingest, const Targets& targets) {
  placement::TranslatorOptions options;
  options.rank = spec.rank;
  options.follows = [&targets, worker = spec.rank.worker](std::uint32_t dp_rank) {
    return targets.contains(Rank{worker, dp_rank});
  };
  options.limits.events_max = ingest.message.events_max;
  options.limits.blocks_max = ingest.message.blocks_max;
  options.limits.tokens_max = ingest.message.tokens_max;
  options.lenient_media = spec.source.lenient_media;
  options.digests = fleet::DigestEndOf(spec.source.engine);
  options.block_size = block_size;
  options.unmapped_keys = ingest.unmapped_keys;
  options.image_token = spec.source.image_token;
  options.video_token = spec.source.video_token;
  options.memory = ingest.memory;
  return options;
}

Backlog BacklogOf(const fleet::EventSource& source) {
  if (net::IsPolled(source.endpoint)) return Backlog::kBuffered;
  return source.replay_endpoint ? Backlog::kReplay : Backlog::kNone;
}

std::string UnclearText(const placement::UnclearGroup& unclear) {
  using placement::DropReason;
  if (unclear.why == DropReason::kTooManyGroups) {
    return "the engine has more cache groups than `ingest.groups_max`; no prefix is credited";
  }
  const bool told = unclear.why != DropReason::kUnlearnedGroup;
  const bool numbered = unclear.group != std::numeric_limits<std::uint32_t>::max();
  return fmt::format("the cache group {} is of a kind that {}; no prefix is credited",
                     numbered ? fmt::to_string(unclear.group) : "without a number",
                     told ? "is not known here" : "no event has told");
}

// Adds what became of messages between two looks at the statistics.
void CountMessages(const StreamStats& before, const StreamStats& after, fleet::RankLedger& ledger) {
  for (std::size_t i = 0; i < after.passed.size(); ++i)
    ledger.Count(static_cast<fleet::MessageFate>(i), after.passed[i] - before.passed[i]);
  ledger.TakeBackMessages(after.taken_back - before.taken_back);
  ledger.Count(fleet::Arrival::kRepeated, after.repeated - before.repeated);
  ledger.Count(fleet::Arrival::kLate, after.late - before.late);
  ledger.Count(fleet::Arrival::kFrames, after.bad_frames() - before.bad_frames());
}

// Ranks that are remembered as missed; of more it is not told which.
constexpr std::size_t kMissedRanksMax = 4'096;

// What one socket may have of a turn.
class Share {
 public:
  Share(const TurnLimits& limits, const Clock& clock)
      : limits_(limits), clock_(clock), end_(clock.Now() + limits.time_max) {}

  // Another message was taken; whether it was the last.
  [[nodiscard]] bool Spend() {
    return ++taken_ >= limits_.messages_max || clock_.Now() >= end_ ||
           (limits_.called != nullptr && limits_.called->load(std::memory_order_relaxed));
  }

 private:
  const TurnLimits& limits_;
  const Clock& clock_;
  const Nanos end_;
  std::size_t taken_ = 0;
};

}  // namespace

Result<std::unique_ptr<Source>> Source::Open(SourceSpec spec,
                                             std::shared_ptr<fleet::RankHealth> health,
                                             const Ingest::Options& options,
                                             net::EventPoller& poller, const Targets& targets,
                                             IngestMetrics& metrics, const Clock& clock) {
  const auto own = targets.find(spec.rank);
  KVR_CHECK(own != targets.end());
  const std::uint32_t block_size = own->second.index->block_size;
  KVR_TRY(auto live, poller.Subscribe(spec.source.endpoint, spec.source.topic));
  std::unique_ptr<Source> source(new Source(std::move(spec), std::move(health), options, poller,
                                            targets, block_size, metrics, clock));
  source->live_ = std::move(live);
  if (const auto& recovered = source->spec_.recovered) {
    for (const Follower& follower : source->followers_)
      source->fed_.insert(follower.rank);  // so that a clear reaches them
    source->stream_->Adopt(recovered->applied, clock.Now());
    source->PublishStats();
  }
  return source;
}

Source::Source(SourceSpec spec, std::shared_ptr<fleet::RankHealth> health,
               const Ingest::Options& options, net::EventPoller& poller, const Targets& targets,
               std::uint32_t block_size, IngestMetrics& metrics, const Clock& clock)
    : spec_(std::move(spec)),
      poller_(poller),
      targets_(targets),
      metrics_(metrics),
      clock_(clock),
      followers_{{spec_.rank, std::move(health)}},
      adopted_(spec_.recovered.has_value()),
      snapshot_bytes_max_(options.snapshot_bytes_max),
      translator_(TranslatorFor(spec_, block_size, options, targets)),
      notes_(clock, options.rejected_bytes_kept),
      stream_options_(options.stream) {
  for (const SourceSpec::Sharer& sharer : spec_.sharers)
    followers_.push_back({Rank{spec_.rank.worker, sharer.dp_rank}, sharer.health});
  StartStream();
  PublishStatus();
}

Source::~Source() = default;

std::vector<Rank> Source::ranks() const {
  std::vector<Rank> ranks;
  for (const Follower& follower : followers_)
    ranks.push_back(follower.rank);
  return ranks;
}

bool Source::GoesOnFrom(Rank rank, std::uint64_t message) const {
  if (!adopted_ || Missed(rank)) return false;
  const auto& applied = spec_.recovered->applied;
  return applied && message >= applied->message;
}

Result<void> Source::Join(Rank rank, std::shared_ptr<fleet::RankHealth> health, bool adopted) {
  const bool missed = !adopted && (adopted_ || Missed(rank));
  const bool refetched = missed && BacklogOf(spec_.source) == Backlog::kReplay;
  if (refetched) KVR_TRY_VOID(Restart());
  if (const auto watermark = stream_->watermark()) {
    health->ledger().Count(fleet::MessageFate::kEarlier, *watermark + 1);
  }
  followers_.push_back({rank, std::move(health)});
  if (adopted) fed_.insert(rank);  // so that a clear reaches it
  if (missed && !refetched) {
    DeclareGroups(rank);
    NoteDefect(rank, StateReason::kNoReplayEndpoint,
               "registered after its stream had told of it, and nobody can tell that again");
  }
  PublishStatus();
  return {};
}

// What the groups are was told when nobody was there for it; ranks of one engine have the same.
void Source::DeclareGroups(Rank rank) {
  const index::PartitionIndex& partition = *targets_.at(rank).index;
  for (const Follower& follower : followers_) {
    const auto known = partition.hybrid->Find(follower.rank);
    if (follower.rank == rank || !known) continue;
    const auto sides = partition.hybrid->FindOrAdd(rank, *partition.index, partition.block_size);
    for (const index::SideGroupCopy& group : known->Copy())
      sides->Declare(group.about);
  }
}

void Source::Leave(Rank rank) {
  std::erase_if(followers_, [rank](const Follower& follower) { return follower.rank == rank; });
  if (fed_.erase(rank) > 0 || defects_.contains(rank)) NoteMissed(rank.dp_rank);
  defects_.erase(rank);
}

Result<void> Source::Restart() {
  KVR_TRY(auto live, poller_.Subscribe(spec_.source.endpoint, spec_.source.topic));
  if (const auto watermark = stream_->watermark()) {
    for (const Follower& follower : followers_)
      follower.health->ledger().TakeBackMessages(*watermark + 1);
  }
  PassEventsTo(1, EventFate::kSkipped);
  StopReplay();
  Clear();
  live_ = std::move(live);
  published_ = {};
  StartStream();
  return {};
}

void Source::StartStream() {
  StreamSink& sink = *this;
  stream_ = std::make_unique<RankStream>(stream_options_, BacklogOf(spec_.source), sink);
}

void Source::NoteMissed(std::uint32_t dp_rank) {
  if (missed_.size() < kMissedRanksMax) {
    missed_.insert(dp_rank);
  } else {
    missed_any_ = true;
  }
}

bool Source::Turn(const TurnLimits& limits) {
  const Nanos now = clock_.Now();
  bool more = false;
  // History first: live messages may be waiting for it. A request may end, and its socket with it,
  // at any answer.
  for (Share share(limits, clock_); !more && replay_ && replay_->Receive(frames_);) {
    stream_->OnReplay(frames_, now);
    more = share.Spend();
  }
  for (Share share(limits, clock_);;) {
    // The link is looked at between receiving a message and using it: what a new connection brought
    // comes after its report, so that no message of a new engine is taken for one of the old.
    const bool received = live_->Receive(frames_);
    bool linked = false;
    for (net::LinkEvent event{}; live_->NextLinkEvent(event); linked = true)
      stream_->OnLink(event, now);
    if (!received && linked) continue;
    if (!received) {
      stream_->OnDrained();
      break;
    }
    const std::uint64_t refused = stream_->stats().bad_frames();
    stream_->OnLive(frames_, now);
    if (stream_->stats().bad_frames() > refused) NoteFraming();
    if (share.Spend()) {
      more = true;
      break;
    }
  }
  stream_->OnTick(now);
  PublishStats();
  return more;
}

Source::Outcome Source::Apply(std::uint64_t sequence, std::span<const std::byte> payload) {
  const StreamMessage message{sequence, payload};
  const Follower& front = followers_.front();
  fleet::RankHealth& owner = *front.health;
  if (const auto translated = translator_.Translate(payload, batch_); !translated) {
    const wire::DecodeError error = translated.error();
    // A batch of a rank that cannot exist is well-formed, and whose it is nobody can tell.
    if (error.code == wire::DecodeErrc::kOutOfRange) {
      metrics_.CountForeignRank();
      notes_.NoteMessage(front.rank, owner, message, placement::BatchErrorName(error.code),
                         "the rank is no rank", error.offset);
      ForgetCounts();  // it may have been a removal
      missed_any_ = true;
      NoteDefectOfAll(StateReason::kForeignRank,
                      "a batch names a dp_rank that cannot exist, so nobody got it");
      return Outcome::kApplied;
    }
    metrics_.CountDecodeFailure(error.code);
    undecodable_ =
        placement::BatchErrorDetail(error.code, payload.size(), translator_.options().limits);
    notes_.NoteMessage(front.rank, owner, message, "undecodable", undecodable_, error.offset);
    return Outcome::kUndecodable;
  }
  if (batch_.forget) ForgetBlocks();
  const Rank rank{spec_.rank.worker, batch_.dp_rank.value_or(spec_.rank.dp_rank)};
  CheckNumbers(rank);
  CountEvents(rank);
  const bool foreign =
      !batch_.dropped.empty() && batch_.events.empty() &&
      std::ranges::all_of(batch_.dropped, [](const placement::DroppedEvent& dropped) {
        return dropped.reason == placement::DropReason::kForeignWorker;
      });
  if (foreign) {
    for (const placement::DroppedEvent& dropped : batch_.dropped)
      metrics_.CountFiltered(dropped.reason);
    notes_.NoteDropped(front.rank, owner, message, batch_, translator_);
    NoteSilence("another worker", "register the worker under the id that its events name");
    return Outcome::kApplied;
  }
  const Target* target = Feed(rank, message);
  ForgetLost(rank);  // on either side of the events, for it may have been between them
  ApplyEvents(rank, target, message);
  ForgetLost(rank);
  if (target == nullptr && !batch_.ranks_vary) return Outcome::kApplied;
  const Rank shown = target == nullptr ? front.rank : rank;
  notes_.NoteDropped(shown, target == nullptr ? owner : *target->health, message, batch_,
                     translator_);
  NoteDropped(shown);
  if (target != nullptr) NoteRank(rank);
  return Outcome::kApplied;
}

const Target* Source::Feed(Rank rank, const StreamMessage& message) {
  const auto target = targets_.find(rank);
  if (target == targets_.end()) {
    NoteForeign(message, rank.dp_rank);
    return nullptr;
  }
  fed_.insert(rank);
  const auto defect = defects_.find(rank);
  if (defect != defects_.end() && !defect->second.foreign.empty()) {
    defect->second.foreign.clear();
    PublishStatus();
  }
  return &target->second;
}

void Source::ApplyEvents(Rank rank, const Target* target, const StreamMessage& message) {
  index::PrefixIndex* fed = nullptr;  // a source feeds one
  touched_.clear();
  const auto touch = [&](const Target& to) {
    fed = to.index->index.get();
    if (std::ranges::find(touched_, to.slot) == touched_.end()) touched_.push_back(to.slot);
  };
  const auto apply = [&](const PlacementEvent& event) {
    // An engine's batch is of one rank; in other streams each event names its own.
    const Target* const to = event.rank == rank ? target : Feed(event.rank, message);
    if (to == nullptr) return;
    touch(*to);
    NoteApplied(event, to->index->index->Apply(to->slot, event));
    to->health->Count(fleet::RankCount::kEvents);
    to->health->ledger().Count(fleet::Placement::kEvent);
  };
  if (target == nullptr) {
    for (const PlacementEvent& event : batch_.events)
      apply(event);
  } else {
    if (!batch_.side.empty()) touch(*target);
    ApplyBatch(*target->index, rank, batch_, apply);
  }
  if (auto* const listener = dynamic_cast<BatchListener*>(fed)) {
    listener->EndBatch(touched_);
  }
}

void Source::CheckNumbers(Rank rank) {
  if (!batch_.first_event && !numbered_) return;
  const auto dropped = [&](placement::DropReason reason) {
    return std::ranges::find(batch_.dropped, reason, &placement::DroppedEvent::reason) !=
           batch_.dropped.end();
  };
  // Of an event that could not be read the number is not known either.
  const bool unread = dropped(placement::DropReason::kDecodeError);
  numbered_ = numbered_ && !unread;
  if (!batch_.first_event) return;
  shares_numbers_ = shares_numbers_ || rank != spec_.rank || translator_.options().any_worker ||
                    dropped(placement::DropReason::kForeignWorker);
  if (numbered_ && !shares_numbers_ && *batch_.first_event > next_event_) {
    NoteDefectOfAll(StateReason::kGapUnrepaired,
                    fmt::format("events {} to {} were never sent, although no message is missing",
                                next_event_, *batch_.first_event - 1));
  }
  numbered_ = !unread;
}

void Source::CountEvents(Rank rank) {
  fleet::RankLedger& owner = followers_.front().health->ledger();
  fleet::RankLedger* const known = LedgerOf(rank);
  fleet::RankLedger& own = known ? *known : owner;
  const std::uint64_t all = translator_.decoded().events.size() + translator_.decoded().bad.size();
  if (batch_.first_event) {
    PassEventsTo(*batch_.first_event, EventFate::kSkipped);
    next_event_ += all;
  }
  for (const placement::DroppedEvent& dropped : batch_.dropped)
    own.CountFiltered(static_cast<std::size_t>(dropped.reason));
  std::uint64_t left = all - std::min<std::uint64_t>(all, batch_.dropped.size());
  // Several placement events may come of one, also of one that is dropped.
  std::optional<std::uint32_t> last;
  for (std::size_t i = 0; i < batch_.events.size() && left > 0; ++i) {
    const std::uint32_t index = batch_.event_index[i];
    if (last == index) continue;
    last = index;
    if (std::ranges::binary_search(batch_.dropped, index, {}, &placement::DroppedEvent::index)) {
      continue;
    }
    const Rank of = batch_.events[i].rank;
    fleet::RankLedger* const ledger = of == rank ? known : LedgerOf(of);
    (ledger ? *ledger : owner).Count(ledger ? EventFate::kApplied : EventFate::kForeignRank);
    --left;
  }
  own.Count(known ? EventFate::kHeld : EventFate::kForeignRank, left);
}

void Source::PassEventsTo(std::uint64_t next, EventFate fate) {
  fleet::RankLedger& owner = followers_.front().health->ledger();
  if (next >= next_event_) {
    owner.Count(fate, next - next_event_);
  } else {
    owner.TakeBackEvents(next_event_ - next);
  }
  next_event_ = next;
}

fleet::RankLedger* Source::LedgerOf(Rank rank) const {
  const auto target = targets_.find(rank);
  return target == targets_.end() ? nullptr : &target->second.health->ledger();
}

void Source::NoteApplied(const PlacementEvent& event, const index::ApplyResult& result) {
  metrics_.CountApplied(event.kind, result);
  if (event.kind == PlacementKind::kCleared) ForgetDefect(event.rank);
  if (result.status == index::ApplyStatus::kCapacity) {
    NoteDefect(event.rank, StateReason::kIndexFull,
               "the index has no room for more blocks: `index.blocks_max` can be raised");
  } else if (result.dropped_blocks > 0) {
    NoteDefect(event.rank, StateReason::kIndexFull,
               "blocks that waited for their parents had to go: `index.pending_blocks_max` and "
               "`index.blocks_max` can be raised");
  }
}

void Source::NoteDropped(Rank rank) {
  for (const placement::DroppedEvent& dropped : batch_.dropped) {
    metrics_.CountFiltered(dropped.reason);
    if (dropped.reason == placement::DropReason::kDecodeError) {
      const std::string why = fmt::format(
          "an event could not be decoded: {}",
          placement::DropDetail(dropped, translator_.decoded(), translator_.options().block_size));
      if (batch_.ranks_vary) {
        NoteDefectOfAll(StateReason::kUndecodable, why);
      } else {
        NoteDefect(rank, StateReason::kUndecodable, why);
      }
    }
  }
  if (batch_.lost_copies) {
    NoteDefect(rank, StateReason::kUnknownGroupKind,
               "the main cache group turned out to be another when its copies were no longer all "
               "known; what is missing comes back as the engine announces it again");
  }
}

void Source::NoteFraming() {
  const std::size_t count = frames_.size();
  StreamMessage message;
  if (count > 0) message.payload = frames_[count - 1];
  const FrameFault fault = ReadLive(frames_, message.sequence, message.payload);
  notes_.NoteMessage(
      followers_.front().rank, *followers_.front().health, message, FrameFaultName(fault),
      fault == FrameFault::kCount ? fmt::format("{} frames instead of 3", count) : std::string());
}

void Source::NoteForeign(const StreamMessage& message, std::uint32_t dp_rank) {
  metrics_.CountForeignRank();
  NoteMissed(dp_rank);
  const std::string whose = fmt::format("dp_rank {}", dp_rank);
  notes_.NoteMessage(followers_.front().rank, *followers_.front().health, message,
                     StateReasonName(StateReason::kForeignRank), whose);
  NoteSilence(whose + ", which is not registered", "register that rank");
}

// A stream of many ranks may carry some that are not served here; one that never speaks of its own
// leaves us blind.
void Source::NoteSilence(std::string_view whose, std::string_view advice) {
  const Rank own = followers_.front().rank;
  if (fed_.contains(own)) return;
  std::string& foreign = defects_[own].foreign;
  std::string text = fmt::format("events are of {}; {}", whose, advice);
  if (foreign == text) return;
  foreign = std::move(text);
  PublishStatus();
}

// What was wrong or missing before matters no more when the rank holds nothing.
void Source::ForgetDefect(Rank rank) {
  const auto found = defects_.find(rank);
  if (found == defects_.end() || found->second.reason == StateReason::kNone) return;
  found->second.reason = StateReason::kNone;
  found->second.detail.clear();
  PublishStatus();
}

void Source::NoteDefect(Rank rank, StateReason reason, std::string_view detail) {
  Defect& defect = defects_[rank];
  if (defect.reason == reason && defect.detail == detail) return;
  defect.reason = reason;
  defect.detail = detail;
  PublishStatus();
}

void Source::NoteDefectOfAll(StateReason reason, std::string_view detail) {
  for (const Follower& follower : followers_)
    NoteDefect(follower.rank, reason, detail);
}

void Source::NoteRank(Rank rank) {
  const auto found = defects_.find(rank);
  const bool has_defect = found != defects_.end();
  const bool is_known = has_defect && found->second.wrong_block_size == batch_.wrong_block_size &&
                        found->second.unclear_group == batch_.unclear_group;
  const bool is_well = batch_.wrong_block_size == 0 && !batch_.unclear_group;
  if (is_known || (is_well && !has_defect)) return;
  Defect& defect = defects_[rank];
  defect.wrong_block_size = batch_.wrong_block_size;
  defect.unclear_group = batch_.unclear_group;
  PublishStatus();
}

void Source::Clear() {
  for (const Follower& follower : followers_)
    follower.health->SetPosition(std::nullopt);  // before the blocks go
  translator_.Reset();
  ClearBlocks(true);
  fed_.clear();
  defects_.clear();
  missed_.clear();
  missed_any_ = false;
  adopted_ = false;
  numbered_ = false;
  shares_numbers_ = false;
  PublishStatus();
}

void Source::ClearBlocks(bool drop_groups) {
  for (const Rank rank : fed_) {
    const auto target = targets_.find(rank);
    if (target == targets_.end()) continue;
    PlacementEvent event;
    event.kind = PlacementKind::kCleared;
    event.rank = rank;
    index::PartitionIndex& partition = *target->second.index;
    partition.index->Apply(target->second.slot, event);
    target->second.health->ledger().Count(fleet::Placement::kClear);
    if (drop_groups) {
      partition.hybrid->Drop(rank);
    } else if (const auto sides = partition.hybrid->Find(rank)) {
      sides->ApplyMain(event);
    }
  }
}

void Source::ForgetBlocks() {
  ClearBlocks(false);  // what cache groups are stays known
  for (const Rank rank : fed_) {
    NoteDefect(
        rank, StateReason::kUndecodable,
        "blocks were named by the wrong end of digests and are forgotten; say which `engine` "
        "it is");
  }
}

void Source::NoteLoss() {
  numbered_ = false;
  ForgetCounts();
}

void Source::ForgetCounts() {
  translator_.ForgetCounts();
  for (const Rank rank : fed_)
    ForgetSideCounts(rank);
}

void Source::ForgetSideCounts(Rank rank) {
  const auto target = targets_.find(rank);
  if (target == targets_.end()) return;
  if (const auto sides = target->second.index->hybrid->Find(rank)) sides->ForgetCounts();
}

void Source::ForgetLost(Rank rank) {
  if (batch_.lost_removals == placement::Concerned::kBatchsRank) ForgetSideCounts(rank);
  if (batch_.lost_removals != placement::Concerned::kEveryRank) return;
  for (const Rank each : fed_)
    ForgetSideCounts(each);
}

void Source::StartReplay(std::uint64_t from) {
  Request(from, {});
}

void Source::StartSnapshot() {
  Request(0, wire::kAskSnapshot);
}

void Source::AskState() {
  Request(0, wire::kAskState);
}

void Source::Request(std::uint64_t from, std::string_view wanted) {
  StopReplay();
  auto socket = poller_.Dealer(*spec_.source.replay_endpoint);
  // Without a socket there will be no answer, which the stream takes as silence and tries again.
  if (!socket) return;
  replay_ = std::move(*socket);
  const auto start = BigEndian(from);
  const std::array<std::span<const std::byte>, 3> request{std::span<const std::byte>(), start,
                                                          std::as_bytes(std::span(wanted))};
  static_cast<void>(replay_->Send(std::span(request).first(wanted.empty() ? 2 : 3)));
}

void Source::StopReplay() {
  replay_.reset();
  snapshot_.reset();
}

bool Source::BeginSnapshot(std::uint64_t blocks) {
  snapshot_.emplace(snapshot_bytes_max_);
  return snapshot_->Reserve(blocks);
}

Source::Piece Source::AddPiece(std::span<const std::byte> events) {
  if (!wire::LooksLikeRouterEvents(events) || !translator_.Translate(events, batch_)) {
    return Piece::kUndecodable;
  }
  if (!batch_.dropped.empty()) {
    const bool foreign = batch_.dropped.front().reason == placement::DropReason::kForeignWorker;
    return foreign ? Piece::kForeign : Piece::kUndecodable;
  }
  for (const PlacementEvent& event : batch_.events) {
    if (event.rank != spec_.rank) return Piece::kForeign;
    if (!snapshot_->Add(event)) return Piece::kNoRoom;
  }
  return Piece::kTaken;
}

void Source::Swap(std::uint64_t last_event) {
  PassEventsTo(last_event + 1, EventFate::kSnapshot);
  translator_.Reset();
  fed_.erase(spec_.rank);
  ClearBlocks(true);  // of ranks that the stream spoke of once
  fed_ = {spec_.rank};
  defects_.clear();
  PublishStatus();
  const auto target = targets_.find(spec_.rank);
  if (target == targets_.end()) return;
  target->second.index->hybrid->Drop(spec_.rank);
  index::PrefixIndex& index = *target->second.index->index;
  const RankSlot slot = target->second.slot;
  fleet::RankLedger& ledger = target->second.health->ledger();
  auto* const listener = dynamic_cast<BatchListener*>(&index);
  if (listener != nullptr) {
    // It hands events on and does not tell what they came to.
    PlacementEvent clear;
    clear.kind = PlacementKind::kCleared;
    clear.rank = spec_.rank;
    index.Apply(slot, clear);
    ledger.Count(fleet::Placement::kClear);
  }
  snapshot_->ReplaceIn(index, slot, spec_.rank,
                       [&](const PlacementEvent& event, const index::ApplyResult& result) {
                         NoteApplied(event, result);
                         ledger.Count(fleet::Placement::kSnapshot);
                       });
  if (listener != nullptr) listener->EndBatch({&slot, 1});
}

bool Source::Empties(std::span<const std::byte> payload) {
  const bool alone = followers_.size() == 1 && followers_.front().rank == spec_.rank;
  // Every dialect's name of such an event ends like this, and most messages have none.
  const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
  if (!alone || text.find("leared") == std::string_view::npos) return false;
  // Aside, as it is not the next one and may be read once more.
  placement::EventTranslator translator(translator_.options());
  placement::PlacementBatch batch;
  if (!translator.Translate(payload, batch) || !batch.dropped.empty() || batch.lost_copies) {
    return false;
  }
  if (batch.dp_rank.value_or(spec_.rank.dp_rank) != spec_.rank.dp_rank) return false;
  return std::ranges::any_of(batch.events, [this](const PlacementEvent& event) {
    return event.kind == PlacementKind::kCleared && event.rank == spec_.rank;
  });
}

void Source::SetState(RankState state, StateReason reason, std::string_view detail) {
  if (status_.state == state && status_.reason == reason && detail_ == detail) return;
  status_ = {state, reason};
  detail_ = detail;
  PublishStatus();
}

void Source::PublishStatus() {
  const Nanos now = clock_.Now();
  for (const Follower& follower : followers_) {
    const auto found = defects_.find(follower.rank);
    const Defect* defect = found == defects_.end() ? nullptr : &found->second;
    const bool exact = status_.state == RankState::kExact;
    if (defect && defect->wrong_block_size != 0 &&
        (exact || status_.state == RankState::kDegraded)) {
      // The one reason that explains all others, a loss too, and that somebody has to mend.
      follower.health->SetStatus({RankState::kDegraded, StateReason::kBlockSizeMismatch},
                                 fmt::format("events have {}, registered is {}",
                                             placement::BlockSizeText(defect->wrong_block_size),
                                             translator_.options().block_size),
                                 now);
    } else if (defect && defect->reason != StateReason::kNone && exact) {
      // A loss, which is the stream's and so every rank's, goes before.
      follower.health->SetStatus({RankState::kDegraded, defect->reason}, defect->detail, now);
    } else if (defect && !defect->foreign.empty() && exact) {
      follower.health->SetStatus({RankState::kDegraded, StateReason::kForeignRank}, defect->foreign,
                                 now);
    } else if (defect && defect->unclear_group && exact) {
      follower.health->SetStatus({RankState::kDegraded, StateReason::kUnknownGroupKind},
                                 UnclearText(*defect->unclear_group), now);
    } else {
      follower.health->SetStatus(status_, detail_, now);
    }
  }
}

bool Source::HasDefect(Rank rank) const {
  const auto found = defects_.find(rank);
  return found != defects_.end() &&
         (found->second.reason != StateReason::kNone || found->second.wrong_block_size != 0);
}

void Source::PublishStats() {
  using fleet::RankCount;
  const StreamStats& now = stream_->stats();
  const auto failed = [](const StreamStats& stats) {
    return stats.replays_failed + stats.replays_incomplete + stats.replays_foreign;
  };
  metrics_.CountStream(published_, now);
  metrics_.CountTranslator(translated_, translator_.stats());
  translated_ = translator_.stats();
  const struct {
    RankCount what;
    std::uint64_t by;
  } changes[] = {
      {RankCount::kMessages, now.applied - published_.applied},
      {RankCount::kGaps, now.gaps - published_.gaps},
      {RankCount::kMissedMessages, now.missed - published_.missed},
      {RankCount::kRepeated, now.repeated - published_.repeated},
      {RankCount::kRestarts, now.restarts - published_.restarts},
      {RankCount::kReplays, now.replays_started - published_.replays_started},
      {RankCount::kReplaysCompleted, now.replays_completed - published_.replays_completed},
      {RankCount::kReplaysFailed, failed(now) - failed(published_)},
      {RankCount::kDecodeFailures, now.undecodable - published_.undecodable},
      {RankCount::kFramesRejected, now.bad_frames() - published_.bad_frames()},
      {RankCount::kClears, now.clears - published_.clears},
      {RankCount::kDisconnects, now.disconnects - published_.disconnects},
  };
  followers_.front().health->SetTableBytes(translator_.table_bytes());
  for (const Follower& follower : followers_) {
    fleet::RankHealth& health = *follower.health;
    health.SetConnected(stream_->connected());
    if (now.applied != published_.applied) health.NoteMessage(clock_.Now());
    health.SetWatermark(stream_->watermark());
    health.SetPosition(HasDefect(follower.rank) ? std::nullopt : stream_->position());
    health.SetDigests(translator_.digests());
    for (const auto& change : changes) {
      if (change.by != 0) health.Count(change.what, change.by);
    }
    CountMessages(published_, now, health.ledger());
  }
  published_ = now;
}

}  // namespace kvr::ingest

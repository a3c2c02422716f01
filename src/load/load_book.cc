#include "load/load_book.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/core.h>

#include "base/check.h"

namespace kvr::load {
namespace {

std::uint64_t BlocksFor(std::uint64_t tokens, std::uint32_t block_size) {
  return tokens / block_size + (tokens % block_size != 0 ? 1 : 0);
}

tl::unexpected<Error> UnknownId(std::string_view request_id) {
  return Fail(ErrorCode::kNotFound,
              fmt::format("no live booking has request id \"{}\"", request_id));
}

}  // namespace

Result<void> BookOptions::Validate() const {
  if (expiry <= Nanos{0})
    return Fail(ErrorCode::kInvalidArgument, "expiry must be above 0: bookings would end at once");
  if (bookings_max == 0 || bookings_max >= NumberTable::kNone)
    return Fail(ErrorCode::kInvalidArgument, "bookings_max must be in 1..2^32-2");
  return {};
}

LoadBook::~LoadBook() {
  const Lock lock(mutex);
  KVR_CHECK(stats_.handles == 0);  // a Booking would outlive its book
}

LoadSlot LoadBook::AddRank(Rank rank) {
  if (const auto known = Find(rank)) return *known;
  LoadSlot slot{static_cast<std::uint32_t>(slots_.size())};
  if (free_slots_.empty()) {
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  slots_[Raw(slot)] = {.rank = rank, .in_use = true};
  slot_of_.emplace(rank, slot);
  return slot;
}

bool LoadBook::RemoveRank(Rank rank) {
  const auto slot = Find(rank);
  if (!slot) return false;
  for (std::uint32_t i = oldest_; i != kNone;) {
    const std::uint32_t next = entries_[i].newer;
    if (entries_[i].slot == *slot) {
      End(i);
      ++stats_.lost_with_rank;
    }
    i = next;
  }
  KVR_CHECK(slots_[Raw(*slot)].requests == 0 && slots_[Raw(*slot)].blocks == 0);
  slots_[Raw(*slot)] = {};
  slot_of_.erase(rank);
  free_slots_.push_back(*slot);
  return true;
}

std::optional<LoadSlot> LoadBook::Find(Rank rank) const {
  const auto found = slot_of_.find(rank);
  if (found == slot_of_.end()) return std::nullopt;
  return found->second;
}

void LoadBook::Project(std::span<const SequenceHash> path, std::vector<Projection>& out) {
  const Nanos now = clock_.Now();
  shared_.assign(slots_.size(), 0);
  prompts_.SharedBlocks(path, shared_);
  out.assign(slots_.size(), {});
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].in_use) continue;
    out[i] = {.active_prefill_tokens =
                  prefills_.ActiveTokens(LoadSlot{static_cast<std::uint32_t>(i)}, now),
              .active_blocks = RoundToBlocks(slots_[i].blocks),
              .active_requests = slots_[i].requests,
              .shared_blocks = shared_[i]};
  }
}

Result<Booking> LoadBook::Reserve(LoadSlot slot, const BookingRequest& request) {
  KVR_CHECK(request.block_size > 0);
  EndExpired();
  if (Raw(slot) >= slots_.size() || !slots_[Raw(slot)].in_use)
    return Fail(ErrorCode::kNotFound, "the rank was removed");
  if (stats_.bookings >= options_.bookings_max) {
    return Fail(ErrorCode::kOverloaded,
                fmt::format("bookings_max = {} requests are in flight", options_.bookings_max));
  }
  if (std::max(request.isl_tokens, request.prefill_tokens) > kTokensMax)
    return Fail(ErrorCode::kTooLarge, fmt::format("a prompt of more than {} tokens", kTokensMax));
  const std::uint64_t id_hash = std::hash<std::string_view>{}(request.request_id);
  if (!request.request_id.empty() && FindEntry(id_hash, request.request_id) != kNone) {
    return Fail(ErrorCode::kAlreadyExists,
                fmt::format("request id \"{}\" is already booked", request.request_id));
  }

  const std::uint32_t index = TakeEntry();
  Entry& entry = entries_[index];
  entry.live = true;
  entry.slot = slot;
  entry.block_size = request.block_size;
  entry.isl_tokens = request.isl_tokens;
  entry.expected_output = request.expected_output;
  entry.output_blocks = 0;
  entry.output_weight = 0;
  entry.private_blocks = request.share_blocks ? 0 : request.path.size();
  entry.private_weight = kWholeBlock;
  Slot& rank = slots_[Raw(slot)];
  const auto acquired =
      prompts_.Acquire(slot, request.share_blocks ? request.path : std::span<const SequenceHash>{});
  entry.leaf = acquired.leaf;
  rank.blocks += acquired.change + static_cast<Weight>(entry.private_blocks) * kWholeBlock;
  ++rank.requests;
  if (request.prefill_tokens > 0)
    prefills_.Push(slot, index, request.prefill_tokens, request.prefill_duration, clock_.Now());
  entry.id_hash = id_hash;
  entry.request_id = request.request_id;
  if (!request.request_id.empty()) by_id_.Insert(id_hash, index);
  LinkNewest(index);
  ++stats_.bookings;
  ++stats_.booked;
  ++stats_.handles;
  const std::uint64_t covered =
      BlocksFor(request.isl_tokens, request.block_size) * request.block_size - request.isl_tokens;
  return Booking(*this, {index, entry.generation}, covered);
}

Result<void> LoadBook::PrefillDone(std::string_view request_id) {
  const Lock lock(mutex);
  const std::uint32_t entry = FindEntry(request_id);
  if (entry == kNone) return UnknownId(request_id);
  EndPrefill(entry);
  return {};
}

bool LoadBook::Free(std::string_view request_id, std::optional<Rank> only_on) {
  const Lock lock(mutex);
  const std::uint32_t entry = FindEntry(request_id);
  if (entry == kNone) return false;
  if (only_on && slots_[Raw(entries_[entry].slot)].rank != *only_on) return false;
  End(entry);
  return true;
}

std::size_t LoadBook::Sweep() {
  const Lock lock(mutex);
  return EndExpired();
}

std::vector<RankLoad> LoadBook::Loads() const {
  const Lock lock(mutex);
  const Nanos now = clock_.Now();
  std::vector<RankLoad> loads;
  loads.reserve(slot_of_.size());
  for (const auto& [rank, slot] : slot_of_) {
    const Slot& state = slots_[Raw(slot)];
    loads.push_back(
        {rank, prefills_.ActiveTokens(slot, now), RoundToBlocks(state.blocks), state.requests});
  }
  std::ranges::sort(loads, {}, &RankLoad::rank);
  return loads;
}

BookStats LoadBook::Stats() const {
  const Lock lock(mutex);
  BookStats stats = stats_;
  stats.ranks = slot_of_.size();
  return stats;
}

void LoadBook::PrefillDone(BookingKey key) {
  const Lock lock(mutex);
  if (const std::uint32_t entry = FindEntry(key); entry != kNone) EndPrefill(entry);
}

std::uint64_t LoadBook::AddOutput(BookingKey key, std::uint64_t generated) {
  const Lock lock(mutex);
  const std::uint32_t index = FindEntry(key);
  if (index == kNone) return UINT64_MAX;  // gone: nothing to report any more
  Entry& entry = entries_[index];
  const std::uint64_t needed = BlocksFor(entry.isl_tokens + generated, entry.block_size);
  const std::uint64_t booked = BlocksFor(entry.isl_tokens, entry.block_size) + entry.output_blocks;
  if (needed > booked) AddOutputBlocks(entry, needed - booked);
  if (entry.expected_output) {
    const auto expected = static_cast<double>(std::max<std::uint64_t>(*entry.expected_output, 1));
    SetFraction(entry, std::max(0.0, 1 - static_cast<double>(generated) / expected));
  }
  Touch(index);
  return std::max(needed, booked) * entry.block_size - entry.isl_tokens;
}

void LoadBook::Release(BookingKey key, AtRelease what) {
  const Lock lock(mutex);
  --stats_.handles;
  const std::uint32_t entry = FindEntry(key);
  if (entry != kNone && what == AtRelease::kEnd) End(entry);
}

std::uint32_t LoadBook::FindEntry(BookingKey key) const {
  const Entry& entry = entries_[key.entry];
  return entry.live && entry.generation == key.generation ? key.entry : kNone;
}

std::uint32_t LoadBook::FindEntry(std::string_view request_id) const {
  if (request_id.empty()) return kNone;
  return FindEntry(std::hash<std::string_view>{}(request_id), request_id);
}

std::uint32_t LoadBook::FindEntry(std::uint64_t id_hash, std::string_view request_id) const {
  return by_id_.Find(id_hash, [request_id, entries = &entries_](std::uint32_t entry) {
    return (*entries)[entry].request_id == request_id;
  });
}

std::uint32_t LoadBook::TakeEntry() {
  if (free_entries_.empty()) {
    entries_.emplace_back();
    return static_cast<std::uint32_t>(entries_.size() - 1);
  }
  const std::uint32_t entry = free_entries_.back();
  free_entries_.pop_back();
  return entry;
}

void LoadBook::EndPrefill(std::uint32_t entry) {
  if (prefills_.Contains(entry)) prefills_.Remove(entries_[entry].slot, entry, clock_.Now());
  Touch(entry);
}

void LoadBook::AddOutputBlocks(Entry& entry, std::uint64_t blocks) {
  const Weight weight = static_cast<Weight>(blocks) * kWholeBlock;
  entry.output_blocks += blocks;
  entry.output_weight += weight;
  slots_[Raw(entry.slot)].blocks += weight;
}

void LoadBook::SetFraction(Entry& entry, double fraction) {
  const Weight weight = WeightOf(fraction);
  Weight& total = slots_[Raw(entry.slot)].blocks;
  total += prompts_.SetWeight(entry.slot, entry.leaf, weight);
  total += static_cast<Weight>(entry.private_blocks) * (weight - entry.private_weight);
  entry.private_weight = weight;
  const Weight output = static_cast<Weight>(entry.output_blocks) * weight;
  total += output - entry.output_weight;
  entry.output_weight = output;
}

void LoadBook::End(std::uint32_t index) {
  Entry& entry = entries_[index];
  Slot& rank = slots_[Raw(entry.slot)];
  if (prefills_.Contains(index)) prefills_.Remove(entry.slot, index, clock_.Now());
  rank.blocks += prompts_.Release(entry.slot, entry.leaf);
  rank.blocks -= static_cast<Weight>(entry.private_blocks) * entry.private_weight;
  rank.blocks -= entry.output_weight;
  --rank.requests;
  KVR_CHECK(rank.blocks >= 0);
  if (!entry.request_id.empty()) by_id_.Erase(entry.id_hash, index);
  Unlink(index);
  entry.live = false;
  ++entry.generation;
  free_entries_.push_back(index);
  --stats_.bookings;
}

std::size_t LoadBook::EndExpired() {
  const Nanos now = clock_.Now();
  std::size_t ended = 0;
  while (oldest_ != kNone && now - entries_[oldest_].touched > options_.expiry) {
    End(oldest_);
    ++ended;
  }
  stats_.expired += ended;
  return ended;
}

void LoadBook::Touch(std::uint32_t entry) {
  Unlink(entry);
  LinkNewest(entry);
}

void LoadBook::LinkNewest(std::uint32_t index) {
  Entry& entry = entries_[index];
  entry.touched = clock_.Now();
  entry.older = newest_;
  entry.newer = kNone;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = index;
  newest_ = index;
}

void LoadBook::Unlink(std::uint32_t index) {
  const Entry& entry = entries_[index];
  (entry.older == kNone ? oldest_ : entries_[entry.older].newer) = entry.newer;
  (entry.newer == kNone ? newest_ : entries_[entry.newer].older) = entry.older;
}

}  // namespace kvr::load

#include "simulation/engine.h"

#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"
#include "hashing/block_hash.h"

namespace kvr::simulation {
namespace {

constexpr std::uint64_t kDocuments = 6;
constexpr std::uint64_t kPromptBlocksMax = 7;
constexpr std::uint32_t kOtherRank = 5;

std::uint64_t Mix(std::uint64_t value) {
  return Rng(value)() >> 1;  // some dialects write names as signed numbers
}

sim::FeedDialect DialectOf(const Engine::Options& options) {
  auto dialect = sim::FeedDialectByName(options.dialect);
  KVR_CHECK(dialect.has_value());
  if (!options.manager) return *dialect;
  KVR_CHECK(!dialect->host_medium.empty());
  if (options.far_tier == Tier::kDisk) dialect->host_medium = "DISK";
  dialect->host_placeholders = false;  // nobody else would tell what the names mean
  return *dialect;
}

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Engine::Engine(Network& network, const Options& options)
    : network_(network),
      options_(options),
      dialect_(DialectOf(options)),
      encoder_(dialect_, options.rank.dp_rank, kBlockSize),
      foreign_(dialect_, kOtherRank, kBlockSize) {
  if (dialect_.host_medium.empty()) options_.host_blocks = 0;
  Start(false);
}

void Engine::Kill() {
  if (!alive()) return;
  next_sequence_ = publisher_->next_sequence();
  publisher_.reset();
  pool_.reset();
  copies_.clear();
  pending_.clear();
  held_.clear();
}

void Engine::Start(bool keeps_numbers) {
  if (alive()) return;
  ++lives_;
  keeps_numbers_ = keeps_numbers;
  told_undecodable_ = false;
  if (!keeps_numbers) {
    told_events_ = 0;
    ++histories_;
  }
  sim::KvPool::Options pool;
  pool.block_size = kBlockSize;
  pool.blocks_max = options_.blocks;
  pool.host_blocks_max = options_.host_blocks;
  pool_ = std::make_unique<sim::KvPool>(pool);
  options_.publisher.first_sequence = keeps_numbers ? next_sequence_ : 0;
  publisher_ = std::make_unique<Publisher>(network_, options_.publisher);
}

void Engine::Work() {
  if (!alive()) return;
  Rng& rng = network_.rng();
  for (std::uint64_t prompts = 1 + rng.Below(2); prompts > 0; --prompts)
    Serve();
  if (options_.copies) DropCopies();
  Publish(TakeEvents());
}

void Engine::Clear() {
  if (!alive() || !pool_->Clear()) return;
  copies_.clear();
  Publish(TakeEvents());
}

std::vector<sim::KvEvent> Engine::TakeEvents() {
  auto events = pool_->TakeEvents();
  std::erase_if(events, [this](const sim::KvEvent& event) {
    return options_.manager && event.tier == Tier::kDevice && event.kind != PlacementKind::kCleared;
  });
  for (sim::KvEvent& event : events) {
    if (event.tier == Tier::kHostPinned) event.tier = options_.far_tier;
  }
  return events;
}

void Engine::Serve() {
  std::vector<EngineHash> names;
  std::vector<TokenId> tokens;
  MakePrompt(names, tokens);
  const std::uint32_t found = pool_->Find(names).device;
  std::vector<sim::KvPool::Block> blocks;
  const auto hits = std::span(names).first(found);
  if (!pool_->Reserve(hits, static_cast<std::uint32_t>(names.size()) - found, blocks)) return;
  for (std::size_t i = found; i < names.size(); ++i) {
    const auto parent = i == 0 ? std::nullopt : std::optional(names[i - 1]);
    pool_->Commit(blocks[i], parent, names[i],
                  std::span(tokens).subspan(i * kBlockSize, kBlockSize));
  }
  pool_->Release(blocks);
}

void Engine::MakePrompt(std::vector<EngineHash>& names, std::vector<TokenId>& tokens) {
  Rng& rng = network_.rng();
  const std::uint64_t length = 1 + rng.Below(kPromptBlocksMax);
  std::uint64_t content = rng.Below(3) == 0 ? 1'000 + ++fresh_ : rng.Below(kDocuments);
  std::uint64_t name = options_.namer + (options_.same_names ? 0 : lives_);
  std::optional<SequenceHash> above;
  for (std::uint64_t i = 0; i < length; ++i) {
    if (rng.Below(6) == 0) content = 10 * content + rng.Below(3);
    for (std::uint32_t k = 0; k < kBlockSize; ++k)
      tokens.push_back(static_cast<TokenId>(Mix(content * 100 + k) % 1'000));
    name = Mix(name * 31 + content * 7 + i + 1);
    names.push_back(EngineHash{name});
    const auto block = hashing::HashBlock(std::span(tokens).last(kBlockSize), hashing::Seed());
    above = above ? hashing::NextSequenceHash(*above, block) : hashing::FirstSequenceHash(block);
    meanings_[name] = *above;
  }
}

// Announces some of the blocks once more, each in an event of its own behind the first one.
void Engine::MakeCopies(std::vector<sim::KvEvent>& events) {
  std::vector<sim::KvEvent> all;
  for (sim::KvEvent& event : events) {
    all.push_back(std::move(event));
    const sim::KvEvent& told = all.back();
    if (told.kind != PlacementKind::kStored || network_.rng().Below(3) != 0) continue;
    const std::size_t i = network_.rng().Below(told.hashes.size());
    sim::KvEvent copy;
    copy.tier = told.tier;
    copy.parent = i == 0 ? told.parent : std::optional(told.hashes[i - 1]);
    copy.hashes = {told.hashes[i]};
    const auto from = told.tokens.begin() + static_cast<std::ptrdiff_t>(i * kBlockSize);
    copy.tokens.assign(from, from + kBlockSize);
    ++copies_[{copy.tier, Raw(copy.hashes.front())}];
    all.push_back(std::move(copy));
  }
  events = std::move(all);
}

void Engine::DropCopies() {
  Rng& rng = network_.rng();
  for (auto copy = copies_.begin(); copy != copies_.end();) {
    if (rng.Below(5) != 0) {
      ++copy;
      continue;
    }
    sim::KvEvent removed;
    removed.kind = PlacementKind::kRemoved;
    removed.tier = copy->first.first;
    removed.hashes = {EngineHash{copy->first.second}};
    pending_.push_back(std::move(removed));
    copy = --copy->second == 0 ? copies_.erase(copy) : std::next(copy);
  }
}

void Engine::Publish(std::vector<sim::KvEvent> events) {
  if (options_.copies) MakeCopies(events);
  for (sim::KvEvent& event : pending_)
    events.push_back(std::move(event));
  pending_.clear();
  FollowHeld();
  if (events.empty()) return;
  const Nanos stamp = network_.agenda().now() + Nanos(++messages_);
  publisher_->Publish(Bytes(encoder_.Encode(events, stamp)));
  told_events_ += encoder_.events();
}

void Engine::FollowHeld() {
  held_.clear();
  if (!options_.manager) {
    for (const EngineHash name : pool_->Visible(Tier::kDevice))
      held_.emplace(Tier::kDevice, Raw(name));
  }
  for (const EngineHash name : pool_->Visible(Tier::kHostPinned))
    held_.emplace(options_.far_tier, Raw(name));
  for (const auto& [key, count] : copies_)
    held_.insert(key);
}

void Engine::TellForeign() {
  if (!alive()) return;
  const Nanos stamp = network_.agenda().now() + Nanos(++messages_);
  sim::KvEvent event;
  event.hashes = {EngineHash{messages_}};
  event.tokens.assign(kBlockSize, 1);
  publisher_->Publish(Bytes(foreign_.Encode(std::span(&event, 1), stamp)));
  told_events_ += foreign_.events();
}

void Engine::TellUndecodable() {
  if (!alive()) return;
  told_undecodable_ = true;
  publisher_->Publish(Bytes("no batch " + std::to_string(++messages_)));
}

void Engine::TellGarbage() {
  if (!alive()) return;
  constexpr std::string_view kFrames[] = {"", "1234567", "what"};
  const std::size_t count = 1 + network_.rng().Below(3);
  std::vector<std::span<const std::byte>> frames;
  for (std::size_t i = 0; i < count; ++i)
    frames.push_back(Bytes(kFrames[i]));
  publisher_->SendRaw(frames);
}

}  // namespace kvr::simulation

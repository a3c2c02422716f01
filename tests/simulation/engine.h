// An engine that serves prompts nobody sent, and tells of its cache in a dialect of the wire.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "model/ids.h"
#include "model/tier.h"
#include "sim/feed_encoder.h"
#include "sim/kv_pool.h"
#include "simulation/held.h"
#include "simulation/network.h"
#include "simulation/publisher.h"

namespace kvr::simulation {

inline constexpr std::uint32_t kBlockSize = 4;
inline constexpr WorkerId kEngine{7};
inline constexpr WorkerId kManager{8};

// One rank of an engine, or a block manager, which tells of a farther tier only. The pool is the
// mock engine's. Beside it the engine may make further copies of blocks, which are stored and
// removed under the same name: a block is held until its last copy is gone.
class Engine {
 public:
  struct Options {
    Rank rank{kEngine, 0};
    std::string dialect = "vllm-0.24";
    std::uint32_t blocks = 24;
    std::uint32_t host_blocks = 16;  // of the farther tier; 0: there is none
    bool manager = false;
    Tier far_tier = Tier::kHostPinned;
    bool copies = false;
    bool same_names = false;  // content has the same name in each life
    std::uint64_t namer = 0;  // with another one content has other names
    Publisher::Options publisher;
  };

  // Runs at once.
  Engine(Network& network, const Options& options);

  // Some prompts, or a clear; one message of what came of it, if anything did.
  void Work();
  void Clear();
  // A message that no index can use: of another rank, or with an event that is not known.
  void TellForeign();
  // A message that nobody can read.
  void TellUndecodable();
  // Something on the live socket that is no message.
  void TellGarbage();

  // The process is gone, and its cache.
  void Kill();
  // Another one takes its place. Its messages are numbered from 0, or go on from the old one's.
  void Start(bool keeps_numbers);

  [[nodiscard]] bool alive() const { return publisher_ != nullptr; }
  [[nodiscard]] Publisher* publisher() const { return publisher_.get(); }
  [[nodiscard]] Rank rank() const { return options_.rank; }
  // By the names that it gives.
  [[nodiscard]] const Held& held() const { return held_; }
  // What one of them means, which is the same whoever tells of the block: its sequence hash.
  [[nodiscard]] std::uint64_t MeaningOf(std::uint64_t name) const {
    return Raw(meanings_.at(name));
  }
  // Whether whoever asks the replay socket learns all that this life of the engine has said, and
  // can tell it from an earlier life.
  [[nodiscard]] bool tells_all() const {
    return alive() && !keeps_numbers_ && publisher_->keeps_all();
  }
  // Whether a message of this life cannot be read.
  [[nodiscard]] bool told_undecodable() const { return told_undecodable_; }
  [[nodiscard]] std::uint64_t lives() const { return lives_; }
  // How often it began with number 0.
  [[nodiscard]] std::uint64_t histories() const { return histories_; }
  // In messages since number 0.
  [[nodiscard]] std::uint64_t told_events() const { return told_events_; }

 private:
  using Key = std::pair<Tier, std::uint64_t>;

  void Serve();
  [[nodiscard]] std::vector<sim::KvEvent> TakeEvents();
  // The prompt's blocks from a tree of prompts.
  void MakePrompt(std::vector<EngineHash>& names, std::vector<TokenId>& tokens);
  void MakeCopies(std::vector<sim::KvEvent>& events);
  void DropCopies();
  void Publish(std::vector<sim::KvEvent> events);
  void FollowHeld();

  Network& network_;
  Options options_;
  sim::FeedDialect dialect_;
  sim::FeedEncoder encoder_;
  sim::FeedEncoder foreign_;
  std::unique_ptr<sim::KvPool> pool_;
  std::unique_ptr<Publisher> publisher_;
  std::map<Key, std::uint32_t> copies_;  // beside the pool's
  std::vector<sim::KvEvent> pending_;    // removals of copies
  Held held_;
  std::map<std::uint64_t, SequenceHash> meanings_;  // of all names so far
  std::uint64_t lives_ = 0;
  std::uint64_t histories_ = 0;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t fresh_ = 0;     // prompts that begin as none before
  std::uint64_t messages_ = 0;  // of all lives, so that no two are equal
  bool keeps_numbers_ = false;
  bool told_undecodable_ = false;
  std::uint64_t told_events_ = 0;
};

}  // namespace kvr::simulation

#include "service/agent/rank_answers.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "publish/fill_event.h"
#include "publish/rank_publisher.h"
#include "service/agent/rank_standing.h"
#include "service/agent/recovery_answers.h"
#include "wire/msgpack_writer.h"
#include "wire/router_event.h"
#include "wire/snapshot_seal.h"

namespace kvr::service {
namespace {

std::string Seal(const publish::RankPublisher::Position& position, const SnapshotHead& head) {
  wire::SnapshotSeal seal;
  seal.publisher_id = head.publisher_id;
  seal.next_sequence = position.next_sequence;
  seal.last_event_id = position.last_event_id;
  seal.blocks = position.blocks;
  seal.complete = position.complete && head.state == RankState::kExact;
  seal.state = head.state;
  seal.reason = head.reason;
  std::string bytes;
  wire::EncodeSnapshotSeal(seal, bytes);
  return bytes;
}

// An answer of one message.
class OnePart final : public net::AnswerParts {
 public:
  OnePart(std::string_view kind, std::string body) : kind_(kind), body_(std::move(body)) {}

  bool Next(std::string& kind, std::string& body) override {
    if (std::exchange(told_, true)) return false;
    kind = kind_;
    body = std::move(body_);
    return true;
  }

 private:
  const std::string_view kind_;
  std::string body_;
  bool told_ = false;
};

class SnapshotParts final : public net::AnswerParts {
 public:
  explicit SnapshotParts(TakenSnapshot taken)
      : answer_(std::move(taken.answer)), seal_(Seal(answer_.position, taken.head)) {}

  bool Next(std::string& kind, std::string& body) override {
    if (!std::exchange(begun_, true)) {
      kind = wire::kSnapshotBegin;
      body = seal_;
      return true;
    }
    if (NextEvents(body)) {
      kind = wire::kSnapshotEvents;
      return true;
    }
    if (std::exchange(ended_, true)) return false;
    kind = wire::kSnapshotEnd;
    body = seal_;
    return true;
  }

 private:
  // False when there are no more.
  bool NextEvents(std::string& body) {
    events_.clear();
    std::size_t count = 0;
    for (; events_.size() < RankAnswers::kPieceBytes; ++count) {
      if (next_run_ < answer_.base->runs.size()) {
        AddRun();
      } else if (tail_at_ < answer_.tail.size()) {
        const std::string_view left = std::string_view(answer_.tail).substr(tail_at_);
        const std::size_t size = EncodedSize(left);
        events_ += left.substr(0, size);
        tail_at_ += size;
      } else {
        break;
      }
    }
    if (count == 0) return false;
    body.clear();
    wire::MsgpackWriter(body).Array(count);
    body += events_;
    return true;
  }

  void AddRun() {
    const publish::Snapshot& snapshot = *answer_.base;
    publish::FillRun(snapshot, next_run_, batch_);
    ++next_run_;
    wire::EncodeRouterEvent(batch_, batch_.events.front(), events_);
  }

  const publish::RankPublisher::SnapshotAnswer answer_;
  const std::string seal_;
  wire::RouterBatch batch_;
  std::string events_;  // of the message at hand, encoded
  bool begun_ = false;
  bool ended_ = false;
  std::size_t next_run_ = 0;
  std::size_t tail_at_ = 0;  // byte
};

}  // namespace

std::unique_ptr<net::AnswerParts> RankAnswers::Answer(std::string_view wanted) {
  if (wanted == wire::kAskState) {
    const SnapshotHead head = HeadOf(rank_, catalog_);
    return std::make_unique<OnePart>(wire::kStateSeal, Seal(rank_.Locate(), head));
  }
  if (wanted != wire::kAskSnapshot) return nullptr;
  auto taken = TakeSnapshot(rank_, catalog_);
  if (!taken) return std::make_unique<OnePart>(wire::kSnapshotRefused, taken.error().message);
  return std::make_unique<SnapshotParts>(*std::move(taken));
}

}  // namespace kvr::service

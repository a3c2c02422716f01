#include "publish/coalescer.h"

#include <algorithm>

namespace kvr::publish {
namespace {

std::size_t SizeOf(const Mutation& mutation) {
  return mutation.event.kind == PlacementKind::kStored ? mutation.event.blocks.size()
                                                       : mutation.event.removed.size();
}

}  // namespace

Result<void> Coalescer::Options::Validate() const {
  if (blocks_max == 0) {
    return Fail(ErrorCode::kInvalidArgument, "blocks of a merged event must be at least 1");
  }
  if (timeout < Millis{0}) {
    return Fail(ErrorCode::kInvalidArgument, "the time to merge events in must not be negative");
  }
  return {};
}

Coalescer::Coalescer(const Options& options, MutationSink& out)
    : blocks_max_(options.blocks_max),
      timeout_(std::min(options.timeout, kTimeoutMax)),
      out_(out) {}

void Coalescer::Push(const Mutation& mutation, Nanos now) {
  ++stats_.taken;
  if (mutation.event.kind == PlacementKind::kCleared) {
    Flush(now);
    return Emit(mutation, now);
  }
  if (SizeOf(mutation) == 0) {
    ++stats_.empty;
    return;
  }
  if (has_pending_ && Continues(mutation)) {
    Append(mutation);
    if (pending_blocks() >= blocks_max_) Flush(now);
    return;
  }
  Flush(now);
  if (SizeOf(mutation) >= blocks_max_) return Emit(mutation, now);
  Keep(mutation);
}

void Coalescer::EndList(Nanos now) {
  if (timeout_ == Nanos{0}) return Flush(now);
  OnTick(now);
}

void Coalescer::OnTick(Nanos now) {
  if (has_pending_ && now - last_out_ >= timeout_) Flush(now);
}

void Coalescer::Flush(Nanos now) {
  if (!has_pending_) return;
  has_pending_ = false;
  pending_.event.blocks = blocks_;
  pending_.event.removed = removed_;
  pending_.event.session_id = session_;
  Emit(pending_, now);
}

std::optional<Nanos> Coalescer::deadline() const {
  if (!has_pending_ || timeout_ == Nanos{0}) return std::nullopt;
  return last_out_ + timeout_;
}

bool Coalescer::Continues(const Mutation& next) const {
  const PlacementEvent& a = pending_.event;
  const PlacementEvent& b = next.event;
  const bool same = a.kind == b.kind && a.rank == b.rank && a.tier == b.tier &&
                    pending_.domain == next.domain && a.eligible == b.eligible &&
                    a.hash_only == b.hash_only && b.session_id == session_;
  if (!same || b.kind == PlacementKind::kRemoved) return same;
  return b.parent && *b.parent == blocks_.back().engine;
}

void Coalescer::Keep(const Mutation& mutation) {
  has_pending_ = true;
  pending_ = mutation;
  session_ = mutation.event.session_id;
  blocks_.clear();
  removed_.clear();
  Append(mutation);
}

void Coalescer::Append(const Mutation& mutation) {
  const PlacementEvent& event = mutation.event;
  if (event.kind == PlacementKind::kStored) {
    blocks_.insert(blocks_.end(), event.blocks.begin(), event.blocks.end());
  } else {
    removed_.insert(removed_.end(), event.removed.begin(), event.removed.end());
  }
}

void Coalescer::Emit(const Mutation& mutation, Nanos now) {
  last_out_ = now;
  ++stats_.emitted;
  out_.Take(mutation);
}

}  // namespace kvr::publish

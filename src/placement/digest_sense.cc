#include "placement/digest_sense.h"

#include <algorithm>

namespace kvr::placement {
namespace {

using wire::EngineEvent;

// SGLang and what speaks for TensorRT-LLM; see DigestEnd.
bool IsFirstEnders(const EngineEvent& event) {
  return event.eagle || event.cache_salt || event.medium == "CPU_PINNED";
}

bool IsVllms(const EngineEvent& event) {
  return event.extra_blocks.count > 0 || event.group || event.kind != wire::GroupKind::kAbsent;
}

// None when no field tells, or they contradict each other.
std::optional<DigestEnd> EndByForm(const wire::EventBatch& batch) {
  const bool first = std::any_of(batch.events.begin(), batch.events.end(), IsFirstEnders);
  const bool last = std::any_of(batch.events.begin(), batch.events.end(), IsVllms);
  if (first == last) return std::nullopt;
  return first ? DigestEnd::kFirst : DigestEnd::kLast;
}

// Blocks of that name prove nothing: some producers write 0 for the root or for no block, and what
// is not as long as a digest is filled up with zeros.
bool IsNoName(EngineHash name) {
  return Raw(name) == 0;
}

DigestEnd Opposite(DigestEnd end) {
  return end == DigestEnd::kLast ? DigestEnd::kFirst : DigestEnd::kLast;
}

}  // namespace

DigestSense::DigestSense(std::optional<DigestEnd> configured, std::size_t digests_max)
    : configured_(configured), digests_max_(digests_max), others_(digests_max) {
  Reset();
}

void DigestSense::Reset() {
  reading_ = {};
  if (configured_) reading_ = {*configured_, DigestEvidence::kConfigured};
  used_ = false;
  ForgetOthers();
}

DigestSense::Verdict DigestSense::Learn(const wire::EventBatch& batch, CopyTable& known) {
  if (reading_.evidence == DigestEvidence::kConfigured) return Verdict::kSame;
  if (reading_.evidence == DigestEvidence::kNone) reading_.evidence = DigestEvidence::kAssumed;
  const DigestEnd before = reading_.end;
  if (ProvesOurs(batch, known)) {
    reading_.evidence = DigestEvidence::kNames;
  } else if (ProvesOther(batch, known)) {
    reading_ = {Opposite(before), DigestEvidence::kNames};
  } else if (reading_.evidence == DigestEvidence::kAssumed) {
    if (const auto end = EndByForm(batch)) reading_ = {*end, DigestEvidence::kForm};
  }
  if (reading_.evidence != DigestEvidence::kAssumed) ForgetOthers();
  const bool used = used_;
  used_ = used_ || !batch.digests.empty();
  if (reading_.end == before) return Verdict::kSame;
  return used ? Verdict::kForgetAndDecode : Verdict::kDecodeAgain;
}

// A digest that was not seen before, of a block that is known by our end of it: a number said that.
bool DigestSense::ProvesOurs(const wire::EventBatch& batch, CopyTable& known) {
  if (reading_.evidence != DigestEvidence::kAssumed || overflowed_) return false;
  return std::any_of(batch.digests.begin(), batch.digests.end(), [&](const wire::DigestName& name) {
    if (IsNoName(Ours(name)) || IsNoName(Other(name))) return false;  // which is not remembered
    return known.Find(Ours(name)) != nullptr && others_.Find(Other(name)) == nullptr;
  });
}

bool DigestSense::ProvesOther(const wire::EventBatch& batch, CopyTable& known) {
  if (std::any_of(batch.digests.begin(), batch.digests.end(), [&](const wire::DigestName& name) {
        return !IsNoName(Other(name)) && known.Find(Other(name)) != nullptr;
      })) {
    return true;
  }
  if (reading_.evidence != DigestEvidence::kAssumed) return false;
  Remember(batch);
  return std::any_of(batch.hashes.begin(), batch.hashes.end(),
                     [&](EngineHash hash) { return others_.Find(hash) != nullptr; }) ||
         std::any_of(batch.events.begin(), batch.events.end(), [&](const EngineEvent& event) {
           return event.parent && others_.Find(*event.parent) != nullptr;
         });
}

void DigestSense::Remember(const wire::EventBatch& batch) {
  for (const wire::DigestName& name : batch.digests) {
    if (name.last == name.first || IsNoName(Other(name))) continue;  // says nothing
    remembers_ = true;
    if (others_.Add(Other(name)) != nullptr) continue;
    overflowed_ = true;
    ++forgotten_;
  }
}

void DigestSense::ForgetOthers() {
  if (!remembers_) return;
  others_ = CopyTable(digests_max_);
  remembers_ = false;
  overflowed_ = false;
}

}  // namespace kvr::placement

// Finds out by which end a stream's digests become numbers. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "model/digest.h"
#include "placement/copy_table.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// The end matters only to a stream that calls one block by a digest here and by a number there, and
// such a stream proves it: the number is one end of the digest. Until it does, fields that only one
// engine sends are taken for it, and else the last end is, which is vLLM's. Not thread-safe.
class DigestSense {
 public:
  // See MemoryLimits::digests_max.
  DigestSense(std::optional<DigestEnd> configured, std::size_t digests_max);

  [[nodiscard]] DigestReading reading() const { return reading_; }
  // Whether the batch can teach something. Nearly always false, and cheap.
  [[nodiscard]] bool Concerns(const wire::EventBatch& batch) const {
    return !batch.digests.empty() ? reading_.evidence != DigestEvidence::kNames : remembers_;
  }

  enum class Verdict : std::uint8_t {
    kSame,
    kDecodeAgain,      // the end is another one
    kForgetAndDecode,  // ... and names that were read by the old one are in use
  };
  // Looks at a batch that was decoded by reading().end. `known` are the blocks of its rank before
  // it.
  Verdict Learn(const wire::EventBatch& batch, CopyTable& known);
  // As after a restart of the engine, which may be another one.
  void Reset();
  [[nodiscard]] std::size_t remembered() const { return others_.size(); }
  [[nodiscard]] std::size_t table_bytes() const { return others_.bytes(); }
  // Digests for which there was no room, ever.
  [[nodiscard]] std::uint64_t forgotten() const { return forgotten_; }

 private:
  [[nodiscard]] EngineHash Ours(const wire::DigestName& name) const {
    return reading_.end == DigestEnd::kLast ? name.last : name.first;
  }
  [[nodiscard]] EngineHash Other(const wire::DigestName& name) const {
    return reading_.end == DigestEnd::kLast ? name.first : name.last;
  }
  [[nodiscard]] bool ProvesOurs(const wire::EventBatch& batch, CopyTable& known);
  [[nodiscard]] bool ProvesOther(const wire::EventBatch& batch, CopyTable& known);
  void Remember(const wire::EventBatch& batch);
  void ForgetOthers();

  const std::optional<DigestEnd> configured_;
  const std::size_t digests_max_;
  DigestReading reading_;
  bool used_ = false;       // digests were read by the present end
  bool remembers_ = false;  // others_ is not empty
  bool overflowed_ = false;
  CopyTable others_;  // of the digests so far, what they would be by the other end
  std::uint64_t forgotten_ = 0;
};

}  // namespace kvr::placement

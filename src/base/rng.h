// Seeded randomness: the same seed gives the same run on every machine.
#pragma once

#include <cstdint>
#include <limits>

namespace kvr {

// xoshiro256** seeded through splitmix64 (Blackman and Vigna, public domain algorithms). Not for
// secrets. Not thread-safe: one instance a thread. Usable as a standard random bit generator, but
// the standard distributions differ between libraries; use the members where runs must repeat.
class Rng {
 public:
  using result_type = std::uint64_t;

  explicit Rng(std::uint64_t seed) {
    for (auto& word : state_) {
      seed += 0x9E3779B97F4A7C15u;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      word = z ^ (z >> 31);
    }
  }

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<std::uint64_t>::max(); }

  result_type operator()() {
    const std::uint64_t result = RotateLeft(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = RotateLeft(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound); 0 when bound is 0. Unbiased to within 2^-64.
  std::uint64_t Below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>((*this)()) * bound) >> 64);
  }

  // Uniform in [0, 1), 53 bits.
  double Uniform() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }

 private:
  static std::uint64_t RotateLeft(std::uint64_t value, int by) {
    return (value << by) | (value >> (64 - by));
  }

  std::uint64_t state_[4];
};

}  // namespace kvr

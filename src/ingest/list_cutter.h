// Cuts a JSON list into its items while it comes in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvr::ingest {

// An item is what wire::JsonItems takes for one; whether it is JSON is not looked at. An object
// alone is a list of one. However long the list is, no more than one item is kept of it.
class ListCutter {
 public:
  enum class Step : std::uint8_t {
    kMore,   // the bytes are used up
    kItem,   // item() is the next one
    kWrong,  // what came is no list, or goes on behind its end; so it is from then on
  };

  explicit ListCutter(std::size_t item_bytes_max) : item_bytes_max_(item_bytes_max) {}

  // Uses bytes up to the end of an item.
  Step Take(std::string_view& bytes);
  // Until the next call.
  [[nodiscard]] std::string_view item() const { return item_; }
  // The item is longer than may be kept of one; what item() has is its beginning.
  [[nodiscard]] bool too_long() const { return too_long_; }

  // The list is complete.
  [[nodiscard]] bool ended() const { return place_ == Place::kBehind; }
  // Begins anew.
  void Reset();

 private:
  enum class Place : std::uint8_t { kBefore, kFirst, kWithin, kBehind, kWrong };

  // Uses bytes up to the comma or bracket that ends the item; whether that is there.
  bool PassItem(std::string_view& bytes);
  void Keep(std::string_view text);

  std::size_t item_bytes_max_;
  Place place_ = Place::kBefore;
  std::string item_;
  bool too_long_ = false;
  bool item_ended_ = false;  // item_ was handed out
  bool alone_ = false;       // an object, no list
  bool in_text_ = false;
  bool escaped_ = false;
  std::size_t depth_ = 0;
};

}  // namespace kvr::ingest

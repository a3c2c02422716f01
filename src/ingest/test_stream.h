// A RankStream with a sink that writes down what it is told, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/big_endian.h"
#include "ingest/message.h"
#include "ingest/rank_stream.h"
#include "wire/router_event.h"

namespace kvr::ingest {

// Writes down what it is told to do. A payload that starts with '!' is undecodable.
class RecordingSink : public StreamSink {
 public:
  Outcome Apply(std::uint64_t sequence, std::span<const std::byte> payload) override {
    const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
    if (text.starts_with('!')) {
      actions.push_back(fmt::format("bad {}", sequence));
      return Outcome::kUndecodable;
    }
    actions.push_back(fmt::format("apply {}", sequence));
    if (const auto ids = wire::ReadEnvelopeIds(payload)) {
      actions.back() += fmt::format(" of {}", ids->publisher_id);
    } else if (text != fmt::format("p{}", sequence)) {
      actions.back() += ":" + text;
    }
    return Outcome::kApplied;
  }
  void Clear() override { actions.emplace_back("clear"); }
  void NoteLoss() override { ++losses; }
  void StartReplay(std::uint64_t from) override { actions.push_back(fmt::format("ask {}", from)); }
  void StopReplay() override {}
  void StartSnapshot() override { actions.emplace_back("ask snapshot"); }
  void AskState() override { actions.emplace_back("ask state"); }
  bool BeginSnapshot(std::uint64_t blocks) override {
    gathered_blocks = blocks;
    actions.push_back(fmt::format("begin {}", blocks));
    return blocks <= room;
  }
  // A piece that starts with '!' is undecodable, with '?' foreign, with '+' too large.
  Piece AddPiece(std::span<const std::byte> events) override {
    const std::string text(reinterpret_cast<const char*>(events.data()), events.size());
    actions.push_back("piece " + text);
    if (text.starts_with('!')) return Piece::kUndecodable;
    if (text.starts_with('?')) return Piece::kForeign;
    return text.starts_with('+') ? Piece::kNoRoom : Piece::kTaken;
  }
  [[nodiscard]] std::uint64_t gathered() const override { return gathered_blocks; }
  void Swap(std::uint64_t /*last_event*/) override { actions.emplace_back("swap"); }
  bool Empties(std::span<const std::byte> payload) override {
    const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
    return text.find("clear") != std::string_view::npos;
  }
  void SetState(RankState now, StateReason why, std::string_view text) override {
    state = now;
    reason = why;
    detail = text;
  }

  std::uint64_t room = 1'000;         // blocks of a snapshot
  std::uint64_t gathered_blocks = 0;  // those the last snapshot began with, or what a test says
  std::vector<std::string> actions;
  int losses = 0;  // with the blocks kept
  RankState state = RankState::kBlind;
  StateReason reason = StateReason::kNone;
  std::string detail;
};

class Stream {
 public:
  // Looks that only time brings are far apart, but for those a test is about.
  static RankStream::Options Patient() {
    RankStream::Options options;
    options.quiet_after = Millis{0};
    options.state_interval = options.heal_interval;
    return options;
  }
  explicit Stream(bool has_replay, RankStream::Options options = Patient())
      : Stream(has_replay ? Backlog::kReplay : Backlog::kNone, options) {}
  explicit Stream(Backlog backlog, RankStream::Options options = Patient())
      : stream_(options, backlog, sink_) {}

  // With nothing left unread.
  void Connect() {
    ConnectBehind();
    stream_.OnDrained();
  }
  // What is read next had come before.
  void ConnectBehind() { stream_.OnLink(net::LinkEvent::kConnected, now_); }
  void Drain() { stream_.OnDrained(); }
  void Refuse() { stream_.OnLink(net::LinkEvent::kRefused, now_); }
  void Disconnect() { stream_.OnLink(net::LinkEvent::kDisconnected, now_); }
  void Live(std::uint64_t sequence) { Live(sequence, fmt::format("p{}", sequence)); }
  void Live(std::uint64_t sequence, std::string_view payload) {
    LiveFrames({"", Number(sequence), std::string(payload)});
  }
  void LiveRange(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i <= last; ++i)
      Live(i);
  }
  void LiveFrames(const std::vector<std::string>& frames) {
    Fill(frames);
    stream_.OnLive(frames_, now_);
  }
  void Answer(std::uint64_t sequence) { Answer(sequence, fmt::format("p{}", sequence)); }
  void Answer(std::uint64_t sequence, std::string_view payload) {
    AnswerFrames({"", "topic", Number(sequence), std::string(payload)});
  }
  void AnswerRange(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i <= last; ++i)
      Answer(i);
  }
  void AnswerFrames(const std::vector<std::string>& frames) {
    Fill(frames);
    stream_.OnReplay(frames_, now_);
  }
  void End() { AnswerFrames({"", "", Number(kEndSequence), ""}); }
  void Pass(Millis time) {
    const Nanos until = now_ + time;
    while (const auto due = stream_.deadline()) {
      if (*due > until) break;
      now_ = std::max(now_, *due);
      stream_.OnTick(now_);
    }
    now_ = until;
  }
  // Connected, with messages 0..last known and nothing left to do.
  void Start(std::uint64_t last) {
    Connect();
    if (has_replay()) {
      AnswerRange(0, last);
      End();
      Pass(Millis{1'000});
      End();
      Live(last);  // a copy, which proves the replay
    } else {
      LiveRange(0, last);
    }
    EXPECT_EQ(State(), "exact none");
    sink_.actions.clear();
  }
  // What the snapshot under way came to so far.
  void Gathered(std::uint64_t blocks) { sink_.gathered_blocks = blocks; }
  [[nodiscard]] bool has_replay() const { return !sink_.actions.empty(); }

  std::vector<std::string> Take() { return std::exchange(sink_.actions, {}); }
  std::string State() const {
    return fmt::format("{} {}", RankStateName(sink_.state), StateReasonName(sink_.reason));
  }
  std::string_view detail() const { return sink_.detail; }
  int losses() const { return sink_.losses; }
  const StreamStats& stats() const { return stream_.stats(); }
  RankStream& stream() { return stream_; }

  std::uint64_t& room() { return sink_.room; }

  static std::string Number(std::uint64_t sequence) {
    const auto bytes = BigEndian(sequence);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  void Fill(const std::vector<std::string>& frames) {
    frames_.Clear();
    for (const std::string& frame : frames) {
      const auto bytes = std::as_bytes(std::span(frame));
      frames_.Add().assign(bytes.begin(), bytes.end());
    }
  }

  RecordingSink sink_;
  net::Frames frames_;
  Nanos now_{Millis{1'000}};
  RankStream stream_;
};

}  // namespace kvr::ingest
